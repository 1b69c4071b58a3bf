package tools

import (
	"context"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// defaultParallel is how many calls of a reply run together.
const defaultParallel = 4

func (l *loop) parallel() int {
	if l.cfg.Parallel == 0 {
		return defaultParallel
	}
	return l.cfg.Parallel
}

// safe says which of the calls may run beside others; nil means none.
func (l *loop) safe(calls []providers.ToolCall) []bool {
	if len(calls) < 2 || l.tools == nil || l.parallel() < 2 {
		return nil
	}
	var safe []bool
	for i := range calls {
		e := l.tools.table().byName[calls[i].Name]
		if e == nil || e.beside == nil || calls[i].Invalid != "" {
			continue
		}
		if args, ok := arguments(calls[i]); ok && e.isSafe(args) {
			if safe == nil {
				safe = make([]bool, len(calls))
			}
			safe[i] = true
		}
	}
	return safe
}

// isSafe asks the tool; a panic counts as no.
func (e *entry) isSafe(args map[string]interface{}) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return e.beside.ParallelSafe(args)
}

// together runs calls side by side, as many at once as the loop may. The next
// one begins when another is done. What is told and recorded of them is told in
// their order, from this goroutine; answered is how many of them it came to. It
// waits for all that have begun, whatever happens.
func (l *loop) together(ctx context.Context, round int, calls []providers.ToolCall) (answered int, err error) {
	within := WithYield(ctx, nil) // the turn's slot is given back by one call at a time, if at all
	slots := make([]*slot, 0, len(calls))
	done := make(chan *slot)
	ended := make(map[*slot]bool, len(calls))
	running := 0
	defer func() { // when a hook panics
		for ; running > 0; running-- {
			<-done
		}
	}()
	for {
		for err == nil && ctx.Err() == nil && l.mayBegin(running, calls[len(slots):]) {
			var s *slot
			if s, err = l.begin(ctx, round, calls[len(slots)]); err == nil {
				slots = append(slots, s)
				running++
				go s.runBeside(within, done)
			}
		}
		if running == 0 {
			return answered, err
		}
		ended[<-done] = true
		running--
		for answered < len(slots) && ended[slots[answered]] {
			if failed := l.end(ctx, slots[answered]); err == nil {
				err = failed
			}
			answered++
		}
	}
}

// mayBegin reports whether the first of the calls that are left may begin beside
// those that run.
func (l *loop) mayBegin(running int, left []providers.ToolCall) bool {
	return l.res.StopReason == "" && len(left) > 0 && running < l.parallel() && (running == 0 || !l.early(left[0]))
}

// runBeside runs the call on a goroutine of its own. Whatever the tool does
// there, ending the goroutine included, s comes out of done with a result.
func (s *slot) runBeside(ctx context.Context, done chan<- *slot) {
	defer func() {
		if p := recover(); p != nil || s.result == nil {
			s.result = s.tools.core.panicked(ctx, s.call, p)
		}
		done <- s
	}()
	s.run(ctx)
}
