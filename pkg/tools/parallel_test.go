package tools_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// beside is a tool whose calls may run together if their arguments say so.
type beside struct {
	fake
	again bool
}

func (b *beside) Idempotent() bool { return b.again }
func (b *beside) ParallelSafe(args map[string]interface{}) bool {
	return args["alone"] == nil && args["number"].(int) >= 0 // panics without a number
}

func number(n int) map[string]interface{} { return map[string]interface{}{"number": n} }

// sleepers is a registry with a tool that takes as many seconds as it is told,
// and what is known of its calls.
func sleepers(t *testing.T) (r *tools.ToolRegistry, most *atomic.Int32) {
	t.Helper()
	most = &atomic.Int32{}
	var running atomic.Int32
	r = tools.NewToolRegistry()
	r.Register(&beside{fake: fake{name: "sleep", run: func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		n := running.Add(1)
		defer running.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		seconds, _ := args["number"].(int)
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
			return tools.NewToolResult(fmt.Sprint("slept ", seconds))
		case <-ctx.Done():
			return tools.ErrorResult("woken")
		}
	}}})
	return r, most
}

func sleeping(seconds ...int) (calls []providers.ToolCall) {
	for i, s := range seconds {
		calls = append(calls, toolCall(fmt.Sprint(i+1), "sleep", number(s)))
	}
	return calls
}

// Neighbours that bear it run together, as many at once as may; what is told of
// them, recorded and answered keeps the order of the calls.
func TestFieldParallelAndOrder(t *testing.T) {
	alone := toolCall("3", "sleep", map[string]interface{}{"number": 1, "alone": true})
	doubtful := toolCall("3", "sleep", map[string]interface{}{"seconds": 1}) // asking panics
	for name, c := range map[string]struct {
		parallel int
		calls    []providers.ToolCall
		seconds  int
		most     int32
	}{
		"together":           {0, sleeping(3, 1, 2), 3, 3},
		"four at once":       {0, sleeping(4, 4, 4, 4, 4), 8, 4},
		"the next begins":    {2, sleeping(5, 1, 1, 1), 5, 2},
		"never":              {1, sleeping(3, 1, 2), 6, 1},
		"one is not safe":    {0, slices.Concat(sleeping(2, 2), []providers.ToolCall{alone}, sleeping(2, 2)), 5, 2},
		"one cannot be told": {0, slices.Concat(sleeping(2, 2), []providers.ToolCall{doubtful}, sleeping(2, 2)), 4, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, most := sleepers(t)
				k := &kept{}
				var events []string
				began := time.Now()
				_, res := run(t, tools.ToolLoopConfig{Tools: r, Parallel: c.parallel, Checkpoint: k.keep, OnEvent: func(e tools.Event) {
					if e.Kind == tools.EventToolEnd {
						events = append(events, e.Result.ForLLM)
					}
				}}, calling(c.calls...), answering("done"))
				if took := time.Since(began); took != time.Duration(c.seconds)*time.Second || most.Load() != c.most {
					t.Errorf("took %v with %d at once", took, most.Load())
				}
				var want, ends []string
				for _, tc := range res.Messages[0].ToolCalls {
					n, _ := tc.Arguments["number"].(int)
					want = append(want, fmt.Sprint("slept ", n))
				}
				if diff := cmp.Diff(want, events); diff != "" {
					t.Errorf("events: %s", diff)
				}
				begun := map[string]bool{}
				for _, r := range k.records {
					if r.Kind == tools.RecordBegin {
						begun[r.Call.ID] = true
					}
					if r.Kind == tools.RecordEnd {
						if !begun[r.Call.ID] {
							t.Errorf("call %s ends without a beginning", r.Call.ID)
						}
						ends = append(ends, r.Message.Content)
					}
				}
				if diff := cmp.Diff(want, ends); diff != "" {
					t.Errorf("records: %s", diff)
				}
				for i, m := range res.Messages[1 : len(res.Messages)-1] {
					if m.Content != want[i] {
						t.Errorf("answer %d is %q, want %q", i, m.Content, want[i])
					}
				}
			})
		})
	}
}

