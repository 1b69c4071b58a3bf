package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func echo() *tools.ToolRegistry {
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "echo", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		text, _ := args["text"].(string)
		return tools.NewToolResult(text)
	}})
	r.Register(&fake{name: "fails", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return (&tools.ToolResult{IsError: true}).WithError(errors.New("disk full"))
	}})
	r.Register(&fake{name: "quiet", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return &tools.ToolResult{}
	}})
	return r
}

func text(s string) map[string]interface{} { return map[string]interface{}{"text": s} }

// checkHistory fails unless every call in messages has exactly one answer, right
// behind it and in the calls' order.
func checkHistory(t *testing.T, messages []providers.Message) {
	t.Helper()
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == providers.RoleTool {
			t.Errorf("message %d answers no call: %+v", i, m)
		}
		for _, tc := range m.ToolCalls {
			i++
			if i >= len(messages) || messages[i].Role != providers.RoleTool || messages[i].ToolCallID != tc.ID {
				t.Errorf("call %s has no answer in its place: %+v", tc.ID, messages)
				return
			}
		}
	}
}

func TestLoopAnswersAtOnce(t *testing.T) {
	p := &script{replies: []providers.LLMResponse{{Content: "hello", FinishReason: "tool_calls", Usage: &providers.Usage{TotalTokens: 5}}}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, MaxIterations: 5}, user("hi"), "test", "1")
	if err != nil || res.Content != "hello" || res.Iterations != 1 || res.StopReason != tools.StopAnswer || res.Usage.TotalTokens != 5 {
		t.Errorf("got %+v, %v", res, err)
	}
	if len(p.defs[0]) != 0 {
		t.Errorf("definitions without tools: %v", p.defs[0])
	}
}

func TestLoopRunsCallsInOrder(t *testing.T) {
	p := &script{replies: []providers.LLMResponse{
		{Content: "let me see", FinishReason: "stop", ToolCalls: []providers.ToolCall{ // calls are run, whatever the reason says
			toolCall("1", "echo", text("one")), toolCall("2", "fails", nil), toolCall("3", "quiet", nil), toolCall("4", "nope", nil),
		}},
		answering("done"),
	}}
	messages := append(make([]providers.Message, 0, 16), user("hi")...)
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5}, messages, "test", "1")
	if err != nil || res.Content != "done" || res.Iterations != 2 {
		t.Fatalf("got %+v, %v", res, err)
	}
	var contents []string
	for _, m := range res.Messages {
		contents = append(contents, m.Role+" "+m.ToolCallID+": "+m.Content)
	}
	want := []string{
		"assistant : let me see",
		"tool 1: one",
		"tool 2: disk full",
		"tool 3: ",
		`tool 4: Tool "nope" not found. Available tools: echo, fails, quiet.`,
		"assistant : done",
	}
	if diff := cmp.Diff(want, contents); diff != "" {
		t.Error(diff)
	}
	checkHistory(t, res.Messages)
	sent := p.asked[1]
	if len(sent) != 6 || sent[4].Content != "(tool quiet completed with no output)" {
		t.Errorf("the second request has %+v", sent)
	}
	if extra := messages[:cap(messages)][1]; extra.Role != "" {
		t.Errorf("the caller's slice was written to: %+v", extra)
	}
	if names := []string{p.defs[0][0].Function.Name, p.defs[0][1].Function.Name, p.defs[0][2].Function.Name}; !slices.IsSorted(names) {
		t.Errorf("definitions are not sorted: %v", names)
	}
}

func TestLoopStopsAtMaxIterations(t *testing.T) {
	for _, n := range []int{0, 1, 4} {
		for _, final := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", n, final), func(t *testing.T) {
				p := &script{replies: []providers.LLMResponse{{Content: "thinking", ToolCalls: []providers.ToolCall{toolCall("1", "echo", text("x"))}}}}
				res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: n, FinalAnswer: final}, user("hi"), "test", "1")
				if err != nil || res.StopReason != tools.StopMaxIterations {
					t.Fatalf("got %+v, %v", res, err)
				}
				checkHistory(t, res.Messages)
				want, content := n, ""
				if final {
					want, content = n+1, "thinking"
					last := p.asked[n]
					if p.defs[n] != nil || last[len(last)-1].Role != providers.RoleUser {
						t.Errorf("the final request has tools %v and ends in %+v", p.defs[n], last[len(last)-1])
					}
					if m := res.Messages[len(res.Messages)-1]; m.Role != providers.RoleAssistant || len(m.ToolCalls) != 0 {
						t.Errorf("the history ends in %+v", m)
					}
				}
				if len(p.asked) != want || res.Iterations != want || res.Content != content {
					t.Errorf("%d requests, %d iterations, content %q; want %d and %q", len(p.asked), res.Iterations, res.Content, want, content)
				}
			})
		}
	}
}

