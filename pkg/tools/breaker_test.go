package tools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// breaker is a tool that ends the loop, and may be run again.
type breaker struct{ fake }

func (*breaker) IsLoopBreaking() bool { return true }
func (*breaker) Idempotent() bool     { return true }

// decorated hides what a tool has besides the methods of Tool.
type decorated struct{ tools.Tool }

func (d decorated) Unwrap() tools.Tool { return d.Tool }

func finishing(run func(context.Context, map[string]interface{}) *tools.ToolResult) tools.Tool {
	return &breaker{fake{name: "finish", run: run}}
}

func TestLoopBreakerEndsTheLoop(t *testing.T) {
	done := func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.UserResult("all done") }
	for name, tool := range map[string]tools.Tool{
		"as it is":  finishing(done),
		"decorated": decorated{finishing(done)},
		"per call":  tools.PerCall(func() tools.Tool { return finishing(done) }),
	} {
		t.Run(name, func(t *testing.T) {
			r := echo()
			r.Register(tool)
			p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "echo", text("x")), toolCall("2", "finish", nil), toolCall("3", "echo", text("y")))}}
			var ran []string
			res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
				Provider: p, Tools: r, MaxIterations: 5, FinalAnswer: true,
				OnEvent: func(e tools.Event) {
					if e.Kind == tools.EventToolEnd {
						ran = append(ran, e.Call.ID)
					}
				},
			}, user("hi"), "test", "1")
			if err != nil || res.Content != "all done" || res.StopReason != "tool:finish" || res.Iterations != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			checkHistory(t, res.Messages)
			if diff := cmp.Diff([]string{"1", "2"}, ran); diff != "" {
				t.Error(diff)
			}
			if last := res.Messages[len(res.Messages)-1]; last.ToolCallID != "3" || !strings.Contains(last.Content, "Not run") {
				t.Errorf("the call behind it is answered %+v", last)
			}
		})
	}
}

func TestLoopBreakerThatFailsEndsNothing(t *testing.T) {
	fail := true
	r := tools.NewToolRegistry()
	r.Register(finishing(func(context.Context, map[string]interface{}) *tools.ToolResult {
		if fail {
			fail = false
			return tools.ErrorResult("the result is empty")
		}
		return tools.NewToolResult("done")
	}))
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "finish", nil)), calling(toolCall("2", "finish", nil))}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 5}, user("hi"), "test", "1")
	if err != nil || res.Content != "done" || res.Iterations != 2 || res.StopReason != tools.StopTool+"finish" {
		t.Errorf("%+v, %v", res, err)
	}
}

// A run that ends between a breaker and the end of the turn is resumed: the
// breaker ends it again, and what stands behind it is not run then either.
func TestLoopBreakerAfterACrash(t *testing.T) {
	r := echo()
	r.Register(finishing(nil))
	calls := calling(toolCall("1", "finish", nil), toolCall("2", "echo", text("never")))
	k := &kept{}
	config := tools.ToolLoopConfig{Provider: &script{replies: []providers.LLMResponse{calls}}, Tools: r, MaxIterations: 5, Checkpoint: k.keep}
	first, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	if err != nil || k.String() != "1 reply , 1 begin 1" {
		t.Fatalf("%+v, %v, recorded %s", first, err, k)
	}
	config.Rounds, config.Provider = 1, &script{}
	resumed := append(user("hi"), providers.Message{Role: providers.RoleAssistant, ToolCalls: calls.ToolCalls})
	res, err := tools.RunToolLoop(t.Context(), config, resumed, "test", "1")
	if err != nil || res.Content != first.Content || res.StopReason != first.StopReason {
		t.Errorf("%+v, %v", res, err)
	}
	if diff := cmp.Diff(first.Messages[1:], res.Messages); diff != "" {
		t.Error(diff)
	}
}

// raw is a tool that takes its arguments as they were written.
type raw struct {
	fake
	got string
}

func (r *raw) ExecuteRaw(_ context.Context, arguments json.RawMessage) *tools.ToolResult {
	r.got = string(arguments)
	return tools.NewToolResult("ok")
}

func TestRawExecutor(t *testing.T) {
	tool := &raw{fake: fake{name: "raw", params: object([]string{"id"}, map[string]interface{}{"id": map[string]interface{}{"type": "integer"}})}}
	written := `{"z":1, "id":12345678901234567890}`
	call := providers.ToolCall{ID: "1", Name: "raw", Arguments: map[string]interface{}{"z": 1.0, "id": 1.2345678901234567e19}, Function: &providers.FunctionCall{Name: "raw", Arguments: written}}
	broken := call
	broken.Function = &providers.FunctionCall{Name: "raw", Arguments: "null"}
	wrong := toolCall("2", "raw", map[string]interface{}{"id": "one"})
	for _, tc := range []struct {
		name string
		tool tools.Tool
		call providers.ToolCall
		want string
	}{
		{"as written", tool, call, written},
		{"per call", tools.PerCall(func() tools.Tool { return tool }), call, written},
		{"no object", tool, broken, `{"id":12345678901234567000,"z":1}`},
		{"checked before", tool, wrong, ""},
		{"behind a decorator", decorated{tool}, call, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tool.got = ""
			r := tools.NewToolRegistry()
			r.Register(tc.tool)
			p := &script{replies: []providers.LLMResponse{calling(tc.call), answering("done")}}
			if _, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 5}, user("hi"), "test", "1"); err != nil {
				t.Fatal(err)
			}
			if tool.got != tc.want {
				t.Errorf("got %s, want %s", tool.got, tc.want)
			}
		})
	}
}

// What a provider could not read is told to the model and not run.
func TestLoopAnswersInvalidCalls(t *testing.T) {
	bad := toolCall("1", "echo", text("x"))
	bad.Invalid = "The call has no tool_name."
	p := &script{replies: []providers.LLMResponse{calling(bad), answering("sorry")}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5}, user("hi"), "test", "1")
	if err != nil || res.Content != "sorry" || res.Messages[1].Content != bad.Invalid {
		t.Errorf("%+v, %v", res, err)
	}
}
