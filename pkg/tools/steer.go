package tools

import (
	"context"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const (
	maxInjected   = 3 // messages at a time
	maxInjections = 5 // times in a run
)

// drain takes what waits for the run, unless no request would follow in which
// the model reads it, and reports whether there is something.
func (l *loop) drain(round int) bool {
	switch {
	case len(l.waiting) > 0:
		return true
	case l.cfg.Inject == nil, l.injections >= maxInjections, round >= l.cfg.MaxIterations && !l.cfg.FinalAnswer:
		return false
	}
	l.waiting = l.cfg.Inject(maxInjected)
	if len(l.waiting) == 0 {
		return false
	}
	l.injections++
	return true
}

// inject adds what waits for the run to the conversation, and reports whether
// there was something.
func (l *loop) inject(ctx context.Context, round int) (more bool, err error) {
	if !l.drain(round) {
		return false, nil
	}
	waiting := l.waiting
	l.waiting = nil
	for _, m := range waiting {
		if err := l.insert(ctx, round, m); err != nil {
			return true, err
		}
	}
	return true, nil
}

// insert adds a message that is not the model's and no result.
func (l *loop) insert(ctx context.Context, round int, m providers.Message) error {
	if err := l.checkpoint(ctx, Record{Kind: RecordInject, Round: round, Message: m}); err != nil {
		return err
	}
	l.add(m)
	return nil
}
