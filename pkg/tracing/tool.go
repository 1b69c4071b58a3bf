package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Tool is a tools.Middleware: it makes the span of a call, and the tool's context
// carries it. What goes on in the background is in it too, though it ends later.
func (t *Tracer) Tool(next tools.Handler) tools.Handler {
	return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
		ctx, span := t.begin(ctx, opTool, inv.Call.Tool, trace.SpanKindInternal,
			toolName.String(inv.Call.Tool), toolType.String("function"), toolCallID.String(inv.Call.ID))
		if !span.IsRecording() {
			return next(ctx, inv)
		}
		var result *tools.ToolResult
		defer func() { t.toolEnded(span, inv, result) }()
		result = next(ctx, inv)
		return result
	}
}

// toolEnded ends the span of a call; result is nil if there was a panic.
func (t *Tracer) toolEnded(span trace.Span, inv *tools.Invocation, result *tools.ToolResult) {
	defer span.End()
	if result == nil {
		t.failed(span, "panic", nil)
		return
	}
	if result.Async {
		span.SetAttributes(background.Bool(true))
	}
	if t.content {
		t.note(span, toolArguments, inv.Args) // what the tool was given in the end
		span.SetAttributes(toolResult.String(t.hide(result.ForLLM)))
	}
	if result.IsError {
		t.failed(span, toolErrorKind(result.Err), result.Err)
	}
}

// toolErrorKind is timeout, cancelled, or tool_error: everything else that the
// model has to deal with.
func toolErrorKind(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "tool_error"
}
