package tools_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// slow is a tool that works for a time, and heeds its context or not.
func slow(name string, takes time.Duration, heeds bool) *fake {
	return &fake{name: name, run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		if heeds {
			select {
			case <-ctx.Done():
				return tools.ErrorResult("It was not finished.").WithError(context.Cause(ctx))
			case <-time.After(takes):
			}
		} else {
			time.Sleep(takes)
		}
		return tools.NewToolResult("done")
	}}
}

// unhurried is a tool with a time of its own.
type unhurried struct {
	*fake
	limit time.Duration
}

func (p unhurried) Timeout() time.Duration { return p.limit }

func TestFieldPerToolTimeout(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		tool    tools.Tool
		options time.Duration
		loop    time.Duration
		takes   time.Duration
		want    string
	}{
		"in time":                    {slow("tool", minute/2, false), minute, 0, minute / 2, "done"},
		"heeds its context":          {slow("tool", 2*minute, true), minute, 0, minute, "The tool tool timed out after 1m0s. It was not finished."},
		"just after":                 {slow("tool", minute+time.Second, false), minute, 0, minute + time.Second, "done"},
		"heeds nothing":              {slow("tool", 2*minute, false), minute, 0, minute + 2*time.Second, "The tool tool timed out after 1m0s. It may still be running"},
		"no limit":                   {slow("tool", 60*minute, false), 0, 0, 60 * minute, "done"},
		"the loop's limit":           {slow("tool", 2*minute, true), 10 * minute, minute, minute, "timed out after 1m0s"},
		"the loop has none":          {slow("tool", 60*minute, false), minute, -1, 60 * minute, "done"},
		"the tool's own":             {unhurried{slow("tool", 6*minute, true), 5 * minute}, minute, minute, 5 * minute, "timed out after 5m0s"},
		"the tool has none":          {unhurried{slow("tool", 60*minute, false), 0}, minute, minute, 60 * minute, "done"},
		"behind a decorator":         {decorated{unhurried{slow("tool", 60*minute, false), 0}}, minute, 0, 60 * minute, "done"},
		"an instance for each call":  {tools.PerCall(func() tools.Tool { return unhurried{slow("tool", 6*minute, true), 5 * minute} }), minute, 0, 5 * minute, "timed out after 5m0s"},
		"panics late":                {&fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult { time.Sleep(2 * minute); panic("late") }}, minute, 0, minute + 2*time.Second, "timed out"},
		"panics in time":             {&fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult { panic("early") }}, minute, 0, 0, "internal error"},
		"ends its goroutine":         {&fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult { runtime.Goexit(); return nil }}, minute, 0, 0, "returned no result"},
		"behind one with a context":  {&contextual{fake: *slow("tool", 2*minute, true)}, minute, 0, minute, "timed out"},
		"returns nothing in its way": {&fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return nil }}, minute, 0, 0, "returned no result"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: c.options})
				r.Register(c.tool)
				p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "tool", nil)), answering("done")}}
				began := time.Now()
				res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3, ToolTimeout: c.loop}, nil, "test", "1")
				if err != nil || !strings.Contains(res.Messages[1].Content, c.want) || time.Since(began) != c.takes {
					t.Errorf("after %s: %s, %v", time.Since(began), res.Messages[1].Content, err)
				}
				stats := r.Stats()
				if stats.TimedOut > 0 != strings.Contains(c.want, "timed out") || stats.Abandoned > 0 != (c.takes == minute+2*time.Second) {
					t.Errorf("%+v", stats)
				}
				// Whoever stops waits for what was given up.
				if err := r.Shutdown(t.Context()); err != nil || r.Stats().Abandoned != 0 {
					t.Errorf("%v, %+v", err, r.Stats())
				}
			})
		})
	}
}

// A person who stops a turn need not wait for a tool that heeds nothing.
func TestCancelledCallIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: time.Hour})
		r.Register(slow("tool", time.Minute, false))
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped by the person")
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		began := time.Now()
		result := r.Execute(ctx, "tool", nil)
		if took := time.Since(began); took != 3*time.Second || !errors.Is(result.Err, stopped) || !strings.Contains(result.ForLLM, "was cancelled. It may still be running") {
			t.Errorf("after %s: %+v", took, result)
		}
		if stats := r.Stats(); stats.TimedOut != 0 || stats.Abandoned != 1 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		if stats := r.Stats(); stats.Abandoned != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// A legacy tool that was given up keeps its instance: the next conversation must
