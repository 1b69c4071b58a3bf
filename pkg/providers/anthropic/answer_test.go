package anthropic_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic/anthropictest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func failed(t *testing.T, p providers.LLMProvider) *providers.Error {
	t.Helper()
	resp, err := p.Chat(t.Context(), hello(), nil, "m", nil)
	e, ok := errors.AsType[*providers.Error](err)
	if !ok {
		t.Fatalf("Chat gave %+v, %v, want a *providers.Error", resp, err)
	}
	return e
}

const (
	start   = `{"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":200,"output_tokens":1}}}`
	textIn  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	hi      = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`
	stop    = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":40,"output_tokens_details":{"thinking_tokens":25}}}`
	whole   = `{"type":"message_stop"}`
	tooBusy = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
)

// What the API and what stands before it really write, and what it means.
func TestKinds(t *testing.T) {
	body := func(typ, message string) string {
		return `{"type":"error","error":{"type":"` + typ + `","message":"` + message + `"},"request_id":"r"}`
	}
	stream := anthropictest.Stream
	cases := map[string]struct {
		reply    providerstest.Response
		want     providers.ErrorKind
		words    string
		attempts int
	}{
		"too long":            {providerstest.Response{Status: 400, Body: body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")}, providers.KindContextOverflow, "210000", 1},
		"too long with reply": {providerstest.Response{Status: 400, Body: body("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000")}, providers.KindContextOverflow, "190000", 1},
		"too large":           {providerstest.Response{Status: 413, Body: body("request_too_large", "Request exceeds the maximum size")}, providers.KindContextOverflow, "maximum", 1},
		"no credit":           {providerstest.Response{Status: 400, Body: body("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")}, providers.KindBilling, "credit", 1},
		"billing":             {providerstest.Response{Status: 402, Body: body("billing_error", "Pay")}, providers.KindBilling, "Pay", 1},
		"wrong key":           {providerstest.Response{Status: 401, Body: body("authentication_error", "invalid x-api-key "+providerstest.Secret)}, providers.KindAuth, "***", 1},
		"no right":            {providerstest.Response{Status: 403, Body: body("permission_error", "Not for you")}, providers.KindAuth, "Not for", 1},
		"no model":            {providerstest.Response{Status: 404, Body: body("not_found_error", "model: x")}, providers.KindInvalidRequest, "model: x", 1},
		"bad request":         {providerstest.Response{Status: 400, Body: body("invalid_request_error", "max_tokens: too large")}, providers.KindInvalidRequest, "max_tokens", 1},
		"rate limit":          {providerstest.Response{Status: 429, Body: body("rate_limit_error", "Slowly")}, providers.KindRateLimit, "Slowly", 4},
		"told not to try":     {providerstest.Response{Status: 429, Body: body("rate_limit_error", "Slowly"), Header: http.Header{"X-Should-Retry": {"false"}}}, providers.KindRateLimit, "Slowly", 1},
		"server error":        {providerstest.Response{Status: 500, Body: body("api_error", "Internal server error")}, providers.KindOverloaded, "Internal", 4},
		"overloaded":          {providerstest.Response{Status: 529, Body: body("overloaded_error", "Overloaded")}, providers.KindOverloaded, "Overloaded", 4},
		"timeout":             {providerstest.Response{Status: 504, Body: body("timeout_error", "Request timed out")}, providers.KindTimeout, "timed out", 4},
		"gateway":             {providerstest.Response{Status: 502, Body: "<html>bad gateway</html>"}, providers.KindOverloaded, "bad gateway", 4},
		"no words":            {providerstest.Response{Status: 429}, providers.KindRateLimit, "Too Many", 4},
		"web page":            {providerstest.Response{Status: 200, Body: "<html>welcome</html>", Header: http.Header{"Content-Type": {"text/html"}}}, providers.KindUnreachable, "base_url", 1},
		"another API":         {providerstest.Response{Status: 200, Body: `{"choices":[]}`}, providers.KindUnreachable, "base_url", 1},
		"error in a 200":      {providerstest.Response{Status: 200, Body: body("overloaded_error", "Overloaded")}, providers.KindOverloaded, "Overloaded", 4},
		"empty answer":        {providerstest.Response{Status: 200}, providers.KindUnreachable, "empty", 4},
		"empty stream":        {stream(), providers.KindUnreachable, "broke off", 4},
		"error in a stream":   {stream(start, textIn, hi, tooBusy), providers.KindOverloaded, "Overloaded", 4},
		"limit in a stream":   {stream(start, `{"type":"error","error":{"type":"rate_limit_error","message":"Slowly"}}`), providers.KindRateLimit, "Slowly", 4},
		"no end":              {stream(start, textIn, hi, stop), providers.KindUnreachable, "broke off", 4},
		"broken event":        {stream(start, textIn, `{"type":"content_block_delta","ind`), providers.KindUnreachable, "cannot be read", 4},
		"block out of order":  {stream(start, strings.Replace(textIn, ":0", ":7", 1), whole), providers.KindUnreachable, "cannot be read", 4},
		"piece of no block":   {stream(start, hi, whole), providers.KindUnreachable, "cannot be read", 4},
		"piece of block -1":   {stream(start, strings.Replace(hi, ":0", ":-1", 1), whole), providers.KindUnreachable, "cannot be read", 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				e := failed(t, open(t, func(providerstest.Request) providerstest.Response { attempts++; return c.reply }))
				if e.Kind != c.want || !strings.Contains(e.Message, c.words) || strings.Contains(e.Error(), providerstest.Secret) {
					t.Errorf("got %s: %q, want %s with %q", e.Kind, e.Message, c.want, c.words)
				}
				if attempts != c.attempts {
					t.Errorf("tried %d times, want %d", attempts, c.attempts)
				}
			})
		})
	}
}

