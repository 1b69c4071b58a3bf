package tools_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The examples of the interface reference, each made into a program.

// MyTool is the reference's example of a whole tool.
type MyTool struct{}

func (*MyTool) Name() string { return "my-tool" }

func (*MyTool) Description() string {
	return "Performs a specific action. Use this when you need to read a file."
}

func (*MyTool) Parameters() map[string]interface{} {
	return map[string]interface{}{
		"type": "object",
		"properties": map[string]interface{}{
			"path":     map[string]interface{}{"type": "string", "description": "File path to read"},
			"encoding": map[string]interface{}{"type": "string", "default": "utf-8", "description": "File encoding"},
		},
		"required": []string{"path"},
	}
}

func (*MyTool) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	path, ok := args["path"].(string)
	if !ok {
		return tools.ErrorResult("path is required")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return tools.ErrorResult(fmt.Sprintf("failed to read: %v", err))
	}
	return tools.UserResult(string(content))
}

func TestSeedReferenceTool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := &MyTool{}
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(tool); err != nil {
		t.Fatal(err) // a hyphen is legal
	}
	if result := r.Execute(t.Context(), "my-tool", map[string]interface{}{"path": path}); result.ForLLM != "hello" || result.ForUser != "hello" {
		t.Errorf("got %+v", result)
	}
	for _, args := range []map[string]interface{}{nil, {"path": 7}, {"path": path + ".none"}} {
		direct, checked := tool.Execute(t.Context(), args), r.Execute(t.Context(), "my-tool", args)
		if !direct.IsError || !checked.IsError {
			t.Errorf("%v gives %+v and %+v", args, direct, checked)
		}
	}
	if got := r.Execute(t.Context(), "my-tool", nil).ForLLM; !strings.Contains(got, "path is required") {
		t.Errorf("the model reads %q", got)
	}
	schema := tools.ToolToSchema(tool)
	if schema["type"] != "function" || schema["function"].(map[string]interface{})["name"] != "my-tool" {
		t.Errorf("the schema is %v", schema)
	}
}

// MessageTool is the reference's ContextualTool: it keeps the conversation in
// its fields.
type MessageTool struct {
	defaultChannel string
	defaultChatID  string
	sent           map[string]string
}

func (*MessageTool) Name() string        { return "message" }
func (*MessageTool) Description() string { return "Send a message to user" }
func (*MessageTool) Parameters() map[string]interface{} {
	return object([]string{"content"}, map[string]interface{}{"content": map[string]interface{}{"type": "string"}})
}

func (t *MessageTool) SetContext(channel, chatID string) {
	t.defaultChannel = channel
	t.defaultChatID = chatID
}

func (t *MessageTool) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	t.sent[t.defaultChannel+":"+t.defaultChatID] = args["content"].(string)
	return tools.SilentResult("sent")
}

var _ tools.ContextualTool = (*MessageTool)(nil)

func TestSeedReferenceContextualTool(t *testing.T) {
	tool := &MessageTool{sent: map[string]string{}}
	r := tools.NewToolRegistry()
	r.Register(tool)
	r.ExecuteWithContext(t.Context(), "message", map[string]interface{}{"content": "Hello"}, "telegram", "123", nil)
	if tool.sent["telegram:123"] != "Hello" {
		t.Errorf("sent %v", tool.sent)
	}
	// In 64 conversations at once each text arrives in its own; the tool's map
	// shows that nobody else is in it meanwhile.
	everyChat(t, func(chat, _ string) {
		r.ExecuteWithContext(t.Context(), "message", map[string]interface{}{"content": "for " + chat}, "test", chat, nil)
	})
	for address, text := range tool.sent {
		if address != "telegram:123" && "test:"+strings.TrimPrefix(text, "for ") != address {
			t.Errorf("%q went to %s", text, address)
		}
	}
	if len(tool.sent) != chats+1 {
		t.Errorf("%d conversations got something", len(tool.sent))
	}
}

// SpawnTool is the reference's AsyncTool: its goroutine reads the callback after
// Execute has returned.
type SpawnTool struct {
	callback tools.AsyncCallback
}

func (*SpawnTool) Name() string                       { return "spawn" }
func (*SpawnTool) Description() string                { return "Run a task in the background" }
func (*SpawnTool) Parameters() map[string]interface{} { return nil }

func (t *SpawnTool) SetCallback(cb tools.AsyncCallback) {
	t.callback = cb
}

