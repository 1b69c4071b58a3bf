package tools

import "context"

// PerCall makes a tool of which every call gets an instance of its own, so that
// a tool that keeps the conversation or the callback in its fields serves any
// number of conversations at once:
//
//	registry.Register(tools.PerCall(func() tools.Tool { return NewSpawnTool(manager) }))
//
// newTool is called once now, to learn name, description and parameters, and
// once per call, from any goroutine. What instances share must be safe for
// concurrent use.
func PerCall(newTool func() Tool) Tool {
	return &perCall{newTool: newTool, prototype: newTool()}
}

type perCall struct {
	newTool   func() Tool
	prototype Tool
}

func (p *perCall) Name() string                       { return p.prototype.Name() }
func (p *perCall) Description() string                { return p.prototype.Description() }
func (p *perCall) Parameters() map[string]interface{} { return p.prototype.Parameters() }

// Execute runs a fresh instance, also when a decorator calls it.
func (p *perCall) Execute(ctx context.Context, args map[string]interface{}) *ToolResult {
	return runFresh(ctx, p.newTool(), args)
}

// ForCall implements PerCallTool.
func (p *perCall) ForCall() Tool { return p.newTool() }
