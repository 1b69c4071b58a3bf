package tools_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestProgress(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "steps", run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		for _, fraction := range []float64{0.5, -1, 7, math.NaN()} {
			tools.Progress(ctx, fraction, "on it")
		}
		return tools.NewToolResult("done")
	}})
	var told []string
	listen := func(call tools.Call, fraction float64, message string) {
		told = append(told, fmt.Sprint(call.Tool, " ", call.ChatID, " ", fraction, " ", message))
	}
	ctx := tools.WithProgress(t.Context(), listen)
	r.ExecuteWithContext(ctx, "steps", nil, "test", "1", nil)
	want := []string{"steps 1 0.5 on it", "steps 1 0 on it", "steps 1 1 on it", "steps 1 0 on it"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	// Nobody listens, or there is no call: nothing happens.
	r.Execute(t.Context(), "steps", nil)
	tools.Progress(ctx, 1, "")
	tools.Progress(tools.WithCall(ctx, tools.Call{Tool: "steps"}), 1, "")
	if len(told) != len(want) {
		t.Errorf("told %q outside of a call", told[len(want):])
	}
}
