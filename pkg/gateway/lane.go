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
	behind  []int64                  // what waits only in the ledger, by Seq; none of it is in waiting
	stopped map[string]int64         // by principal: what waits in the ledger up to this Seq is set aside
	amended map[int64]*store.Inbound // of those, what has changed meanwhile; nil: taken back
	told    bool                     // the conversation knows that it has to wait
	owed    []owed                   // ends of messages that could not be stored
	resumed []resumedTurn
	chores  []func() // what is done between two turns

	running *job          // the turn that runs, nil if none
	changed chan struct{} // 1 slot: something was added while the worker waits
}

type owed struct {
	m  bus.InboundMessage
	tx store.Tx
}

type resumedTurn struct {
	turn store.Turn
	rows []store.Inbound
}

func (l *lanes) init() { l.m = make(map[bus.Address]*lane) }

// enqueue hands admitted messages to their conversation, which is one for all
// of them.
func (l *lanes) enqueue(rows []store.Inbound) {
	var overflow *store.Inbound
	l.with(rows[0].Message.Address, func(ln *lane) {
		for i, row := range rows {
			if len(ln.behind) == 0 && len(ln.waiting) < maxWaiting {
				ln.waiting = append(ln.waiting, row)
				continue
			}
			if !ln.told && len(ln.waiting) >= maxWaiting {
				ln.told, overflow = true, &rows[i]
			}
			ln.leave(row.Seq)
		}
	})
	if overflow != nil {
		text := fmt.Sprintf("More than %d messages are waiting here. I will get to all of them, in order.", maxWaiting)
		l.g.tell(overflow.Message, "overflow", text)
	}
}

// leave notes that a message waits in the ledger only. What is on its way here
// from its admission is in the ledger too, and must not be read back as well:
// hence the numbers, which cost little even if there are very many.
func (ln *lane) leave(seq int64) {
	i, _ := slices.BinarySearch(ln.behind, seq)
	ln.behind = slices.Insert(ln.behind, i, seq)
}

// resume hands over a turn that an earlier run did not finish.
func (l *lanes) resume(t store.Turn, rows []store.Inbound) {
	l.with(t.Address, func(ln *lane) { ln.resumed = append(ln.resumed, resumedTurn{t, rows}) })
}

// leave starts the worker of a conversation that has messages in the ledger.
func (l *lanes) leave(addr bus.Address, seqs ...int64) {
	l.with(addr, func(ln *lane) {
		for _, seq := range seqs {
			ln.leave(seq)
		}
	})
}

// owe leaves it to the worker of a conversation to store the end of a message.
func (l *lanes) owe(m bus.InboundMessage, tx store.Tx) {
	l.with(m.Address, func(ln *lane) { ln.owed = append(ln.owed, owed{m, tx}) })
}

// chore has something done by the worker of a conversation, between two turns.
func (l *lanes) chore(addr bus.Address, do func()) {
	l.with(addr, func(ln *lane) { ln.chores = append(ln.chores, do) })
}

