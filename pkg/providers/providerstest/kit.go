package providerstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Secret is the key the kit wants a provider to be opened with; it must appear
// in no error.
const Secret = "sk-kit-0123456789-not-to-be-seen"

// Open makes a provider whose API answers with reply and knows Secret as its
// key. It is called inside a testing/synctest bubble, where a network would
// stop the clock: connect in memory, as Server.Transport does.
type Open func(t *testing.T, reply func(Request) Response) providers.LLMProvider

// Run checks a provider against the contract of providers.LLMProvider. model
// is a name it accepts. Waiting for a retry costs no time.
func Run(t *testing.T, model string, open Open) {
	t.Helper()
	cases := []struct {
		name string
		run  func(kit)
	}{
		{"basics", func(k kit) { basics(k.t, k.open(k.t, always(Text("ok"))), k.model) }},
		{"plain reply", plainReply},
		{"request arrives whole", requestArrives},
		{"nil tools and options", nilTools},
		{"tool calls", toolCalls},
		{"odd arguments", oddArguments},
		{"broken arguments", brokenArguments},
		{"calls without ids", callsWithoutIDs},
		{"history is repaired", historyRepaired},
		{"finish reasons", finishReasons},
		{"retries", retries},
		{"retry after", retryAfter},
		{"typed errors", typedErrors},
		{"context ends a hanging call", contextEndsCall},
		{"context ends a pause", contextEndsPause},
		{"a broken answer is not an answer", brokenAnswer},
		{"pieces make up the reply", piecesAreTheReply},
		{"an answer in pieces is the whole one", streamIsChat},
		{"what fails before a text is tried again", streamRetries},
		{"a text is told once", toldOnce},
		{"context ends an answer in pieces", contextEndsStream},
		{"an answer that falls silent ends", silentStream},
		{"another model is not kept waiting", impatient},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(kit{t: t, model: model, open: open}) })
		})
	}
}

// RunBasics checks what holds for every provider, also one without an API
// behind it: it answers, changes nothing it is given, heeds ctx, and may be
// used by many at once.
func RunBasics(t *testing.T, p providers.LLMProvider, model string) {
	t.Helper()
	t.Run("basics", func(t *testing.T) { basics(t, p, model) })
}

type kit struct {
	t     *testing.T
	model string
	open  Open
}

func always(r Response) func(Request) Response { return func(Request) Response { return r } }

func (k kit) chat(reply func(Request) Response, messages []providers.Message, tools []providers.ToolDefinition) *providers.LLMResponse {
	k.t.Helper()
	resp, err := k.open(k.t, reply).Chat(k.t.Context(), messages, tools, k.model, nil)
	if err != nil {
		k.t.Fatalf("Chat: %v", err)
	}
	return resp
}

// hello is the shortest conversation.
func hello() []providers.Message {
	return []providers.Message{{Role: providers.RoleUser, Content: "hello"}}
}

// conversation uses every field a message has.
func conversation() []providers.Message {
	return []providers.Message{
		{Role: providers.RoleSystem, Content: "Be brief."},
		{Role: providers.RoleUser, Content: "What is in a?"},
		{Role: providers.RoleAssistant, Content: "I look.", ToolCalls: []providers.ToolCall{{
			ID: "call_a", Type: "function", Name: "read_file", Arguments: map[string]any{"path": "a"},
			Function: &providers.FunctionCall{Name: "read_file", Arguments: `{"path":"a"}`},
		}}},
		{Role: providers.RoleTool, Content: "hello", ToolCallID: "call_a"},
		{Role: providers.RoleUser, Content: "Thank you. Ünïcödé, <tags> & \"quotes\""},
	}
}

func definitions() []providers.ToolDefinition {
	return []providers.ToolDefinition{
		{Type: "function", Function: providers.ToolFunctionDefinition{
			Name: "read_file", Description: "Reads a file.",
			Parameters: map[string]any{
				"type":       "object",
				"properties": map[string]any{"path": map[string]any{"type": "string"}, "mode": map[string]any{"type": "string", "enum": []string{"text", "hex"}}},
				"required":   []string{"path"},
			},
		}},
		{Type: "function", Function: providers.ToolFunctionDefinition{Name: "now", Description: "Tells the time."}},
	}
}

