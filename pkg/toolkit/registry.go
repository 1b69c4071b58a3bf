package toolkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Registry runs requests with the tools of a registry of package tools. It is
// safe for concurrent use.
type Registry struct{ core *tools.ToolRegistry }

// NewRegistry returns an empty registry that logs nothing.
func NewRegistry() *Registry { return Over(tools.NewToolRegistry()) }

// Over returns the registry whose tools are those of core, now and later. core
// may be a view.
func Over(core *tools.ToolRegistry) *Registry { return &Registry{core: core} }

// Register adds a tool. It refuses what tools.ToolRegistry.RegisterTool refuses:
// nil, a name that is taken, reserved or not 1 to 64 characters of
// [A-Za-z0-9_-], an empty description, a schema that is not valid.
func (r *Registry) Register(tool Tool) error {
	if tool == nil {
		return errors.New("toolkit: register: nil tool")
	}
	return r.core.RegisterTool(Adapt(tool))
}

// Unregister removes a tool, unless its name is reserved. Runs under way go on.
func (r *Registry) Unregister(name string) { r.core.Unregister(name) }

// Get finds a tool by name. One of package tools comes in a form whose Execute
// is that of the registry.
func (r *Registry) Get(name string) (Tool, bool) {
	tool, ok := r.core.Get(name)
	if !ok {
		return nil, false
	}
	switch a := tool.(type) {
	case *adapted:
		return a.tool, true
	case *timed:
		return a.tool, true
	}
	return viaRegistry{tool, r}, true
}

// List returns the names of all tools, sorted.
func (r *Registry) List() []string { return r.core.List() }

// GetDefinitions describes all tools, sorted by name, in the form of a
// provider's API: "openai", "anthropic", "ollama", and what else
// tools.ToolRegistry.DefinitionsFor knows. Another name is an error.
func (r *Registry) GetDefinitions(provider string) ([]map[string]interface{}, error) {
	return r.core.DefinitionsFor(provider)
}

// Execute runs a request and blocks until its outcome is there. The error is a
// ToolError if the result's Success is false, otherwise nil. It does not panic,
// whatever the tool does. Work that the tool started in the background is
// cancelled when ctx ends.
func (r *Registry) Execute(ctx context.Context, req ToolRequest) (ToolResult, error) {
	start := time.Now()
	ctx, release := req.join(ctx)
	defer release()
	if req.ID != "" {
		// Below a tool's call the id is one within that call, and stays the same
		// when the call is repeated.
		call, _ := tools.CallFrom(ctx)
		if call.ID != "" {
			call.ID += ":"
		}
		call.ID += req.ID
		ctx = tools.WithCall(ctx, call)
	}
	w := watchOf(ctx, req)
	result, cause := r.run(w.follow(ctx), req)
	end := time.Now()
	result.Metadata = ToolMetadata{ExecutionTime: end.Sub(start), StartTime: start, EndTime: end, ToolName: req.Name, Parameters: req.Parameters}
	w.end(result)
	if result.Success {
		return result, nil
	}
	failed := ToolError{ToolName: req.Name, Message: result.Error, Cause: cause}
	if errors.Is(cause, tools.ErrNotFound) {
		failed.Message, failed.Cause = tools.ErrNotFound.Error(), tools.ErrNotFound
	}
	return result, failed
}

// run has the tool run, and contains what the registry below does not: a logger
// or an error of the tool's that panics.
func (r *Registry) run(ctx context.Context, req ToolRequest) (result ToolResult, cause error) {
	defer func() {
		if p := recover(); p != nil {
			cause = fmt.Errorf("panic: %v", p)
			result = ToolResult{Error: "The tool " + req.Name + " failed because of an internal error."}
		}
	}()
	done := r.core.ExecuteAndWait(ctx, req.Name, req.Parameters, req.Channel, req.ChatID)
	if f, ok := errors.AsType[*failedError](done.Err); ok {
		return ToOutcome(done), f.cause
	}
	return ToOutcome(done), done.Err
}

// ExecuteAsync runs a request on a goroutine of its own, any number of them at
// once. The channel gets exactly one result and is then closed; nobody has to
// read it.
func (r *Registry) ExecuteAsync(ctx context.Context, req ToolRequest) <-chan ToolResult {
	results := make(chan ToolResult, 1)
	r.launch(ctx, req, func(result ToolResult, _ error) {
		results <- result
		close(results)
	})
	return results
}

// launch executes a request on a goroutine of its own and calls deliver there,
// once.
func (r *Registry) launch(ctx context.Context, req ToolRequest, deliver func(ToolResult, error)) {
	go func() {
		result, err := failure(req, "The tool "+req.Name+" ended its goroutine instead of returning.", nil)
		defer func() { deliver(result, err) }() // also after runtime.Goexit
		result, err = r.Execute(ctx, req)
	}()
}
