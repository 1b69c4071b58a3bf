package toolkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Adapt makes a tool of this package one of package tools, for a registry of
// that package or for its decorators. What the tool says of itself by the
// methods Idempotent, ParallelSafe and Timeout of that package's tools counts
// there.
func Adapt(t Tool) tools.Tool {
	a := &adapted{t}
	if own, ok := t.(interface{ Timeout() time.Duration }); ok {
		return &timed{a, own.Timeout}
	}
	return a
}

// timed is an adapted tool that says how long it may take. It is a type of its
// own because a method Timeout says so, whatever it returns.
type timed struct {
	*adapted
	timeout func() time.Duration
}

func (t *timed) Timeout() time.Duration { return t.timeout() }

type adapted struct{ tool Tool }

func (a *adapted) Name() string                       { return a.tool.Name() }
func (a *adapted) Description() string                { return a.tool.Description() }
func (a *adapted) Parameters() map[string]interface{} { return a.tool.JSONSchema() }

func (a *adapted) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	outcome, err := a.tool.Execute(ctx, args)
	if err == nil {
		return FromOutcome(outcome)
	}
	outcome.Success = false
	outcome.Error = cmp.Or(outcome.Error, err.Error())
	return fromFailure(outcome, err)
}

// Idempotent and ParallelSafe are the tool's own, if it has them; see
// tools.IdempotentTool and tools.ParallelSafe.
func (a *adapted) Idempotent() bool {
	t, ok := a.tool.(interface{ Idempotent() bool })
	return ok && t.Idempotent()
}

func (a *adapted) ParallelSafe(args map[string]interface{}) bool {
	t, ok := a.tool.(interface {
		ParallelSafe(args map[string]interface{}) bool
	})
	return ok && t.ParallelSafe(args)
}

// viaRegistry is the way back: a tool of package tools, run by its registry, so
// that its arguments are checked and its conversations kept apart.
type viaRegistry struct {
	tools.Tool
	registry *Registry
}

func (v viaRegistry) JSONSchema() map[string]interface{} { return v.Parameters() }

func (v viaRegistry) Execute(ctx context.Context, params map[string]interface{}) (ToolResult, error) {
	return v.registry.Execute(ctx, ToolRequest{Name: v.Name(), Parameters: params})
}

// FromOutcome makes of an outcome what a model reads: the Content, or the Data
// as JSON if there is no Content; of a failure the Error with the Content below
// it. ToOutcome is its reverse, but for Metadata.
func FromOutcome(outcome ToolResult) *tools.ToolResult {
	if !outcome.Success {
		return fromFailure(outcome, nil)
	}
	result := tools.NewToolResult(outcome.Content)
	result.Data = outcome.Data
	if outcome.Content == "" && outcome.Data != nil {
		if data, err := json.Marshal(outcome.Data); err == nil {
			result.ForLLM = string(data)
		}
	}
	return result
}

func fromFailure(outcome ToolResult, cause error) *tools.ToolResult {
	f := &failedError{outcome: outcome, text: outcome.Error, cause: cause}
	switch {
	case outcome.Content == "":
	case outcome.Error == "":
		f.text = outcome.Content
	default:
		f.text += "\n" + outcome.Content
	}
	f.text = cmp.Or(f.text, noReason)
	result := tools.ErrorResult(f.text).WithError(f)
	result.Data = outcome.Data
	return result
}

const noReason = "The tool failed and did not say why."

// failedError takes the parts of a failed outcome past the one text the model
// reads.
type failedError struct {
	outcome ToolResult
	text    string // what the parts made
	cause   error
}

// Error is for the log, where what a model reads does not belong.
func (f *failedError) Error() string {
	if f.cause == nil {
		return "the tool reported a failure"
	}
	return f.cause.Error()
}

func (f *failedError) Unwrap() error { return f.cause }

// ToOutcome makes an outcome of what a tool of package tools returned. Content
// is what the model would read, and Error of a failure.
func ToOutcome(result *tools.ToolResult) ToolResult {
	if result == nil {
		return ToolResult{Error: noReason}
	}
	if !result.IsError {
		return ToolResult{Success: true, Content: result.ForLLM, Data: result.Data}
	}
	outcome := ToolResult{Error: result.ForLLM, Data: result.Data}
	// Unless somebody on the way changed the text, the tool's own parts stand.
	if f, ok := errors.AsType[*failedError](result.Err); ok && f.text == result.ForLLM {
		outcome.Error, outcome.Content = f.outcome.Error, f.outcome.Content
	}
	if outcome.Error == "" && result.ForLLM == "" && result.Err != nil {
		outcome.Error = result.Err.Error()
	}
	outcome.Error = cmp.Or(outcome.Error, outcome.Content, noReason)
	return outcome
}
