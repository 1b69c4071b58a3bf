package openai_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// recorder counts and notes its calls.
type recorder struct{ calls []string }

func (*recorder) Name() string        { return "read_file" }
func (*recorder) Description() string { return "Reads a file." }
func (*recorder) Parameters() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}, "required": []string{"path"}}
}

func (r *recorder) Execute(_ context.Context, args map[string]any) *tools.ToolResult {
	r.calls = append(r.calls, fmt.Sprint(args["path"]))
	return tools.NewToolResult("hello")
}

// "completed tool call with malformed JSON": the turn does not die of it, the
// model is told once, nothing runs on a guess, and the history stays good.
func TestCaseMalformedCallIsFedBackOnce(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		var requests []providerstest.Request
		p := open(t, func(r providerstest.Request) providerstest.Response {
			requests = append(requests, r)
			switch len(requests) {
			case 1:
				return providerstest.Calls(providerstest.Call{ID: "c1", Name: "read_file", Arguments: `{"path": <the file>}`})
			case 2:
				return providerstest.Calls(providerstest.Call{ID: "c2", Name: "read_file", Arguments: `{"path": "a"}`})
			}
			return providerstest.Text("It says hello.")
		})
		file := &recorder{}
		registry := tools.NewToolRegistry()
		registry.Register(file)
		cfg := tools.ToolLoopConfig{Provider: p, Model: "m", Tools: registry, MaxIterations: 5}
		if streamed {
			cfg.Stream = func(providers.Delta) {}
		}
		res, err := tools.RunToolLoop(t.Context(), cfg, hello(), "test", "1")
		if err != nil || res.Content != "It says hello." || len(requests) != 3 || strings.Join(file.calls, ",") != "a" {
			t.Fatalf("got %+v, %v after %d requests, the tool was run for %q", res, err, len(requests), file.calls)
		}
		told := requests[1].Messages
		if len(told) != 3 || len(told[1].ToolCalls[0].Arguments) != 0 || told[2].ToolCallID != "c1" || !strings.Contains(told[2].Content, "JSON") {
			t.Errorf("the model was told %+v", told)
		}
	}
}

// A main model that fails in one of these ways, whatever it calls it, has
// another answer in seconds, and is found again by itself.
func TestCaseFallbackIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		reply providerstest.Response
		most  time.Duration // until the other model has answered
	}{
		"429":               {providerstest.Response{Status: http.StatusTooManyRequests, Body: `{}`}, 2 * time.Second},
		"429, come back":    {providerstest.Response{Failure: providers.KindRateLimit, RetryAfter: 40 * time.Second}, 0},
		"502":               {providerstest.Response{Status: http.StatusBadGateway, Body: "<html>bad gateway</html>"}, 2 * time.Second},
		"503":               {providerstest.Response{Status: http.StatusServiceUnavailable, Body: `{}`}, 2 * time.Second},
		"504":               {providerstest.Response{Status: http.StatusGatewayTimeout, Body: `{}`}, 2 * time.Second},
		"529":               {providerstest.Response{Status: 529, Body: `{}`}, 2 * time.Second},
		"cut":               {providerstest.Response{Failure: providers.KindUnreachable}, 2 * time.Second},
		"refused key":       {providerstest.Response{Failure: providers.KindAuth}, 0},
		"no credit":         {providerstest.Response{Failure: providers.KindBilling}, 0},
		"silence":           {providerstest.Response{Hang: true}, 2 * time.Minute},
		"half, then silent": {providerstest.Response{Reasoning: strings.Repeat("hm ", 20), Park: true}, 2 * time.Minute},
	} {
		for _, streamed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var down, n [2]int
				down[0] = 1
				model := func(i int) providers.Model {
					return providers.Model{Name: fmt.Sprint(i), Model: "m", Provider: openWith(t, func(providerstest.Request) providerstest.Response {
						if n[i]++; down[i] > 0 {
							return c.reply
						}
						return providerstest.Text(fmt.Sprint(i))
					}, openai.Config{})}
				}
				chain := providers.Chain(slog.New(slog.DiscardHandler), model(0), model(1))
				ask := func() (string, time.Duration) {
					start := time.Now()
					onDelta := func(providers.Delta) {}
					if !streamed {
						onDelta = nil
					}
					resp, err := providers.Stream(t.Context(), chain, hello(), nil, "", nil, onDelta)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					return resp.Content, time.Since(start)
				}
				if answer, took := ask(); answer != "1" || took > c.most {
					t.Errorf("%s: %q answered after %s, want the other model within %s", name, answer, took, c.most)
				}
				before := n[0]
				if answer, took := ask(); answer != "1" || took > 0 || n[0] != before {
					t.Errorf("%s: the next time %q answered after %s", name, answer, took)
				}
				down[0] = 0
				time.Sleep(10 * time.Minute)
				if answer, _ := ask(); answer != "0" {
					t.Errorf("%s: when it is over %q answers", name, answer)
				}
			})
		}
	}
}

