package tools_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// circling has a model make the same calls over and over, n rounds of them, and
// says what became of each: "ran", "warned", "refused" or "left".
func circling(t *testing.T, config tools.ToolLoopConfig, n int, calls func(round int) []providers.ToolCall) ([]string, *tools.ToolLoopResult) {
	t.Helper()
	var replies []providers.LLMResponse
	for i := range n {
		list := calls(i)
		for j := range list {
			list[j].ID = fmt.Sprintf("%d_%d", i, j)
		}
		replies = append(replies, calling(list...))
	}
	config.LoopGuard, config.MaxIterations = true, 60
	_, res := run(t, config, append(replies, answering("done"))...)
	return fates(res.Messages), res
}

func fates(messages []providers.Message) (fates []string) {
	for _, m := range messages {
		switch {
		case m.Role != providers.RoleTool:
		case strings.Contains(m.Content, "this very call several times"):
			fates = append(fates, "warned")
		case strings.Contains(m.Content, "again and again"):
			fates = append(fates, "refused")
		case strings.Contains(m.Content, "the turn ended"):
			fates = append(fates, "left")
		default:
			fates = append(fates, "ran")
		}
	}
	return fates
}

// A model that repeats itself is told so, then stopped; one that gets on is let
// alone, however often it makes a call.
func TestFieldRepeatedCalls(t *testing.T) {
	one := func(call func(i int) providers.ToolCall) func(int) []providers.ToolCall {
		return func(i int) []providers.ToolCall { return []providers.ToolCall{call(i)} }
	}
	say := func(s string) providers.ToolCall { return toolCall("", "echo", text(s)) }
	stopped := []string{"ran", "ran", "warned", "warned", "refused", "refused", "refused", "refused"}
	twice := func(list []string) (out []string) { // two calls in turn
		for _, s := range list {
			out = append(out, s, s)
		}
		return out[:len(out)-1] // the first of them ends it
	}
	polls := 0
	for name, c := range map[string]struct {
		rounds int
		calls  func(int) []providers.ToolCall
		want   []string // nil: all run
	}{
		"same call": {20, one(func(int) providers.ToolCall { return say("x") }), stopped},
		"spaced otherwise": {20, one(func(i int) providers.ToolCall {
			return written("", "echo", []string{`{"text":"x","n":1}`, `{ "n":1, "text":"x" }`}[i%2])
		}), stopped},
		"fails":          {20, one(func(int) providers.ToolCall { return toolCall("", "fails", nil) }), stopped},
		"no such tool":   {20, one(func(int) providers.ToolCall { return toolCall("", "missing", nil) }), stopped},
		"cannot be read": {20, one(func(int) providers.ToolCall { tc := say("x"); tc.Invalid = "no"; return tc }), stopped},
		"with a fresh nonce": {20, one(func(i int) providers.ToolCall {
			return toolCall("", "echo", map[string]interface{}{"text": "x", "options": []interface{}{map[string]interface{}{"Request-ID": i}}})
		}), stopped},
		"ping-pong":            {20, one(func(i int) providers.ToolCall { return say([]string{"a", "b"}[i%2]) }), twice(stopped)},
		"three in turn":        {30, one(func(i int) providers.ToolCall { return say([]string{"a", "b", "c"}[i%3]) }), nil},
		"four in each reply":   {20, func(int) []providers.ToolCall { return []providers.ToolCall{say("a"), say("b"), say("c"), say("d")} }, nil},
		"one among many":       {20, func(i int) []providers.ToolCall { return []providers.ToolCall{say("x"), say(fmt.Sprint(i))} }, []string{}},
		"four times in a row":  {16, one(func(i int) providers.ToolCall { return say(fmt.Sprint(i / 2)) }), []string{}},
		"output changes":       {20, one(func(int) providers.ToolCall { return toolCall("", "poll", text("text")) }), []string{}},
		"output's time passes": {20, one(func(int) providers.ToolCall { return toolCall("", "poll", text("clock")) }), stopped},
		"output has an id":     {20, one(func(int) providers.ToolCall { return toolCall("", "poll", text("json")) }), stopped},
		"all in one reply":     {1, func(int) []providers.ToolCall { return slices.Repeat([]providers.ToolCall{say("x")}, 12) }, append(slices.Clone(stopped), "left", "left", "left", "left")},
	} {
		t.Run(name, func(t *testing.T) {
			r := echo()
			r.Register(&fake{name: "poll", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
				polls++
				return tools.NewToolResult(map[string]string{
					"text":  fmt.Sprint(polls, " % done"),
					"clock": fmt.Sprintf("running at 2026-11-28T05:42:%02dZ", polls%60),
					"json":  fmt.Sprintf(`{"state":"running","request_id":"%d"}`, polls),
				}[args["text"].(string)])
			}})
			got, res := circling(t, tools.ToolLoopConfig{Tools: r}, c.rounds, c.calls)
			if c.want == nil { // by the number of calls in turn
				size := map[string]int{"three in turn": 3, "four in each reply": 4}[name]
				for _, s := range stopped {
					c.want = append(c.want, slices.Repeat([]string{s}, size)...)
				}
				c.want = c.want[:7*size+1]
				for len(c.want)%size != 0 && name == "four in each reply" {
					c.want = append(c.want, "left")
				}
			}
			if len(c.want) == 0 {
				if slices.ContainsFunc(got, func(s string) bool { return s != "ran" }) || res.Content != "done" || res.StopReason != tools.StopAnswer {
					t.Errorf("%q, %+v", got, res.StopReason)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if res.StopReason != tools.StopLoopDetected || res.Content != "" {
				t.Errorf("ends with %q %q", res.StopReason, res.Content)
			}
		})
	}

	// The zero value watches nothing.
	_, res := run(t, tools.ToolLoopConfig{MaxIterations: 15}, calling(say("x")))
	if res.StopReason != tools.StopMaxIterations || slices.ContainsFunc(fates(res.Messages), func(s string) bool { return s != "ran" }) {
		t.Errorf("without a guard: %q %q", res.StopReason, fates(res.Messages))
	}
}

// The person reads a result as the tool gave it; the model is warned in its
// copy, and asked for a last word when the loop is stopped.
func TestLoopGuardTellsTheModelAlone(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "show", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.UserResult("picture") }})
	var shown []string
	config := tools.ToolLoopConfig{
		Tools: r, FinalAnswer: true, LoopGuard: true,
		OnEvent: func(e tools.Event) {
			if e.Kind == tools.EventToolEnd {
				shown = append(shown, e.Result.ForUser)
			}
		},
		Checkpoint: func(_ context.Context, r tools.Record) error {
			if r.Kind == tools.RecordEnd && r.Result.ForUser != "" && r.Result.ForUser != "picture" {
				t.Errorf("the record shows %q", r.Result.ForUser)
			}
			return nil
		},
	}
	replies := slices.Repeat([]providers.LLMResponse{calling(toolCall("1", "show", nil))}, 8)
	p, res := run(t, config, append(replies, answering("I give up"))...)
	if want := []string{"picture", "picture", "picture", "picture", "", "", "", ""}; !slices.Equal(shown, want) {
		t.Errorf("shown %q", shown)
	}
	if sent := p.asked[3]; !strings.HasPrefix(sent[len(sent)-1].Content, "picture\n\n[") {
		t.Errorf("the model reads %q", sent[len(sent)-1].Content)
	}
	if len(p.asked) != 9 || p.defs[8] != nil || res.Content != "I give up" || res.StopReason != tools.StopLoopDetected {
		t.Errorf("%d requests, %+v", len(p.asked), res)
	}
}