// with changes a lane, and starts its worker if it had none. While the daemon
// stops, and without its channel, nothing is started: what was admitted waits in
// the ledger.
func (l *lanes) with(addr bus.Address, change func(*lane)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping || l.g.absent(addr) {
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

// halted is what a /stop has found in a conversation.
type halted struct {
	turn    string  // the turn that ran, "" if none
	answers []int64 // the messages of that turn
	waiting []int64 // what waited in memory
	behind  []int64 // what waits in the ledger only, whoever has written it
}

// cancel ends the running turn of a conversation, unless its answer is on its
// way already, and takes out what principal has waiting there up to the message
// with Seq at. What waits in the ledger is set aside as well, when it is read.
func (l *lanes) cancel(addr bus.Address, principal string, at int64) (h halted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.m[addr]
	if !ok {
		return h
	}
	if j := ln.running; j != nil && !j.settled {
		j.stopped = true
		j.cancel(agent.ErrStopped)
		h.turn, h.answers = j.id, seqs(j.rows)
	}
	if len(ln.behind) > 0 {
		h.behind = slices.Clone(ln.behind)
		if ln.stopped == nil {
			ln.stopped = make(map[string]int64)
		}
		ln.stopped[principal] = at
	}
	kept := ln.waiting[:0]
	for _, row := range ln.waiting {
		if setAside(row, principal, at) {
			h.waiting = append(h.waiting, row.Seq)
			continue
		}
		kept = append(kept, row)
	}
	clear(ln.waiting[len(kept):])
	ln.waiting = kept
	return h
}

// settle decides what a job comes to: whether a /stop has ended it. One that
// comes later finds nothing to stop.
func (l *lanes) settle(j *job) (stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.settled = true
	return j.stopped
}

// setAside reports whether principal's /stop with Seq at ends a message.
func setAside(row store.Inbound, principal string, at int64) bool {
	return row.Message.Principal == principal && row.Message.Kind == bus.KindMessage && row.Seq < at
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
		case step.owed != nil:
			l.g.finish(step.owed.m, "", step.owed.tx)
		case step.chore != nil:
			step.chore()
		case step.readTo > 0:
			l.readBack(ln, step.readFrom, step.readTo)
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
	ctx    context.Context //nolint:containedctx // /stop may come before the worker has begun
	cancel context.CancelCauseFunc
	id     string // of the turn
	began  time.Time

	stopped bool // a /stop has come
	settled bool // none counts any more
	edits   int
	amended map[int64]*store.Inbound // rows whose text has changed since; nil: taken back
}

// step is what a worker does next. The zero step means the lane is gone.
type step struct {
	job      *job
	owed     *owed
	chore    func()
	readFrom int64 // the first and the last of what waits in the ledger only
	readTo   int64
	wait     time.Duration       // until a sender who asked too often may go on
	tell     *bus.InboundMessage // whose sender has to be told so
}

func (l *lanes) next(ln *lane) step {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopping:
	case len(ln.owed) > 0:
		o := ln.owed[0]
		ln.owed = ln.owed[1:]
		return step{owed: &o}
	case len(ln.chores) > 0:
		do := ln.chores[0]
		ln.chores = ln.chores[1:]
		return step{chore: do}
	case len(ln.resumed) > 0:
		r := ln.resumed[0]
		ln.resumed = ln.resumed[1:]
		return step{job: l.ready(ln, &job{rows: r.rows, resume: &r.turn})}
	case len(ln.waiting) > 0:
		s := l.take(ln)
		if s.job != nil {
			l.ready(ln, s.job)
		}
		return s
	case len(ln.behind) > 0:
		return step{readFrom: ln.behind[0], readTo: ln.behind[len(ln.behind)-1]}
	}
	delete(l.m, ln.addr)
	return step{}
}

// ready gives a job what /stop ends it with; l.mu is held.
func (l *lanes) ready(ln *lane, j *job) *job {
	j.ctx, j.cancel = context.WithCancelCause(l.g.work)
	if j.id = turnID(j.rows[len(j.rows)-1].Message); j.resume != nil {
		j.id = j.resume.ID
	}
	if j.turn() || j.rows[len(j.rows)-1].Message.Command == cmdCompact {
		ln.running = j
	}
	return j
}

// over takes note that a job is done.
func (l *lanes) over(ln *lane, j *job) {
	j.cancel(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.running = nil
}

// readBack fills a lane whose memory is empty with what waits in the ledger
// only, from the message with Seq from to the one with Seq to.
func (l *lanes) readBack(ln *lane, from, to int64) {
	rows, err := l.g.cfg.Store.Waiting(l.g.work, ln.addr, from-1, maxWaiting)
	if err != nil {
		l.g.log.Error("cannot read waiting messages", "channel", ln.addr.Channel, "chat_id", ln.addr.ChatID, "err", err)
		l.pause(ln, time.Second)
		return
	}
	commands, done := l.fill(ln, rows, to)
	if len(done) > 0 {
		l.g.finish(bus.InboundMessage{Address: ln.addr}, "", store.Tx{Done: done})
	}
	for _, row := range commands { // left over by a crash
		l.g.finish(row.Message, "", l.g.obey(row))
	}
}

// fill takes rows of the ledger into a lane. It returns the commands among
// them, and those that a /stop has set aside. What was to be read up to the
// message with Seq to and was not found is done.
func (l *lanes) fill(ln *lane, rows []store.Inbound, to int64) (commands []store.Inbound, done []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range rows {
		_, ours := slices.BinarySearch(ln.behind, row.Seq)
		news, changed := ln.amended[row.Seq]
		if news != nil {
			row = *news
		}
		at, stopped := ln.stopped[row.Message.Principal]
		switch {
		case !ours: // on its way here from its admission
		case changed && news == nil: // taken back
		case stopped && setAside(row, row.Message.Principal, at):
			done = append(done, row.Seq)
		case immediate(row.Message):
			commands = append(commands, row)
		default:
			ln.waiting = append(ln.waiting, row)
		}
	}
	if n := len(rows); n == maxWaiting {
		to = rows[n-1].Seq
	} else if n > 0 {
		to = max(to, rows[n-1].Seq)
	}
	read, _ := slices.BinarySearch(ln.behind, to+1)
	ln.behind = ln.behind[read:]
	if len(ln.behind) == 0 {
		ln.behind, ln.stopped, ln.amended, ln.told = nil, nil, nil, false
	}
	return commands, done
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
// sender. A command is answered for itself.
func joinable(m bus.InboundMessage) bool {
	return m.Kind == bus.KindMessage && !isCommand(m.Command)
}

// limited reports whether a message counts against its sender's turns.
func limited(m bus.InboundMessage) bool {
	return m.Kind == bus.KindMessage && (!isCommand(m.Command) || m.Command == cmdRetry)
}

// mayStart takes one turn from the sender's budget, or returns how long to wait
// for it and whether the sender does not know yet.
func (g *Gateway) mayStart(m bus.InboundMessage) (wait time.Duration, first bool) {
	n := g.cfg.TurnsPerMinute
	if n <= 0 || !limited(m) || g.ports[m.Channel].owners {
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
	g.note(g.work, m, store.Tx{Send: g.outgoing(m, what, text)})
}

// caught logs a panic of what it is deferred in, which then just ends.
func (g *Gateway) caught(what string, m bus.InboundMessage) {
	if r := recover(); r != nil {
		g.log.Error("panic", "in", what, "channel", m.Channel, "chat_id", m.ChatID, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// guarded does one job and keeps its panic from everybody else.
func (g *Gateway) guarded(ln *lane, j *job) {
	defer g.lanes.over(ln, j)
	if j.resume != nil {
		defer g.quarantine.release(j.resume.ID) // it may not have come to run
	}
	defer func() {
		if r := recover(); r != nil {
			m := j.rows[len(j.rows)-1].Message
			g.log.Error("turn panicked", "channel", m.Channel, "chat_id", m.ChatID, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			g.giveUp(j)
		}
	}()
	g.do(j)
}
