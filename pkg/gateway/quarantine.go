package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// quarantine lets the turns that may have ended the process begin one after the
// other, and all others when each of these has been alone for a while.
type quarantine struct {
	mu       sync.Mutex
	suspects map[string]struct{} // turns that were not alone yet
	many     int                 // how many there were
	open     chan struct{}       // closed when the others may begin
	opened   bool
	alone    chan struct{} // 1 slot: who is alone
}

// longestHold bounds how long all others wait, however many are suspected.
const longestHold = 15 * time.Second

func (q *quarantine) init() {
	q.suspects, q.alone = make(map[string]struct{}), make(chan struct{}, 1)
	q.open = make(chan struct{})
}

// hold names the suspects. No turn begins before.
func (q *quarantine) hold(turns []resumedTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range turns {
		if suspect(&turns[i].turn) {
			q.suspects[turns[i].turn.ID] = struct{}{}
		}
	}
	if q.many = len(q.suspects); q.many == 0 {
		q.letOthers()
	}
}

// holds reports whether a turn is a suspect that was not alone yet.
func (q *quarantine) holds(turn *store.Turn) bool {
	if turn == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.suspects[turn.ID]
	return ok
}

// release ends a suspect's time alone, or its being one before it came to that.
func (q *quarantine) release(turn string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.suspects[turn]; !ok {
		return
	}
	if delete(q.suspects, turn); len(q.suspects) == 0 {
		q.letOthers()
	}
}

// letOthers lets all others begin. The caller holds mu.
func (q *quarantine) letOthers() {
	if !q.opened {
		q.opened = true
		close(q.open)
	}
}

// expire lets all others begin, whoever is still suspected.
func (q *quarantine) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.letOthers()
}

// aloneFor is how long one of several suspects is alone: what ends the process
// mostly does so at once. If the process ends later nonetheless, the turn is
// alone for four times as long when it comes again.
func aloneFor(strikes, many int) time.Duration {
	const first, least = 5 * time.Second, 100 * time.Millisecond
	return max(first/time.Duration(many), least) << (2 * min(max(strikes-maxStrikes-1, 0), maxAlone))
}

// pass waits until a turn may begin: until its channel has brought what came
// meanwhile, and until no suspect is alone. A suspect is alone itself, but for
// other suspects that were alone before; that is noted in the ledger, and that it
// did not end the process. Its time ends with its first step, since a turn that
// gets on is under no suspicion. The functions that are returned say that it has
// made one (nil: that does not matter), and that it is over.
func (g *Gateway) pass(ctx context.Context, at bus.Address, turn *store.Turn) (step, over func(), err error) {
	q := &g.quarantine
	if !q.holds(turn) {
		for _, c := range []chan struct{}{g.ports[at.Channel].heard, q.open} {
			select {
			case <-c:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		return nil, func() {}, nil
	}
	select {
	case q.alone <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	leave := sync.OnceFunc(func() {
		q.release(turn.ID)
		<-q.alone
	})
	mark := turn.Mark
	mark.Alone = true
	if _, err := g.apply(ctx, store.Tx{Marks: []store.Mark{mark}}); err != nil {
		leave()
		return nil, nil, fmt.Errorf("mark a turn: %w", err)
	}
	limit := aloneFor(mark.Strikes, q.many)
	g.log.Warn("the process has ended several times while this turn ran, so others wait", "channel", at.Channel, "chat_id", at.ChatID,
		"turn_id", turn.ID, "duration", limit)
	done := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(done)
		mark.Alone, mark.Strikes = false, mark.Strikes+1
		g.cfg.Store.Post(store.Tx{Marks: []store.Mark{mark}})
		leave()
	})
	return leave, func() {
		if !timer.Stop() {
			<-done
		}
		leave()
	}, nil
}
