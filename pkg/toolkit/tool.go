package toolkit

import (
	"context"
	"strings"
	"time"
)

// Tool is something a request can name.
type Tool interface {
	// Name is the key of the tool. It is read once, when the tool is registered,
	// and so are the two that follow.
	Name() string
	// Description tells people and models what the tool does.
	Description() string
	// JSONSchema returns the JSON Schema of the parameters, an object schema. It
	// must not be changed afterwards.
	JSONSchema() map[string]interface{}
	// Execute runs the tool. params has been checked against JSONSchema. Several
	// goroutines may call it at once. tools.CallFrom(ctx) tells for whom it
	// works, tools.Progress(ctx, ...) how far it has come. An error makes the
	// result a failure, whatever its Success says; Metadata is not the tool's to
	// fill in.
	Execute(ctx context.Context, params map[string]interface{}) (ToolResult, error)
}

// ToolResult is the outcome of a request.
type ToolResult struct {
	Success  bool                   `json:"success"`
	Content  string                 `json:"content"`
	Data     map[string]interface{} `json:"data,omitempty"`
	Error    string                 `json:"error,omitempty"` // set if and only if Success is false
	Metadata ToolMetadata           `json:"metadata"`
}

// ToolOutcome is another name of ToolResult, for programs that use the
// ToolResult of package tools beside it.
type ToolOutcome = ToolResult

// ToolMetadata tells about the run. The registry fills it in for every request,
// also for one that fails or is not run at all.
type ToolMetadata struct {
	ExecutionTime time.Duration          `json:"execution_time"`
	StartTime     time.Time              `json:"start_time"`
	EndTime       time.Time              `json:"end_time"`
	ToolName      string                 `json:"tool_name"`
	Parameters    map[string]interface{} `json:"parameters"` // those of the request, not a copy
}

// ToolRequest asks for one run of a tool.
type ToolRequest struct {
	Name       string                 `json:"name"`
	Parameters map[string]interface{} `json:"parameters"`
	// Context, if there is one, can end the run before the context the request
	// is made with does, and adds its values to that one's.
	Context context.Context `json:"-"`

	// ID names the request in progress updates and in a batch.
	ID string `json:"id,omitempty"`
	// DependsOn lists the requests of the same batch that have to succeed first,
	// by their keys in BatchResult.
	DependsOn []string `json:"depends_on,omitempty"`
	// Channel and ChatID are the conversation the tool works for; both or none.
	Channel string `json:"channel,omitempty"`
	ChatID  string `json:"chat_id,omitempty"`
}

// ToolError is the error of every request that failed.
type ToolError struct {
	ToolName string
	Message  string // what went wrong, "tool not found" for a tool there is not
	Cause    error  // may be nil; then the tool gave none
}

// Error returns a sentence with the name of the tool and the cause.
func (e ToolError) Error() string {
	text := e.ToolName + ": " + e.Message
	if e.Cause == nil {
		return text
	}
	if cause := e.Cause.Error(); !strings.Contains(text, cause) {
		text += " (" + cause + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e ToolError) Unwrap() error { return e.Cause }

// MarshalText makes the error readable in the JSON of a BatchResult.
func (e ToolError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// joined is a context with the values of another one behind its own.
type joined struct {
	context.Context
	also context.Context //nolint:containedctx // it is one itself
}

func (j joined) Value(key any) any {
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.also.Value(key)
}

// join returns the context of a run, and what frees it afterwards.
func (req ToolRequest) join(ctx context.Context) (context.Context, context.CancelFunc) {
	own := req.Context
	if own == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	if own.Err() != nil {
		cancel(context.Cause(own)) // AfterFunc may take its time
	}
	free := func() {}
	if deadline, ok := own.Deadline(); ok {
		ctx, free = context.WithDeadline(ctx, deadline)
	}
	return joined{ctx, own}, func() { stop(); free(); cancel(nil) }
}

// failure makes both forms of a failure that no tool reported.
func failure(req ToolRequest, message string, cause error) (ToolResult, error) {
	now := time.Now()
	result := ToolResult{Error: message, Metadata: ToolMetadata{StartTime: now, EndTime: now, ToolName: req.Name, Parameters: req.Parameters}}
	return result, ToolError{ToolName: req.Name, Message: message, Cause: cause}
}