// TestShownIsNotBegunAnew: each way a stream can end too early, after a text was
// told.
func TestShownIsNotBegunAnew(t *testing.T) {
	for name, reply := range map[string]providerstest.Response{
		"error":     anthropictest.Stream(start, textIn, hi, tooBusy),
		"malformed": anthropictest.Stream(start, textIn, hi, `{"type":"content_block_delta","index":0,"delta":{"te`),
		"no end":    anthropictest.Stream(start, textIn, hi),
		"silence":   {Content: strings.Repeat("Hi", 50), Park: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			p, _ := openWith(t, func(providerstest.Request) providerstest.Response { n++; return reply }, anthropic.Config{AttemptTimeout: time.Second})
			var told string
			resp, err := p.ChatStream(t.Context(), hello(), nil, "m", nil, func(d providers.Delta) { told += d.Text })
			if _, ok := errors.AsType[*providers.Error](err); !ok || resp != nil || n != 1 || !strings.HasPrefix(told, "Hi") {
				t.Errorf("%s: got %+v, %v after %d attempts, told %q", name, resp, err, n, told)
			}
		})
	}
	// Thoughts are not for the person, so a reply that broke off in them is.
	synctest.Test(t, func(t *testing.T) {
		cut := anthropictest.Stream(start, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, tooBusy)
		p, s := openWith(t, providerstest.Sequence(cut, providerstest.Text("whole")), anthropic.Config{})
		resp, err := p.ChatStream(t.Context(), hello(), nil, "m", nil, func(providers.Delta) {})
		if err != nil || resp.Content != "whole" || len(s.Requests()) != 2 {
			t.Errorf("got %+v, %v after %d requests", resp, err, len(s.Requests()))
		}
	})
}

// A long answer may take longer than AttemptTimeout, as long as it comes.
func TestSilenceNotLengthEndsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := openWith(t, func(providerstest.Request) providerstest.Response {
			return providerstest.Response{Content: strings.Repeat("long ", 100), Pause: 900 * time.Millisecond}
		}, anthropic.Config{AttemptTimeout: time.Second})
		begun := time.Now()
		if resp, err := p.Chat(t.Context(), hello(), nil, "m", nil); err != nil || len(resp.Content) != 500 || time.Since(begun) < time.Minute {
			t.Errorf("after %s: %+v, %v", time.Since(begun), resp, err)
		}
	})
}

