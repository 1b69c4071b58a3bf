package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/failpoint"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// senders holds the conversations that have something to send. Each has one
// goroutine while it has, which keeps the order; a blocked or throttled one
// delays no other.
type senders struct {
	g  *Gateway
	mu sync.Mutex // taken by every worker and every sender, for a few steps each
	m  map[bus.Address]*outLane

	waiting  map[string][]chan outcome // who waits for the outcome of a key
	rates    *keyedLimiter
	paused   map[string]time.Time // channels whose whole account is limited, and until when
	stopping chan struct{}        // closed when the daemon stops: nothing new is taken
	running  sync.WaitGroup
}

type outLane struct {
	queue []store.Outbound // by Seq
	first time.Time        // when the row that is being sent was made; guarded by mu, zero: none is
	last  string           // the id of what was delivered last; only its goroutine looks
}

type outcome struct {
	receipt bus.Receipt
	err     error
}

// sendBurst is how many messages may follow one another at once in a
// conversation before its rate counts.
const sendBurst = 3

func (s *senders) init() {
	s.m = make(map[bus.Address]*outLane)
	s.waiting = make(map[string][]chan outcome)
	s.paused = make(map[string]time.Time)
	s.rates = newKeyedLimiter()
	s.stopping = make(chan struct{})
}

// rows splits a message into as many as the platform needs, each with its key.
func (g *Gateway) rows(turn string, m bus.OutboundMessage) []store.Outbound {
	parts := g.split(m)
	now := time.Now()
	rows := make([]store.Outbound, 0, len(parts))
	for i, part := range parts {
		one := m
		one.Text = part
		if i > 0 {
			one.Key = m.Key + "-" + strconv.Itoa(i)
			one.ReplyTo = ""
		}
		rows = append(rows, store.Outbound{Turn: turn, Session: m.String(), Message: one, Created: now})
	}
	return rows
}

// unmeasured is how many characters go into one message of a channel whose own
// measure has failed.
const unmeasured = 1000

// split cuts a text as its channel demands.
func (g *Gateway) split(m bus.OutboundMessage) (parts []string) {
	p := g.ports[m.Channel]
	if p == nil || p.limiter == nil {
		return []string{m.Text}
	}
	defer func() {
		if r := recover(); r != nil {
			g.panicked(m.Address, r)
			parts = channels.Split(m.Text, unmeasured, utf8.RuneCountInString)
		}
	}()
	limit, measure := p.limiter.TextLimit()
	return channels.Split(m.Text, limit, measure)
}

