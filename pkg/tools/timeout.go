package tools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// TimeoutTool is a Tool that says how long one of its calls may take, in place
// of the registry's and the loop's limit: 0 or less is as long as it likes.
// Timeout is asked once, when the tool is registered. When the time is up the
// call's context ends. A tool that does not return then is given up: the model
// is told so, and what the tool returns later is dropped. Work in the background
// has a time of its own; see Options.AsyncTTL.
type TimeoutTool interface {
	Tool
	Timeout() time.Duration
}

// timeoutGrace is how long a tool has to return when its context has ended.
const timeoutGrace = 2 * time.Second

// errTimedOut is the cause of the context of a call whose time is up.
var errTimedOut = fmt.Errorf("the time of the call is up: %w", context.DeadlineExceeded)

// limit is how long a call may take, 0 for as long as it likes.
func (c *core) limit(e *entry, call *callState) time.Duration {
	limit := c.options.ToolTimeout
	switch {
	case e.timed:
		limit = e.timeout
	case call.limit != 0:
		limit = call.limit
	}
	return max(limit, 0)
}

// performance is the part of a call in which the tool has the word. It holds
// what the call has taken, and gives it back when the tool has returned.
type performance struct {
	core   *core
	entry  *entry
	call   *callState
	args   map[string]interface{}
	ticket *ticket // nil: the call cannot report back
	hold   *hold   // nil: the tool has no setters
}

// run lets the tool work. Without a limit that happens on the caller's
// goroutine, and takes as long as it takes.
func (p performance) run(ctx context.Context) (result *ToolResult) {
	limit := p.core.limit(p.entry, p.call)
	if limit > 0 {
		return p.within(ctx, limit)
	}
	defer func() { p.done(ctx, result) }() // deferred, for panics
	return p.perform(ctx)
}

func (p performance) perform(ctx context.Context) *ToolResult {
	e := p.entry
	if e.lock == nil {
		return e.invoke(ctx, p.call, p.args)
	}
	if p.ticket != nil && p.ticket.cb != nil && e.async != nil {
		e.async.install(e.asyncTool)
	}
	e.prepare(p.call)
	if p.ticket != nil && e.executor != nil {
		return e.executor.ExecuteAsync(ctx, p.args, p.ticket.deliver)
	}
	return p.call.execute(ctx, e.tool, p.args)
}

// done gives back what the call has taken.
func (p performance) done(ctx context.Context, result *ToolResult) {
	if p.ticket != nil {
		p.ticket.returned(result, p.hold)
		return
	}
	if p.hold == nil {
		return
	}
	if p.entry.async != nil && result != nil && result.Async {
		p.entry.async.unowned(p.core.ttl(ctx, p.entry))
	}
	p.hold.leave()
}

// within lets the tool work on a goroutine of its own, and waits for it until
// its time is up or the caller's context ends, and then a little longer.
func (p performance) within(caller context.Context, limit time.Duration) *ToolResult {
	ctx, cancel := context.WithCancelCause(caller)
	if ctx.Value(yieldKeyType{}) != nil {
		// A call that was given up must not give the turn's slot back.
		ctx = context.WithValue(ctx, yieldKeyType{}, nil)
	}
	timer := time.AfterFunc(limit, func() { cancel(errTimedOut) })
	w := &work{done: make(chan *ToolResult, 1)}
	go p.work(ctx, w)
	result, returned := p.await(ctx, w)
	timer.Stop()
	if !returned {
		if p.ticket != nil {
			p.ticket.cancelQuietly()
		}
		return p.givenUp(ctx, limit)
	}
	p.done(ctx, result)
	switch {
	case result == nil || !result.Async:
		defer cancel(errReturned)
	case p.ticket == nil: // the work may use its context, though nobody hears of it
		time.AfterFunc(p.core.ttl(caller, p.entry), func() { cancel(errExpired) })
	}
	if result != nil && result.IsError && errors.Is(context.Cause(ctx), errTimedOut) {
		p.core.stats.timedOut.Add(1)
		told := *result // it may be shared
		told.ForLLM = "The tool " + p.entry.name + " timed out after " + limit.String() + ". " + result.ForLLM
		return &told
	}
	return result
}

// work is a tool at work on a goroutine of its own.
type work struct {
	done chan *ToolResult
	over atomic.Bool // the tool has returned, or was given up before
}

func (p performance) work(ctx context.Context, w *work) {
	began := time.Now()
	var result *ToolResult
	defer func() { // also when the tool ends the goroutine
		if r := recover(); r != nil {
			result = p.core.panicked(ctx, p.call, r)
		}
		if !w.over.Swap(true) {
			w.done <- result
			return
		}
		defer p.core.tasks.done()
		p.done(ctx, result)
		p.core.stats.abandoned.Add(-1)
		attrs := append(p.call.attrs(), slog.Duration("duration", time.Since(began)))
		p.core.logger.LogAttrs(ctx, slog.LevelWarn, "tool returned after it was given up, dropped", attrs...)
	}()
	result = p.perform(ctx)
}

// await waits for the tool; returned is false if it was given up.
func (p performance) await(ctx context.Context, w *work) (result *ToolResult, returned bool) {
	select {
	case result = <-w.done:
		return result, true
	case <-ctx.Done():
	}
	grace := time.NewTimer(timeoutGrace)
	defer grace.Stop()
	select {
	case result = <-w.done:
		return result, true
	case <-grace.C:
	}
	// Counted before it is given up, so that it does not return uncounted.
	p.core.tasks.begin()
	p.core.stats.abandoned.Add(1)
	if !w.over.Swap(true) {
		return nil, false
	}
	p.core.stats.abandoned.Add(-1)
	p.core.tasks.done()
	return <-w.done, true
}

// givenUp is what the model reads in place of the result.
func (p performance) givenUp(ctx context.Context, limit time.Duration) *ToolResult {
	cause := context.Cause(ctx)
	attrs := append(p.call.attrs(), slog.Any("err", cause))
	p.core.logger.LogAttrs(ctx, slog.LevelWarn, "tool does not return though its context has ended, given up", attrs...)
	const still = " It may still be running: find out what it has done before you call it again."
	if !errors.Is(cause, errTimedOut) {
		result := cancelledResult(p.entry.name, cause)
		result.ForLLM += still
		return result
	}
	p.core.stats.timedOut.Add(1)
	return ErrorResult("The tool " + p.entry.name + " timed out after " + limit.String() + "." + still).WithError(errTimedOut)
}
