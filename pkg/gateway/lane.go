package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// maxWaiting is how many messages of one conversation wait in memory. Those
// beyond it wait in the ledger and are read back in order; the conversation is
// told once that it has to be patient.
const maxWaiting = 64

// lanes holds the conversations that have something to do. A conversation
// without work has no lane, no goroutine and no memory here.
type lanes struct {
	g  *Gateway
	mu sync.Mutex // taken by every adapter and every worker, for a few steps each
	m  map[bus.Address]*lane

	stopping bool
	workers  sync.WaitGroup
}

// lane is one live conversation: what waits in it and what runs. Its worker is
// the only one who takes from it.
type lane struct {
	addr    bus.Address
	waiting []store.Inbound
	beyond  bool // the ledger holds more than waiting
	missed  bool // something went past waiting since the ledger was last read
	told    bool // the conversation knows that it has to wait
	resumed []resumedTurn

	running context.CancelCauseFunc // ends the running turn, nil if none
	changed chan struct{}           // 1 slot: something was added while the worker waits
}

type resumedTurn struct {
	turn store.Turn
	rows []store.Inbound
}

func (l *lanes) init() { l.m = make(map[bus.Address]*lane) }

// enqueue hands an admitted message to its conversation.
func (l *lanes) enqueue(row store.Inbound) {
	overflow := false
	l.with(row.Message.Address, func(ln *lane) {
		if ln.beyond || len(ln.waiting) >= maxWaiting {
			overflow = !ln.told && len(ln.waiting) >= maxWaiting
			ln.beyond, ln.missed = true, true
			ln.told = ln.told || overflow
			return
		}
		ln.waiting = append(ln.waiting, row)
	})
	if overflow {
		text := fmt.Sprintf("More than %d messages are waiting here. I will get to all of them, in order.", maxWaiting)
		l.g.tell(row.Message, "overflow", text)
	}
}

// resume hands over a turn that an earlier run did not finish.
func (l *lanes) resume(t store.Turn, rows []store.Inbound) {
	l.with(t.Address, func(ln *lane) { ln.resumed = append(ln.resumed, resumedTurn{t, rows}) })
}

// wake starts the worker of a conversation whose messages are in the ledger.
func (l *lanes) wake(addr bus.Address) {
	l.with(addr, func(ln *lane) { ln.beyond = true })
}

// with changes a lane, and starts its worker if it had none. While the daemon
// stops nothing is started: what was admitted waits in the ledger.
func (l *lanes) with(addr bus.Address, change func(*lane)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return
	}
	ln, ok := l.m[addr]
	if !ok {
		ln = &lane{addr: addr, changed: make(chan struct{}, 1)}
		l.m[addr] = ln
		l.workers.Go(func() { l.run(ln) })
	}
	change(ln)
	select {
	case ln.changed <- struct{}{}:
	default:
	}
}

// cancel ends the running turn of a conversation and takes out what principal
// has waiting there.
func (l *lanes) cancel(addr bus.Address, principal string) (turn bool, seqs []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.m[addr]
	if !ok {
		return false, nil
	}
	if ln.running != nil {
		ln.running(agent.ErrStopped)
		turn = true
	}
	kept := ln.waiting[:0]
	for _, row := range ln.waiting {
		if row.Message.Principal == principal && row.Message.Kind == bus.KindMessage {
			seqs = append(seqs, row.Seq)
			continue
		}
		kept = append(kept, row)
	}
	clear(ln.waiting[len(kept):])
	ln.waiting = kept
	return turn, seqs
}

// stop lets running turns go on until ctx ends, then interrupts them; they stay
// in the ledger. It returns when every worker is gone.
func (l *lanes) stop(ctx context.Context) {
	l.mu.Lock()
	l.stopping = true
	for _, ln := range l.m {
		select {
		case ln.changed <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		l.workers.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
		l.g.halt()
		<-gone
	}
	l.g.halt()
}

// run is the worker of a lane. It works until nothing waits and then removes
// the lane.
func (l *lanes) run(ln *lane) {
	for {
		step := l.next(ln)
		switch {
		case step.job != nil:
			l.g.guarded(ln, step.job)
		case step.readBack:
			l.readBack(ln)
		case step.wait > 0:
			if step.tell != nil {
				l.g.tellSlow(*step.tell, step.wait)
			}
			l.pause(ln, step.wait)
		default:
			return
		}
	}
}

// pause waits for d, or until something new has come.
func (l *lanes) pause(ln *lane, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ln.changed:
	case <-l.g.work.Done():
	}
}

// job is a turn over rows, or one that goes on.
type job struct {
	rows   []store.Inbound
	resume *store.Turn
}

// step is what a worker does next. The zero step means the lane is gone.
type step struct {
	job      *job
	readBack bool
	wait     time.Duration       // until a sender who asked too often may go on
	tell     *bus.InboundMessage // whose sender has to be told so
}

