package tools_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type taskInput struct {
	What string `json:"what" description:"What to do"`
}

// task is an asynchronous tool of our own kind that works until it is told to
// report.
func task(name string, work func(ctx context.Context, in taskInput, report tools.AsyncCallback)) tools.Tool {
	return tools.AsyncFunc(name, "Works in the background", func(ctx context.Context, in taskInput, report tools.AsyncCallback) *tools.ToolResult {
		tools.Go(ctx, func(ctx context.Context) { work(ctx, in, report) })
		return tools.AsyncResult("started")
	})
}

func reporting(reports chan<- *tools.ToolResult) tools.AsyncCallback {
	return func(_ context.Context, result *tools.ToolResult) { reports <- result }
}

func what(text string) map[string]interface{} { return map[string]interface{}{"what": text} }

func TestReportDuringExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(tools.AsyncFunc("quick", "Is done at once", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
			report(ctx, tools.NewToolResult("done"))
			return tools.AsyncResult("started")
		}))
		reports := make(chan *tools.ToolResult, 2)
		if result := r.ExecuteWithContext(t.Context(), "quick", what("x"), "test", "1", reporting(reports)); !result.Async {
			t.Errorf("got %+v", result)
		}
		if result := <-reports; result.ForLLM != "done" {
			t.Errorf("reported %q", result.ForLLM)
		}
		if list := r.Outstanding("test", "1"); len(list) != 0 {
			t.Errorf("still open: %+v", list)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(reports) != 0 {
			t.Errorf("a timer was armed: %+v", <-reports)
		}
	})
}

// The caller's context rules until Execute has returned, and not after.
func TestContextIsDetachedOnceTheWorkIsInTheBackground(t *testing.T) {
	type key struct{}
	r := tools.NewToolRegistry()
	release := make(chan struct{})
	r.Register(task("work", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
		<-release
		report(ctx, tools.NewToolResult(fmt.Sprint(ctx.Err(), " ", ctx.Value(key{}))))
	}))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	reports := make(chan *tools.ToolResult, 1)
	r.ExecuteWithContext(ctx, "work", what("x"), "test", "1", func(ctx context.Context, result *tools.ToolResult) {
		if ctx.Err() != nil {
			t.Errorf("the callback's context is over: %v", ctx.Err())
		}
		reports <- result
	})
	cancel()
	close(release)
	if got := (<-reports).ForLLM; got != "<nil> kept" {
		t.Errorf("the work saw %q", got)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}

	cause := errors.New("why")
	r.Register(tools.AsyncFunc("wait", "Waits for its context", func(ctx context.Context, _ taskInput, _ tools.AsyncCallback) *tools.ToolResult {
		<-ctx.Done()
		return tools.ErrorResult("gave up").WithError(context.Cause(ctx))
	}))
	r2 := tools.NewToolRegistry()
	tool, _ := r.Get("wait")
	r2.Register(tool)
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(cause)
	if result := r2.ExecuteWithContext(cancelled, "wait", what("x"), "test", "1", reporting(reports)); !errors.Is(result.Err, cause) {
		t.Errorf("the tool saw %v", result.Err)
	}
}

func TestSecondReportIsDropped(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	r.Register(task("twice", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { report(ctx, tools.NewToolResult("done")) })
		}
		wg.Wait()
	}))
	reports := make(chan *tools.ToolResult, 8)
	r.ExecuteWithContext(t.Context(), "twice", what("x"), "test", "1", reporting(reports))
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(reports) != 1 {
		t.Errorf("%d reports came through", len(reports))
	}
	if !strings.Contains(log.String(), "twice or too late") {
		t.Errorf("the log says %q", log)
	}
}