func (t *SpawnTool) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	go func() {
		// Do async work
		result := tools.NewToolResult(fmt.Sprintf("%v done", args["task"]))

		// Notify completion
		if t.callback != nil {
			t.callback(ctx, result)
		}
	}()

	return tools.AsyncResult("Task started")
}

var _ tools.AsyncTool = (*SpawnTool)(nil)

func TestSeedReferenceAsyncTool(t *testing.T) {
	registry := tools.NewToolRegistry()
	registry.Register(&SpawnTool{})
	in := newInbox(t)
	everyChat(t, func(chat, n string) {
		cb := in.callback(chat)
		callback := func(ctx context.Context, result *tools.ToolResult) {
			result.ForLLM = strings.TrimSuffix(result.ForLLM, " done")
			cb(ctx, result)
		}
		args := map[string]interface{}{"task": chat + "/" + n}
		if result := registry.ExecuteWithContext(t.Context(), "spawn", args, "telegram", chat, callback); !result.Async || result.ForLLM != "Task started" {
			t.Errorf("got %+v", result)
		}
	})
	in.check()
}

func TestSeedReferenceRegistry(t *testing.T) {
	registry := tools.NewToolRegistry()
	registry.Register(&MessageTool{sent: map[string]string{}})
	registry.Register(&fake{name: "exec"})
	registry.Register(&fake{name: "files_read"})

	tool, ok := registry.Get("message")
	if !ok || tool.Name() != "message" {
		t.Errorf("got %v, %v", tool, ok)
	}
	result := registry.Execute(t.Context(), "message", map[string]interface{}{
		"content": "Hello",
	})
	if result.IsError || !result.Silent {
		t.Errorf("got %+v", result)
	}
	if defs, providerDefs := registry.GetDefinitions(), registry.ToProviderDefs(); len(defs) != 3 || len(providerDefs) != 3 {
		t.Errorf("%d and %d definitions", len(defs), len(providerDefs))
	}
	if names := registry.List(); strings.Join(names, " ") != "exec files_read message" || registry.Count() != 3 {
		t.Errorf("got %v", names)
	}
	if summaries := registry.GetSummaries(); summaries[2] != "- `message` - Send a message to user" {
		t.Errorf("got %q", summaries)
	}
}

// The schema guide: every kind of parameter it shows, accepted and refused.
func TestSeedReferenceSchemaGuide(t *testing.T) {
	guide := map[string]interface{}{
		"type": "object",
		"properties": map[string]interface{}{
			"name":    map[string]interface{}{"type": "string", "description": "User name"},
			"count":   map[string]interface{}{"type": "integer", "description": "Number of items", "minimum": 1, "maximum": 100},
			"ratio":   map[string]interface{}{"type": "number", "description": "Ratio value", "minimum": 0.0, "maximum": 1.0},
			"enabled": map[string]interface{}{"type": "boolean", "description": "Enable feature", "default": false},
			"mode":    map[string]interface{}{"type": "string", "enum": []string{"fast", "normal", "thorough"}, "description": "Processing mode"},
			"tags":    map[string]interface{}{"type": "array", "items": map[string]interface{}{"type": "string"}},
			"options": map[string]interface{}{
				"type": "object",
				"properties": map[string]interface{}{
					"timeout": map[string]interface{}{"type": "integer", "description": "Timeout in seconds"},
					"retries": map[string]interface{}{"type": "integer", "description": "Number of retries"},
				},
			},
		},
		"required": []string{"name"}, // the rest is optional
	}
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(&fake{name: "guide", params: guide}); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string][2]interface{}{
		"name":    {"Ada", 7.0},
		"count":   {100.0, 101.0},
		"ratio":   {0.5, 1.5},
		"enabled": {true, "yes"},
		"mode":    {"fast", "slow"},
		"tags":    {[]interface{}{"a"}, []interface{}{1.0}},
		"options": {map[string]interface{}{"timeout": 5.0}, map[string]interface{}{"timeout": "soon"}},
	} {
		right, wrong := map[string]interface{}{"name": "Ada"}, map[string]interface{}{"name": "Ada"}
		right[name], wrong[name] = values[0], values[1]
		if result := r.Execute(t.Context(), "guide", right); result.IsError {
			t.Errorf("%s: %s", name, result.ForLLM)
		}
		if result := r.Execute(t.Context(), "guide", wrong); !result.IsError || !strings.Contains(result.ForLLM, name) {
			t.Errorf("%s: %v went through: %+v", name, values[1], result)
		}
	}
	if result := r.Execute(t.Context(), "guide", nil); !strings.Contains(result.ForLLM, "name is required") {
		t.Errorf("got %+v", result)
	}
}