func TestAnswers(t *testing.T) {
	block := func(i string, fields string) string {
		return `{"type":"content_block_start","index":` + i + `,"content_block":{` + fields + `}}`
	}
	delta := func(i, fields string) string {
		return `{"type":"content_block_delta","index":` + i + `,"delta":{` + fields + `}}`
	}
	end := func(reason string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_details":{"explanation":"It would do harm."}},"usage":{"output_tokens":3}}`
	}
	cases := map[string]struct {
		events []string
		want   providers.LLMResponse
	}{
		"usage": {[]string{start, textIn, hi, stop}, providers.LLMResponse{Content: "Hi", FinishReason: providers.FinishStop, Usage: &providers.Usage{
			PromptTokens: 235, CompletionTokens: 40, TotalTokens: 275, CacheReadTokens: 200, CacheWriteTokens: 30, ReasoningTokens: 25,
		}}},
		"stop sequence":   {[]string{textIn, hi, end("stop_sequence")}, providers.LLMResponse{Content: "Hi", FinishReason: providers.FinishStop}},
		"window is full":  {[]string{textIn, hi, end("model_context_window_exceeded")}, providers.LLMResponse{Content: "Hi", FinishReason: providers.FinishLength}},
		"refusal":         {[]string{end("refusal")}, providers.LLMResponse{Content: "It would do harm.", FinishReason: providers.FinishRefusal}},
		"partial refusal": {[]string{textIn, hi, end("refusal")}, providers.LLMResponse{Content: "Hi", FinishReason: providers.FinishRefusal}},
		"new reason":      {[]string{textIn, hi, end("bored")}, providers.LLMResponse{Content: "Hi", FinishReason: "bored"}},
		"truncated call": {
			[]string{block("0", `"type":"tool_use","id":"c","name":"f","input":{}`), delta("0", `"type":"input_json_delta","partial_json":"{\"path\": \"a"`), end("max_tokens")},
			providers.LLMResponse{FinishReason: providers.FinishLength, ToolCalls: []providers.ToolCall{{
				ID: "c", Type: "function", Name: "f", Arguments: o{}, Function: &providers.FunctionCall{Name: "f", Arguments: `{"path": "a`},
			}}},
		},
		"big number, input at once": {
			[]string{block("0", `"type":"tool_use","id":"c","name":"f","input":{"n":12345678901234567890}`), end("tool_use")},
			providers.LLMResponse{FinishReason: providers.FinishToolCalls, ToolCalls: []providers.ToolCall{{
				ID: "c", Type: "function", Name: "f", Arguments: o{"n": 12345678901234567890.0}, Function: &providers.FunctionCall{Name: "f", Arguments: `{"n":12345678901234567890}`},
			}}},
		},
		"pause, with the service's own tools": {
			[]string{
				textIn, hi, block("1", `"type":"server_tool_use","id":"srv","name":"web_search","input":{}`), delta("1", `"type":"input_json_delta","partial_json":"{\"q\":"`), delta("1", `"type":"input_json_delta","partial_json":"1}"`),
				block("2", `"type":"redacted_thinking","data":"<x>"`), `{"type":"some_new_event","index":9}`, `{"type":"ping"}`, end("pause_turn"),
			},
			providers.LLMResponse{
				Content: "Hi", FinishReason: providers.FinishPause,
				Opaque: []byte(`{"anthropic":[{"text":"Hi","type":"text"},{"id":"srv","input":{"q":1},"name":"web_search","type":"server_tool_use"},{"data":"<x>","type":"redacted_thinking"}]}`),
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := open(t, func(providerstest.Request) providerstest.Response {
				return anthropictest.Stream(append(c.events, whole)...)
			}).Chat(t.Context(), hello(), nil, "m", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.want.Usage == nil {
				got.Usage = nil
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("got  %+v %s\nwant %+v %s", got, got.Opaque, c.want, c.want.Opaque)
			}
		})
	}
}

func dial(t *testing.T, cfg anthropic.Config) *anthropic.Provider {
	t.Helper()
	p, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestOnTheWire(t *testing.T) {
	fake := anthropictest.NewServer(providerstest.ServerConfig{Key: "sk-1", Models: []string{"m"}})
	var dialled atomic.Int32
	web := httptest.NewUnstartedServer(fake)
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dialled.Add(1)
		}
	}
	web.Start()
	defer web.Close()
	for _, base := range []string{web.URL, web.URL + "/v1/", web.URL + "/v1/messages"} {
		p := dial(t, anthropic.Config{BaseURL: base, APIKey: " sk-1\n"})
		before := dialled.Load()
		for range 10 {
			if _, err := p.Chat(t.Context(), hello(), nil, "m", nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := dialled.Load() - before; n != 1 {
			t.Errorf("ten calls one after another dialled %d times, want once", n)
		}
		if err := p.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
	}
	for model, kind := range map[string]providers.ErrorKind{"m": "", "n": providers.KindInvalidRequest} {
		if err := dial(t, anthropic.Config{BaseURL: web.URL, APIKey: "sk-1", Model: model}).Check(t.Context()); providers.KindOf(err) != kind {
			t.Errorf("check of %s: %v", model, err)
		}
	}
	err := dial(t, anthropic.Config{BaseURL: web.URL, APIKey: "sk-wrong-key"}).Check(t.Context())
	if providers.KindOf(err) != providers.KindAuth || strings.Contains(err.Error(), "sk-wrong-key") {
		t.Errorf("check with a wrong key: %v", err)
	}
	web.Close()
	if err := dial(t, anthropic.Config{BaseURL: web.URL}).Check(t.Context()); providers.KindOf(err) != providers.KindUnreachable {
		t.Errorf("check of nobody: %v", err)
	}
}

func TestFailuresOfTheNetwork(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	strange := httptest.NewUnstartedServer(anthropictest.NewServer(providerstest.ServerConfig{}))
	strange.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	strange.StartTLS()
	defer strange.Close()
	redirect := httptest.NewServer(http.RedirectHandler("https://elsewhere.example/v1/messages", http.StatusMovedPermanently))
	defer redirect.Close()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		piece := []byte(anthropictest.Events(`{"type":"ping","x":"` + strings.Repeat("x", 1<<20) + `"}`))
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	for name, c := range map[string]struct {
		base  string
		want  providers.ErrorKind
		words string
	}{
		"nobody listens":    {"http://user:s3cret-pw@" + closed.Addr().String(), providers.KindUnreachable, "refused"},
		"unknown authority": {strange.URL, providers.KindUnreachable, "certificate"},
		"redirect":          {redirect.URL, providers.KindUnreachable, "https://elsewhere.example"},
		"endless":           {endless.URL, providers.KindInvalidRequest, "8 MiB"},
	} {
		e := failed(t, dial(t, anthropic.Config{BaseURL: c.base, MaxAttempts: 1}))
		if e.Kind != c.want || !strings.Contains(e.Message, c.words) || strings.Contains(e.Error(), "s3cret-pw") {
			t.Errorf("%s: got %v, want %s with %q", name, e, c.want, c.words)
		}
	}
	for _, base := range []string{"localhost:1", "ftp://x", "http://user:s3cret-pw@bad host/v1", "https://x?key=s3cret-pw"} {
		_, err := anthropic.New(anthropic.Config{BaseURL: base})
		if err == nil || !strings.Contains(err.Error(), "base_url") || strings.Contains(err.Error(), "s3cret-pw") {
			t.Errorf("%q gave %v", base, err)
		}
	}
}

// FuzzEvents: whatever a service streams, the answer is one or an error, and can
// be sent back.
func FuzzEvents(f *testing.F) {
	f.Add(anthropictest.Events(start, textIn, hi, stop, whole))
	f.Add(anthropictest.Events(start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":5}}`, whole))
	f.Add("data: {\"type\":\"content_block_start\",\"content_block\":null}\n\n" + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		p, err := anthropic.New(anthropic.Config{BaseURL: "http://fake", MaxAttempts: 1, Transport: anthropictest.NewServer(providerstest.ServerConfig{
			Reply: providerstest.Sequence(providerstest.Response{Status: 200, Header: anthropictest.Header(), Body: body}, providerstest.Text("ok")),
		}).Transport()})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.Chat(t.Context(), hello(), nil, "m", nil)
		if err != nil {
			return
		}
		reply := calls(resp.Content, resp.ToolCalls...)
		if _, err := p.Chat(t.Context(), append(hello(), reply, user("x")), nil, "m", nil); err != nil {
			t.Errorf("%q, sent back, gave %v", body, err)
		}
	})
}
