package openai

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Check implements providers.Checker: it asks for the list of models, which
// nearly every server of this API has and none charges for. A refused key is
// KindAuth, a server without the list KindInvalidRequest; any other answer
// counts as working.
func (p *Provider) Check(ctx context.Context) error {
	base, err := baseURL(p.cfg.BaseURL)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/models", http.NoBody)
	if err != nil {
		return fmt.Errorf("openai: check: %w", err)
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return &providers.Error{Kind: providers.KindUnreachable, Message: p.clean(withoutURL(err).Error()), Err: p.cause(err)}
	}
	defer resp.Body.Close()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode == http.StatusUnauthorized { // 403 may mean that only this list is closed to the key
		return &providers.Error{Kind: providers.KindAuth, Status: resp.StatusCode, Message: p.clean(readComplaint(head).message)}
	}
	if resp.StatusCode == http.StatusNotFound {
		return &providers.Error{
			Kind: providers.KindInvalidRequest, Status: resp.StatusCode,
			Message: "there is no list of models at " + base + "/models; if it does not answer, check base_url, which usually ends in /v1",
		}
	}
	return nil
}
