package tools

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A legacy tool keeps the conversation in its own fields (SetContext,
// SetMetadata), so only one call may have the instance at a time. The lock is a
// channel of one place, so that a waiter can leave when its context ends.
//
// A call that holds the lock says so in its context: a tool that runs a loop in
// which it is called again must not wait for itself. Such a nested call shares
// the outer one's hold, and puts the outer conversation back when it is done.

// instance is what the registry keeps about one tool value with setters.
type instance struct {
	core *core
	key  Tool
	refs int // entries that use it; guarded by core.mu
	slot chan struct{}

	// addressed is whether SetContext has been called, described whether
	// SetMetadata has; guarded by slot.
	addressed, described bool

	legacyAsync
}

func newInstance(c *core, key Tool) *instance {
	return &instance{core: c, key: key, slot: make(chan struct{}, 1)}
}

// hold is one call's possession of an instance.
type hold struct {
	on    *instance
	call  *callState    // whose it is
	outer *hold         // the next hold further out in the context
	turn  chan struct{} // one nested call at a time
	free  func()        // gives the instance back, or to the outer call

	mu   sync.Mutex
	uses int // the call itself, and nested calls
}

func newHold(on *instance, call *callState, outer *hold) *hold {
	return &hold{on: on, call: call, outer: outer, turn: make(chan struct{}, 1), uses: 1}
}

// join lets a nested call in, unless the hold has ended.
func (h *hold) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses == 0 {
		return false
	}
	h.uses++
	return true
}

// leave ends one use; the last one frees the instance.
func (h *hold) leave() {
	h.mu.Lock()
	h.uses--
	last := h.uses == 0
	h.mu.Unlock()
	if last {
		h.free()
	}
}

type (
	holdKeyType  struct{}
	yieldKeyType struct{}
)

// WithYield returns a context whose calls give a scarce slot back while they
// wait for a legacy tool that is busy in another conversation. yield is called
// when the wait begins and releases the slot; the function it returns is called
// once when the wait is over, takes the slot again and may block until its
// context ends. Both run on the goroutine of the call. A nil yield takes away
// what an outer context had; background tasks have none anyway.
func WithYield(ctx context.Context, yield func() (resume func(context.Context) error)) context.Context {
	return context.WithValue(ctx, yieldKeyType{}, yield)
}

// enter takes the entry's instance for call. It returns the call's context and
// the hold, or a refusal when the instance stays busy or ctx ends.
func (c *core) enter(ctx context.Context, e *entry, call *callState, w *wait) (context.Context, *hold, *ToolResult) {
	in := e.lock
	inner, _ := ctx.Value(holdKeyType{}).(*hold)
	for outer := inner; outer != nil; outer = outer.outer {
		if outer.on == in && outer.join() {
			h, refusal := enterNested(ctx, e, call, w, outer, inner)
			return context.WithValue(ctx, holdKeyType{}, h), h, refusal
		}
	}
	if refusal := w.place(ctx, in.slot); refusal != nil {
		return ctx, nil, refusal
	}
	h := newHold(in, call, inner)
	h.free = func() { <-in.slot }
	return context.WithValue(ctx, holdKeyType{}, h), h, nil
}

// enterNested takes an instance from within a call that holds it already.
func enterNested(ctx context.Context, e *entry, call *callState, w *wait, outer, inner *hold) (*hold, *ToolResult) {
	same := call.sameConversation(outer.call)
	if !same && e.holdsUntilDone() {
		// Both would read their conversation from the same fields at once.
		outer.leave()
		return nil, ErrorResult("The tool " + e.name + " cannot call itself for another conversation unless it is registered with tools.PerCall.").WithError(errBusy)
	}
	if refusal := w.place(ctx, outer.turn); refusal != nil {
		outer.leave()
		return nil, refusal
	}
	h := newHold(outer.on, call, inner)
	h.free = func() {
		if !same {
			e.set(outer.call)
		}
		<-outer.turn
		outer.leave()
	}
	return h, nil
}

// sameConversation reports whether a legacy tool would be told the same.
func (s *callState) sameConversation(o *callState) bool {
	return s.Channel == o.Channel && s.ChatID == o.ChatID && maps.Equal(s.Metadata, o.Metadata)
}

// prepare calls the setters for a call that holds the instance.
func (e *entry) prepare(s *callState) {
	in, logger := e.lock, e.lock.core.logger
	if e.ctxTool != nil && in.addressed && (s.Channel == "" || s.ChatID == "") {
		logger.Warn("tool is called without a conversation and still holds that of an earlier call", "tool", e.name)
	}
	if e.metaTool != nil && in.described && s.Metadata == nil {
		logger.Warn("tool is called without metadata and still holds that of an earlier call", "tool", e.name)
	}
	e.set(s)
}

