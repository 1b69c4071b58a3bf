package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// still is a daemon of which everything is known.
type still struct{ figures }

func (s still) Counts() gateway.Counts { return s.figures.Counts }
func (s still) Load() gateway.Load     { return s.figures.Load }
func (s still) Stats() tools.Stats     { return s.figures.Stats }

var everything = still{figures{
	gateway.Counts{
		Admitted: 1, Duplicates: 2, Dropped: 3, Refused: 4, TurnsDone: 5, TurnsFailed: 6, TurnsStopped: 7, TurnsAside: 8,
		ModelFailures: 9, FollowUps: 10, Sent: 11, SendRetries: 12, MaybeTwice: 13, GivenUp: 14, LedgerWaits: 15,
	},
	gateway.Load{Turns: 16, Waiting: 17, Unsent: 18, OldestWaiting: 1500 * time.Millisecond, OldestUnsent: time.Minute},
	tools.Stats{LegacyWaits: 19, LegacyWait: 2500 * time.Millisecond, LegacyBusy: 20, Background: 21, Unknown: 22, TimedOut: 23, Abandoned: 24},
}}

// full is Metrics in which everything has a value.
func full() *Metrics {
	m := New("v1.2.3")
	m.Watch(everything, everything)
	m.Turn(gateway.TurnDone, 2*time.Second)
	m.Send("telegram", gateway.SendOK, 200*time.Millisecond)
	m.tokens.WithLabelValues("main", "prompt").Add(1)
	m.modelCalls.WithLabelValues("main", "ok").Observe(1)
	m.toolCalls.WithLabelValues("echo", "ok").Observe(1)
	return m
}

// page is what a scraper reads.
func page(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

func wantLines(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains("\n"+page, "\n"+want+"\n") {
			name, _, _ := strings.Cut(strings.ReplaceAll(want, "{", " "), " ")
			var like []string
			for line := range strings.Lines(page) {
				if strings.HasPrefix(line, name) {
					like = append(like, line)
				}
			}
			t.Errorf("there is no %q, only\n%s", want, strings.Join(like, ""))
		}
	}
}

func TestPage(t *testing.T) {
	wantLines(t, page(t, full()),
		"# TYPE dragoman_messages_admitted_total counter", "dragoman_messages_admitted_total 1", "dragoman_messages_duplicate_total 2",
		"dragoman_messages_dropped_total 3", "dragoman_messages_refused_total 4",
		`dragoman_turns_total{outcome="done"} 5`, `dragoman_turns_total{outcome="failed"} 6`, `dragoman_turns_total{outcome="stopped"} 7`,
		`dragoman_turns_total{outcome="set_aside"} 8`, "dragoman_model_failures_total 9", "dragoman_follow_ups_shown_total 10",
		"dragoman_sends_total 11", "dragoman_send_retries_total 12", "dragoman_sends_maybe_twice_total 13", "dragoman_sends_given_up_total 14",
		"dragoman_ledger_waits_total 15", "dragoman_turns_running 16", "dragoman_messages_waiting 17", "dragoman_sends_waiting 18",
		"dragoman_message_oldest_waiting_seconds 1.5", "dragoman_send_oldest_waiting_seconds 60",
		"dragoman_tool_lock_waits_total 19", "dragoman_tool_lock_wait_seconds_total 2.5", "dragoman_tool_lock_refusals_total 20",
		"dragoman_background_tasks 21", "dragoman_tool_unknown_total 22", "dragoman_tool_timeouts_total 23", "dragoman_tools_abandoned 24", `dragoman_build_info{version="v1.2.3"} 1`,
		`dragoman_turn_duration_seconds_bucket{outcome="done",le="1"} 0`, `dragoman_turn_duration_seconds_bucket{outcome="done",le="2.5"} 1`,
		`dragoman_turn_duration_seconds_sum{outcome="done"} 2`, `dragoman_send_duration_seconds_count{channel="telegram",outcome="ok"} 1`,
		"# TYPE go_goroutines gauge",
	)
}