func TestLoopOddReplies(t *testing.T) {
	shared := []providers.ToolCall{toolCall("", "echo", text("x")), toolCall("", "echo", text("y")), toolCall("dup", "echo", text("a")), toolCall("dup", "echo", text("b"))}
	for name, c := range map[string]struct {
		reply providers.LLMResponse
		want  []string // how the answers begin
	}{
		"ids missing or double": {calling(shared...), []string{"x", "y", "a", "b"}},
		"no name":               {calling(toolCall("1", "", nil)), []string{"The call names no tool"}},
		"null arguments":        {calling(toolCall("1", "echo", nil)), []string{""}},
		"function form only":    {calling(providers.ToolCall{ID: "1", Function: &providers.FunctionCall{Name: "echo", Arguments: `{"text":"f"}`}}), []string{"f"}},
		"bad JSON": {
			calling(providers.ToolCall{ID: "1", Name: "echo", Arguments: map[string]interface{}{}, Function: &providers.FunctionCall{Name: "echo", Arguments: `{"text" is "x"}`}}),
			[]string{"The arguments are not a JSON object"},
		},
		"half JSON": {
			calling(providers.ToolCall{ID: "1", Name: "echo", Arguments: map[string]interface{}{}, Function: &providers.FunctionCall{Name: "echo", Arguments: `{"text":`}}),
			[]string{"Your reply was cut off"},
		},
		"array for arguments": {
			calling(providers.ToolCall{ID: "1", Name: "echo", Function: &providers.FunctionCall{Name: "echo", Arguments: `[1]`}}),
			[]string{"The arguments are not a JSON object"},
		},
		"cut off": {
			providers.LLMResponse{ToolCalls: []providers.ToolCall{toolCall("1", "echo", text("x"))}, FinishReason: providers.FinishLength},
			[]string{"Your reply was cut off"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &script{replies: []providers.LLMResponse{c.reply, answering("done")}}
			res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5}, user("hi"), "test", "1")
			if err != nil || res.Content != "done" {
				t.Fatalf("got %+v, %v", res, err)
			}
			checkHistory(t, res.Messages)
			ids := map[string]bool{}
			for i, want := range c.want {
				m := res.Messages[i+1]
				if !strings.HasPrefix(m.Content, want) || m.ToolCallID == "" || ids[m.ToolCallID] {
					t.Errorf("answer %d is %+v, want %q", i, m, want)
				}
				ids[m.ToolCallID] = true
			}
			for _, m := range p.asked[1] {
				for _, tc := range m.ToolCalls {
					if tc.Name == "" || tc.Function != nil && !json.Valid([]byte(tc.Function.Arguments)) {
						t.Errorf("the provider is sent %+v", tc)
					}
				}
			}
		})
	}
	if shared[0].ID != "" || shared[3].ID != "dup" {
		t.Errorf("the provider's own calls were changed: %+v", shared)
	}
}

func TestLoopWithoutTools(t *testing.T) {
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "made_up", nil)), answering("sorry")}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, MaxIterations: 3}, user("hi"), "test", "1")
	if err != nil || res.Content != "sorry" || !strings.Contains(res.Messages[1].Content, "no tools") {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestLoopKeepsItsRoundsWhenTheProviderFails(t *testing.T) {
	broken := errors.New("broken")
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "echo", text("x")))}, errs: map[int]error{2: broken}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5}, user("hi"), "test", "1")
	if !errors.Is(err, broken) || res.StopReason != tools.StopError || res.Iterations != 2 || len(res.Messages) != 4 {
		t.Errorf("got %+v, %v", res, err)
	}
	checkHistory(t, res.Messages)
}

