package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// failure is a failed attempt, and what may help.
type failure struct {
	httpapi.Failure

	thoughts bool // the same without thoughts may succeed
}

// complaint is an error body.
type complaint struct{ typ, message string }

// explain turns a request that got no answer, or an error status, into a typed
// error. ctx is the attempt's. Of an answer the SDK has read the body and put it
// back; its own error is only of use where that is JSON.
func (p *Provider) explain(ctx context.Context, resp *http.Response, err error) *failure {
	if f := p.silent(ctx, 0); f != nil {
		return f
	}
	if resp != nil && resp.StatusCode >= http.StatusBadRequest && !errors.Is(err, httpapi.ErrTooLarge) {
		head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead)) // the status says enough without
		return p.refused(resp, readComplaint(head))
	}
	if errors.Is(err, httpapi.ErrTooLarge) {
		return p.fail(providers.KindInvalidRequest, 0, err.Error(), false)
	}
	return &failure{Failure: p.api.Unreachable(err)}
}

// silent is an attempt that was given up because nothing came any more.
func (p *Provider) silent(ctx context.Context, status int) *failure {
	if !errors.Is(context.Cause(ctx), errSilent) {
		return nil
	}
	return p.fail(providers.KindTimeout, status, fmt.Sprintf("no answer within %s", p.api.AttemptTimeout), true)
}

// fail makes a failure as httpapi does.
func (p *Provider) fail(kind providers.ErrorKind, status int, message string, retry bool) *failure {
	return &failure{Failure: p.api.Fail(kind, status, message, retry)}
}

// refused is an answer that is an error, by its status or within a stream.
func (p *Provider) refused(resp *http.Response, c complaint) *failure {
	status := resp.StatusCode
	if status == http.StatusOK {
		status = statusOf(c.typ)
	}
	kind, retry := classify(status, c)
	if c.message == "" {
		c.message = http.StatusText(status)
	}
	f := p.fail(kind, status, c.message, retry && resp.Header.Get("X-Should-Retry") != "false")
	f.RetryAfter = httpapi.RetryAfter(resp.Header, time.Now())
	m := strings.ToLower(c.message)
	f.thoughts = kind == providers.KindInvalidRequest && (strings.Contains(m, "signature") || strings.Contains(m, "thinking"))
	return f
}

// strange is an answer with a good status that is no stream of events.
func (p *Provider) strange(ctx context.Context, resp *http.Response) *failure {
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxHead))
	if f := p.silent(ctx, resp.StatusCode); f != nil {
		return f
	}
	if loc, lerr := resp.Location(); lerr == nil {
		return p.fail(providers.KindUnreachable, resp.StatusCode, "the server redirects to "+loc.Scheme+"://"+loc.Host+": put the final address into base_url", false)
	}
	switch c := readComplaint(head); {
	case c.typ != "":
		return p.refused(resp, c)
	case err == nil && len(head) > 0:
		return p.fail(providers.KindUnreachable, resp.StatusCode, "the answer is not one of the Messages API, check base_url: "+c.message, false)
	case err == nil:
		return p.fail(providers.KindUnreachable, resp.StatusCode, "the answer is empty", true)
	}
	return p.broken(ctx, resp, err)
}

// broken is a stream that ended too early or cannot be read.
func (p *Provider) broken(ctx context.Context, resp *http.Response, err error) *failure {
	if f := p.silent(ctx, resp.StatusCode); f != nil {
		return f
	}
	switch {
	case err == nil:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, httpapi.ErrTooLarge):
		return p.fail(providers.KindInvalidRequest, resp.StatusCode, err.Error(), false)
	}
	return &failure{Failure: p.api.BrokeOff(resp.StatusCode, err)}
}

// statusOf is the status that goes with an error's type, which is all that an
// error within a stream has.
func statusOf(typ string) int {
	switch typ {
	case "invalid_request_error":
		return http.StatusBadRequest
	case "authentication_error":
		return http.StatusUnauthorized
	case "billing_error":
		return http.StatusPaymentRequired
	case "permission_error":
		return http.StatusForbidden
	case "not_found_error":
		return http.StatusNotFound
	case "request_too_large":
		return http.StatusRequestEntityTooLarge
	case "rate_limit_error":
		return http.StatusTooManyRequests
	case "timeout_error":
		return http.StatusGatewayTimeout
	case "overloaded_error":
		return statusOverloaded
	}
	return http.StatusInternalServerError
}

const statusOverloaded = 529

// classify decides what a refusal means and whether to try again.
func classify(status int, c complaint) (kind providers.ErrorKind, retry bool) {
	switch {
	case c.typ == "billing_error", strings.Contains(c.message, "credit balance is too low"):
		return providers.KindBilling, false
	case status == http.StatusBadRequest && overflows(c.message):
		return providers.KindContextOverflow, false
	}
	return httpapi.Classify(status)
}

// overflows reports whether a refusal means that the conversation is too long;
// the API has no type of its own for it.
func overflows(message string) bool {
	for _, s := range []string{"prompt is too long", "exceed context limit", "exceeds the context window", "maximum context length"} {
		if strings.Contains(message, s) {
			return true
		}
	}
	return false
}

func readComplaint(raw []byte) complaint {
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return complaint{message: string(raw)}
	}
	return complaint{typ: body.Error.Type, message: body.Error.Message}
}
