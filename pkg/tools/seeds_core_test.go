package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The examples of the text on the core logic, each made into a program: what a
// tool is, what its results are, what the registry offers, and what travels
// between the model and a tool.

// The contract, name by name. A signature that changes stops compiling here.
type (
	coreTool interface {
		Name() string
		Description() string
		Parameters() map[string]interface{}
		Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult
	}
	coreContextual interface {
		tools.Tool
		SetContext(channel, chatID string)
	}
	coreAsync interface {
		tools.Tool
		SetCallback(cb tools.AsyncCallback)
	}
	coreRegistry interface {
		Register(tool tools.Tool)
		Get(name string) (tools.Tool, bool)
		Execute(ctx context.Context, name string, args map[string]interface{}) *tools.ToolResult
		ExecuteWithContext(ctx context.Context, name string, args map[string]interface{}, channel, chatID string, asyncCallback tools.AsyncCallback) *tools.ToolResult
	}
	coreExport interface {
		GetDefinitions() []map[string]interface{}
		ToProviderDefs() []providers.ToolDefinition
		List() []string
		Count() int
		GetSummaries() []string
	}
)

var (
	_ tools.Tool           = coreTool(nil)
	_ coreTool             = tools.Tool(nil)
	_ tools.ContextualTool = coreContextual(nil)
	_ coreContextual       = tools.ContextualTool(nil)
	_ tools.AsyncTool      = coreAsync(nil)
	_ coreAsync            = tools.AsyncTool(nil)
	_ coreRegistry         = (*tools.ToolRegistry)(nil)
	_ coreExport           = (*tools.ToolRegistry)(nil)

	_ tools.AsyncCallback                                                                                             = func(context.Context, *tools.ToolResult) {}
	_ func(tools.Tool) map[string]any                                                                                 = tools.ToolToSchema
	_ func() *tools.ToolRegistry                                                                                      = tools.NewToolRegistry
	_ func(string) *tools.ToolResult                                                                                  = tools.NewToolResult
	_ func(string) *tools.ToolResult                                                                                  = tools.SilentResult
	_ func(string) *tools.ToolResult                                                                                  = tools.AsyncResult
	_ func(string) *tools.ToolResult                                                                                  = tools.ErrorResult
	_ func(string) *tools.ToolResult                                                                                  = tools.UserResult
	_ func(error) *tools.ToolResult                                                                                   = (&tools.ToolResult{}).WithError
	_ func(string) (tools.Tool, bool)                                                                                 = tools.NewToolRegistry().Get
	_ func() []providers.ToolDefinition                                                                               = tools.NewToolRegistry().ToProviderDefs
	_ func(context.Context, tools.ToolLoopConfig, []providers.Message, string, string) (*tools.ToolLoopResult, error) = tools.RunToolLoop
)

// readFile is the tool the text describes, with its sample of Parameters.
type readFile struct{ files map[string]string }

func (*readFile) Name() string        { return "read_file" }
func (*readFile) Description() string { return "Read the contents of a file at the given path." }
func (*readFile) Parameters() map[string]interface{} {
	return map[string]interface{}{
		"type": "object",
		"properties": map[string]interface{}{
			"path": map[string]interface{}{
				"type":        "string",
				"description": "Path to the file to read",
			},
		},
		"required": []string{"path"},
	}
}

func (r *readFile) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	content, ok := r.files[args["path"].(string)]
	if !ok {
		return tools.ErrorResult("there is no such file")
	}
	return tools.NewToolResult(content)
}

