package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func hello() []providers.Message {
	return []providers.Message{{Role: providers.RoleUser, Content: "hello"}}
}

func failed(t *testing.T, p providers.LLMProvider) *providers.Error {
	t.Helper()
	resp, err := p.Chat(t.Context(), hello(), nil, "m", nil)
	e, ok := errors.AsType[*providers.Error](err)
	if !ok {
		t.Fatalf("Chat gave %+v, %v, want a *providers.Error", resp, err)
	}
	return e
}

// What servers really write, and what it means.
func TestKinds(t *testing.T) {
	cases := map[string]struct {
		status  int
		body    string
		want    providers.ErrorKind
		words   string
		attempt int // how often it is tried
	}{
		"openai context":       {400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, providers.KindContextOverflow, "8192", 1},
		"vllm context":         {400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}`, providers.KindContextOverflow, "4096", 1},
		"llama.cpp context":    {400, `{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}`, providers.KindContextOverflow, "context size", 1},
		"lm studio context":    {400, `{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}`, providers.KindContextOverflow, "4096", 1},
		"ollama context":       {400, `{"error":{"message":"the input length exceeds the context length","type":"api_error","param":null,"code":null}}`, providers.KindContextOverflow, "input length", 1},
		"router context":       {400, `{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum","code":400},"user_id":"u"}`, providers.KindContextOverflow, "210000", 1},
		"groq too large":       {413, `{"error":{"message":"Request too large for model","type":"tokens","code":"rate_limit_exceeded"}}`, providers.KindContextOverflow, "too large", 1},
		"body too large":       {413, `<html>413 Request Entity Too Large</html>`, providers.KindContextOverflow, "413", 1},
		"max_tokens too large": {400, `{"error":{"message":"max_tokens is too large: 999999. This model supports at most 16384 completion tokens","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}`, providers.KindInvalidRequest, "max_tokens", 1},
		"quota":                {429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, providers.KindBilling, "quota", 1},
		"balance":              {402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, providers.KindBilling, "Balance", 1},
		"not active":           {429, `{"error":{"message":"Your account is not active","type":"billing_not_active","param":null,"code":"billing_not_active"}}`, providers.KindBilling, "active", 1},
		"rate limit":           {429, `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, providers.KindRateLimit, "Rate limit", 4},
		"bare 429":             {429, ``, providers.KindRateLimit, "Too Many", 4},
		"wrong key":            {401, `{"error":{"message":"Incorrect API key provided: ` + providerstest.Secret + `.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, providers.KindAuth, "***", 1},
		"no right":             {403, `{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","param":null,"code":"unsupported_country_region_territory"}}`, providers.KindAuth, "Country", 1},
		"unknown model":        {404, `{"error":{"message":"The model 'x' does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, providers.KindInvalidRequest, "does not exist", 1},
		"ollama unknown model": {404, `{"error":"model 'x' not found, try pulling it first"}`, providers.KindInvalidRequest, "try pulling", 1},
		"fastapi not found":    {404, `{"detail":"Not Found"}`, providers.KindInvalidRequest, "Not Found", 1},
		"page not found":       {404, "404 page not found\n", providers.KindInvalidRequest, "page not found", 1},
		"timeout":              {408, `{"error":{"message":"took too long","type":"timeout"}}`, providers.KindTimeout, "took", 4},
		"gateway timeout":      {504, `<html><title>504 Gateway Time-out</title></html>`, providers.KindTimeout, "504", 4},
		"cloudflare timeout":   {524, `error code: 524`, providers.KindTimeout, "524", 4},
		"conflict":             {409, `{"error":{"message":"busy","type":"conflict"}}`, providers.KindOverloaded, "busy", 4},
		"too early":            {425, `{}`, providers.KindOverloaded, "Too Early", 4},
		"server error":         {500, `{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`, providers.KindOverloaded, "had an error", 4},
		"bad gateway":          {502, `<html>bad gateway</html>`, providers.KindOverloaded, "bad gateway", 4},
		"overloaded 529":       {529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, providers.KindOverloaded, "Overloaded", 4},
		"not implemented":      {501, `{}`, providers.KindUnreachable, "Not Implemented", 1},
		"teapot":               {418, ``, providers.KindInvalidRequest, "teapot", 1},
		"error in a 200":       {200, `{"error":{"message":"Provider returned error","code":502}}`, providers.KindOverloaded, "Provider returned", 4},
		"limit in a 200":       {200, `{"error":{"message":"Rate limited upstream","code":429}}`, providers.KindRateLimit, "upstream", 4},
		"no choices":           {200, `{"id":"x","choices":[]}`, providers.KindOverloaded, "no message", 4},
		"web page":             {200, `<html>welcome</html>`, providers.KindUnreachable, "base_url", 1},
		"other JSON":           {200, `[1,2]`, providers.KindUnreachable, "base_url", 1},
		"empty answer":         {200, ``, providers.KindUnreachable, "empty", 4},
		"half an answer":       {200, `{"id":"x","choices":[{"ind`, providers.KindUnreachable, "broke off", 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				e := failed(t, open(t, func(providerstest.Request) providerstest.Response {
					attempts++
					return providerstest.Response{Status: c.status, Body: c.body}
				}))
				if e.Kind != c.want || !strings.Contains(e.Message, c.words) || strings.Contains(e.Error(), providerstest.Secret) {
					t.Errorf("got %s: %q, want %s with %q", e.Kind, e.Message, c.want, c.words)
				}
				if e.Status != c.status && c.status != http.StatusOK {
					t.Errorf("status %d, want %d", e.Status, c.status)
				}
				if attempts != c.attempt {
					t.Errorf("tried %d times, want %d", attempts, c.attempt)
				}
			})
		})
	}
}

func TestRetryAfterForms(t *testing.T) {
	cases := map[string]struct {
		header   http.Header
		min, max time.Duration
	}{
		"seconds":            {http.Header{"Retry-After": {"7"}}, 7 * time.Second, 7700 * time.Millisecond},
		"fraction":           {http.Header{"Retry-After": {"2.5"}}, 2500 * time.Millisecond, 2750 * time.Millisecond},
		"milliseconds first": {http.Header{"Retry-After": {"60"}, "Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond, 1650 * time.Millisecond},
		"date":               {http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:00:09 GMT"}}, 9 * time.Second, 9900 * time.Millisecond},
		"by the server's clock": {
			http.Header{"Retry-After": {"Wed, 25 Nov 2026 10:00:09 GMT"}, "Date": {"Wed, 25 Nov 2026 10:00:00 GMT"}},
			9 * time.Second, 9900 * time.Millisecond,
		},
		"date in the past": {http.Header{"Retry-After": {"Sat, 01 Jan 1999 00:00:00 GMT"}}, 250 * time.Millisecond, 750 * time.Millisecond},
		"negative":         {http.Header{"Retry-After": {"-5"}}, 250 * time.Millisecond, 750 * time.Millisecond},
		"nonsense":         {http.Header{"Retry-After": {"soon"}}, 250 * time.Millisecond, 750 * time.Millisecond},
		"none":             {nil, 250 * time.Millisecond, 750 * time.Millisecond},
		"at the cap":       {http.Header{"Retry-After": {"60"}}, time.Minute, 66 * time.Second},
	}
	for name, c := range cases {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			synctest.Test(t, func(t *testing.T) { // its clock starts at midnight, 2000-01-01
				p := open(t, providerstest.Sequence(providerstest.Response{Status: status, Body: `{}`, Header: c.header}, providerstest.Text("ok")))
				start := time.Now()
				if _, err := p.Chat(t.Context(), hello(), nil, "m", nil); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if waited := time.Since(start); waited < c.min || waited > c.max {
					t.Errorf("%s, %d: waited %s, want %s to %s", name, status, waited, c.min, c.max)
				}
			})
		}
	}
}

func TestRetryAfterBeyondTheCapFailsAtOnce(t *testing.T) {
	for value, want := range map[string]time.Duration{"61": 61 * time.Second, "1e300": 365 * 24 * time.Hour, "Sat, 01 Jan 2000 02:00:00 GMT": 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			e := failed(t, open(t, func(providerstest.Request) providerstest.Response {
				return providerstest.Response{Status: 429, Body: `{}`, Header: http.Header{"Retry-After": {value}}}
			}))
			if e.RetryAfter != want || e.Kind != providers.KindRateLimit || time.Since(start) != 0 {
				t.Errorf("%s gave %s, %s after %s, want %s at once", value, e.Kind, e.RetryAfter, time.Since(start), want)
			}
		})
	}
}

func TestBudgets(t *testing.T) {
	cases := map[string]struct {
		cfg      openai.Config
		reply    providerstest.Response
		attempts int
		min, max time.Duration
	}{
		"four attempts":        {openai.Config{}, providerstest.Fail(providers.KindOverloaded), 4, 1750 * time.Millisecond, 5250 * time.Millisecond},
		"one attempt":          {openai.Config{MaxAttempts: 1}, providerstest.Fail(providers.KindOverloaded), 1, 0, 0},
		"hangs":                {openai.Config{}, providerstest.Response{Hang: true}, 2, 4 * time.Minute, 4*time.Minute + time.Second},
		"hangs, short":         {openai.Config{AttemptTimeout: time.Second, MaxAttempts: 3}, providerstest.Response{Hang: true}, 3, 3750 * time.Millisecond, 5250 * time.Millisecond},
		"budget before count":  {openai.Config{MaxAttempts: 100, RetryBudget: 5 * time.Second}, providerstest.Fail(providers.KindOverloaded), 4, 500 * time.Millisecond, 5 * time.Second},
		"wait beyond budget":   {openai.Config{RetryBudget: 5 * time.Second}, providerstest.Response{Failure: providers.KindRateLimit, RetryAfter: 6 * time.Second}, 1, 0, 0},
		"told not to try":      {openai.Config{}, providerstest.Response{Failure: providers.KindRateLimit, Header: http.Header{"X-Should-Retry": {"false"}}}, 1, 0, 0},
		"half of it, then ...": {openai.Config{MaxAttempts: 2, AttemptTimeout: time.Second}, providerstest.Response{Content: "x", Cut: true}, 2, 250 * time.Millisecond, 750 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				start := time.Now()
				_ = failed(t, openWith(t, func(providerstest.Request) providerstest.Response { attempts++; return c.reply }, c.cfg))
				spent := time.Since(start)
				if spent < c.min || spent > c.max {
					t.Errorf("gave up after %s, want %s to %s", spent, c.min, c.max)
				}
				if attempts != c.attempts && name != "budget before count" || attempts < 2 && c.attempts > 1 {
					t.Errorf("tried %d times, want %d", attempts, c.attempts)
				}
			})
		})
	}
}

// A pause that would outlast ctx is not begun: the reason is worth more than
// the end of ctx.
func TestPauseThatOutlastsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, func(providerstest.Request) providerstest.Response {
			return providerstest.Response{Failure: providers.KindRateLimit, RetryAfter: 30 * time.Second}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.Chat(ctx, hello(), nil, "m", nil)
		if providers.KindOf(err) != providers.KindRateLimit || time.Since(start) != 0 {
			t.Errorf("got %v after %s, want the rate limit at once", err, time.Since(start))
		}
	})
}

func TestCauseOfTheContextIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, func(providerstest.Request) providerstest.Response { return providerstest.Response{Hang: true} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Chat(ctx, hello(), nil, "m", nil); !errors.Is(err, context.DeadlineExceeded) || providers.KindOf(err) != "" {
			t.Errorf("got %v, want the context's own error", err)
		}
	})
}
