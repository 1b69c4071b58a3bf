package control_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/control"
	"github.com/dragoman-chat/dragoman/pkg/tools/jsontool"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestToolsPassTheKit(t *testing.T) {
	for _, tc := range []struct {
		tool jsontool.Tool
		args map[string]interface{}
	}{
		{&control.TaskCompletionTool{}, map[string]interface{}{"result": "done"}},
		{&control.AskQuestionTool{}, map[string]interface{}{"question": "Why?", "suggestions": []interface{}{"because"}}},
		{&control.ConverseTool{}, map[string]interface{}{"message": "hello"}},
	} {
		t.Run(tc.tool.Name(), func(t *testing.T) { toolstest.Check(t, jsontool.Adapt(tc.tool), toolstest.Args(tc.args)) })
	}
}

func TestTexts(t *testing.T) {
	for _, tc := range []struct {
		tool            jsontool.Tool
		args, want, err string
	}{
		{&control.TaskCompletionTool{}, `{"result":"All 3 files are there."}`, "All 3 files are there.", ""},
		{&control.TaskCompletionTool{}, `{"result":" "}`, "", "result cannot be empty"},
		{&control.TaskCompletionTool{}, `{}`, "", "result cannot be empty"},
		{&control.TaskCompletionTool{}, `{`, "", "invalid arguments: unexpected end of JSON input"},
		{&control.AskQuestionTool{}, `{"question":"Which city?"}`, "Which city?", ""},
		{&control.AskQuestionTool{}, `{"question":"Which city?","suggestions":["Rome"," ","Paris"]}`, "Which city?\n\nSuggested answers:\n1. Rome\n2. Paris", ""},
		{&control.AskQuestionTool{}, `{"suggestions":["Rome"]}`, "", "question cannot be empty"},
		{&control.ConverseTool{}, `{"message":"Good morning."}`, "Good morning.", ""},
		{&control.ConverseTool{}, `{"message":""}`, "", "message cannot be empty"},
	} {
		got, err := tc.tool.Execute(t.Context(), json.RawMessage(tc.args))
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s(%s) gives %q, %v", tc.tool.Name(), tc.args, got, err)
		}
		if !tc.tool.IsLoopBreaking() {
			t.Errorf("%s does not end the loop", tc.tool.Name())
		}
	}
}

func install(t *testing.T) *tools.ToolRegistry {
	t.Helper()
	r := tools.NewToolRegistry()
	if err := control.Install(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestInstalledToolsCannotBeReplaced(t *testing.T) {
	r := install(t)
	if diff := cmp.Diff([]string{"ask_question", "converse", "task_completion"}, r.List()); diff != "" {
		t.Error(diff)
	}
	other := tools.Func("converse", "Say something else.", func(context.Context, struct{}) *tools.ToolResult { return tools.NewToolResult("ha") })
	r.Register(other)
	if err := r.RegisterTool(other); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("got %v", err)
	}
	r.Unregister("converse")
	if got := r.Execute(t.Context(), "converse", map[string]interface{}{"message": "hello"}); got.ForLLM != "hello" {
		t.Errorf("got %+v", got)
	}
}

func TestInstallAllOrNothing(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(tools.Func("converse", "Was here before.", func(context.Context, struct{}) *tools.ToolResult { return tools.NewToolResult("I was") }))
	if err := control.Install(r); err == nil || !strings.Contains(err.Error(), `"converse": the name is taken`) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"converse"}, r.List()); diff != "" {
		t.Error(diff)
	}
}

// replies is a model that gives one reply after the other.
type replies []providers.LLMResponse

func (r *replies) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	next := (*r)[0]
	*r = (*r)[1:]
	return &next, nil
}

func TestLoopEndsWithTheirText(t *testing.T) {
	calls := func(name, key, value string) providers.LLMResponse {
		return providers.LLMResponse{ToolCalls: []providers.ToolCall{{ID: "1", Name: name, Arguments: map[string]interface{}{key: value}}}}
	}
	model := &replies{calls("ask_question", "question", ""), calls("ask_question", "question", "Which city?")}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: model, Tools: install(t), MaxIterations: 5},
		[]providers.Message{{Role: providers.RoleUser, Content: "weather?"}}, "test", "1")
	if err != nil || res.Content != "Which city?" || res.StopReason != "tool:ask_question" || res.Iterations != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if got := res.Messages[1].Content; got != "tool execution failed: question cannot be empty" {
		t.Errorf("the model reads %q", got)
	}
}
