package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Tool is a tools.Middleware. It sees calls of registered tools only, so no
// model can invent a label.
func (m *Metrics) Tool(next tools.Handler) tools.Handler {
	return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
		began, outcome := time.Now(), "error"
		defer func() { m.toolCalls.WithLabelValues(inv.Call.Tool, outcome).Observe(time.Since(began).Seconds()) }()
		result := next(ctx, inv)
		outcome = toolOutcome(result)
		return result
	}
}

func toolOutcome(r *tools.ToolResult) string {
	switch {
	case r.IsError && errors.Is(r.Err, context.DeadlineExceeded):
		return "timeout"
	case r.IsError && errors.Is(r.Err, context.Canceled):
		return "cancelled"
	case r.IsError:
		return "error"
	case r.Async:
		return "background"
	}
	return "ok"
}
