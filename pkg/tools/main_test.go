package tools_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a tool made of a function.
type fake struct {
	name   string
	params map[string]interface{}
	run    func(ctx context.Context, args map[string]interface{}) *tools.ToolResult
}

func (f *fake) Name() string                       { return f.name }
func (f *fake) Description() string                { return "Fakes " + f.name + " for a test" }
func (f *fake) Parameters() map[string]interface{} { return f.params }
func (f *fake) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	if f.run == nil {
		return tools.NewToolResult("ran " + f.name)
	}
	return f.run(ctx, args)
}

func object(required []string, properties map[string]interface{}) map[string]interface{} {
	return map[string]interface{}{"type": "object", "properties": properties, "required": required}
}

// script is a provider that gives one prepared reply after the other and keeps
// what it was asked.
type script struct {
	mu      sync.Mutex
	replies []providers.LLMResponse
	errs    map[int]error // by 0-based request
	asked   [][]providers.Message
	defs    [][]providers.ToolDefinition
	onChat  func(n int)
}

func (s *script) Chat(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, messages)
	s.defs = append(s.defs, defs)
	s.mu.Unlock()
	if s.onChat != nil {
		s.onChat(n)
	}
	if err := s.errs[n]; err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n >= len(s.replies) {
		n = len(s.replies) - 1
	}
	r := s.replies[n]
	return &r, nil
}

func toolCall(id, name string, args map[string]interface{}) providers.ToolCall {
	return providers.ToolCall{ID: id, Type: "function", Name: name, Arguments: args}
}

func calling(calls ...providers.ToolCall) providers.LLMResponse {
	return providers.LLMResponse{ToolCalls: calls, FinishReason: providers.FinishToolCalls}
}

func answering(text string) providers.LLMResponse {
	return providers.LLMResponse{Content: text, FinishReason: providers.FinishStop}
}

func user(text string) []providers.Message {
	return []providers.Message{{Role: providers.RoleUser, Content: text}}
}

// logBuffer collects a registry's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func logged(level slog.Level) (*tools.ToolRegistry, *logBuffer) {
	b := &logBuffer{}
	logger := slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
	return tools.NewToolRegistryWith(tools.Options{Logger: logger}), b
}