// sameJSON fails unless v is written as the JSON text.
func sameJSON(t *testing.T, v interface{}, text string) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var got, want interface{}
	if err := errors.Join(json.Unmarshal(data, &got), json.Unmarshal([]byte(text), &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

const readFileDefinition = `{
	"type": "function",
	"function": {
		"name": "read_file",
		"description": "Read the contents of a file at the given path.",
		"parameters": {
			"type": "object",
			"properties": {"path": {"type": "string", "description": "Path to the file to read"}},
			"required": ["path"]
		}
	}
}`

func TestSeedCoreDefinitions(t *testing.T) {
	sameJSON(t, tools.ToolToSchema(&readFile{}), readFileDefinition)
	r := tools.NewToolRegistry()
	r.Register(&readFile{})
	sameJSON(t, r.ToProviderDefs(), "["+readFileDefinition+"]")
	sameJSON(t, r.GetDefinitions(), "["+readFileDefinition+"]")
	if got := r.GetSummaries(); len(got) != 1 || got[0] != "- `read_file` - Read the contents of a file at the given path." {
		t.Errorf("got %q", got)
	}
}

func TestSeedCoreResults(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		result *tools.ToolResult
		json   string
	}{
		"new":    {tools.NewToolResult("File saved"), `{"for_llm":"File saved","silent":false,"is_error":false,"async":false}`},
		"silent": {tools.SilentResult("saved"), `{"for_llm":"saved","silent":true,"is_error":false,"async":false}`},
		"async":  {tools.AsyncResult("Task started, will report back"), `{"for_llm":"Task started, will report back","silent":false,"is_error":false,"async":true}`},
		"error":  {tools.ErrorResult("failed").WithError(cause), `{"for_llm":"failed","silent":false,"is_error":true,"async":false}`},
		"user":   {tools.UserResult("42"), `{"for_llm":"42","for_user":"42","silent":false,"is_error":false,"async":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			sameJSON(t, c.result, c.json)
			same := c.result.WithError(cause)
			if same != c.result || !errors.Is(same.Err, cause) {
				t.Error("WithError returns another result")
			}
			sameJSON(t, c.result, c.json)
		})
	}
}

// chat plays the model's part of the text: it calls read_file, gets the content
// and answers.
type chat struct {
	t       *testing.T
	options map[string]interface{}
	asked   [][]providers.Message
}

func (c *chat) Chat(_ context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	c.asked = append(c.asked, messages)
	if model != "gpt-4o" || !cmp.Equal(options, c.options) {
		c.t.Errorf("asked %s with %v", model, options)
	}
	sameJSON(c.t, defs, "["+readFileDefinition+"]")
	if len(c.asked) > 1 {
		return &providers.LLMResponse{Content: "It says hello.", FinishReason: "stop"}, nil
	}
	// The wire form of a reply; an adapter reads the arguments into a map.
	var reply providers.LLMResponse
	err := json.Unmarshal([]byte(`{
		"content": "I'll read that file for you.",
		"tool_calls": [{"id": "call_abc123", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\": \"/tmp/foo\"}"}}],
		"finish_reason": "tool_calls"
	}`), &reply)
	if err != nil {
		return nil, err
	}
	call := &reply.ToolCalls[0]
	call.Name = call.Function.Name
	return &reply, json.Unmarshal([]byte(call.Function.Arguments), &call.Arguments)
}

func TestSeedCoreLoop(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&readFile{files: map[string]string{"/tmp/foo": "Hello from /tmp/foo\n"}})
	model := &chat{t: t, options: map[string]any{"max_tokens": 4096, "temperature": 0.7}}
	config := tools.ToolLoopConfig{Provider: model, Model: "gpt-4o", Tools: r, MaxIterations: 10, LLMOptions: model.options}

	result, err := tools.RunToolLoop(t.Context(), config, user("What is in /tmp/foo?"), "telegram", "123")
	if err != nil || result.Content != "It says hello." || result.Iterations != 2 {
		t.Fatalf("got %+v, %v", result, err)
	}
	second := model.asked[1]
	if len(second) != 3 || second[1].Role != "assistant" || second[1].Content != "I'll read that file for you." || second[1].ToolCalls[0].ID != "call_abc123" {
		t.Errorf("the second request has %+v", second)
	}
	sameJSON(t, second[2], `{"role": "tool", "content": "Hello from /tmp/foo\n", "tool_call_id": "call_abc123"}`)
}

// One element of tool_calls as the loop takes it.
func TestSeedCoreCallElement(t *testing.T) {
	var call providers.ToolCall
	if err := json.Unmarshal([]byte(`{"id": "call_abc123", "name": "read_file", "arguments": {"path": "/tmp/foo"}}`), &call); err != nil {
		t.Fatal(err)
	}
	r := tools.NewToolRegistry()
	r.Register(&readFile{files: map[string]string{"/tmp/foo": "Hello"}})
	if got := r.ExecuteWithContext(t.Context(), call.Name, call.Arguments, "telegram", "123", nil).ForLLM; got != "Hello" {
		t.Errorf("got %q", got)
	}
	if _, ok := r.Get("write_file"); ok {
		t.Error("found a tool that is not there")
	}
	if result := r.Execute(t.Context(), "write_file", nil); !result.IsError {
		t.Errorf("an unknown tool gives %+v", result)
	}
}