// snapshot is a deep copy to compare with later.
func snapshot(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func basics(t *testing.T, p providers.LLMProvider, model string) {
	t.Helper()
	messages, tools, options := conversation(), definitions(), map[string]any{"max_tokens": 100, "no_such_option": "x"}
	before := snapshot(t, []any{messages, tools, options})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			resp, err := p.Chat(t.Context(), messages, tools, model, options)
			switch {
			case err != nil:
				t.Errorf("Chat: %v", err)
			case resp == nil:
				t.Error("Chat returned neither a reply nor an error")
			case resp.Content == "" && len(resp.ToolCalls) == 0:
				t.Error("Chat returned an empty reply")
			}
		})
	}
	wg.Wait()
	if after := snapshot(t, []any{messages, tools, options}); after != before {
		t.Errorf("Chat changed what it was given\nbefore %s\nafter  %s", before, after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Chat(ctx, messages, tools, model, options); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context Chat returned %v, want context.Canceled", err)
	}
}

func plainReply(k kit) {
	t := k.t
	want := Response{Content: "Good morning\n\nöäü 👋", Usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 5, TotalTokens: 12}}
	got := k.chat(always(want), hello(), nil)
	if got.Content != want.Content || len(got.ToolCalls) != 0 || got.FinishReason != providers.FinishStop {
		t.Errorf("got %+v, want %q", got, want.Content)
	}
	if got.Usage == nil || *got.Usage != *want.Usage {
		t.Errorf("usage %+v, want %+v", got.Usage, *want.Usage)
	}
}

func requestArrives(k kit) {
	t := k.t
	var seen Request
	p := k.open(t, func(r Request) Response { seen = r; return Text("ok") })
	if _, err := p.Chat(t.Context(), conversation(), definitions(), k.model, map[string]any{"max_tokens": 77}); err != nil {
		t.Fatalf("Chat: %v", err)
	}
	if seen.Model != k.model {
		t.Errorf("model %q, want %q", seen.Model, k.model)
	}
	want := conversation()
	if len(seen.Messages) != len(want) {
		t.Fatalf("%d messages arrived, want %d", len(seen.Messages), len(want))
	}
	for i := range want {
		g, w := seen.Messages[i], want[i]
		if g.Role != w.Role || g.Content != w.Content || g.ToolCallID != w.ToolCallID || len(g.ToolCalls) != len(w.ToolCalls) {
			t.Errorf("message %d arrived as %+v, want %+v", i, g, w)
		}
		for j := range w.ToolCalls {
			gc, wc := g.ToolCalls[j], w.ToolCalls[j]
			if gc.ID != wc.ID || gc.Name != wc.Name || !reflect.DeepEqual(gc.Arguments, wc.Arguments) {
				t.Errorf("call %d of message %d arrived as %+v, want %+v", j, i, gc, wc)
			}
		}
	}
	at := slices.IndexFunc(seen.Tools, func(d providers.ToolDefinition) bool { return d.Function.Name == "read_file" }) // in whatever order
	if len(seen.Tools) != 2 || at < 0 || seen.Tools[at].Function.Description != "Reads a file." {
		t.Fatalf("tools arrived as %+v", seen.Tools)
	}
	if got := seen.Tools[at].Function.Parameters["required"]; !reflect.DeepEqual(got, []any{"path"}) {
		t.Errorf("required arrived as %v", got)
	}
	if n := seen.Options["max_tokens"]; n != float64(77) {
		t.Errorf("max_tokens arrived as %v, want 77", n)
	}
}

func nilTools(k kit) {
	t := k.t
	p := k.open(t, always(Text("ok")))
	for _, tools := range [][]providers.ToolDefinition{nil, {}} {
		if resp, err := p.Chat(t.Context(), hello(), tools, k.model, nil); err != nil || resp.Content != "ok" {
			t.Errorf("with %d tools and nil options: %+v, %v", len(tools), resp, err)
		}
	}
}