// not be told to it while it works for the first.
func TestTimedOutLegacyToolKeepsItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: time.Second, LegacyWait: 2 * time.Second})
		tool := &contextual{}
		var seen []string
		tool.fake = fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
			time.Sleep(time.Minute)
			seen = append(seen, tool.chatID)
			return tools.NewToolResult("done")
		}}
		r.Register(tool)
		for _, c := range []struct{ chat, want string }{{"1", "timed out"}, {"2", "busy in another conversation"}} {
			if result := r.ExecuteWithContext(t.Context(), "tool", nil, "test", c.chat, nil); !strings.Contains(result.ForLLM, c.want) {
				t.Errorf("chat %s: %+v", c.chat, result)
			}
		}
		time.Sleep(time.Minute)
		r.ExecuteWithContext(t.Context(), "tool", nil, "test", "3", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Join(seen, " "); got != "1 3" {
			t.Errorf("it worked for %s", got)
		}
	})
}

// The time of a call is that of Execute. What goes on in the background has its
// own, with a context that goes on too, and reports; what a call that was given
// up reports is dropped.
func TestTimeoutAndBackgroundWork(t *testing.T) {
	for name, c := range map[string]struct {
		starts time.Duration // until Execute returns
		cb     bool
		want   string // the reports
	}{
		"reports":              {0, true, "done"},
		"nobody listens":       {0, false, ""},
		"starts when too late": {time.Minute, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: 10 * time.Second, AsyncTTL: time.Hour})
				finished := false
				r.Register(tools.AsyncFunc("work", "Works", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
					time.Sleep(c.starts)
					tools.Go(ctx, func(ctx context.Context) {
						select {
						case <-ctx.Done():
						case <-time.After(5 * time.Minute):
							finished = true
						}
						report(ctx, tools.NewToolResult("done"))
					})
					return tools.AsyncResult("started")
				}))
				var reports []string
				var cb tools.AsyncCallback
				if c.cb {
					cb = func(_ context.Context, result *tools.ToolResult) { reports = append(reports, result.ForLLM) }
				}
				result := r.ExecuteWithContext(t.Context(), "work", what("x"), "test", "1", cb)
				if result.Async != (c.starts == 0) {
					t.Errorf("%+v", result)
				}
				time.Sleep(2 * time.Hour) // of the bubble
				synctest.Wait()
				if got := strings.Join(reports, " "); got != c.want || finished != (c.starts == 0) {
					t.Errorf("reports %q, finished %v", got, finished)
				}
				if n := len(r.Outstanding("test", "1")); n != 0 || r.Stats().Abandoned != 0 {
					t.Errorf("%d tasks are left, %+v", n, r.Stats())
				}
			})
		})
	}
}

// A panic anywhere is that call's failure, its stack is the log's alone, and
// what stands around it does not fall.
func TestFieldPanics(t *testing.T) {
	boom := func(context.Context, map[string]interface{}) *tools.ToolResult { panic("secret plan") }
	for name, tool := range map[string]tools.Tool{
		"tool":     &fake{name: "tool", run: boom},
		"legacy":   &contextual{fake: fake{name: "tool", run: boom}},
		"decision": besides{&fake{name: "tool", run: boom}},
		"per call": tools.PerCall(func() tools.Tool { return &fake{name: "tool", run: boom} }),
	} {
		for limit, how := range map[time.Duration]string{0: "here", time.Minute: "on a goroutine"} {
			t.Run(name+" "+how, func(t *testing.T) {
				log := &logBuffer{}
				r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: limit, Logger: slog.New(slog.NewTextHandler(log, nil))})
				r.Register(tool)
				after := false
				r.Use(func(next tools.Handler) tools.Handler {
					return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
						result := next(ctx, inv)
						after = result.IsError
						return result
					}
				})
				for range 2 { // a lock that was kept would hang the second
					res, _ := loopCall(t, r, toolCall("1", "tool", nil), toolCall("2", "tool", nil))
					for _, m := range res.Messages[1:3] {
						if !strings.Contains(m.Content, "internal error") || strings.Contains(m.Content, "secret") || strings.Contains(m.Content, "goroutine") {
							t.Errorf("the model reads %s", m.Content)
						}
					}
				}
				if !after || !strings.Contains(log.String(), "secret plan") || !strings.Contains(log.String(), "timeout_test.go") {
					t.Errorf("%v, logged %s", after, log)
				}
			})
		}
	}
}

// besides is a tool that panics when it is asked whether it may run beside
// others, too.
type besides struct{ *fake }

func (besides) ParallelSafe(map[string]interface{}) bool { panic("secret doubt") }

func BenchmarkTimeout(b *testing.B) {
	for name, limit := range map[string]time.Duration{"none": 0, "minute": time.Minute} {
		b.Run(name, func(b *testing.B) {
			r := tools.NewToolRegistryWith(tools.Options{ToolTimeout: limit})
			r.Register(plainRead("read_file"))
			b.ReportAllocs()
			for b.Loop() {
				if result := r.Execute(b.Context(), "read_file", readArgs); result.IsError {
					b.Fatal(result)
				}
			}
		})
	}
}
