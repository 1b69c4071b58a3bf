package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// Check implements providers.Checker: it asks for the list of models, which
// nearly every server of this API has and none charges for. A refused key is
// KindAuth; a server without the list, or whose list lacks Config.Model, is
// KindInvalidRequest; one that fails, or is none of this API, is what it is in
// Chat. Any other answer counts as working, a refusal of this list included.
func (p *Provider) Check(ctx context.Context) error {
	address := p.api.BaseURL + "/models"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("openai: check: %w", err)
	}
	if p.api.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.api.Key)
	}
	resp, err := p.api.Transport.RoundTrip(req)
	if err != nil {
		return p.api.Unreachable(err).Error
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxList))
	if resp.StatusCode == http.StatusUnauthorized { // 403 may mean that only this list is closed to the key
		return p.fail(providers.KindAuth, resp.StatusCode, readComplaint(body).message, false).Error
	}
	if resp.StatusCode == http.StatusNotFound {
		return &providers.Error{
			Kind: providers.KindInvalidRequest, Status: resp.StatusCode,
			Message: "there is no list of models at " + address + "; if it does not answer, check base_url, which usually ends in /v1",
		}
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		seen := &observation{status: resp.StatusCode, retryAfter: httpapi.RetryAfter(resp.Header, time.Now())}
		return p.refused(seen, readComplaint(body)).Error
	}
	if resp.StatusCode < http.StatusBadRequest && !json.Valid(body) {
		seen := &observation{status: resp.StatusCode, location: resp.Header.Get("Location")}
		return p.garbled(seen, &json.SyntaxError{}).Error
	}
	if resp.StatusCode == http.StatusOK && lacks(body, p.api.Model) {
		return &providers.Error{
			Kind: providers.KindInvalidRequest, Status: resp.StatusCode,
			Message: fmt.Sprintf("the server's list of models has no %q", p.api.Model),
		}
	}
	return nil
}

// maxList bounds a list of models; the longest known has less than half of it.
const maxList = 4 << 20

// lacks reports whether body is a list of models without this one. What stands
// behind a colon is a variant, which few lists tell apart.
func lacks(body []byte, model string) bool {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if model == "" || json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return false
	}
	base, _, _ := strings.Cut(model, ":")
	for _, m := range list.Data {
		if id, _, _ := strings.Cut(m.ID, ":"); id == base {
			return false
		}
	}
	return true
}