func toolCalls(k kit) {
	t := k.t
	got := k.chat(always(Response{Content: "I look.", ToolCalls: []Call{
		{ID: "call_1", Name: "read_file", Arguments: `{"path": "a", "deep": {"n": 1.5, "list": [true, null, "x"]}}`},
		{ID: "call_2", Name: "now", Arguments: `{}`},
	}}), hello(), definitions())
	if got.Content != "I look." || got.FinishReason != providers.FinishToolCalls || len(got.ToolCalls) != 2 {
		t.Fatalf("got %+v", got)
	}
	first := got.ToolCalls[0]
	want := map[string]any{"path": "a", "deep": map[string]any{"n": 1.5, "list": []any{true, nil, "x"}}}
	if first.ID != "call_1" || first.Type != "function" || first.Name != "read_file" || !reflect.DeepEqual(first.Arguments, want) {
		t.Errorf("first call is %+v", first)
	}
	var decoded map[string]any
	if first.Function == nil || first.Function.Name != "read_file" || json.Unmarshal([]byte(first.Function.Arguments), &decoded) != nil || !reflect.DeepEqual(decoded, want) {
		t.Errorf("first call's wire form is %+v", first.Function)
	}
	if got.ToolCalls[1].ID != "call_2" || got.ToolCalls[1].Arguments == nil || len(got.ToolCalls[1].Arguments) != 0 {
		t.Errorf("second call is %+v, want no arguments", got.ToolCalls[1])
	}
}

func oddArguments(k kit) {
	t := k.t
	cases := map[string]map[string]any{
		``:                               {},
		`null`:                           {},
		` {} `:                           {},
		`{"path":"a"}`:                   {"path": "a"},
		`"{\"path\":\"a\"}"`:             {"path": "a"},
		`"\"{\\\"path\\\":\\\"a\\\"}\""`: {"path": "a"},
		`""`:                             {},
	}
	for text, want := range cases {
		got := k.chat(always(Calls(Call{Name: "read_file", Arguments: text})), hello(), definitions())
		if len(got.ToolCalls) != 1 || got.ToolCalls[0].Arguments == nil || !reflect.DeepEqual(got.ToolCalls[0].Arguments, want) {
			t.Errorf("arguments %q were read as %+v, want %v", text, got.ToolCalls, want)
			continue
		}
		if f := got.ToolCalls[0].Function; f == nil || !json.Valid([]byte(f.Arguments)) || !strings.HasPrefix(f.Arguments, "{") {
			t.Errorf("arguments %q have the wire form %+v, want a JSON object", text, f)
		}
	}
}

func brokenArguments(k kit) {
	t := k.t
	for _, text := range []string{`{"path": "a`, `{'path': 'a'}`, `path=a`, `[1,2]`, `17`, `{"a":1}}`} {
		got := k.chat(always(Calls(Call{ID: "c", Name: "read_file", Arguments: text})), hello(), definitions())
		if len(got.ToolCalls) != 1 || got.ToolCalls[0].Name != "read_file" || got.ToolCalls[0].ID != "c" {
			t.Errorf("a call with arguments %q became %+v, want it kept", text, got.ToolCalls)
			continue
		}
		c := got.ToolCalls[0]
		if c.Arguments == nil || len(c.Arguments) != 0 || c.Function == nil || c.Function.Arguments != text {
			t.Errorf("arguments %q became %v and %+v, want no arguments and the raw text", text, c.Arguments, c.Function)
		}
	}
}