// The names and the texts are as Prometheus wants them.
func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(full().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// docs/metrics.md lists what there is, no more and no less.
func TestDocumentation(t *testing.T) {
	families, err := full().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		if name := f.GetName(); strings.HasPrefix(name, namespace) {
			want[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(rest, "`")
			got[name] = strings.TrimSuffix(line, "\n")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/metrics.md differs from what there is (-is +docs):\n%s\nIt should say\n%s",
			diff, strings.Join(slices.Sorted(maps.Values(want)), "\n"))
	}
}

// scripted is a model that takes a second.
type scripted struct {
	resp *providers.LLMResponse
	err  error
}

func (s scripted) Chat(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	select {
	case <-time.After(time.Second):
		return s.resp, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type streaming struct{ scripted }

func (s streaming) ChatStream(_ context.Context, _ []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	for _, piece := range []string{"a", "b", "c"} {
		onDelta(providers.Delta{Text: piece})
	}
	return s.resp, s.err
}

func (streaming) Check(context.Context) error { return errNotNow }

var errNotNow = errors.New("not now")

func TestModelCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("")
		call := func(ctx context.Context, s scripted) {
			resp, err := m.Model("main", s).Chat(ctx, nil, nil, "gpt", nil)
			if s.err != nil && !errors.Is(err, s.err) || resp != s.resp && ctx.Err() == nil {
				t.Errorf("%+v became %v, %v", s, resp, err)
			}
		}
		call(t.Context(), scripted{resp: &providers.LLMResponse{Usage: &providers.Usage{
			PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120, CacheReadTokens: 60, CacheWriteTokens: 30, ReasoningTokens: 7,
		}}})
		call(t.Context(), scripted{resp: &providers.LLMResponse{Usage: &providers.Usage{PromptTokens: 1}}})
		call(t.Context(), scripted{resp: &providers.LLMResponse{}})
		for _, kind := range []providers.ErrorKind{providers.KindRateLimit, providers.KindRateLimit, providers.KindOverloaded} {
			call(t.Context(), scripted{err: &providers.Error{Kind: kind}})
		}
		call(t.Context(), scripted{err: errNotNow})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		call(ctx, scripted{})
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		call(ctx, scripted{})

		wantLines(t, page(t, m),
			`dragoman_model_call_duration_seconds_count{model="main",outcome="ok"} 3`, `dragoman_model_call_duration_seconds_sum{model="main",outcome="ok"} 3`,
			`dragoman_model_call_duration_seconds_count{model="main",outcome="rate_limit"} 2`,
			`dragoman_model_call_duration_seconds_count{model="main",outcome="overloaded"} 1`,
			`dragoman_model_call_duration_seconds_count{model="main",outcome="error"} 1`,
			`dragoman_model_call_duration_seconds_count{model="main",outcome="timeout"} 1`,
			`dragoman_model_call_duration_seconds_count{model="main",outcome="cancelled"} 1`,
			`dragoman_model_tokens_total{kind="prompt",model="main"} 101`, `dragoman_model_tokens_total{kind="completion",model="main"} 20`,
			`dragoman_model_tokens_total{kind="cache_read",model="main"} 60`, `dragoman_model_tokens_total{kind="cache_write",model="main"} 30`,
			`dragoman_model_tokens_total{kind="reasoning",model="main"} 7`,
		)
	})
}

// A model that is watched can do what it could before.
func TestModelKeepsWhatItCan(t *testing.T) {
	m := New("")
	if _, ok := m.Model("main", scripted{}).(providers.Checker); ok {
		t.Error("a model that cannot be checked became one that can")
	}
	p := m.Model("main", streaming{scripted{resp: &providers.LLMResponse{Content: "abc"}}})
	if c, ok := p.(providers.Checker); !ok || !errors.Is(c.Check(t.Context()), errNotNow) {
		t.Error("the model cannot be checked any more")
	}
	var pieces []string
	resp, err := providers.Stream(t.Context(), p, nil, nil, "", nil, func(d providers.Delta) { pieces = append(pieces, d.Text) })
	if err != nil || resp.Content != "abc" || strings.Join(pieces, " ") != "a b c" {
		t.Errorf("%v, %v, in pieces %q", resp, err, pieces)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = m.Model("main", nil).Chat(t.Context(), nil, nil, "", nil)
	}()
	wantLines(t, page(t, m), `dragoman_model_call_duration_seconds_count{model="main",outcome="panic"} 1`,
		`dragoman_model_call_duration_seconds_count{model="main",outcome="ok"} 1`)
}

func TestToolCalls(t *testing.T) {
	m := New("")
	r := tools.NewToolRegistry()
	r.Use(m.Tool)
	for name, result := range map[string]*tools.ToolResult{
		"good":  tools.NewToolResult("fine"),
		"bad":   tools.ErrorResult("no"),
		"slow":  tools.ErrorResult("no").WithError(fmt.Errorf("wait: %w", context.DeadlineExceeded)),
		"ended": tools.ErrorResult("no").WithError(context.Canceled),
		"later": tools.AsyncResult("soon"),
	} {
		r.Register(tools.Func(name, "Does what the test says.", func(context.Context, struct{}) *tools.ToolResult { return result }))
	}
	r.Register(tools.Func("broken", "Panics.", func(context.Context, struct{}) *tools.ToolResult { panic("boom") }))
	for _, name := range []string{"good", "good", "bad", "slow", "ended", "later", "broken", "invented by a model"} {
		r.Execute(t.Context(), name, nil)
	}
	text := page(t, m)
	wantLines(t, text,
		`dragoman_tool_call_duration_seconds_count{outcome="ok",tool="good"} 2`, `dragoman_tool_call_duration_seconds_count{outcome="error",tool="bad"} 1`,
		`dragoman_tool_call_duration_seconds_count{outcome="timeout",tool="slow"} 1`, `dragoman_tool_call_duration_seconds_count{outcome="cancelled",tool="ended"} 1`,
		`dragoman_tool_call_duration_seconds_count{outcome="background",tool="later"} 1`, `dragoman_tool_call_duration_seconds_count{outcome="error",tool="broken"} 1`,
	)
	if strings.Contains(text, "invented") {
		t.Error("a name that a model has invented became a label")
	}
}