// A call begins on record before its tool runs, also side by side.
func TestLoopRecordsBeforeItRunsSideBySide(t *testing.T) {
	var begun atomic.Int32
	r := tools.NewToolRegistry()
	r.Register(&beside{fake: fake{name: "work", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		if n := args["number"].(int); int(begun.Load()) < n {
			t.Errorf("call %d runs, %d are on record", n, begun.Load())
		}
		return tools.NewToolResult("worked")
	}}})
	var calls []providers.ToolCall
	for n := range 20 {
		calls = append(calls, toolCall(fmt.Sprint(n+1), "work", number(n+1)))
	}
	run(t, tools.ToolLoopConfig{Tools: r, Checkpoint: func(_ context.Context, r tools.Record) error {
		if r.Kind == tools.RecordBegin {
			begun.Add(1)
		}
		return nil
	}}, calling(calls...), answering("done"))
	if begun.Load() != 20 {
		t.Errorf("%d calls are on record", begun.Load())
	}
}

// What becomes of one call is that call's result and nobody else's.
func TestFieldSiblingFailure(t *testing.T) {
	bad := map[int]func() *tools.ToolResult{
		1: func() *tools.ToolResult { return tools.ErrorResult("exit status 1").WithError(errors.New("grep")) },
		2: func() *tools.ToolResult { panic("oh") },
		3: func() *tools.ToolResult { return nil },
		4: func() *tools.ToolResult { runtime.Goexit(); return nil },
	}
	for _, parallel := range []int{4, 1} {
		t.Run(fmt.Sprint(parallel, " at once"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := tools.NewToolRegistry()
				r.Register(&beside{fake: fake{name: "work", run: func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
					n := args["number"].(int)
					if fail := bad[n]; fail != nil {
						return fail()
					}
					time.Sleep(time.Second)
					if ctx.Err() != nil {
						return tools.ErrorResult("cancelled")
					}
					return tools.NewToolResult("fine")
				}}})
				var calls []providers.ToolCall
				for i, n := range []int{0, 1, 2, 3, 4, 0} {
					if n == 4 && parallel == 1 {
						continue // alone a tool has the loop's own goroutine
					}
					calls = append(calls, toolCall(fmt.Sprint(i), "work", number(n)))
				}
				calls = append(calls, toolCall("7", "missing", nil))
				_, res := run(t, tools.ToolLoopConfig{Tools: r, Parallel: parallel}, calling(calls...), answering("done"))
				answers := res.Messages[1 : len(res.Messages)-1]
				for i, m := range answers {
					want := map[string]string{"0": "fine", "1": "exit status 1", "2": "failed because", "3": "no result", "4": "failed because", "5": "fine", "7": "not found"}[calls[i].ID]
					if !strings.Contains(m.Content, want) {
						t.Errorf("call %s is answered %q, want %q", calls[i].ID, m.Content, want)
					}
					if strings.Contains(m.Content, "goroutine") {
						t.Errorf("the model reads a stack: %q", m.Content)
					}
				}
			})
		})
	}
}

