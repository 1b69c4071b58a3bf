package tools

import "context"

type progressKeyType struct{}

// WithProgress returns a context whose calls tell report how far they have
// come, see Progress. report is called on the goroutines of the tools, also on
// several at once, and must not block. A tool's background work may call it
// after the tool has returned.
func WithProgress(ctx context.Context, report func(call Call, fraction float64, message string)) context.Context {
	return context.WithValue(ctx, progressKeyType{}, report)
}

// Progress tells whoever listens how far the call that ctx belongs to has come:
// fraction is between 0 and 1, message is for a person and may be empty. With
// nobody listening, or outside of a call, it does nothing.
func Progress(ctx context.Context, fraction float64, message string) {
	report, _ := ctx.Value(progressKeyType{}).(func(Call, float64, string))
	if report == nil {
		return
	}
	call := stateFrom(ctx)
	if call == nil || call.core == nil {
		return
	}
	if !(fraction > 0) { // also what is not a number
		fraction = 0
	}
	report(call.Call, min(fraction, 1), message)
}