// panicked logs a panic of an adapter with its stack.
func (g *Gateway) panicked(at bus.Address, r any) {
	g.log.Error("channel panicked", "channel", at.Channel, "chat_id", at.ChatID, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
}

// PublishOutbound implements bus.Outbox.
func (g *Gateway) PublishOutbound(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if g.absent(m.Address) {
		return bus.Receipt{}, fmt.Errorf("gateway: no channel is called %q, there are %q: %w", m.Channel, g.Known(), channels.ErrPermanent)
	}
	state, turn := stateFrom(ctx), ""
	if state != nil {
		turn = state.id
	}
	rows := g.rows(turn, m)
	if len(rows) == 0 {
		return bus.Receipt{}, fmt.Errorf("gateway: the text is empty: %w", channels.ErrPermanent)
	}
	key := rows[len(rows)-1].Message.Key
	wait := g.senders.await(key)
	defer g.senders.forget(key, wait)
	if err := ctx.Err(); err != nil {
		return bus.Receipt{}, fmt.Errorf("gateway: store a message: %w", err)
	}
	var res store.Result
	var receipt store.Receipt
	var over bool
	// How long the caller waits for the platform says nothing of the ledger: what
	// is not stored is neither queued nor refused.
	until, end := g.untilStopped(ctx)
	defer end()
	err := g.patiently(until, func() (err error) {
		res, err = g.cfg.Store.Apply(context.WithoutCancel(ctx), store.Tx{Send: rows})
		if err == nil && len(res.Queued) == 0 { // known: it may have been sent already
			receipt, over, err = g.cfg.Store.ReceiptFor(context.WithoutCancel(ctx), key)
		}
		return err
	})
	if err != nil {
		return bus.Receipt{}, fmt.Errorf("gateway: store a message: %w", err)
	}
	if call, _ := tools.CallFrom(ctx); state != nil && call.AgentID == "" { // a background task does not speak for the turn
		state.say(m.Address, m.Text)
	}
	g.senders.enqueue(res.Queued)
	if over && receipt.Failed != "" {
		return bus.Receipt{}, fmt.Errorf("gateway: %s: %w", receipt.Failed, channels.ErrPermanent)
	}
	if over {
		return receipt.Result, nil
	}
	select {
	case o := <-wait:
		return o.receipt, o.err
	case <-ctx.Done():
		return bus.Receipt{}, bus.ErrQueued
	}
}

func (s *senders) await(key string) chan outcome {
	c := make(chan outcome, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[key] = append(s.waiting[key], c)
	return c
}

func (s *senders) forget(key string, c chan outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.waiting[key][:0]
	for _, w := range s.waiting[key] {
		if w != c {
			left = append(left, w)
		}
	}
	if len(left) == 0 {
		delete(s.waiting, key)
		return
	}
	s.waiting[key] = left
}

// enqueue hands stored rows to their conversations. Rows of one conversation
// are sent by Seq, in whatever order they come here. Those of a channel that is
// not configured wait in the ledger.
func (s *senders) enqueue(rows []store.Outbound) {
	if len(rows) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending() {
		return // they wait in the ledger
	}
	for _, row := range rows {
		addr := row.Message.Address
		if s.g.absent(addr) {
			continue
		}
		ln, ok := s.m[addr]
		if !ok {
			ln = &outLane{}
			s.m[addr] = ln
			s.running.Go(func() { s.run(addr, ln) })
		}
		i := sort.Search(len(ln.queue), func(i int) bool { return ln.queue[i].Seq > row.Seq })
		ln.queue = append(ln.queue, store.Outbound{})
		copy(ln.queue[i+1:], ln.queue[i:])
		ln.queue[i] = row
	}
}

// stop lets the senders go on until ctx ends. What is not sent by then, or
// comes only now, stays in the ledger.
func (s *senders) stop(ctx context.Context) {
	s.mu.Lock()
	close(s.stopping)
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
	s.g.cut()
	<-gone
}

func (s *senders) run(addr bus.Address, ln *outLane) {
	for {
		s.mu.Lock()
		ln.first = time.Time{}
		if len(ln.queue) == 0 || s.g.send.Err() != nil {
			delete(s.m, addr)
			s.mu.Unlock()
			return
		}
		row := ln.queue[0]
		ln.queue, ln.first = ln.queue[1:], row.Created
		s.mu.Unlock()
		s.deliver(ln, row)
	}
}

// How long a message is tried, and the pauses between the tries.
const (
	sendMaxAge   = 24 * time.Hour
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// deliver sends one row and does not return before it is delivered, given up,
// or the senders stop.
func (s *senders) deliver(ln *outLane, row store.Outbound) {
	g, m := s.g, row.Message
	m.After = cmp.Or(ln.last, m.After)
	p := g.ports[m.Channel]
	// Tries are counted by the time they take: what the clock says of a row that
	// an earlier process wrote may be wrong.
	since, pause := time.Now(), firstPause
	for {
		if !s.clearance(p, m.Address) {
			return
		}
		began := time.Now()
		failpoint.Hit("send/before")
		receipt, err := s.attempt(p, m)
		g.sendTried(m.Channel, err, time.Since(began))
		if err == nil {
			failpoint.Hit("send/accepted")
			s.settle(ln, row, receipt)
			failpoint.Hit("send/after")
			g.counts.sent.Add(1)
			g.log.Info("delivered", "channel", m.Channel, "chat_id", m.ChatID, "message_id", receipt.MessageID, "turn_id", row.Turn, "duration", time.Since(began))
			return
		}
		if g.send.Err() != nil {
			return
		}
		if s.ending() && errors.Is(err, channels.ErrNotReady) {
			return // its channel has stopped; the row waits in the ledger
		}
		if errors.Is(err, channels.ErrPermanent) || time.Since(since) > sendMaxAge {
			s.giveUp(row, err)
			return
		}
		if m.Since.IsZero() && !errors.Is(err, channels.ErrNotReady) {
			m.Since = began
		}
		wait := s.afterFailure(row, err, pause)
		if errors.Is(err, channels.ErrNotReady) {
			s.doze(wait)
		} else if !s.sleep(wait) {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// afterFailure logs a failed attempt and returns how long to wait before the
// next one: what the platform asks for, otherwise pause with jitter.
func (s *senders) afterFailure(row store.Outbound, err error, pause time.Duration) time.Duration {
	m := row.Message
	wait := pause/2 + rand.N(pause) //nolint:gosec // jitter needs no secrecy
	if limit, ok := errors.AsType[*channels.RateLimitError](err); ok && limit.RetryAfter > 0 {
		wait = limit.RetryAfter + rand.N(100*time.Millisecond) //nolint:gosec // likewise
		if limit.Global {
			s.pauseAll(m.Channel, time.Now().Add(wait))
		}
	}
	s.g.counts.sendRetries.Add(1)
	maybe := errors.Is(err, channels.ErrUnknownOutcome)
	if maybe {
		s.g.counts.maybeTwice.Add(1)
	}
	s.g.log.Warn("send failed, trying again", "channel", m.Channel, "chat_id", m.ChatID, "turn_id", row.Turn, "duration", wait,
		"may_appear_twice", maybe, "err", err)
	return wait
}

func (s *senders) attempt(p *port, m bus.OutboundMessage) (r bus.Receipt, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.g.panicked(m.Address, v)
			err = fmt.Errorf("panic: %w", channels.ErrPermanent)
		}
	}()
	return p.Send(s.g.send, m)
}

// textUndeliverable is what a conversation is told in place of a message that
// the platform will not take.
const textUndeliverable = "I had an answer here, but it could not be delivered. Please ask again, perhaps for something shorter or simpler."

// giveUp ends a row that cannot be delivered. If it was part of a turn's answer
// the conversation is told, once a turn, in case it was the text that was
// refused: nobody else will say so. A model that waits for the outcome is told
// instead.
func (s *senders) giveUp(row store.Outbound, err error) {
	m := row.Message
	s.g.counts.givenUp.Add(1)
	s.g.log.Error("message cannot be delivered, given up", "channel", m.Channel, "chat_id", m.ChatID, "turn_id", row.Turn, "err", err)
	tx := store.Tx{Receipts: []store.Receipt{{Key: m.Key, Failed: err.Error()}}}
	if told := s.report(m.Key, outcome{err: err}); told || row.Turn == "" { // a note belongs to no turn
		s.g.cfg.Store.Post(tx)
		return
	}
	m.Key, m.Text = bus.Key(row.Turn, m.String(), "undeliverable"), textUndeliverable
	tx.Send = s.g.rows("", m)
	res, err := s.g.apply(s.g.send, tx)
	if err != nil {
		s.g.log.Error("cannot store that a message was given up, it stays in the ledger", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
		return
	}
	s.enqueue(res.Queued)
}

// settle writes that a row was delivered and tells who waits for that. If the
// same text waits behind it, the next start has to know that this one was not it.
func (s *senders) settle(ln *outLane, row store.Outbound, r bus.Receipt) {
	m := row.Message
	ln.last = r.MessageID
	s.mu.Lock()
	again := slices.ContainsFunc(ln.queue, func(next store.Outbound) bool { return next.Message.Text == m.Text })
	s.mu.Unlock()
	tx := store.Tx{Receipts: []store.Receipt{{Key: m.Key, Result: r}}}
	if again {
		tx.Facts = []store.Fact{{Key: sentFact(m.Address), Value: r.MessageID}}
	}
	s.g.cfg.Store.Post(tx)
	s.report(m.Key, outcome{receipt: r})
}

// sentFact is the key of the message in a conversation that was delivered last
// while the same text waited behind it.
func sentFact(at bus.Address) string { return "gateway/sent/" + at.String() }

// report tells who waits for the outcome of a key, if anybody does.
func (s *senders) report(key string, o outcome) (told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting[key] {
		c <- o
		told = true
	}
	delete(s.waiting, key)
	return told
}

// clearance waits until the rates of the account and of the conversation allow
// one more message. It returns false when the senders stop.
func (s *senders) clearance(p *port, to bus.Address) bool {
	for {
		s.mu.Lock()
		until := time.Until(s.paused[to.Channel])
		s.mu.Unlock()
		if until <= 0 {
			break
		}
		if !s.sleep(until) {
			return false
		}
	}
	r := s.ratesFor(p, to)
	key := to.Channel + "/" + r.Key
	var wait time.Duration
	if r.PerMin > 0 {
		limit, burst := window(r.PerMin)
		wait = max(wait, s.rates.reserve("min/"+key, limit/60, burst))
	}
	if r.PerSec > 0 {
		wait = max(wait, s.rates.reserve("sec/"+key, rate.Limit(r.PerSec), sendBurst))
	}
	if wait > 0 && !s.sleep(wait) {
		return false
	}
	if r.GlobalPerSec > 0 {
		limit, burst := window(r.GlobalPerSec)
		return s.sleep(s.rates.reserve("all/"+to.Channel, limit, burst))
	}
	return true
}

func (s *senders) ending() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

func (s *senders) pauseAll(channel string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.After(s.paused[channel]) {
		s.paused[channel] = until
	}
}

// doze waits for d, or until the daemon stops: a channel that is not ready will
// not become so any more.
func (s *senders) doze(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.stopping:
	}
}

// sleep waits for d, or returns false at once when the senders stop.
func (s *senders) sleep(d time.Duration) bool {
	if d <= 0 {
		return s.g.send.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.g.send.Done():
		return false
	}
}
