package tools_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestExecuteAndWaitReturnsTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(task("ours", func(ctx context.Context, in taskInput, report tools.AsyncCallback) {
			time.Sleep(time.Minute)
			report(ctx, tools.NewToolResult("did "+in.What))
		}))
		r.Register(&SpawnTool{})
		r.Register(&fake{name: "plain"})
		for name, want := range map[string]string{"ours": "did x", "spawn": "<nil> done", "plain": "ran plain"} {
			if result := r.ExecuteAndWait(t.Context(), name, what("x"), "", ""); result.ForLLM != want || result.Async {
				t.Errorf("%s gives %+v, want %q", name, result, want)
			}
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// However the work ends, whoever waits for it hears of it.
func TestExecuteAndWaitAlwaysReturns(t *testing.T) {
	gone := errors.New("nobody waits any more")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		end  func(r *tools.ToolRegistry, cancel context.CancelCauseFunc)
		says string
		err  error
	}{
		"the caller leaves": {func(_ *tools.ToolRegistry, cancel context.CancelCauseFunc) { cancel(gone) }, "was cancelled", gone},
		"stopped":           {func(r *tools.ToolRegistry, _ context.CancelCauseFunc) { r.CancelOutstanding("test", "1") }, "was cancelled", nil},
		"shutdown":          {func(r *tools.ToolRegistry, _ context.CancelCauseFunc) { _ = r.Shutdown(over) }, "was cancelled", nil},
		"time is up":        {func(*tools.ToolRegistry, context.CancelCauseFunc) { time.Sleep(time.Hour) }, "did not report back", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := tools.NewToolRegistry()
				r.Register(task("endless", func(ctx context.Context, _ taskInput, _ tools.AsyncCallback) { <-ctx.Done() }))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan *tools.ToolResult, 1)
				go func() { done <- r.ExecuteAndWait(ctx, "endless", what("x"), "test", "1") }()
				synctest.Wait()
				tc.end(r, cancel)
				result := <-done
				if !result.IsError || !strings.Contains(result.ForLLM, tc.says) || result.Err == nil || tc.err != nil && !errors.Is(result.Err, tc.err) {
					t.Errorf("got %+v", result)
				}
				synctest.Wait()
				if list := r.Outstanding("test", "1"); len(list) != 0 {
					t.Errorf("still open: %+v", list)
				}
			})
		})
	}
}
