// Package jsontool is for tools that take their arguments as JSON text and
// return a text or an error. They work in a tools.ToolRegistry and in its loop
// like any other tool, by way of Adapt or of a Registry:
//
//	registry := jsontool.Over(core) // core is a *tools.ToolRegistry
//	if err := registry.RegisterTool(&CalculatorTool{}); err != nil {
//		return err
//	}
package jsontool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Tool is something the model can call.
type Tool interface {
	// Name is the key by which the registry and the model refer to the tool.
	Name() string
	// Description tells the model what the tool does and when to use it.
	Description() string
	// Schema returns the JSON Schema of the arguments, an object schema.
	Schema() map[string]interface{}
	// Execute runs the tool. arguments is a JSON object as the model wrote it,
	// which a registry has checked against Schema. ctx ends when the caller
	// gives up; tools.CallFrom(ctx) tells which conversation asked. Several
	// goroutines may call it at once. The model reads the text or the error.
	Execute(ctx context.Context, arguments json.RawMessage) (string, error)
	// IsLoopBreaking reports whether the loop ends when the tool was run
	// without an error; the text is then what the person reads.
	IsLoopBreaking() bool
}

// Adapt makes a tool for a tools.ToolRegistry. It is idempotent, in the sense of
// tools.IdempotentTool, if t has a method Idempotent() bool that says so.
func Adapt(t Tool) tools.Tool {
	switch t := t.(type) {
	case nil:
		return nil
	case *face:
		return t.tool
	}
	return &adapted{t}
}

// Of is the way back: it makes a Tool of any other. What Adapt returned becomes
// again what it was.
func Of(t tools.Tool) Tool {
	switch t := t.(type) {
	case nil:
		return nil
	case *adapted:
		return t.inner
	}
	return &face{tool: t, run: t.Execute}
}

// adapted is a Tool as the core sees it.
type adapted struct{ inner Tool }

var (
	_ tools.RawExecutor    = (*adapted)(nil)
	_ tools.LoopBreaker    = (*adapted)(nil)
	_ tools.IdempotentTool = (*adapted)(nil)
)

func (a *adapted) Name() string                       { return a.inner.Name() }
func (a *adapted) Description() string                { return a.inner.Description() }
func (a *adapted) Parameters() map[string]interface{} { return a.inner.Schema() }
func (a *adapted) IsLoopBreaking() bool               { return a.inner.IsLoopBreaking() }

func (a *adapted) Idempotent() bool {
	t, ok := a.inner.(interface{ Idempotent() bool })
	return ok && t.Idempotent()
}

func (a *adapted) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	if args == nil {
		args = map[string]interface{}{}
	}
	arguments, err := json.Marshal(args)
	if err != nil {
		return failed(err)
	}
	return a.ExecuteRaw(ctx, arguments)
}

func (a *adapted) ExecuteRaw(ctx context.Context, arguments json.RawMessage) *tools.ToolResult {
	text, err := a.inner.Execute(ctx, arguments)
	if err != nil {
		return failed(err)
	}
	return tools.NewToolResult(text)
}

const failedText = "tool execution failed: "

func failed(err error) *tools.ToolResult {
	return tools.ErrorResult(failedText + err.Error()).WithError(err)
}

// face is a tool of the core as a Tool.
type face struct {
	tool tools.Tool
	run  func(ctx context.Context, args map[string]interface{}) *tools.ToolResult
}

func (f *face) Name() string                   { return f.tool.Name() }
func (f *face) Description() string            { return f.tool.Description() }
func (f *face) Schema() map[string]interface{} { return f.tool.Parameters() }

func (f *face) IsLoopBreaking() bool {
	t, ok := tools.As[tools.LoopBreaker](f.tool)
	return ok && t.IsLoopBreaking()
}

func (f *face) Execute(ctx context.Context, arguments json.RawMessage) (string, error) {
	args, err := decode(arguments, false)
	if err != nil {
		return "", err
	}
	return textOf(f.run(ctx, args))
}

// decode reads arguments; exact keeps the digits of numbers. Nothing and null
// are an empty object.
func decode(arguments json.RawMessage, exact bool) (args map[string]interface{}, err error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		return nil, nil
	}
	err = json.Unmarshal(arguments, &args)
	if err == nil && exact {
		d := json.NewDecoder(bytes.NewReader(arguments))
		d.UseNumber()
		err = d.Decode(&args)
	}
	if err != nil {
		return nil, fmt.Errorf("invalid arguments: %w", err)
	}
	return args, nil
}

// resultError is the failure that a result tells.
type resultError struct {
	text  string
	cause error
}

func (e *resultError) Error() string { return e.text }
func (e *resultError) Unwrap() error { return e.cause }

// textOf turns a result into a text or an error.
func textOf(result *tools.ToolResult) (string, error) {
	text := result.ForLLM
	if text == "" && result.Err != nil {
		text = result.Err.Error()
	}
	if result.IsError {
		return "", &resultError{text: text, cause: result.Err}
	}
	return text, nil
}
