package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// failure is a failed attempt.
type failure struct {
	httpapi.Failure

	param string // the field of the request that the server complains about, if it says
}

// complaint is an error body, whichever server wrote it.
type complaint struct {
	code, typ, param, message string
	status                    int // a status within the body, 0 if none
}

// explain turns a failed attempt into a typed error. ctx is the attempt's. err
// is nil when the answer held no choice.
func (p *Provider) explain(ctx context.Context, err error, seen *observation) *failure {
	apiErr, isAPI := errors.AsType[*sdk.APIError](err)
	reqErr, isRequest := errors.AsType[*sdk.RequestError](err)
	told, isTold := errors.AsType[*midwayError](err)
	switch {
	case !seen.sent && err != nil && ctx.Err() == nil:
		return p.fail(providers.KindInvalidRequest, 0, err.Error(), false)
	case isRequest: // looked at first, because it may hold an empty APIError
		return p.refused(seen, readComplaint(reqErr.Body))
	case isAPI:
		c := complaint{code: codeText(apiErr.Code), typ: apiErr.Type, message: apiErr.Message}
		if apiErr.Param != nil {
			c.param = *apiErr.Param
		}
		return p.refused(seen, c)
	case isTold:
		return p.toldMidway(seen, told)
	case errors.Is(context.Cause(ctx), errSilent):
		return p.fail(providers.KindTimeout, 0, fmt.Sprintf("no answer within %s", p.api.AttemptTimeout), true)
	case err == nil:
		return p.empty(seen)
	case seen.status == 0:
		return &failure{Failure: p.api.Unreachable(err)}
	}
	return p.garbled(seen, err)
}

// fail makes a failure as httpapi does.
func (p *Provider) fail(kind providers.ErrorKind, status int, message string, retry bool) *failure {
	return &failure{Failure: p.api.Fail(kind, status, message, retry)}
}

// refused is an answer with an error status.
func (p *Provider) refused(seen *observation, c complaint) *failure {
	kind, retry := classify(seen.status, c)
	if c.message == "" {
		c.message = http.StatusText(seen.status)
	}
	f := p.fail(kind, seen.status, c.message, retry && !seen.noRetry)
	f.RetryAfter, f.param = seen.retryAfter, c.param
	return f
}

// toldMidway is a failure told in the middle of a stream.
func (p *Provider) toldMidway(seen *observation, told *midwayError) *failure {
	c := readComplaint(told.raw)
	if c.message == "" {
		c.message = told.Error()
	}
	seen.status = cmp.Or(c.status, http.StatusBadGateway)
	return p.refused(seen, c)
}

// empty is an answer without a choice, or one that says it failed. Some routers
// report a failure of the service behind them this way, with status 200.
func (p *Provider) empty(seen *observation) *failure {
	c := readComplaint(seen.head())
	if c.status == 0 || c.message == "" {
		return p.fail(providers.KindOverloaded, seen.status, "the answer holds no message", true)
	}
	seen.status = c.status
	return p.refused(seen, c)
}

// garbled is an answer that broke off or is not the API's.
func (p *Provider) garbled(seen *observation, err error) *failure {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, wrongType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case seen.location != "":
		host := "another address"
		if u, perr := url.Parse(seen.location); perr == nil && u.Host != "" {
			host = u.Scheme + "://" + u.Host
		}
		return p.fail(providers.KindUnreachable, seen.status, "the server redirects to "+host+": put the final address into base_url", false)
	case errors.Is(err, httpapi.ErrTooLarge), errors.Is(err, errTooManyCalls):
		return p.fail(providers.KindInvalidRequest, seen.status, err.Error(), false)
	case syntax, wrongType:
		return p.fail(providers.KindUnreachable, seen.status,
			"the answer is not one of the chat completions API; check base_url, it usually ends in /v1: "+err.Error(), false)
	}
	if errors.Is(err, io.EOF) {
		return p.fail(providers.KindUnreachable, seen.status, "the answer is empty", true)
	}
	return &failure{Failure: p.api.BrokeOff(seen.status, err)}
}

// classify decides what a refusal means and whether to try again.
func classify(status int, c complaint) (kind providers.ErrorKind, retry bool) {
	kind, retry = httpapi.Classify(status)
	switch {
	case c.code == "insufficient_quota", c.typ == "insufficient_quota", strings.HasPrefix(c.code, "billing_"):
		return providers.KindBilling, false
	case kind == providers.KindBilling, kind == providers.KindAuth:
	case c.code == "invalid_api_key":
		return providers.KindAuth, false
	case kind == providers.KindContextOverflow, overflows(c):
		return providers.KindContextOverflow, false
	case c.code == "rate_limit_exceeded":
		return providers.KindRateLimit, true
	}
	return kind, retry
}

// overflows reports whether a refusal means that the conversation is too long.
// A code is the API's word; servers without one are known by their sentences.
// "max_tokens" alone is none of them: it is also what a too large option says.
func overflows(c complaint) bool {
	switch c.code {
	case "context_length_exceeded", "exceed_context_size_error", "request_too_large":
		return true
	}
	switch c.typ {
	case "exceed_context_size_error", "context_length_exceeded", "request_too_large":
		return true
	}
	m := strings.ToLower(c.message)
	for _, s := range []string{
		"maximum context length",           // OpenAI, vLLM, OpenRouter, DeepSeek
		"exceeds the available context",    // llama.cpp
		"exceeds the context length",       // Ollama
		"exceed context limit",             // Anthropic behind a router
		"context window",                   // several
		"with context length of only",      // LM Studio
		"prompt is too long",               // Anthropic behind a router
		"maximum prompt length",            // xAI
		"reduce the length of the message", // Groq
		"input token count",                // Gemini
		"too large for model with",         // Mistral
	} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

// readComplaint reads the error bodies the SDK does not know: an error that is
// a string (Ollama), one without an envelope (vLLM), or FastAPI's detail.
func readComplaint(raw []byte) complaint {
	var flat struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    any             `json:"code"`
		Detail  any             `json:"detail"`
	}
	if json.Unmarshal(raw, &flat) != nil {
		return complaint{message: string(raw)}
	}
	c := complaint{code: codeText(flat.Code), typ: flat.Type, message: flat.Message, status: codeStatus(flat.Code)}
	var text string
	var inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"`
	}
	switch {
	case json.Unmarshal(flat.Error, &text) == nil && text != "":
		c.message = text
	case json.Unmarshal(flat.Error, &inner) == nil && inner.Message != "":
		c = complaint{code: codeText(inner.Code), typ: inner.Type, message: inner.Message, status: codeStatus(inner.Code)}
		if c.status == 0 {
			c.status = http.StatusBadGateway
			if c.typ == "invalid_request_error" {
				c.status = http.StatusBadRequest
			}
		}
	case c.message == "" && flat.Detail != nil:
		c.message = fmt.Sprint(flat.Detail)
	}
	return c
}

func codeText(code any) string {
	if s, ok := code.(string); ok {
		return s
	}
	return ""
}

func codeStatus(code any) int {
	if f, ok := code.(float64); ok && f >= 400 && f < 600 {
		return int(f)
	}
	return 0
}