func (l *lanes) next(ln *lane) step {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopping:
	case len(ln.resumed) > 0:
		r := ln.resumed[0]
		ln.resumed = ln.resumed[1:]
		return step{job: &job{rows: r.rows, resume: &r.turn}}
	case len(ln.waiting) > 0:
		return l.take(ln)
	case ln.beyond:
		ln.missed = false
		return step{readBack: true}
	}
	delete(l.m, ln.addr)
	return step{}
}

// readBack fills a lane whose memory is empty from the ledger.
func (l *lanes) readBack(ln *lane) {
	rows, err := l.g.cfg.Store.Waiting(l.g.work, ln.addr, 0, maxWaiting)
	if err != nil {
		l.g.log.Error("cannot read waiting messages", "channel", ln.addr.Channel, "chat_id", ln.addr.ChatID, "err", err)
		l.pause(ln, time.Second)
		return
	}
	full := len(rows) == maxWaiting
	rows = slices.DeleteFunc(rows, l.g.command) // left over by a crash; answering twice sends once
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.waiting = rows
	ln.beyond = full || ln.missed
	ln.told = ln.told && ln.beyond
}

// take picks the first message whose sender may start a turn now, and with it
// everything the same sender has written meanwhile: that goes into the turn as
// one message. Anybody else's words wait for a turn of their own.
func (l *lanes) take(ln *lane) step {
	var s step
	for i, row := range ln.waiting {
		m := row.Message
		if slices.ContainsFunc(ln.waiting[:i], func(r store.Inbound) bool { return r.Message.Principal == m.Principal && limited(r.Message) }) && limited(m) {
			continue // the sender's earlier message has to wait already
		}
		wait, first := l.g.mayStart(m)
		if wait == 0 {
			return step{job: &job{rows: ln.extract(i)}}
		}
		if s.wait == 0 || wait < s.wait {
			s.wait = wait
		}
		if first {
			s.tell = &m
		}
	}
	return s
}

// extract takes message i out of a lane, together with what its sender wrote
// after it up to the next message that is answered for itself.
func (ln *lane) extract(i int) []store.Inbound {
	head := ln.waiting[i]
	rows := []store.Inbound{head}
	kept := append([]store.Inbound(nil), ln.waiting[:i]...)
	open := joinable(head.Message)
	for _, r := range ln.waiting[i+1:] {
		if r.Message.Principal == head.Message.Principal && open {
			if joinable(r.Message) {
				rows = append(rows, r)
				continue
			}
			open = false
		}
		kept = append(kept, r)
	}
	ln.waiting = kept
	return rows
}

// joinable reports whether a message may share a turn with others of its
// sender. A command or something unreadable is answered for itself.
func joinable(m bus.InboundMessage) bool {
	return m.Kind == bus.KindMessage && !isCommand(m.Command) && unreadable(m) == ""
}

// limited reports whether a message counts against its sender's turns.
func limited(m bus.InboundMessage) bool {
	return m.Kind == bus.KindMessage && !isCommand(m.Command)
}

// mayStart takes one turn from the sender's budget, or returns how long to wait
// for it and whether the sender does not know yet.
func (g *Gateway) mayStart(m bus.InboundMessage) (wait time.Duration, first bool) {
	n := g.cfg.TurnsPerMinute
	if n <= 0 || !limited(m) {
		return 0, false
	}
	return g.turnRate.try("turn/"+m.Principal, rate.Limit(float64(n)/60), n)
}

func (g *Gateway) tellSlow(m bus.InboundMessage, wait time.Duration) {
	g.log.Info("sender over the turn limit", "channel", m.Channel, "chat_id", m.ChatID, "sender", m.Sender.ID)
	g.tell(m, "slow", fmt.Sprintf("You have asked %d times within a minute, which is as fast as I may go. Nothing is lost: I go on in %s.",
		g.cfg.TurnsPerMinute, max(wait, time.Second).Round(time.Second)))
}

// tell queues a note of our own that is not part of any turn.
func (g *Gateway) tell(m bus.InboundMessage, what, text string) {
	res, err := g.cfg.Store.Apply(g.work, store.Tx{Send: g.outgoing(m, what, text)})
	if err != nil {
		g.log.Error("cannot store a note", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
		return
	}
	g.senders.enqueue(res.Queued)
}

// guarded does one job and keeps its panic from everybody else.
func (g *Gateway) guarded(ln *lane, j *job) {
	defer func() {
		if r := recover(); r != nil {
			m := j.rows[len(j.rows)-1].Message
			g.log.Error("turn panicked", "channel", m.Channel, "chat_id", m.ChatID, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			g.giveUp(j)
		}
	}()
	g.do(ln, j)
}
