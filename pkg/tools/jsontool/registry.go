package jsontool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Registry is a tools.ToolRegistry for those who write and call tools in the
// form of Tool. It is safe for concurrent use.
type Registry struct{ core *tools.ToolRegistry }

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return Over(tools.NewToolRegistry()) }

// Over returns a registry that has the tools of core, and gives its own to it.
func Over(core *tools.ToolRegistry) *Registry { return &Registry{core: core} }

// RegisterTool adds a tool. It refuses what tools.ToolRegistry.RegisterTool
// does: nil, a name that is not legal, taken or reserved, an empty description,
// and a schema that is no valid JSON Schema of an object.
func (r *Registry) RegisterTool(t Tool) error {
	if t == nil {
		return errors.New("jsontool: register: nil tool")
	}
	return r.core.RegisterTool(Adapt(t))
}

// GetTools returns all tools, sorted by name. Their schemas are what the model
// is to be shown.
func (r *Registry) GetTools() []Tool {
	names := r.core.List()
	list := make([]Tool, 0, len(names))
	for _, name := range names {
		if t, ok := r.GetTool(name); ok { // it may have gone meanwhile
			list = append(list, t)
		}
	}
	return list
}

// GetTool finds a tool by name. One that was registered here is returned as it
// is; of any other a Tool that runs it through the registry.
func (r *Registry) GetTool(name string) (Tool, bool) {
	t, ok := r.core.Get(name)
	if !ok {
		return nil, false
	}
	if a, ok := t.(*adapted); ok {
		return a.inner, true
	}
	return &face{tool: t, run: func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		return r.core.Execute(ctx, name, args)
	}}, true
}

// Execute checks the arguments of a tool and runs it, blocking until it is done.
// The error says "tool not found: NAME" and is tools.ErrNotFound, or "tool
// execution failed: " and why, and wraps the tool's own error.
func (r *Registry) Execute(ctx context.Context, name string, arguments json.RawMessage) (string, error) {
	t, ok := r.core.Get(name)
	if !ok {
		return "", fmt.Errorf("%w: %s", tools.ErrNotFound, name)
	}
	_, own := t.(*adapted) // gets the numbers as they were written
	args, err := decode(arguments, own)
	if err != nil {
		return "", fmt.Errorf(failedText+"%w", err)
	}
	text, err := textOf(r.core.Execute(ctx, name, args))
	if err != nil && !strings.HasPrefix(err.Error(), failedText) {
		err = fmt.Errorf(failedText+"%w", err)
	}
	return text, err
}
