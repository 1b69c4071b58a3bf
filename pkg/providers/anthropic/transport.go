package anthropic

import (
	"net/http"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

const maxHead = 16 << 10 // bytes of an answer read to explain a failure

// bounded lets no answer be longer than httpapi.MaxAnswer.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &httpapi.Body{ReadCloser: resp.Body, Left: httpapi.MaxAnswer}
	return resp, nil
}
