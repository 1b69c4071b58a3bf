package jsontool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/jsontool"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errOutOfOrder = errors.New("the lift is out of order")

// lift is a tool that takes JSON; to floor -1 it does not go.
type lift struct {
	name     string
	schema   map[string]interface{}
	breaking bool
}

func newLift() *lift {
	return &lift{name: "lift", schema: map[string]interface{}{
		"type":       "object",
		"properties": map[string]interface{}{"floor": map[string]interface{}{"type": "integer", "description": "Where to"}},
		"required":   []string{"floor"},
	}}
}

func (l *lift) Name() string                   { return l.name }
func (*lift) Description() string              { return "Take the lift to a floor." }
func (l *lift) Schema() map[string]interface{} { return l.schema }
func (l *lift) IsLoopBreaking() bool           { return l.breaking }

func (l *lift) Execute(_ context.Context, arguments json.RawMessage) (string, error) {
	var in struct {
		Floor json.Number `json:"floor"`
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		return "", fmt.Errorf("invalid arguments: %w", err)
	}
	switch in.Floor {
	case "":
		return "", errors.New("which floor?")
	case "-1":
		return "", errOutOfOrder
	}
	return "on floor " + in.Floor.String(), nil
}

func TestAdaptedToolPassesTheKit(t *testing.T) {
	toolstest.Check(t, jsontool.Adapt(newLift()), toolstest.Args(map[string]interface{}{"floor": 3}))
}

func TestRegisterTool(t *testing.T) {
	r := jsontool.NewRegistry()
	l := newLift()
	if err := r.RegisterTool(l); err != nil {
		t.Fatal(err)
	}
	unnamed, broken := newLift(), newLift()
	unnamed.name = ""
	broken.name, broken.schema = "broken", map[string]interface{}{"type": "object", "properties": map[string]interface{}{"x": map[string]interface{}{"type": "no type"}}}
	for want, wrong := range map[string]jsontool.Tool{"taken": newLift(), "nil tool": nil, "has no name": unnamed, "schema": broken, "panics": (*lift)(nil)} {
		if err := r.RegisterTool(wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if got, ok := r.GetTool("lift"); !ok || got != jsontool.Tool(l) {
		t.Errorf("GetTool gives %v, %v", got, ok)
	}
	if _, ok := r.GetTool("stairs"); ok {
		t.Error("there are stairs")
	}
}

func TestRegistryExecute(t *testing.T) {
	r := jsontool.NewRegistry()
	if err := r.RegisterTool(newLift()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, arguments, want, err string }{
		{"lift", `{"floor": 12345678901234567890}`, "on floor 12345678901234567890", ""},
		{"lift", `{"floor": -1}`, "", "tool execution failed: the lift is out of order"},
		{"lift", `{"floor": "up"}`, "", "tool execution failed: Invalid arguments for lift: floor"},
		{"lift", ``, "", "floor is required"},
		{"lift", `null`, "", "floor is required"},
		{"lift", `{"floor": 1} {}`, "", "tool execution failed: invalid arguments"},
		{"lift", `[1]`, "", "tool execution failed: invalid arguments"},
		{"stairs", `{}`, "", "tool not found: stairs"},
	} {
		got, err := r.Execute(t.Context(), tc.name, json.RawMessage(tc.arguments))
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s(%s) gives %q, %v", tc.name, tc.arguments, got, err)
		}
	}
	if _, err := r.Execute(t.Context(), "stairs", nil); !errors.Is(err, tools.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Execute(t.Context(), "lift", json.RawMessage(`{"floor": -1}`)); !errors.Is(err, errOutOfOrder) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// chatTool is a tool of the core that keeps its conversation in itself.
type chatTool struct{ chat string }

func (*chatTool) Name() string                       { return "chat" }
func (*chatTool) Description() string                { return "Tell which chat this is." }
func (*chatTool) Parameters() map[string]interface{} { return map[string]interface{}{"type": "object"} }
func (*chatTool) IsLoopBreaking() bool               { return true }
func (c *chatTool) SetContext(_, chatID string)      { c.chat = chatID }

func (c *chatTool) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	if args["fail"] == true {
		return (&tools.ToolResult{IsError: true}).WithError(errOutOfOrder)
	}
	return tools.NewToolResult("chat " + c.chat)
}

func TestToolsOfTheCore(t *testing.T) {
	core := tools.NewToolRegistry()
	core.Register(&chatTool{})
	r := jsontool.Over(core)
	if err := r.RegisterTool(newLift()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range r.GetTools() {
		names = append(names, tool.Name())
		if tool.Schema() == nil || tool.Description() == "" {
			t.Errorf("%s tells nothing of itself", tool.Name())
		}
	}
	if diff := cmp.Diff([]string{"chat", "lift"}, names); diff != "" {
		t.Error(diff)
	}
	chat, _ := r.GetTool("chat")
	ctx := tools.WithCall(t.Context(), tools.Call{Channel: "test", ChatID: "7"})
	if got, err := chat.Execute(ctx, nil); got != "chat 7" || err != nil || !chat.IsLoopBreaking() {
		t.Errorf("got %q, %v", got, err) // by way of the registry, which tells it the chat
	}
	if _, err := chat.Execute(ctx, json.RawMessage(`{"fail":true}`)); !errors.Is(err, errOutOfOrder) || err.Error() != errOutOfOrder.Error() {
		t.Errorf("got %v", err)
	}
	if _, err := chat.Execute(ctx, json.RawMessage(`{`)); err == nil {
		t.Error("half an object is taken")
	}
}

func TestThereAndBack(t *testing.T) {
	l, c := jsontool.Tool(newLift()), tools.Tool(&chatTool{})
	if jsontool.Of(jsontool.Adapt(l)) != l || jsontool.Adapt(jsontool.Of(c)) != c {
		t.Error("there and back is another tool")
	}
	if jsontool.Adapt(nil) != nil || jsontool.Of(nil) != nil {
		t.Error("nil becomes a tool")
	}
	if got, err := jsontool.Of(c).Execute(t.Context(), nil); got != "chat " || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// oneCall is a model that makes one call and then says what came of it.
type oneCall providers.ToolCall

func (c oneCall) Chat(_ context.Context, messages []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	if last := messages[len(messages)-1]; last.Role == providers.RoleTool {
		return &providers.LLMResponse{Content: "I am " + last.Content}, nil
	}
	return &providers.LLMResponse{ToolCalls: []providers.ToolCall{providers.ToolCall(c)}}, nil
}

func TestInTheLoop(t *testing.T) {
	model := oneCall{ID: "1", Name: "lift", Arguments: map[string]interface{}{"floor": 1.2345678901234567e19}, Function: &providers.FunctionCall{Name: "lift", Arguments: `{"floor":12345678901234567890}`}}
	for breaking, want := range map[bool]string{false: "I am on floor 12345678901234567890", true: "on floor 12345678901234567890"} {
		l := newLift()
		l.breaking = breaking
		core := tools.NewToolRegistry()
		core.Register(jsontool.Adapt(l))
		res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: model, Tools: core, MaxIterations: 3}, []providers.Message{{Role: providers.RoleUser, Content: "up"}}, "test", "1")
		if err != nil || res.Content != want {
			t.Errorf("breaking %v: %+v, %v", breaking, res, err)
		}
	}
}