func TestReportAfterAResultThatIsNotAsync(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	kept := make(chan tools.AsyncCallback, 1)
	r.Register(tools.AsyncFunc("sync", "Answers at once", func(_ context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
		kept <- report
		return tools.NewToolResult("answer")
	}))
	r.ExecuteWithContext(t.Context(), "sync", what("x"), "test", "1", func(context.Context, *tools.ToolResult) {
		t.Error("called back")
	})
	(<-kept)(t.Context(), tools.NewToolResult("late"))
	if !strings.Contains(log.String(), "too late") {
		t.Errorf("the log says %q", log)
	}
}

func TestTaskThatNeverReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		ended := make(chan error, 1)
		r.Register(task("never", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			report(ctx, tools.NewToolResult("too late"))
		}))
		reports := make(chan *tools.ToolResult, 2)
		began := time.Now()
		r.ExecuteWithContext(t.Context(), "never", what("x"), "test", "1", reporting(reports))
		result := <-reports
		if took := time.Since(began); took != 30*time.Minute || !result.IsError {
			t.Errorf("after %s: %+v", took, result)
		}
		if err := <-ended; err == nil {
			t.Error("the context has no cause")
		}
		synctest.Wait()
		if len(reports) != 0 {
			t.Errorf("the late report came through: %+v", <-reports)
		}
	})
}

// patient is a tool with a time of its own.
type patient struct {
	tools.Tool
	ttl time.Duration
}

func (p patient) AsyncTTL() time.Duration { return p.ttl }
func (p patient) ExecuteAsync(ctx context.Context, args map[string]interface{}, cb tools.AsyncCallback) *tools.ToolResult {
	return p.Tool.(tools.AsyncExecutor).ExecuteAsync(ctx, args, cb)
}

func TestToolWithItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(patient{task("never", func(ctx context.Context, _ taskInput, _ tools.AsyncCallback) { <-ctx.Done() }), time.Minute})
		reports := make(chan *tools.ToolResult, 1)
		began := time.Now()
		r.ExecuteWithContext(t.Context(), "never", what("x"), "test", "1", reporting(reports))
		<-reports
		if took := time.Since(began); took != time.Minute {
			t.Errorf("given up after %s", took)
		}
	})
}

func TestCallbackThatPanics(t *testing.T) {
	r, log := logged(slog.LevelError)
	r.Register(task("work", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
		report(ctx, tools.NewToolResult("done"))
	}))
	r.ExecuteWithContext(t.Context(), "work", what("x"), "test", "1", func(context.Context, *tools.ToolResult) { panic("oh") })
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "callback: oh") {
		t.Errorf("the log says %q", log)
	}
}

func TestReportOfNil(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(task("work", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) { report(ctx, nil) }))
	reports := make(chan *tools.ToolResult, 1)
	r.ExecuteWithContext(t.Context(), "work", what("x"), "test", "1", reporting(reports))
	if result := <-reports; !result.IsError || result.ForLLM == "" {
		t.Errorf("got %+v", result)
	}
}

func TestPanicOnAToolsGoroutine(t *testing.T) {
	r, log := logged(slog.LevelError)
	r.Register(task("work", func(context.Context, taskInput, tools.AsyncCallback) { panic("secret detail") }))
	reports := make(chan *tools.ToolResult, 1)
	r.ExecuteWithContext(t.Context(), "work", what("x"), "test", "1", reporting(reports))
	if result := <-reports; !result.IsError || strings.Contains(result.ForLLM, "secret") {
		t.Errorf("got %+v", result)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "async_test.go") {
		t.Error("the log has no stack")
	}
}

func TestGoOutsideOfACall(t *testing.T) {
	done := make(chan struct{})
	tools.Go(t.Context(), func(context.Context) { close(done) })
	<-done
}