func callsWithoutIDs(k kit) {
	t := k.t
	got := k.chat(func(Request) Response {
		return Response{ToolCalls: []Call{{ID: "same", Name: "now"}, {ID: "same", Name: "now"}, {ID: "other", Name: "now"}}}
	}, hello(), definitions())
	ids := make(map[string]bool)
	for _, c := range got.ToolCalls {
		if c.ID == "" {
			t.Errorf("a call has no id: %+v", c)
		}
		ids[c.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("the ids of three calls are %v, want three different ones", ids)
	}
}

// historyRepaired: what a strict API would refuse for ever must not reach it.
func historyRepaired(k kit) {
	t := k.t
	messages := []providers.Message{
		{Role: providers.RoleUser, Content: "go"},
		{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{
			{ID: "c1", Type: "function", Name: "read_file", Function: &providers.FunctionCall{Name: "read_file", Arguments: `{"path": "a`}},
			{ID: "c2", Name: "now"},
			{ID: "c3", Name: "read_file", Arguments: map[string]any{"path": "b"}},
			{ID: "c4", Name: "odd name.ext", Arguments: map[string]any{}},
		}},
		{Role: providers.RoleTool, ToolCallID: "c1", Content: "the arguments were cut off"},
		{Role: providers.RoleTool, ToolCallID: "c2"},
		{Role: providers.RoleTool, ToolCallID: "c3", Content: "x"},
		{Role: providers.RoleTool, ToolCallID: "c4", Content: "no such tool"},
	}
	var seen Request
	k.chat(func(r Request) Response { seen = r; return Text("ok") }, messages, definitions())
	for _, m := range seen.Messages {
		for _, c := range m.ToolCalls {
			if c.ID == "c3" && c.Arguments["path"] != "b" {
				t.Errorf("arguments without a wire form arrived as %v", c.Arguments)
			}
		}
	}
}

func finishReasons(k kit) {
	t := k.t
	for _, reason := range []string{providers.FinishStop, providers.FinishLength, providers.FinishContentFilter} {
		got := k.chat(always(Response{Content: "x", FinishReason: reason}), hello(), nil)
		if got.FinishReason != reason {
			t.Errorf("finish reason %q arrived as %q", reason, got.FinishReason)
		}
	}
	// Some servers say stop although there are calls; the calls count.
	got := k.chat(always(Response{FinishReason: providers.FinishStop, ToolCalls: []Call{{Name: "now", Arguments: "{}"}}}), hello(), definitions())
	if len(got.ToolCalls) != 1 {
		t.Errorf("calls with finish reason stop were lost: %+v", got)
	}
}

func retries(k kit) {
	t := k.t
	for _, kind := range []providers.ErrorKind{providers.KindRateLimit, providers.KindOverloaded, providers.KindTimeout, providers.KindUnreachable} {
		n := 0
		got := k.chat(func(Request) Response {
			if n++; n < 3 {
				return Fail(kind)
			}
			return Text("at last")
		}, hello(), nil)
		if got.Content != "at last" || n != 3 {
			t.Errorf("after two failures of kind %s: %+v in %d attempts", kind, got, n)
		}
	}
	for _, kind := range []providers.ErrorKind{providers.KindAuth, providers.KindBilling, providers.KindContextOverflow, providers.KindInvalidRequest} {
		n := 0
		p := k.open(t, func(Request) Response { n++; return Fail(kind) })
		if _, err := p.Chat(t.Context(), hello(), nil, k.model, nil); err == nil || n != 1 {
			t.Errorf("a failure of kind %s was tried %d times (%v), want once: trying again cannot mend it", kind, n, err)
		}
	}
}

func retryAfter(k kit) {
	t := k.t
	start := time.Now()
	k.chat(Sequence(Response{Failure: providers.KindRateLimit, RetryAfter: 7 * time.Second}, Text("ok")), hello(), nil)
	if waited := time.Since(start); waited < 7*time.Second || waited > 10*time.Second {
		t.Errorf("asked to come back after 7s, it came after %s", waited)
	}
	start = time.Now()
	p := k.open(t, always(Response{Failure: providers.KindRateLimit, RetryAfter: 6 * time.Hour}))
	_, err := p.Chat(t.Context(), hello(), nil, k.model, nil)
	e, ok := errors.AsType[*providers.Error](err)
	if !ok || e.Kind != providers.KindRateLimit || e.RetryAfter != 6*time.Hour {
		t.Errorf("asked to come back after 6 hours, Chat returned %#v, want a rate limit that says so", err)
	}
	if waited := time.Since(start); waited > 0 {
		t.Errorf("asked to come back after 6 hours, Chat waited %s before it gave up", waited)
	}
}

func typedErrors(k kit) {
	t := k.t
	for _, kind := range []providers.ErrorKind{
		providers.KindRateLimit, providers.KindOverloaded, providers.KindAuth, providers.KindBilling,
		providers.KindContextOverflow, providers.KindInvalidRequest, providers.KindTimeout, providers.KindUnreachable,
	} {
		start := time.Now()
		p := k.open(t, always(Fail(kind)))
		resp, err := p.Chat(t.Context(), hello(), nil, k.model, nil)
		if resp != nil {
			t.Errorf("%s: there is a reply beside the error: %+v", kind, resp)
		}
		e, ok := errors.AsType[*providers.Error](err)
		if !ok {
			t.Errorf("%s: Chat returned %v, want a *providers.Error", kind, err)
			continue
		}
		if e.Kind != kind || e.Message == "" {
			t.Errorf("%s: got kind %s, message %q", kind, e.Kind, e.Message)
		}
		noSecret(t, err)
		if spent := time.Since(start); spent > 10*time.Minute {
			t.Errorf("%s: Chat gave up after %s", kind, spent)
		}
	}
}

// noSecret looks for the key wherever an error can be printed.
func noSecret(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, format := range []string{"%v", "%+v", "%#v", "%q"} {
			if text := fmt.Sprintf(format, e); strings.Contains(text, Secret) {
				t.Errorf("an error holds the key: %s", text)
			}
		}
	}
}

