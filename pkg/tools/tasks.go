package tools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// tasks holds every open ticket and every goroutine started with Go.
type tasks struct {
	mu         sync.Mutex
	open       map[*ticket]struct{}
	perChat    map[bus.Address]int
	goroutines int
	closing    bool
	idle       chan struct{} // closed when nothing is left; nil while nobody waits
	maxPerChat int
	maxTotal   int
}

func (ts *tasks) init() {
	ts.open = make(map[*ticket]struct{})
	ts.perChat = make(map[bus.Address]int)
}

// LimitAsync bounds how many background tasks may run at once, in one
// conversation and in all of them; 0 is no limit. A tool that could exceed it
// is not run: the model is told to wait for one of them.
func (r *ToolRegistry) LimitAsync(perChat, total int) {
	ts := &r.core.tasks
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.maxPerChat, ts.maxTotal = perChat, total
}

// Task is a background task that has not reported back yet.
type Task struct {
	Call    Call
	Label   string    // what it is about, in a few words
	Started time.Time // when the call began
}

// Outstanding lists the background tasks of a conversation, oldest first.
func (r *ToolRegistry) Outstanding(channel, chatID string) []Task {
	var list []Task
	for _, t := range r.core.tasks.of(bus.Address{Channel: channel, ChatID: chatID}) {
		t.mu.Lock()
		if t.phase == phaseDetached {
			list = append(list, Task{Call: t.call.Call, Label: t.call.Label, Started: t.started})
		}
		t.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Task) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Call.ID, b.Call.ID))
	})
	return list
}

// CancelOutstanding ends the background tasks of a conversation and returns how
// many there were. Their contexts are cancelled and their callbacks are not
// called: whoever cancelled them knows.
func (r *ToolRegistry) CancelOutstanding(channel, chatID string) int {
	n := 0
	for _, t := range r.core.tasks.of(bus.Address{Channel: channel, ChatID: chatID}) {
		if t.cancelQuietly() {
			n++
		}
	}
	return n
}

// detached is how many tasks go on although their calls have returned.
func (ts *tasks) detached() (n int) {
	ts.mu.Lock()
	all := slices.Collect(maps.Keys(ts.open))
	ts.mu.Unlock()
	for _, t := range all { // whose lock comes before ts.mu
		t.mu.Lock()
		if t.phase == phaseDetached {
			n++
		}
		t.mu.Unlock()
	}
	return n
}

// of returns the open tickets of a conversation.
func (ts *tasks) of(a bus.Address) []*ticket {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.perChat[a] == 0 {
		return nil
	}
	var list []*ticket
	for t := range ts.open {
		if t.address() == a {
			list = append(list, t)
		}
	}
	return list
}

// Shutdown refuses new background tasks, and waits until those that run have
// reported back and the goroutines started with Go have returned. If ctx ends
// first, the rest is cancelled without its callbacks being called, and the error
// says how many there were. Calls that return their result at once still work.
func (r *ToolRegistry) Shutdown(ctx context.Context) error {
	ts := &r.core.tasks
	for {
		idle := ts.close()
		if idle == nil {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			n := ts.abandon()
			return fmt.Errorf("tools: shutdown: %d background tasks were still running: %w", n, context.Cause(ctx))
		}
	}
}

// close stops new tasks. It returns nil if nothing is left to wait for.
func (ts *tasks) close() <-chan struct{} {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.closing = true
	if len(ts.open)+ts.goroutines == 0 {
		return nil
	}
	if ts.idle == nil {
		ts.idle = make(chan struct{})
	}
	return ts.idle
}

// abandon closes every ticket, and returns how many tasks were running.
func (ts *tasks) abandon() int {
	ts.mu.Lock()
	open := slices.Collect(maps.Keys(ts.open))
	ts.mu.Unlock()
	n := 0
	for _, t := range open {
		if t.abandon() {
			n++
		}
	}
	return n
}

// wake tells Shutdown when nothing is left; ts.mu is held.
func (ts *tasks) wake() {
	if ts.idle != nil && len(ts.open)+ts.goroutines == 0 {
		close(ts.idle)
		ts.idle = nil
	}
}

// admit adds a ticket, or says why it must not be. cb being nil, nobody counts
// on a report, so neither limits nor a shutdown matter.
func (ts *tasks) admit(t *ticket) *ToolResult {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	a := t.address()
	if t.cb != nil {
		switch {
		case ts.closing:
			return ErrorResult("No new background work can be started: the service is shutting down.").WithError(errClosing)
		case ts.maxPerChat > 0 && ts.perChat[a] >= ts.maxPerChat:
			return ErrorResult(fmt.Sprintf("There are %d background tasks in this conversation already, and no more are allowed. "+
				"Wait for one to finish. The user can list them with /tasks and end them with /stop.", ts.perChat[a])).WithError(errTooMany)
		case ts.maxTotal > 0 && len(ts.open) >= ts.maxTotal:
			return ErrorResult("Too many background tasks are running at the moment. Try again later. " +
				"The user can list this conversation's with /tasks and end them with /stop.").WithError(errTooMany)
		}
	}
	ts.open[t] = struct{}{}
	ts.perChat[a]++
	return nil
}

func (ts *tasks) remove(t *ticket) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if _, ok := ts.open[t]; !ok {
		return
	}
	delete(ts.open, t)
	a := t.address()
	if ts.perChat[a]--; ts.perChat[a] <= 0 {
		delete(ts.perChat, a)
	}
	ts.wake()
}

// Go runs fn on a goroutine of its own, for background work of the call that
// ctx belongs to. A panic in fn is logged and becomes the call's outcome unless
// it has one already, and Shutdown waits for fn. Without it a panic on a
// goroutine of a tool ends the process. Outside of a call fn is just run.
func Go(ctx context.Context, fn func(ctx context.Context)) {
	call := stateFrom(ctx)
	if call == nil || call.core == nil {
		go fn(ctx)
		return
	}
	call.core.tasks.begin()
	go func() {
		defer call.core.tasks.done()
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			result := call.core.panicked(ctx, call, p)
			if call.ticket != nil {
				call.ticket.deliver(ctx, result)
			}
		}()
		fn(ctx)
	}()
}

func (ts *tasks) begin() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.goroutines++
}

func (ts *tasks) done() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.goroutines--
	ts.wake()
}
