package tools

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// legacyAsync is what the registry keeps about an AsyncTool. The tool is given
// one callback for its whole life, report, which finds out whose call it is: by
// the ticket in the context the tool passes back, or, if the tool made a context
// of its own, because only one call is open. A report whose conversation is not
// certain is delivered to nobody: late is better than to the wrong one.
type legacyAsync struct {
	once      sync.Once
	installed atomic.Bool

	amu  sync.Mutex // reports come from the tool's own goroutines
	open []*ticket
	idle chan struct{} // closed when open gets empty; nil while nobody waits
	// exclusive: the tool reports without its context, so from the first such
	// report on there is one call at a time.
	exclusive bool
	// refused: a call was given up, and its late report must not be taken for
	// another's. An exclusive tool is useless from then on.
	refused bool
	// unownedUntil: until then a call without a callback may report.
	unownedUntil time.Time
}

// install gives the tool its callback, once.
func (in *instance) install(tool AsyncTool) {
	in.once.Do(func() {
		tool.SetCallback(in.report)
		in.installed.Store(true)
	})
}

// report is the callback of a legacy tool.
func (in *instance) report(ctx context.Context, result *ToolResult) {
	if ctx != nil {
		if call := stateFrom(ctx); call != nil {
			if call.ticket != nil && call.inst == in {
				call.ticket.deliver(ctx, result)
				return
			}
			in.core.logger.Warn("tool reported back for a call without a callback, dropped", "tool", call.Tool)
			return
		}
	}
	if t := in.sole(); t != nil {
		t.deliver(t.ctx, result) //nolint:contextcheck // the tool has passed none of the call's
	}
}

// sole returns the only open call, to which a report without a call belongs.
func (in *instance) sole() *ticket {
	in.amu.Lock()
	defer in.amu.Unlock()
	logger := in.core.logger
	if !in.exclusive {
		in.exclusive = true
		logger.Warn("tool reports back without its context, so its calls wait for one another from now on; register it with tools.PerCall", "tool", in.name())
	}
	switch {
	case in.refused || time.Now().Before(in.unownedUntil):
		logger.Error("report without a context may be an earlier call's, dropped", "tool", in.name())
	case len(in.open) == 1:
		return in.open[0]
	case len(in.open) == 0:
		logger.Warn("report without a context and no call is open, dropped", "tool", in.name())
	default:
		logger.Error("report without a context while several calls are open, dropped", "tool", in.name())
	}
	return nil
}

// name asks the tool, which is all right on paths that end in the log.
func (in *instance) name() (name string) {
	defer func() {
		if recover() != nil {
			name = "?"
		}
	}()
	return in.key.Name()
}

// await waits, for an exclusive tool, until no call is open. wanted is whether
// anybody wants the call's report.
func (in *instance) await(ctx context.Context, w *wait, wanted bool) *ToolResult {
	idle, useless := in.vacancy()
	if useless && wanted {
		return ErrorResult("The tool " + w.tool + " can no longer report back to the right conversation. " +
			"The operator has to register it with tools.PerCall.").WithError(errBusy)
	}
	if idle == nil {
		return nil
	}
	return w.closed(ctx, idle)
}

// vacancy returns what to wait for before the next call, nil for nothing.
func (in *instance) vacancy() (idle <-chan struct{}, useless bool) {
	in.amu.Lock()
	defer in.amu.Unlock()
	if !in.exclusive {
		return nil, false
	}
	if in.refused {
		return nil, true
	}
	if len(in.open) == 0 {
		return nil, false
	}
	if in.idle == nil {
		in.idle = make(chan struct{})
	}
	return in.idle, false
}

func (in *instance) add(t *ticket) {
	in.amu.Lock()
	defer in.amu.Unlock()
	in.open = append(in.open, t)
}

func (in *instance) remove(t *ticket) {
	in.amu.Lock()
	defer in.amu.Unlock()
	in.drop(t)
}

// expired takes a call off the list that never reported. From then on reports
// without a call are refused for good.
func (in *instance) expired(t *ticket) {
	in.amu.Lock()
	defer in.amu.Unlock()
	in.refused = true
	in.drop(t)
}

func (in *instance) drop(t *ticket) {
	for i, o := range in.open {
		if o == t {
			in.open = append(in.open[:i], in.open[i+1:]...)
			break
		}
	}
	if len(in.open) == 0 && in.idle != nil {
		close(in.idle)
		in.idle = nil
	}
}

// unowned notes that a call without a callback goes on in the background, for
// at most ttl.
func (in *instance) unowned(ttl time.Duration) {
	in.amu.Lock()
	defer in.amu.Unlock()
	if until := time.Now().Add(ttl); until.After(in.unownedUntil) {
		in.unownedUntil = until
	}
}

// forgettable reports whether nothing about the tool has to be remembered once
// it is unregistered.
func (in *instance) forgettable() bool {
	in.amu.Lock()
	defer in.amu.Unlock()
	return len(in.open) == 0 && !in.exclusive && !in.refused && !time.Now().Before(in.unownedUntil)
}