// A run that is resumed, wherever it was interrupted, remembers what it has seen.
func TestLoopGuardRemembers(t *testing.T) {
	for name, calls := range map[string][]providers.ToolCall{
		"one":              {toolCall("1", "echo", text("same"))},
		"without a result": {toolCall("1", "echo", text(""))},
		"two together":     {toolCall("1", "echo", text("a")), toolCall("2", "echo", text("b"))},
	} {
		replies := slices.Repeat([]providers.LLMResponse{calling(calls...)}, 8)
		all := &kept{}
		config := tools.ToolLoopConfig{Provider: &script{replies: replies}, Tools: echo(), MaxIterations: 20, LoopGuard: true, Checkpoint: all.keep}
		whole, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
		if err != nil || whole.StopReason != tools.StopLoopDetected {
			t.Fatalf("%s: %+v, %v", name, whole, err)
		}
		for n := range len(all.records) + 1 {
			messages, rounds := user("hi"), 0
			for _, r := range all.records[:n] {
				if r.Kind != tools.RecordBegin {
					messages = append(messages, r.Message)
				}
				rounds = r.Round
			}
			config.Rounds, config.Checkpoint, config.Provider = rounds, nil, &script{replies: replies}
			res, err := tools.RunToolLoop(t.Context(), config, messages, "test", "1")
			if err != nil || res.StopReason != tools.StopLoopDetected {
				t.Fatalf("%s, resumed at %d: %+v, %v", name, n, res, err)
			}
			if diff := cmp.Diff(append(user("hi"), whole.Messages...), append(messages, res.Messages...)); diff != "" {
				t.Errorf("%s, resumed at %d: %s", name, n, diff)
			}
		}
	}
	// What was before the person's last word is forgotten.
	past := user("hi")
	for range 4 {
		past = append(past, providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{toolCall("1", "echo", text("x"))}},
			providers.Message{Role: providers.RoleTool, ToolCallID: "1", Content: "x"})
	}
	config := tools.ToolLoopConfig{Provider: &script{replies: []providers.LLMResponse{calling(toolCall("2", "echo", text("x"))), answering("done")}}, Tools: echo(), MaxIterations: 20, LoopGuard: true, Rounds: 4}
	if res, err := tools.RunToolLoop(t.Context(), config, append(past, user("again")...), "test", "1"); err != nil || res.Messages[1].Content != "x" {
		t.Errorf("%q, %v", outline(res.Messages), err)
	}
}

