package anthropic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Check implements providers.Checker: it asks for the model of Config.Model, or
// for the list of models, which costs nothing. A refused key is KindAuth, an
// unknown model KindInvalidRequest; any other answer counts as working, since
// compatible services often have no such list.
func (p *Provider) Check(ctx context.Context) error {
	address := p.base + "/v1/models"
	if p.cfg.Model != "" {
		address += "/" + url.PathEscape(p.cfg.Model)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("anthropic: check: %w", err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if p.key != "" {
		req.Header.Set("X-Api-Key", p.key)
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		err = withoutURL(err)
		return &providers.Error{Kind: providers.KindUnreachable, Message: p.clean(err.Error()), Err: p.cause(err)}
	}
	defer resp.Body.Close()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
	c := readComplaint(head)
	switch {
	case resp.StatusCode == http.StatusUnauthorized: // 403 may mean that only this list is closed to the key
		return &providers.Error{Kind: providers.KindAuth, Status: resp.StatusCode, Message: p.clean(c.message)}
	case resp.StatusCode == http.StatusNotFound && c.typ == "not_found_error" && p.cfg.Model != "":
		return &providers.Error{
			Kind: providers.KindInvalidRequest, Status: resp.StatusCode,
			Message: fmt.Sprintf("the service has no model %q", p.cfg.Model),
		}
	}
	return nil
}
