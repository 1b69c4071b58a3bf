package tools_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(task("work", func(ctx context.Context, in taskInput, report tools.AsyncCallback) {
			time.Sleep(5 * time.Second)
			report(ctx, tools.NewToolResult(in.What+" done"))
		}))
		r.Register(&fake{name: "plain"})
		reports := make(chan *tools.ToolResult, 4)
		r.ExecuteWithContext(t.Context(), "work", what("first"), "test", "1", reporting(reports))

		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- r.Shutdown(t.Context()) }()
		synctest.Wait()
		if result := r.ExecuteWithContext(t.Context(), "work", what("second"), "test", "1", reporting(reports)); !result.IsError || !strings.Contains(result.ForLLM, "shutting down") {
			t.Errorf("a new task was taken: %+v", result)
		}
		if result := r.ExecuteWithContext(t.Context(), "plain", nil, "test", "1", reporting(reports)); result.IsError {
			t.Errorf("a plain call was refused: %+v", result)
		}
		if err := <-stopped; err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("Shutdown: %v after %s", err, time.Since(began))
		}
		if result := <-reports; result.ForLLM != "first done" {
			t.Errorf("got %+v", result)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Errorf("a second Shutdown: %v", err)
		}
	})
}

func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(task("work", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
			<-ctx.Done()
			report(ctx, tools.NewToolResult("too late"))
		}))
		r.ExecuteWithContext(t.Context(), "work", what("x"), "test", "1", func(context.Context, *tools.ToolResult) {
			t.Error("delivered after the shutdown")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 background task") {
			t.Errorf("Shutdown: %v", err)
		}
		synctest.Wait() // the work has seen its context end
	})
}

func TestLimits(t *testing.T) {
	r := tools.NewToolRegistry()
	release := make(chan struct{})
	var ran sync.Map
	r.Register(task("work", func(ctx context.Context, in taskInput, report tools.AsyncCallback) {
		ran.Store(in.What, true)
		<-release
		report(ctx, tools.NewToolResult(in.What))
	}))
	legacy := &async{fake: fake{name: "legacy", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		t.Error("a tool beyond the limit was run")
		return tools.AsyncResult("started")
	}}}
	r.Register(legacy)
	r.Register(&fake{name: "plain"})
	r.LimitAsync(2, 3)
	ignore := func(context.Context, *tools.ToolResult) {}
	start := func(chat, text string) *tools.ToolResult {
		return r.ExecuteWithContext(t.Context(), "work", what(text), "test", chat, ignore)
	}
	for _, text := range []string{"one", "two"} {
		if result := start("a", text); !result.Async {
			t.Fatalf("%s: %+v", text, result)
		}
	}
	for _, tool := range []string{"work", "legacy"} {
		result := r.ExecuteWithContext(t.Context(), tool, what("three"), "test", "a", ignore)
		if !result.IsError || !strings.Contains(result.ForLLM, "/tasks") || !strings.Contains(result.ForLLM, "/stop") {
			t.Errorf("%s: %+v", tool, result)
		}
	}
	if result := r.ExecuteWithContext(t.Context(), "plain", nil, "test", "a", ignore); result.IsError {
		t.Errorf("a plain tool is limited: %+v", result)
	}
	if result := start("b", "four"); !result.Async {
		t.Errorf("another conversation is limited: %+v", result)
	}
	if result := start("c", "five"); !result.IsError {
		t.Errorf("the total is not limited: %+v", result)
	}
	if _, ok := ran.Load("five"); ok {
		t.Error("a task beyond the limit ran")
	}
	close(release)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOutstandingAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(task("work", func(ctx context.Context, in taskInput, report tools.AsyncCallback) {
			<-ctx.Done()
			report(ctx, tools.ErrorResult("interrupted"))
		}))
		ignore := func(_ context.Context, result *tools.ToolResult) { t.Errorf("delivered %+v", result) }
		view := r.View(func(string) bool { return true })
		view.ExecuteWithContext(tools.WithCall(t.Context(), tools.Call{ID: "c1", Principal: "test:9"}), "work", what("the  first\nthing"), "test", "1", ignore)
		time.Sleep(time.Second)
		r.ExecuteWithContext(t.Context(), "work", what(strings.Repeat("ä", 100)), "test", "1", ignore)
		r.ExecuteWithContext(t.Context(), "work", map[string]interface{}{"what": "something other", "label": "the other"}, "test", "2", ignore)

		list := r.Outstanding("test", "1")
		if len(list) != 2 || list[0].Label != "the first thing" || list[0].Call.ID != "c1" || list[0].Call.Label != list[0].Label || list[0].Call.Principal != "test:9" {
			t.Fatalf("outstanding: %+v", list)
		}
		if n := len([]rune(list[1].Label)); n != 60 {
			t.Errorf("the label has %d runes", n)
		}
		named := r.Outstanding("test", "2")
		if len(named) != 1 || named[0].Label != "the other" {
			t.Errorf("a task with a label of its own is listed as %+v", named)
		}
		if d := list[1].Started.Sub(list[0].Started); d != time.Second {
			t.Errorf("started %s apart", d)
		}
		if n := r.Stats().Background; n != 3 {
			t.Errorf("%d tasks in the background, want 3", n)
		}
		if n := r.CancelOutstanding("test", "1"); n != 2 {
			t.Errorf("cancelled %d", n)
		}
		synctest.Wait()
		if n := len(r.Outstanding("test", "1")); n != 0 {
			t.Errorf("%d are left", n)
		}
		if n := r.CancelOutstanding("test", "1"); n != 0 {
			t.Errorf("cancelled %d twice", n)
		}
		if n := len(r.Outstanding("test", "2")); n != 1 {
			t.Errorf("another conversation has %d", n)
		}
		r.CancelOutstanding("test", "2")
		if n := r.Stats().Background; n != 0 {
			t.Errorf("%d tasks in the background, want none", n)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