// Calls side by side are watched too.
func TestLoopGuardSideBySide(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&beside{fake: fake{name: "work"}})
	k := &kept{}
	got, res := circling(t, tools.ToolLoopConfig{Tools: r, Checkpoint: k.keep}, 6, func(int) []providers.ToolCall {
		return slices.Repeat([]providers.ToolCall{toolCall("", "work", number(1))}, 3)
	})
	ran := 0
	for _, s := range got {
		if s == "ran" || s == "warned" {
			ran++
		}
	}
	if ran != 4 || res.StopReason != tools.StopLoopDetected {
		t.Errorf("%q, %s", got, res.StopReason)
	}
	if n := strings.Count(k.String(), "begin"); n != ran {
		t.Errorf("%d calls began", n)
	}
}

// Calls that run side by side are not judged before they have come to something:
// what differs each time may be asked for as often as one likes, in one reply too.
func TestLoopGuardLeavesChangingCallsSideBySideAlone(t *testing.T) {
	var rolled atomic.Int64
	r := tools.NewToolRegistry()
	r.Register(&beside{fake: fake{name: "roll", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return tools.NewToolResult(fmt.Sprint(rolled.Add(1)))
	}}})
	_, res := run(t, tools.ToolLoopConfig{Tools: r, LoopGuard: true}, calling(slices.Repeat([]providers.ToolCall{toolCall("", "roll", number(1))}, 12)...), providers.LLMResponse{Content: "done"})
	if rolled.Load() != 12 || res.StopReason != tools.StopAnswer {
		t.Errorf("ran %d times, %s: %v", rolled.Load(), res.StopReason, res.Messages)
	}
}

// A run that is played again with the results it had, warnings included, comes
// to the same.
func TestLoopGuardPlaysAgain(t *testing.T) {
	replies := slices.Repeat([]providers.LLMResponse{calling(toolCall("1", "echo", text("x")))}, 8)
	config := tools.ToolLoopConfig{Provider: &script{replies: replies}, Tools: echo(), MaxIterations: 20, LoopGuard: true}
	first, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, m := range first.Messages {
		if m.Role == providers.RoleTool {
			results = append(results, m.Content)
		}
	}
	config.Tools = tools.NewToolRegistry()
	config.Tools.Register(&fake{name: "echo", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		next := results[0]
		results = results[1:]
		return tools.NewToolResult(next)
	}})
	config.Provider = &script{replies: replies}
	again, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Messages, again.Messages); diff != "" {
		t.Error(diff)
	}
}

// A breaker's text is the answer, whole and without remarks.
func TestLoopGuardLeavesAnswersAlone(t *testing.T) {
	fails := 3
	r := tools.NewToolRegistry()
	r.Register(finishing(func(context.Context, map[string]interface{}) *tools.ToolResult {
		if fails--; fails >= 0 {
			return tools.ErrorResult("not yet").WithError(errors.New("no"))
		}
		return tools.NewToolResult(strings.Repeat("the end ", 50))
	}))
	_, res := run(t, tools.ToolLoopConfig{Tools: r, LoopGuard: true, MaxToolResultBytes: 100}, slices.Repeat([]providers.LLMResponse{calling(toolCall("1", "finish", nil))}, 4)...)
	if res.Content != strings.Repeat("the end ", 50) {
		t.Errorf("got %q", res.Content)
	}
}

// A provider that sees the model go round in circles is taken at its word, where
// there is a guard.
func TestLoopGuardTakesTheProvidersWord(t *testing.T) {
	circles := &providers.Error{Kind: providers.KindInvalidRequest, Err: providers.ErrCircles}
	for name, c := range map[string]struct {
		guard bool
		errs  map[int]error
		text  string
	}{
		"no guard":      {false, map[int]error{1: circles}, ""},
		"ends in words": {true, map[int]error{1: circles}, "I give up"},
		"to the end":    {true, map[int]error{1: circles, 2: circles}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "echo", text("x"))), answering("never"), answering("I give up")}, errs: c.errs}
			config := tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 20, LoopGuard: c.guard, FinalAnswer: true}
			res, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
			if !c.guard {
				if !errors.Is(err, circles) || res.StopReason != tools.StopError {
					t.Errorf("%+v, %v", res, err)
				}
				return
			}
			if err != nil || res.StopReason != tools.StopLoopDetected || res.Content != c.text || len(p.asked) != 3 {
				t.Errorf("%d requests, %+v, %v", len(p.asked), res, err)
			}
			checkHistory(t, res.Messages)
		})
	}
}
