package tools

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// A call that may report back has a ticket, which belongs to the registry and
// to one conversation. It is closed exactly once: by the callback, by a result
// that is not Async, by its time running out, by CancelOutstanding or by
// Shutdown. Whatever comes after that is logged and dropped.

// phase is where a ticket is in its life.
type phase int

const (
	phaseRunning   phase = iota // Execute has not returned
	phaseDetached               // Execute has returned Async, the work goes on
	phaseCancelled              // nobody waits for it any more, but the tool may still work
	phaseClosed
)

type ticket struct {
	core    *core
	call    *callState
	entry   *entry
	cb      AsyncCallback // nil: nobody wants to know
	started time.Time
	ttl     time.Duration

	// ctx is the call's. It ends with the caller's until Execute returns Async,
	// and belongs to the registry from then on.
	ctx    context.Context //nolint:containedctx // the ticket outlives the call it was made in
	cancel context.CancelCauseFunc
	unlink func() bool

	mu    sync.Mutex // the timer, the tool's goroutine and Execute's return meet here
	phase phase
	timer *time.Timer
	hold  *hold // kept until the ticket is closed
}

// ttl is how long a background task of the tool may take. A tool that is taken
// until its callback may not keep others waiting beyond the call's deadline,
// unless it says so itself.
func (c *core) ttl(ctx context.Context, e *entry) time.Duration {
	if e.ttl > 0 {
		return e.ttl
	}
	ttl := c.options.AsyncTTL
	if deadline, ok := ctx.Deadline(); ok && e.holdsUntilDone() {
		ttl = min(ttl, max(time.Until(deadline), 0))
	}
	return ttl
}

// openTicket gives a call a ticket and a context that can outlive the caller's.
func (c *core) openTicket(ctx context.Context, e *entry, call *callState, cb AsyncCallback) (context.Context, *ticket, *ToolResult) {
	t := &ticket{core: c, call: call, entry: e, cb: cb, started: time.Now(), ttl: c.ttl(ctx, e)}
	if refusal := c.tasks.admit(t); refusal != nil {
		return ctx, nil, refusal
	}
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.cancel = cancel
	t.unlink = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	if ctx.Err() != nil {
		cancel(context.Cause(ctx)) // AfterFunc may take its time
	}
	if ctx.Value(yieldKeyType{}) != nil {
		// The turn's slot is not the task's to give back.
		detached = context.WithValue(detached, yieldKeyType{}, nil)
	}
	call.ticket = t
	t.ctx = detached
	return t.ctx, t, nil
}

func (t *ticket) address() bus.Address {
	return bus.Address{Channel: t.call.Channel, ChatID: t.call.ChatID}
}

// returned is told what Execute came to; result is nil if it panicked or
// returned nil. h is the call's hold on a legacy instance, if it has one.
func (t *ticket) returned(result *ToolResult, h *hold) {
	t.unlink()
	if result == nil || !result.Async {
		if t.end() != phaseClosed {
			t.leave()
			t.core.tasks.remove(t)
		}
		t.cancel(errReturned)
		if h != nil {
			h.leave()
		}
		return
	}
	t.mu.Lock()
	if t.phase == phaseRunning {
		t.phase = phaseDetached
		t.timer = time.AfterFunc(t.ttl, t.expire)
	}
	if t.phase != phaseClosed && t.entry.holdsUntilDone() {
		t.hold, h = h, nil
	}
	t.mu.Unlock()
	if h != nil {
		h.leave()
	}
}

// deliver is the callback a tool gets.
func (t *ticket) deliver(ctx context.Context, result *ToolResult) { //nolint:contextcheck // a tool may pass a context that is not the call's
	switch t.end() {
	case phaseClosed:
		t.core.logger.LogAttrs(t.ctx, slog.LevelWarn, "tool reported back twice or too late, dropped", t.call.attrs()...)
		return
	case phaseCancelled:
		t.core.logger.LogAttrs(t.ctx, slog.LevelDebug, "tool reported back after it was cancelled, dropped", t.call.attrs()...)
		t.leave()
		t.letGo()
		return
	case phaseRunning, phaseDetached:
	}
	t.leave()
	if ctx == nil || stateFrom(ctx) != t.call {
		ctx = t.ctx // the tool made one of its own
	}
	t.settle(ctx, result)
}

