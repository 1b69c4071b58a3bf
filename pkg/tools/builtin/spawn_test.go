package builtin_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

func TestSpawnReportsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spawn := builtin.NewSpawnTool(func(ctx context.Context, call tools.Call, task string) *tools.ToolResult {
			time.Sleep(10 * time.Minute)
			if inside, ok := tools.CallFrom(ctx); !ok || inside.ChatID != call.ChatID {
				t.Errorf("the task runs for %+v, want %+v", inside, call)
			}
			return tools.NewToolResult(task + " for " + call.ChatID)
		})
		registry := tools.NewToolRegistry()
		registry.Register(spawn)
		done := make(chan *tools.ToolResult, 2)
		start := time.Now()
		r := registry.ExecuteWithContext(during(t, "telegram", "1", "c1"), "spawn", args{"task": "count sheep"}, "telegram", "1",
			func(_ context.Context, r *tools.ToolResult) { done <- r })
		if !r.Async || r.IsError || !strings.Contains(r.ForLLM, "count sheep") || time.Since(start) != 0 {
			t.Errorf("the call gave %+v after %s, want an async result at once", r, time.Since(start))
		}
		if got := <-done; got.ForLLM != "count sheep for 1" {
			t.Errorf("the result is %+v", got)
		}
		if err := registry.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestSpawnWithoutCallbackWaits(t *testing.T) {
	spawn := builtin.NewSpawnTool(func(_ context.Context, _ tools.Call, task string) *tools.ToolResult {
		return tools.NewToolResult("did " + task)
	})
	if r := spawn.Execute(t.Context(), args{"task": "it"}); r.ForLLM != "did it" || r.Async {
		t.Errorf("got %+v", r)
	}
}

func TestSpawnSaysWhatIsWrong(t *testing.T) {
	nothing := builtin.NewSpawnTool(func(context.Context, tools.Call, string) *tools.ToolResult { return nil })
	wantError(t, nothing.Execute(t.Context(), args{"task": "x"}), "without a result")
	wantError(t, nothing.Execute(t.Context(), args{"task": " "}), "task is required")
	never := func(context.Context, *tools.ToolResult) { t.Error("the callback was called") }
	wantError(t, nothing.ExecuteAsync(t.Context(), args{}, never), "task is required")
	wantError(t, builtin.NewSpawnTool(nil).ExecuteAsync(t.Context(), args{"task": "x"}, never), "not available")
}

func TestSpawnLabels(t *testing.T) {
	spawn := builtin.NewSpawnTool(func(context.Context, tools.Call, string) *tools.ToolResult { return tools.NewToolResult("") })
	for _, c := range []struct {
		args args
		want string
	}{
		{args{"task": "long work", "label": "work"}, "Started in the background: work. "},
		{args{"task": "short"}, "Started in the background: short. "},
		{args{"task": strings.Repeat("ö", 100)}, "Started in the background: " + strings.Repeat("ö", 59) + "…. "},
	} {
		done := make(chan struct{})
		r := spawn.ExecuteAsync(t.Context(), c.args, func(context.Context, *tools.ToolResult) { close(done) })
		if <-done; !strings.HasPrefix(r.ForLLM, c.want) {
			t.Errorf("got %q, want %q", r.ForLLM, c.want)
		}
	}
}
