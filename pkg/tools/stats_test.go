package tools_test

import (
	"context"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Calls of tools that do not exist reach no middleware, and are counted.
func TestStatsCountUnknownTools(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Use(func(next tools.Handler) tools.Handler {
		return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
			t.Error("a call of nothing reached the middleware")
			return next(ctx, inv)
		}
	})
	for range 3 {
		r.Execute(t.Context(), "nothing", nil)
	}
	if n := r.Stats().Unknown; n != 3 {
		t.Errorf("%d calls of unknown tools, want 3", n)
	}
}