func contextEndsCall(k kit) {
	t := k.t
	p := k.open(t, always(Response{Hang: true}))
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := p.Chat(ctx, hello(), nil, k.model, nil)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
		t.Errorf("Chat returned %v after %s, want the context's error after 5s", err, time.Since(start))
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(3*time.Second, cancel)
	start = time.Now()
	_, err = p.Chat(ctx, hello(), nil, k.model, nil)
	if !errors.Is(err, context.Canceled) || time.Since(start) != 3*time.Second {
		t.Errorf("Chat returned %v after %s, want context.Canceled after 3s", err, time.Since(start))
	}
	// Nobody cancels: the provider has a limit of its own.
	start = time.Now()
	_, err = p.Chat(t.Context(), hello(), nil, k.model, nil)
	if kind := providers.KindOf(err); kind != providers.KindTimeout {
		t.Errorf("a call that hangs for ever ended with %v (%s), want a timeout", err, kind)
	}
	if spent := time.Since(start); spent > time.Hour {
		t.Errorf("a call that hangs for ever ended after %s", spent)
	}
}

func contextEndsPause(k kit) {
	t := k.t
	p := k.open(t, always(Response{Failure: providers.KindRateLimit, RetryAfter: 30 * time.Second}))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(2*time.Second, cancel)
	start := time.Now()
	_, err := p.Chat(ctx, hello(), nil, k.model, nil)
	if !errors.Is(err, context.Canceled) || time.Since(start) != 2*time.Second {
		t.Errorf("cancelled in a pause, Chat returned %v after %s, want context.Canceled after 2s", err, time.Since(start))
	}
}

func brokenAnswer(k kit) {
	t := k.t
	got := k.chat(Sequence(Response{Content: "a text that breaks off somewhere", Cut: true}, Text("whole")), hello(), nil)
	if got.Content != "whole" {
		t.Errorf("a broken answer was taken: %q", got.Content)
	}
	p := k.open(t, always(Response{Status: 200, Body: "<html>welcome</html>"}))
	_, err := p.Chat(t.Context(), hello(), nil, k.model, nil)
	if _, ok := errors.AsType[*providers.Error](err); !ok {
		t.Errorf("a web page in place of an answer gave %v, want a *providers.Error", err)
	}
}