// A tool with both setters keeps its instance for a cancelled task until it has
// noticed.
func TestCancelledTaskKeepsItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &both{fake: fake{name: "research"}}
		tool.run = func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
			go func() {
				<-ctx.Done()
				time.Sleep(time.Second)
				if at := tool.conversation(); at != "test:a" {
					t.Errorf("works for %s now", at)
				}
				tool.callback(ctx, tools.NewToolResult("late"))
			}()
			return tools.AsyncResult("started")
		}
		r.Register(tool)
		r.ExecuteWithContext(t.Context(), "research", nil, "test", "a", func(context.Context, *tools.ToolResult) { t.Error("delivered") })
		if n := r.CancelOutstanding("test", "a"); n != 1 {
			t.Errorf("cancelled %d", n)
		}
		began := time.Now()
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			return tools.NewToolResult(tool.conversation())
		}
		if got := r.ExecuteWithContext(t.Context(), "research", nil, "test", "b", nil).ForLLM; got != "test:b" || time.Since(began) != time.Second {
			t.Errorf("got %s after %s", got, time.Since(began))
		}
	})
}

// A tool with both setters that never reports frees its instance at the
// deadline of the call.
func TestToolWithBothFreesItsInstanceAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &both{fake: fake{name: "research"}}
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.AsyncResult("started") }
		r.Register(tool)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		reports := make(chan *tools.ToolResult, 1)
		r.ExecuteWithContext(ctx, "research", nil, "test", "a", reporting(reports))
		tool.run = nil
		began := time.Now()
		if result := r.ExecuteWithContext(t.Context(), "research", nil, "test", "b", nil); result.IsError || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), result)
		}
		if result := <-reports; !result.IsError || !strings.Contains(result.ForLLM, "PerCall") {
			t.Errorf("reported %+v", result)
		}
	})
}

// After a call was given up, a report without a context is nobody's.
func TestReportAfterExpiryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &async{fake: fake{name: "spawn"}}
		tool.run = func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			go func() {
				time.Sleep(args["for"].(time.Duration))
				tool.callback(context.Background(), tools.NewToolResult("a's result"))
			}()
			return tools.AsyncResult("started")
		}
		r.Register(tool)
		reports := make(chan *tools.ToolResult, 4)
		r.ExecuteWithContext(t.Context(), "spawn", map[string]interface{}{"for": 31 * time.Minute}, "test", "a", reporting(reports))
		if result := <-reports; !result.IsError {
			t.Errorf("got %+v", result)
		}
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.AsyncResult("started") }
		r.ExecuteWithContext(t.Context(), "spawn", nil, "test", "b", func(_ context.Context, result *tools.ToolResult) {
			if !result.IsError {
				t.Errorf("b got %q", result.ForLLM)
			}
		})
		time.Sleep(time.Hour)
	})
}

// After an ambiguous report, calls wait for one another.
func TestExclusiveAfterAnAmbiguousReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := logged(slog.LevelError)
		tool := &async{fake: fake{name: "spawn"}}
		work := func(d time.Duration, ctx context.Context) func(context.Context, map[string]interface{}) *tools.ToolResult {
			return func(own context.Context, args map[string]interface{}) *tools.ToolResult {
				go func() {
					time.Sleep(d)
					use := ctx
					if use == nil {
						use = own
					}
					tool.callback(use, tools.NewToolResult(args["chat"].(string)))
				}()
				return tools.AsyncResult("started")
			}
		}
		r.Register(tool)
		got := make(chan string, 8)
		run := func(chat string) *tools.ToolResult {
			return r.ExecuteWithContext(t.Context(), "spawn", map[string]interface{}{"chat": chat}, "test", chat, func(_ context.Context, result *tools.ToolResult) {
				got <- chat + " got " + result.ForLLM
			})
		}
		tool.run = work(2*time.Second, nil) // these report properly, later
		run("a")
		run("b")
		tool.run = work(time.Second, context.Background()) // this one does not, while they are open
		run("c")
		time.Sleep(1500 * time.Millisecond)
		if len(got) != 0 || !strings.Contains(log.String(), "several calls are open") {
			t.Fatalf("after an ambiguous report: %d delivered, log %q", len(got), log)
		}
		time.Sleep(time.Second)
		if first, second := <-got, <-got; !strings.Contains("a got a, b got b", first) || !strings.Contains("a got a, b got b", second) || first == second {
			t.Errorf("%s, %s", first, second)
		}
		// c is still open, so the next call waits, in vain.
		began := time.Now()
		if result := run("d"); !strings.Contains(result.ForLLM, "busy") || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), result)
		}
		time.Sleep(time.Hour)
		if text := <-got; !strings.HasPrefix(text, "c got The background task") {
			t.Error(text)
		}
	})
}