// expire gives a task up.
func (t *ticket) expire() {
	was := t.end()
	if was == phaseClosed {
		return
	}
	if in := t.call.inst; in != nil {
		in.expired(t)
	}
	if was == phaseCancelled {
		t.letGo()
		return
	}
	text := fmt.Sprintf("The background task %s did not report back within %s and was given up.", t.call.Tool, t.ttl.Round(time.Second))
	if t.entry.holdsUntilDone() {
		text += " Its author should register it with tools.PerCall."
	}
	t.settle(t.ctx, ErrorResult(text).WithError(errExpired))
	t.cancel(errExpired)
}

// cancelQuietly cancels the task, and reports whether it was running in the
// background. A legacy tool keeps its instance a little longer, until it has
// noticed: what it still reads or reports is this conversation's.
func (t *ticket) cancelQuietly() bool {
	t.mu.Lock()
	was := t.phase
	if was == phaseRunning || was == phaseDetached {
		t.phase = phaseCancelled
		if t.timer != nil {
			t.timer.Stop()
		}
		t.timer = time.AfterFunc(t.core.options.LegacyWait, t.expire)
	}
	t.mu.Unlock()
	if was != phaseRunning && was != phaseDetached {
		return false
	}
	t.cancel(errCancelled)
	t.core.tasks.remove(t)
	t.core.logger.LogAttrs(t.ctx, slog.LevelDebug, "background task cancelled", t.call.attrs()...)
	return was == phaseDetached
}

// abandon closes the ticket because the process ends.
func (t *ticket) abandon() bool {
	was := t.end()
	if was == phaseClosed {
		return false
	}
	t.cancel(errClosing)
	t.leave()
	t.letGo()
	t.core.tasks.remove(t)
	return was == phaseDetached
}

// end closes the ticket and returns the phase it was in.
func (t *ticket) end() phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.phase
	t.phase = phaseClosed
	if t.timer != nil {
		t.timer.Stop()
	}
	return was
}

// settle hands the result over. The task counts as running until that is done.
func (t *ticket) settle(ctx context.Context, result *ToolResult) {
	defer t.core.tasks.remove(t)
	defer t.letGo()
	if result == nil {
		result = ErrorResult("The background task " + t.call.Tool + " ended without a result.").WithError(errNilResult)
	}
	result = t.core.redacted(result)
	level := slog.LevelDebug
	if result.IsError {
		level = slog.LevelWarn
	}
	attrs := append(t.call.attrs(), slog.Duration("duration", time.Since(t.started)))
	if result.Err != nil {
		attrs = append(attrs, slog.Any("err", result.Err))
	}
	t.core.logger.LogAttrs(ctx, level, "background task ended", attrs...)
	if t.cb == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			t.core.panicked(ctx, t.call, fmt.Errorf("in the callback: %v", p))
		}
	}()
	t.cb(context.WithoutCancel(ctx), result)
}

// leave takes the ticket off its legacy tool's list.
func (t *ticket) leave() {
	if in := t.call.inst; in != nil {
		in.remove(t)
	}
}

// letGo gives a legacy instance free that was kept for the task.
func (t *ticket) letGo() {
	t.mu.Lock()
	h := t.hold
	t.hold = nil
	t.mu.Unlock()
	if h != nil {
		h.leave()
	}
}

// maxLabel bounds a task's label, in runes.
const maxLabel = 60

// label says what a call of a tool that may work in the background is about:
// its argument "label" if it has one, or else its first text argument, the
// required ones first.
func (e *entry) label(args map[string]interface{}) string {
	if !e.canAsync {
		return ""
	}
	names := slices.Concat([]string{"label"}, stringList(e.def.Function.Parameters["required"]), slices.Sorted(maps.Keys(args)))
	for _, n := range names {
		text, _ := args[n].(string)
		if text = strings.Join(strings.Fields(text), " "); text == "" {
			continue
		}
		if r := []rune(text); len(r) > maxLabel {
			return string(r[:maxLabel-1]) + "…"
		}
		return text
	}
	return ""
}

// stringList reads a list of strings the way Go code or JSON writes it.
func stringList(v interface{}) []string {
	switch v := v.(type) {
	case []string:
		return v
	case []interface{}:
		var list []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	default:
		return nil
	}
}
