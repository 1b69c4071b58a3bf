package openai_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func toolNamed(name string) providers.ToolDefinition {
	return providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
		Name: name, Description: "Does it.", Parameters: map[string]any{
			"type": "object", "required": []string{"path"},
			"properties": map[string]any{"path": map[string]any{"type": "string"}, "a": map[string]any{"type": "integer"}, "z": map[string]any{"type": "boolean"}},
		},
	}}
}

// asked returns the bodies of the requests that the given conversations make,
// each by a provider of its own.
func asked(t *testing.T, conversations [][]providers.Message, tools []providers.ToolDefinition, set map[string]any) [][]byte {
	t.Helper()
	var bodies [][]byte
	for _, messages := range conversations {
		p := open(t, func(r providerstest.Request) providerstest.Response {
			bodies = append(bodies, slices.Clone(r.Body))
			return providerstest.Text("ok")
		})
		if _, err := p.Chat(t.Context(), messages, tools, "m", set); err != nil {
			t.Fatal(err)
		}
	}
	return bodies
}

// What an API has read before it reads again for a tenth, if it is the same to
// the byte: the tools whatever their order, options whatever their order, and a
// conversation as the beginning of the longer one.
func TestFieldPromptCaching(t *testing.T) {
	conversation := []providers.Message{
		{Role: providers.RoleSystem, Content: "Be brief."},
		{Role: providers.RoleUser, Content: "What is in a?"},
		{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{
			{ID: "c1", Type: "function", Name: "read_file", Arguments: map[string]any{"path": "a", "z": true, "a": 1, "deep": map[string]any{"y": 1, "x": 2}}},
			{ID: strings.Repeat("long", 20), Type: "function", Name: "mcp.files/list", Function: &providers.FunctionCall{Name: "mcp.files/list", Arguments: `{ "path" : "b" }`}},
		}},
		{Role: providers.RoleTool, ToolCallID: "c1", Content: "hello <b> & \u2028"},
		{Role: providers.RoleTool, ToolCallID: strings.Repeat("long", 20), Content: ""},
		{Role: providers.RoleAssistant, Content: "A greeting."},
		{Role: providers.RoleUser, Content: "Thank you."},
	}
	var tools []providers.ToolDefinition
	for _, name := range []string{"write_file", "mcp.files/list", "read_file", "now"} {
		tools = append(tools, toolNamed(name))
	}
	options := map[string]any{
		"max_tokens": 100, "temperature": 0.5, "stop": []any{"x"}, "metadata": map[string]any{"b": "1", "a": "2"}, "logit_bias": map[string]any{"7": 1, "5": 2},
		"seed": 7, "user": "u", "tool_choice": map[string]any{"type": "function", "function": map[string]any{"name": "now"}}, "chat_template_kwargs": map[string]any{"y": 1, "x": 2},
	}
	first := asked(t, [][]providers.Message{conversation}, tools, options)[0]
	for range 50 {
		slices.Reverse(tools)
		if again := asked(t, [][]providers.Message{conversation}, tools, options)[0]; !bytes.Equal(again, first) {
			t.Fatalf("the same request has other bytes\n%s\n%s", first, again)
		}
	}
	type parts struct {
		Messages json.RawMessage `json:"messages"`
		Tools    json.RawMessage `json:"tools"`
	}
	var before parts
	steps := [][]providers.Message{conversation[:2], conversation[:5], conversation[:7]}
	for i, body := range asked(t, steps, tools, options) {
		var now parts
		if err := json.Unmarshal(body, &now); err != nil {
			t.Fatal(err)
		}
		beginning := bytes.TrimSuffix(before.Messages, []byte("]"))
		if !bytes.HasPrefix(now.Messages, beginning) || i > 0 && !bytes.Equal(now.Tools, before.Tools) {
			t.Errorf("request %d does not go on from the one before\n%s\n%s", i, before.Messages, now.Messages)
		}
		before = now
	}
}

// Ids of other services are made fit, and a result keeps to its call.
func TestIDsTheAPIRefuses(t *testing.T) {
	ids := []string{
		"call_1", "toolu_01A09q90qw90lq917835lq9", "functions.read_file:0", strings.Repeat("x", 40), strings.Repeat("x", 41), strings.Repeat("x", 42),
		"chatcmpl-tool-0123456789abcdef0123456789abcdef", "größe", "a b", "a/b", "a|b",
	}
	messages := hello()
	call := providers.Message{Role: providers.RoleAssistant}
	for _, id := range ids {
		call.ToolCalls = append(call.ToolCalls, providers.ToolCall{ID: id, Type: "function", Name: "now", Arguments: map[string]any{}})
	}
	messages = append(messages, call)
	for _, id := range slices.Backward(ids) {
		messages = append(messages, providers.Message{Role: providers.RoleTool, ToolCallID: id, Content: "of " + id})
	}
	var seen providerstest.Request
	p := openWith(t, func(r providerstest.Request) providerstest.Response { seen = r; return providerstest.Text("ok") }, openai.Config{})
	if _, err := p.Chat(t.Context(), messages, nil, "m", nil); err != nil {
		t.Fatal(err)
	}
	for i, c := range seen.Messages[1].ToolCalls {
		result := seen.Messages[len(seen.Messages)-1-i]
		if result.ToolCallID != c.ID || result.Content != "of "+ids[i] || strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:") != "" {
			t.Errorf("the id %q became %q, that of its result %q", ids[i], c.ID, result.ToolCallID)
		}
		if i < 4 && c.ID != ids[i] {
			t.Errorf("the good id %q became %q", ids[i], c.ID)
		}
	}
}