// set tells the instance whom it works for, as far as that is known.
func (e *entry) set(s *callState) {
	if e.ctxTool != nil && s.Channel != "" && s.ChatID != "" {
		e.ctxTool.SetContext(s.Channel, s.ChatID)
		e.lock.addressed = true
	}
	if e.metaTool != nil && s.Metadata != nil {
		e.metaTool.SetMetadata(maps.Clone(s.Metadata))
		e.lock.described = true
	}
}

// Stats counts what legacy tools cost, and what no tool tells of itself.
type Stats struct {
	LegacyWaits int64         // calls that had to wait for a busy instance
	LegacyWait  time.Duration // how long, in all
	LegacyBusy  int64         // calls that gave up

	Unknown    int64 // calls of tools that do not exist
	TimedOut   int64 // calls whose time was up
	Abandoned  int   // calls that were given up and whose tool still works, now
	Background int   // tasks that have not reported back yet, now
}

// lockStats is Stats while it grows.
type lockStats struct{ waits, nanos, busy, unknown, timedOut, abandoned atomic.Int64 }

// Stats returns the counts since the registry was made, views included.
func (r *ToolRegistry) Stats() Stats {
	s := &r.core.stats
	return Stats{
		LegacyWaits: s.waits.Load(), LegacyWait: time.Duration(s.nanos.Load()), LegacyBusy: s.busy.Load(),
		Unknown: s.unknown.Load(), TimedOut: s.timedOut.Load(), Abandoned: int(s.abandoned.Load()), Background: r.core.tasks.detached(),
	}
}

// wait is one call's patience with a legacy tool, over all it has to wait for.
type wait struct {
	core  *core
	tool  string
	yield func() func(context.Context) error // gives the turn's slot back; may be nil
	until time.Time                          // when it gives up; set at the first wait
}

func (c *core) newWait(ctx context.Context, e *entry) *wait {
	yield, _ := ctx.Value(yieldKeyType{}).(func() func(context.Context) error)
	return &wait{core: c, tool: e.name, yield: yield}
}

// place puts a token into slot, waiting if it has to.
func (w *wait) place(ctx context.Context, slot chan struct{}) *ToolResult {
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	return w.block(ctx, func(give <-chan time.Time) waitEnd {
		select {
		case slot <- struct{}{}:
			return waitOver
		case <-give:
			return waitBusy
		case <-ctx.Done():
			return waitCancelled
		}
	}, func() { <-slot })
}

// closed waits until ch is closed.
func (w *wait) closed(ctx context.Context, ch <-chan struct{}) *ToolResult {
	select {
	case <-ch:
		return nil
	default:
	}
	return w.block(ctx, func(give <-chan time.Time) waitEnd {
		select {
		case <-ch:
			return waitOver
		case <-give:
			return waitBusy
		case <-ctx.Done():
			return waitCancelled
		}
	}, func() {})
}

type waitEnd int

const (
	waitOver waitEnd = iota
	waitBusy
	waitCancelled
)

// block waits with the turn's slot given back. undo reverts a wait that
// succeeded when the slot could not be had again.
func (w *wait) block(ctx context.Context, sel func(<-chan time.Time) waitEnd, undo func()) *ToolResult {
	c, began := w.core, time.Now()
	if w.until.IsZero() {
		w.until = began.Add(c.options.LegacyWait)
	}
	var resume func(context.Context) error
	if w.yield != nil {
		resume = w.yield()
	}
	timer := time.NewTimer(time.Until(w.until))
	end := sel(timer.C)
	timer.Stop()

	waited := time.Since(began)
	c.stats.waits.Add(1)
	c.stats.nanos.Add(int64(waited))
	if waited > time.Second {
		c.logger.Warn("tool was busy in another conversation; register it with tools.PerCall", "tool", w.tool, "duration", waited)
	}
	if resume != nil {
		if err := resume(ctx); err != nil {
			if end == waitOver {
				undo()
			}
			return cancelledResult(w.tool, err)
		}
	}
	switch end {
	case waitBusy:
		c.stats.busy.Add(1)
		return ErrorResult("The tool " + w.tool + " is busy in another conversation. Try again in a moment.").WithError(errBusy)
	case waitCancelled:
		return cancelledResult(w.tool, context.Cause(ctx))
	default:
		return nil
	}
}