type panicking struct{}

func (panicking) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	panic("oh")
}

type silent struct{}

func (silent) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return nil, nil //nolint:nilnil // what is tested
}

func TestLoopProviderThatBreaksTheContract(t *testing.T) {
	for _, p := range []providers.LLMProvider{panicking{}, silent{}, nil} {
		res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, MaxIterations: 3}, user("hi"), "test", "1")
		if err == nil || res == nil || res.StopReason != tools.StopError {
			t.Errorf("%T: %+v, %v", p, res, err)
		}
		if panicked, ok := errors.AsType[*tools.ProviderPanicError](err); ok && len(panicked.Stack) == 0 {
			t.Error("the panic has no stack")
		}
	}
}

// The loop is cancelled at every place where it can be.
func TestLoopCancelled(t *testing.T) {
	why := errors.New("the person said stop")
	for at := range 8 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			step, ran := 0, 0
			next := func() {
				if step == at {
					cancel(why)
				}
				step++
			}
			r := tools.NewToolRegistry()
			r.Register(&fake{name: "work", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
				next()
				ran++
				return tools.NewToolResult("worked")
			}})
			p := &script{
				replies: []providers.LLMResponse{
					calling(toolCall("1", "work", nil), toolCall("2", "work", nil), toolCall("3", "work", nil)),
					calling(toolCall("4", "work", nil)),
					answering("done"),
				},
				onChat: func(int) { next() },
			}
			res, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 5}, user("hi"), "test", "1")
			checkHistory(t, res.Messages)
			worked := 0
			for _, m := range res.Messages {
				if m.Content == "worked" {
					worked++
				} else if m.Role == providers.RoleTool && !strings.Contains(m.Content, "Cancelled") {
					t.Errorf("a call that was not run is answered %q", m.Content)
				}
			}
			if worked != ran {
				t.Errorf("%d calls ran, %d have their result", ran, worked)
			}
			if at >= step {
				if err != nil || res.Content != "done" {
					t.Errorf("got %+v, %v", res, err)
				}
				return
			}
			if !errors.Is(err, why) || !errors.Is(err, context.Canceled) || res.StopReason != tools.StopCancelled {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

func TestLoopEvents(t *testing.T) {
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "echo", text("x"))), answering("done")}, errs: map[int]error{2: errors.New("broken")}}
	var got []string
	config := tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5, OnEvent: func(e tools.Event) {
		got = append(got, fmt.Sprintf("%s %d %s %v %v %v", e.Kind, e.Round, e.Call.ID, e.Result != nil, e.Response != nil, e.Err != nil))
	}}
	if _, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1"); err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"model_start 1  false false false", "model_end 1  false true false",
		"tool_start 1 1 false false false", "tool_end 1 1 true false false",
		"model_start 2  false false false", "model_end 2  false true false",
		"model_start 1  false false false", "model_end 1  false false true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoopAsyncCallback(t *testing.T) {
	r := echo()
	r.Register(task("work", func(ctx context.Context, in taskInput, report tools.AsyncCallback) {
		report(ctx, tools.NewToolResult(in.What))
	}))
	run := func(callback func(tools.Call) tools.AsyncCallback) {
		p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "work", what("dig")), toolCall("2", "echo", text("x"))), answering("done")}}
		config := tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 5, AsyncCallback: callback}
		if res, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1"); err != nil || res.Messages[1].Content != "started" {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	reports := make(chan string, 1)
	run(func(call tools.Call) tools.AsyncCallback {
		if call.ID != "1" || call.Tool != "work" || call.ChatID != "1" || call.Label != "dig" {
			t.Errorf("a callback was asked for %+v", call)
		}
		return func(_ context.Context, result *tools.ToolResult) { reports <- call.ID + " " + result.ForLLM }
	})
	if got := <-reports; got != "1 dig" {
		t.Errorf("reported %s", got)
	}
	run(nil)
	run(func(tools.Call) tools.AsyncCallback { return nil })
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if len(reports) != 0 {
		t.Error("reported without a callback")
	}
}

