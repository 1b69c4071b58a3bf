package tools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Options configures a registry. The zero value is what NewToolRegistry uses.
type Options struct {
	// Logger hears of starts, ends and failures; nil discards.
	Logger *slog.Logger
	// InstallAtRegister gives a legacy AsyncTool its callback when it is
	// registered, instead of at the first call that has one.
	InstallAtRegister bool
}

// ToolRegistry holds tools by name and runs them. It is safe for concurrent
// use, also while loops run.
type ToolRegistry struct {
	mu     sync.RWMutex
	tools  map[string]Tool
	logger *slog.Logger
}

// NewToolRegistry returns an empty registry that logs nothing.
func NewToolRegistry() *ToolRegistry { return NewToolRegistryWith(Options{}) }

// NewToolRegistryWith returns an empty registry.
func NewToolRegistryWith(o Options) *ToolRegistry {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &ToolRegistry{tools: map[string]Tool{}, logger: o.Logger}
}

// Register adds a tool or replaces the one of the same name.
func (r *ToolRegistry) Register(tool Tool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tools[tool.Name()] = tool
}

// RegisterTool adds a tool and refuses a bad one or a name that is taken.
func (r *ToolRegistry) RegisterTool(tool Tool) error {
	if tool == nil {
		return errors.New("tools: register: nil tool")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.tools[tool.Name()]; ok {
		return fmt.Errorf("tools: register %q: name is taken", tool.Name())
	}
	r.tools[tool.Name()] = tool
	return nil
}

// Unregister removes a tool.
func (r *ToolRegistry) Unregister(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tools, name)
}

// Reserve protects names: a registered tool of that name stays.
func (r *ToolRegistry) Reserve(names ...string) {}

// View returns the same registry with only the tools whose name filter admits.
func (r *ToolRegistry) View(filter func(name string) bool) *ToolRegistry { return r }

// Get finds a tool by name.
func (r *ToolRegistry) Get(name string) (Tool, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.tools[name]
	return t, ok
}

// Execute runs a tool without conversation or callback.
func (r *ToolRegistry) Execute(ctx context.Context, name string, args map[string]interface{}) *ToolResult {
	return r.ExecuteWithContext(ctx, name, args, "", "", nil)
}

// ExecuteWithContext runs a tool for a conversation.
func (r *ToolRegistry) ExecuteWithContext(ctx context.Context, name string, args map[string]interface{}, channel, chatID string, asyncCallback AsyncCallback) *ToolResult {
	t, ok := r.Get(name)
	if !ok {
		return ErrorResult(fmt.Sprintf("tool %q not found", name))
	}
	call, _ := CallFrom(ctx)
	call.Tool, call.Channel, call.ChatID = name, channel, chatID
	if args == nil {
		args = map[string]interface{}{}
	}
	ctx = WithCall(ctx, call)
	if a, ok := t.(AsyncExecutor); ok && asyncCallback != nil {
		return a.ExecuteAsync(ctx, args, asyncCallback)
	}
	return t.Execute(ctx, args)
}

// List returns the names of all tools, sorted.
func (r *ToolRegistry) List() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.tools))
	for n := range r.tools {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Count returns how many tools there are.
func (r *ToolRegistry) Count() int { return len(r.List()) }

// GetDefinitions describes all tools, sorted by name.
func (r *ToolRegistry) GetDefinitions() []map[string]interface{} {
	defs := []map[string]interface{}{}
	for _, n := range r.List() {
		if t, ok := r.Get(n); ok {
			defs = append(defs, ToolToSchema(t))
		}
	}
	return defs
}

// ToProviderDefs describes all tools to a provider, sorted by name.
func (r *ToolRegistry) ToProviderDefs() []providers.ToolDefinition {
	defs := []providers.ToolDefinition{}
	for _, n := range r.List() {
		if t, ok := r.Get(n); ok {
			defs = append(defs, providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
				Name: t.Name(), Description: t.Description(), Parameters: t.Parameters(),
			}})
		}
	}
	return defs
}

// GetSummaries returns one line per tool.
func (r *ToolRegistry) GetSummaries() []string {
	var lines []string
	for _, n := range r.List() {
		if t, ok := r.Get(n); ok {
			lines = append(lines, fmt.Sprintf("- `%s` - %s", t.Name(), t.Description()))
		}
	}
	return lines
}

// LimitAsync bounds how many background tasks run at once, in one conversation
// and in all; 0 is no limit.
func (r *ToolRegistry) LimitAsync(perChat, total int) {}

// Task is a background task that has not reported back yet.
type Task struct {
	Call    Call
	Label   string    // what it is about, in a few words
	Started time.Time // when the call began
}

// Outstanding lists the background tasks of a conversation, oldest first.
func (r *ToolRegistry) Outstanding(channel, chatID string) []Task { return nil }

// CancelOutstanding ends the background tasks of a conversation and returns how
// many there were. Their callbacks are not called.
func (r *ToolRegistry) CancelOutstanding(channel, chatID string) int { return 0 }

// Shutdown refuses new background tasks and waits for the running ones until
// ctx ends.
func (r *ToolRegistry) Shutdown(ctx context.Context) error { return nil }

// Go runs fn on a goroutine of its own for the call ctx belongs to.
func Go(ctx context.Context, fn func(ctx context.Context)) { go fn(ctx) }

type yieldKeyType struct{}

// WithYield returns a context whose calls give a scarce slot back while they
// wait for a legacy tool that is busy in another conversation.
func WithYield(ctx context.Context, yield func() (resume func(context.Context) error)) context.Context {
	return context.WithValue(ctx, yieldKeyType{}, yield)
}