// guarded is an async tool that bears SetCallback while its goroutines work.
type guarded struct {
	fake
	mu       sync.Mutex
	callback tools.AsyncCallback
}

func (t *guarded) SetCallback(cb tools.AsyncCallback) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.callback = cb
}

func (t *guarded) report(ctx context.Context, result *tools.ToolResult) {
	t.mu.Lock()
	cb := t.callback
	t.mu.Unlock()
	if cb != nil {
		cb(ctx, result)
	}
}

// A call without a callback leaves nothing through which its report could reach
// another conversation.
func TestCallWithoutCallbackReportsToNobody(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, background := range []bool{false, true} {
			t.Run(fmt.Sprintf("early=%v,background=%v", early, background), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { reportToNobody(t, early, background) })
			})
		}
	}
}

func reportToNobody(t *testing.T, early, background bool) {
	t.Helper()
	r := tools.NewToolRegistryWith(tools.Options{InstallAtRegister: early})
	tool := &guarded{fake: fake{name: "spawn"}}
	tool.run = func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		if background {
			ctx = context.Background()
		}
		go func() {
			time.Sleep(args["for"].(time.Duration))
			tool.report(ctx, tools.NewToolResult(args["chat"].(string)))
		}()
		return tools.AsyncResult("started")
	}
	r.Register(tool)
	r.ExecuteWithContext(t.Context(), "spawn", map[string]interface{}{"chat": "a", "for": 2 * time.Second}, "test", "a", nil)
	time.Sleep(time.Second)
	var got []string
	r.ExecuteWithContext(t.Context(), "spawn", map[string]interface{}{"chat": "b", "for": 3 * time.Second}, "test", "b", func(_ context.Context, result *tools.ToolResult) {
		got = append(got, result.ForLLM)
	})
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	if len(got) != 1 || got[0] == "a" || !background && got[0] != "b" {
		t.Errorf("b got %q", got)
	}
}

func TestAsyncResultOfAToolThatTakesNoCallback(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	r.Register(&fake{name: "odd", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.AsyncResult("started") }})
	r.ExecuteWithContext(t.Context(), "odd", nil, "test", "1", func(context.Context, *tools.ToolResult) {})
	if !strings.Contains(log.String(), "takes no callback") {
		t.Errorf("the log says %q", log)
	}
}

// The slot of a turn is not a background task's to give back.
func TestBackgroundTaskDoesNotYieldTheTurnsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		slow := &contextual{fake: fake{name: "slow"}}
		release := make(chan struct{})
		slow.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			<-release
			return tools.NewToolResult("done")
		}
		r.Register(slow)
		r.Register(task("work", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) {
			report(ctx, r.Execute(ctx, "slow", nil))
		}))
		go r.ExecuteWithContext(t.Context(), "slow", nil, "test", "other", nil)
		synctest.Wait()
		ctx := tools.WithYield(t.Context(), func() func(context.Context) error {
			t.Error("the slot was given back")
			return func(context.Context) error { return nil }
		})
		reports := make(chan *tools.ToolResult, 1)
		r.ExecuteWithContext(ctx, "work", what("x"), "test", "1", reporting(reports))
		time.Sleep(time.Second)
		close(release)
		if result := <-reports; result.ForLLM != "done" {
			t.Errorf("got %+v", result)
		}
	})
}