// A loop that is cancelled waits for what it has started, keeps the results it
// has, and answers the rest.
func TestFieldCancelMidTool(t *testing.T) {
	why := errors.New("the person said stop")
	for name, c := range map[string]struct {
		parallel int
		after    time.Duration
		want     []string
	}{
		"one after the other": {1, 2500 * time.Millisecond, []string{"slept 1", "slept 1", "woken", "Cancelled", "Cancelled", "Cancelled"}},
		"side by side":        {2, 1500 * time.Millisecond, []string{"slept 1", "slept 1", "woken", "woken", "Cancelled", "Cancelled"}},
		"before the first":    {4, 0, []string{"Cancelled", "Cancelled", "Cancelled", "Cancelled", "Cancelled", "Cancelled"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := sleepers(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				p := &script{replies: []providers.LLMResponse{calling(sleeping(1, 1, 1, 1, 1, 1)...), answering("done")}}
				config := tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3, Parallel: c.parallel}
				config.OnEvent = func(e tools.Event) {
					switch {
					case e.Kind != tools.EventModelEnd:
					case c.after == 0:
						cancel(why)
					default:
						time.AfterFunc(c.after, func() { cancel(why) })
					}
				}
				res, err := tools.RunToolLoop(ctx, config, user("hi"), "test", "1")
				if !errors.Is(err, why) || !errors.Is(err, context.Canceled) || res.StopReason != tools.StopCancelled || len(p.asked) != 1 {
					t.Errorf("%+v, %v", res, err)
				}
				checkHistory(t, res.Messages)
				for i, m := range res.Messages[1:] {
					if !strings.HasPrefix(m.Content, c.want[i]) {
						t.Errorf("call %d is answered %q, want %q", i, m.Content, c.want[i])
					}
				}
			})
		})
	}
}

// A loop that could not record a step, wherever, waits for what runs, and its
// history tells of all that was done.
func TestLoopCannotRecordSideBySide(t *testing.T) {
	for at := 1; at <= 12; at++ {
		synctest.Test(t, func(t *testing.T) {
			r, _ := sleepers(t)
			k := &kept{failAt: at}
			p := &script{replies: []providers.LLMResponse{calling(sleeping(3, 1, 2, 1, 1)...), answering("done")}}
			res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3, Parallel: 2, Checkpoint: k.keep}, user("hi"), "test", "1")
			if !errors.Is(err, errDisk) || res.StopReason != tools.StopError {
				t.Errorf("failing at %d: %+v, %v", at, res, err)
			}
			checkHistory(t, res.Messages)
			begun, slept := 0, 0
			for _, r := range k.records {
				if r.Kind == tools.RecordBegin {
					begun++
				}
			}
			for _, m := range res.Messages {
				if strings.HasPrefix(m.Content, "slept") {
					slept++
				}
			}
			if slept != begun {
				t.Errorf("failing at %d: %d calls began, %d have their result", at, begun, slept)
			}
		})
	}
}

// Calls side by side do not give the turn's slot back, which is one.
func TestLoopKeepsItsSlotSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		r.Register(&contextual{fake: fake{name: "legacy", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
			time.Sleep(time.Second)
			return tools.NewToolResult("ok")
		}}})
		r.Register(&beside{fake: fake{name: "work", run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
			return r.Execute(ctx, "legacy", nil)
		}}})
		ctx := tools.WithYield(t.Context(), func() func(context.Context) error {
			t.Error("the slot is given back")
			return func(context.Context) error { return nil }
		})
		p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "work", number(1)), toolCall("2", "work", number(2))), answering("done")}}
		res, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3}, user("hi"), "test", "1")
		if err != nil || res.Messages[1].Content != "ok" || res.Messages[2].Content != "ok" {
			t.Errorf("%q, %v", outline(res.Messages), err)
		}
	})
}

// A hook that panics takes the loop with it, and leaves nothing running behind.
func TestHookPanicsSideBySide(t *testing.T) {
	for at, wait := range map[tools.RecordKind]time.Duration{tools.RecordBegin: time.Second, tools.RecordEnd: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := sleepers(t)
			began, seen := time.Now(), 0
			defer func() {
				if took := time.Since(began); recover() == nil || took != wait {
					t.Errorf("%s: it ended after %v", at, took)
				}
			}()
			run(t, tools.ToolLoopConfig{Tools: r, Checkpoint: func(_ context.Context, r tools.Record) error {
				if r.Kind == at {
					if seen++; seen == 2 {
						panic("disk on fire")
					}
				}
				return nil
			}}, calling(sleeping(1, 1, 3)...), answering("done"))
		})
	}
}