// What was shown stays: no retry, no other model, and what there is is not taken
// for an answer.
func TestCaseNothingIsShownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		reply := func(providerstest.Request) providerstest.Response {
			n++
			return providerstest.Response{Content: strings.Repeat("The quick brown fox. ", 10), Cut: true}
		}
		chain := providers.Chain(slog.New(slog.DiscardHandler),
			providers.Model{Name: "a", Model: "m", Provider: open(t, reply)}, providers.Model{Name: "b", Model: "m", Provider: open(t, reply)})
		shown := ""
		resp, err := providers.Stream(t.Context(), chain, hello(), nil, "", nil, func(d providers.Delta) { shown += d.Text })
		if resp != nil || providers.KindOf(err) != providers.KindUnreachable || n != 1 || strings.Count(shown, "The quick") > 10 || shown == "" {
			t.Errorf("got %+v, %v after %d requests, was shown %q", resp, err, n, shown)
		}
	})
}

// What is worth another attempt gets one, as late as the service asks; what is
// not is told at once; and nothing is tried for ever.
func TestFieldRetries(t *testing.T) {
	for status, attempts := range map[int]int{
		408: 4, 409: 4, 425: 4, 429: 4, 500: 4, 502: 4, 503: 4, 504: 4, 529: 4,
		400: 1, 401: 1, 402: 1, 403: 1, 404: 1, 413: 1, 422: 1, 501: 1,
	} {
		for _, streamed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				p := open(t, func(providerstest.Request) providerstest.Response {
					n++
					return providerstest.Response{Status: status, Body: `{}`}
				})
				onDelta := func(providers.Delta) { t.Error("a failure was told") }
				if !streamed {
					onDelta = nil
				}
				if _, err := providers.Stream(t.Context(), p, hello(), nil, "m", nil, onDelta); providers.KindOf(err) == "" || n != attempts {
					t.Errorf("%d was tried %d times, want %d: %v", status, n, attempts, err)
				}
			})
		}
	}
	for name, c := range map[string]struct {
		header   http.Header
		min, max time.Duration
	}{
		"milliseconds first": {http.Header{"Retry-After": {"60"}, "Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond, 1650 * time.Millisecond},
		"seconds":            {http.Header{"Retry-After": {"7"}}, 7 * time.Second, 7700 * time.Millisecond},
		"a date":             {http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:00:09 GMT"}}, 9 * time.Second, 9900 * time.Millisecond},
		"no word":            {nil, 250 * time.Millisecond, 750 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, providerstest.Sequence(providerstest.Response{Status: 429, Body: `{}`, Header: c.header}, providerstest.Text("ok")))
			start := time.Now()
			if _, _, err := ask(t, p); err != nil || time.Since(start) < c.min || time.Since(start) > c.max {
				t.Errorf("%s: %v after %s, want %s to %s", name, err, time.Since(start), c.min, c.max)
			}
		})
	}
	// Thoughts are not for the person: they may come again.
	synctest.Test(t, func(t *testing.T) {
		p := open(t, providerstest.Sequence(providerstest.Response{Reasoning: strings.Repeat("hm ", 20), Content: "x", Cut: true}, providerstest.Text("ok")))
		if resp, said, err := ask(t, p); err != nil || resp.Content != "ok" || said.text != "ok" || said.thoughts == "" {
			t.Errorf("broken off while it thought: %+v, %v, told %+v", resp, err, said)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		p := open(t, func(providerstest.Request) providerstest.Response {
			return providerstest.Response{Failure: providers.KindRateLimit, RetryAfter: 30 * time.Second}
		})
		if _, err := p.Chat(ctx, hello(), nil, "m", nil); providers.KindOf(err) != providers.KindRateLimit || time.Since(start) > 0 {
			t.Errorf("a pause beyond the end of the turn was begun: %v after %s", err, time.Since(start))
		}
	})
}