// The empty results of earlier turns are filled in for the provider too.
func TestLoopFillsInEmptyResultsOfTheHistory(t *testing.T) {
	history := []providers.Message{
		{Role: providers.RoleUser, Content: "hi"},
		{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{toolCall("1", "quiet", nil)}},
		{Role: providers.RoleTool, ToolCallID: "1"},
		{Role: providers.RoleAssistant, Content: "hm"},
		{Role: providers.RoleUser, Content: "and?"},
	}
	p := &script{replies: []providers.LLMResponse{answering("done")}}
	if _, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 1}, history, "test", "1"); err != nil {
		t.Fatal(err)
	}
	if got := p.asked[0][2].Content; got != "(tool quiet completed with no output)" || history[2].Content != "" {
		t.Errorf("sent %q, history %q", got, history[2].Content)
	}
}

// A loop inside a tool has calls of its own, distinct from the outer ones.
func TestLoopWithinATool(t *testing.T) {
	r := tools.NewToolRegistry()
	keys := map[string]string{}
	r.Register(&fake{name: "leaf", run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		call, _ := tools.CallFrom(ctx)
		if other, ok := keys[call.Key()]; ok {
			t.Errorf("calls %s and %s have one key", other, call.ID)
		}
		keys[call.Key()] = call.ID
		return tools.NewToolResult("leaf for " + call.ChatID + " and " + call.Principal)
	}})
	r.Register(&fake{name: "sub", run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		r.Execute(ctx, "leaf", nil)
		r.Execute(ctx, "leaf", nil)
		p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "leaf", nil)), answering("sub done")}}
		res, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3}, user("go"), "", "")
		if err != nil || res.Messages[1].Content != "leaf for 1 and test:9" {
			t.Errorf("got %+v, %v", res, err)
		}
		return tools.NewToolResult(res.Content)
	}})
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "leaf", nil), toolCall("2", "sub", nil)), answering("done")}}
	ctx := tools.WithCall(t.Context(), tools.Call{Turn: "t1", Principal: "test:9"})
	if _, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3}, user("hi"), "test", "1"); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 4 {
		t.Errorf("%d calls ran", len(keys))
	}
}

// Tools come and go while the calls of a loop run side by side.
func TestRegistryChangesUnderCallsSideBySide(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&beside{fake: fake{name: "work", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		name := fmt.Sprint("tool_", args["number"])
		r.Register(&fake{name: name})
		r.Register(&beside{fake: fake{name: "swapped"}})
		r.Unregister(name)
		return tools.NewToolResult("worked")
	}}})
	r.Register(&beside{fake: fake{name: "swapped"}})
	var replies []providers.LLMResponse
	for range 5 {
		var calls []providers.ToolCall
		for n := range 8 {
			calls = append(calls, toolCall(fmt.Sprint(n), "work", number(n)), toolCall(fmt.Sprint("s", n), "swapped", number(n)))
		}
		replies = append(replies, calling(calls...))
	}
	_, res := run(t, tools.ToolLoopConfig{Tools: r, Parallel: 8}, append(replies, answering("done"))...)
	for _, m := range res.Messages {
		if m.Role == providers.RoleTool && m.Content != "worked" && m.Content != "ran swapped" {
			t.Errorf("a call is answered %q", m.Content)
		}
	}
}

// Tools come and go while a loop runs; each round sees what is there then.
func TestRegistryChangesDuringALoop(t *testing.T) {
	r := echo()
	p := &script{replies: []providers.LLMResponse{
		calling(toolCall("1", "echo", text("x"))), calling(toolCall("2", "late", nil)), calling(toolCall("3", "echo", text("x"))), answering("done"),
	}}
	p.onChat = func(n int) {
		switch n {
		case 0:
			r.Register(&fake{name: "late"})
		case 1:
			r.Unregister("echo")
		}
	}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 5}, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{res.Messages[1].Content, res.Messages[3].Content, res.Messages[5].Content[:21]}; !slices.Equal(got, []string{"x", "ran late", `Tool "echo" not found`}) {
		t.Errorf("got %q", got)
	}
	if counts := []int{len(p.defs[0]), len(p.defs[1]), len(p.defs[2])}; !slices.Equal(counts, []int{3, 4, 3}) {
		t.Errorf("definitions per round: %v", counts)
	}
}
