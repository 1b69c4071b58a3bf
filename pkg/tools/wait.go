package tools

import "context"

// ExecuteAndWait is ExecuteWithContext for a caller that has no use for work in
// the background: if the tool starts some, it waits for the report and returns
// that. When ctx ends first, the work is cancelled; work that CancelOutstanding,
// Shutdown or its time limit ends is a result that says so.
func (r *ToolRegistry) ExecuteAndWait(ctx context.Context, name string, args map[string]interface{}, channel, chatID string) *ToolResult {
	report := make(chan *ToolResult, 1) // a ticket delivers once
	call := r.newCall(ctx, name, channel, chatID)
	result := r.run(ctx, r.table().byName[name], call, args, func(_ context.Context, result *ToolResult) { report <- result })
	if !result.Async || call.ticket == nil {
		return result
	}
	defer context.AfterFunc(ctx, func() { call.ticket.cancelQuietly() })()
	work := call.ticket.ctx
	select {
	case result = <-report:
		return result
	case <-work.Done():
	}
	select {
	case result = <-report: // it came before the end
		return result
	default:
	}
	if ctx.Err() != nil {
		return cancelledResult(name, context.Cause(ctx))
	}
	return cancelledResult(name, context.Cause(work)) //nolint:contextcheck // what ended is the work, not the caller
}
