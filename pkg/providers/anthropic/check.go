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
	address := p.api.BaseURL + "/v1/models"
	if p.api.Model != "" {
		address += "/" + url.PathEscape(p.api.Model)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("anthropic: check: %w", err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if p.api.Key != "" {
		req.Header.Set("X-Api-Key", p.api.Key)
	}
	resp, err := p.api.Transport.RoundTrip(req)
	if err != nil {
		return p.api.Unreachable(err).Error
	}
	defer resp.Body.Close()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
	c := readComplaint(head)
	switch {
	case resp.StatusCode == http.StatusUnauthorized: // 403 may mean that only this list is closed to the key
		return p.fail(providers.KindAuth, resp.StatusCode, c.message, false).Error
	case resp.StatusCode == http.StatusNotFound && c.typ == "not_found_error" && p.api.Model != "":
		return &providers.Error{
			Kind: providers.KindInvalidRequest, Status: resp.StatusCode,
			Message: fmt.Sprintf("the service has no model %q", p.api.Model),
		}
	}
	return nil
}
