package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/failpoint"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// turnState is what a running turn knows about itself; its context carries it.
// Background work started by the turn holds on to it after the turn is over.
type turnState struct {
	id  string
	msg bus.InboundMessage // the last of the messages the turn answers

	mu    sync.Mutex             // tools of the turn and its background tasks
	said  map[bus.Address]string // last text the message tool sent, by conversation
	fired map[string]struct{}    // asynchronous calls that have called back
	steps []store.Step           // taken since the turn began, or began again
}

type turnStateKey struct{}

func stateFrom(ctx context.Context) *turnState {
	t, _ := ctx.Value(turnStateKey{}).(*turnState)
	return t
}

// do answers the rows of a job.
func (g *Gateway) do(j *job) {
	row := j.rows[len(j.rows)-1]
	m := row.Message
	switch {
	case m.Command == cmdRetry:
		if g.retry(j) {
			g.turn(j)
		}
	case j.turn():
		g.turn(j)
	case m.Kind == bus.KindFollowUp:
		g.deliver(row)
	case isCommand(m.Command):
		g.finish(m, "", g.pastCommand(j))
	default:
		g.finish(m, "", g.closing(row, unreadable(m), store.Tx{Done: seqs(j.rows)}))
	}
}

// turn reports whether a job takes a turn of the agent.
func (j *job) turn() bool {
	m := j.rows[len(j.rows)-1].Message
	switch {
	case j.resume != nil:
		return true
	case m.Kind == bus.KindFollowUp:
		return m.FollowUp.ForUser == "" && m.Hops < maxHops
	case isCommand(m.Command):
		return m.Command == cmdRetry
	}
	return slices.ContainsFunc(j.rows, func(r store.Inbound) bool { return unreadable(r.Message) == "" })
}

// turn runs the agent for a job and commits what came of it.
func (g *Gateway) turn(j *job) {
	m := j.rows[len(j.rows)-1].Message
	state := &turnState{id: j.id, msg: m}
	began := time.Now()
	j.began = began
	t := agent.Turn{ID: j.id, Started: began}
	if j.resume != nil {
		t.Steps, t.Started = j.resume.Steps, j.resume.Started
	} else {
		failpoint.Hit("turn/before-begin")
		g.cfg.Store.Post(store.Tx{Begin: begin(state, j.rows, began)})
		failpoint.Hit("turn/after-begin")
	}
	out, err := g.answerRows(j, &t, state)
	if len(j.rows) == 0 { // all of it was taken back
		g.finish(m, state.id, store.Tx{End: []string{state.id}})
		return
	}
	stopped := g.lanes.settle(j)
	left := err != nil && !stopped && g.work.Err() != nil
	if left || !g.finish(m, state.id, g.ending(j, state, out, err, stopped)) {
		g.log.Warn("turn interrupted by the end of the daemon, it stays in the ledger",
			"channel", m.Channel, "chat_id", m.ChatID, "message_id", m.MessageID, "turn_id", state.id, "duration", time.Since(began))
		return
	}
	if out.Compact {
		g.compact(m)
	}
	attrs := []any{
		"channel", m.Channel, "chat_id", m.ChatID, "message_id", m.MessageID, "turn_id", state.id,
		"iteration", out.Rounds, "tokens", out.Usage.TotalTokens, "duration", time.Since(began),
	}
	switch {
	case stopped:
		g.turnOver(j, TurnStopped, nil)
		g.log.Info("turn stopped", attrs...)
	case err != nil:
		g.turnOver(j, TurnFailed, err)
		g.log.Error("turn failed", append(attrs, "err", err)...)
	default:
		g.turnOver(j, TurnDone, nil)
		g.log.Info("turn done", attrs...)
	}
}

// ending is what a turn leaves: its history, its answer and its end. The rows are
// named again: the turn's beginning may not have been stored.
func (g *Gateway) ending(j *job, state *turnState, out agent.Outcome, err error, stopped bool) store.Tx {
	tx := store.Tx{History: out.History, End: []string{state.id}, Done: seqs(j.rows)}
	if text := g.answerText(state, out, err, stopped); text != "" {
		tx.Send = g.answer(state, text)
	}
	if out.Summary != nil {
		tx.Summaries = []store.Summary{*out.Summary}
	}
	return tx
}

// answerRows runs the agent, again if the question changes meanwhile, and again,
// with all its time, if it failed while the ledger was ill. Then it goes on from
// the last step: what tools have done is not done twice.
func (g *Gateway) answerRows(j *job, t *agent.Turn, state *turnState) (agent.Outcome, error) {
	for {
		waits := g.counts.ledgerWaits.Load()
		g.prepare(t, state, j.rows)
		ctx := context.WithValue(context.WithValue(j.ctx, runKey{}, j.ctx), turnStateKey{}, state)
		out, err := g.runAgent(ctx, state.msg, *t, j.resume)
		if err == nil || g.work.Err() != nil {
			return out, err
		}
		switch {
		case errors.Is(context.Cause(j.ctx), errAmended):
			if g.lanes.again(j); len(j.rows) == 0 {
				return out, err
			}
		case j.ctx.Err() != nil || !g.wasIll(j.ctx, waits):
			return out, err
		}
		t.Steps = append(t.Steps, state.takeSteps()...)
	}
}

func begin(state *turnState, rows []store.Inbound, at time.Time) *store.Turn {
	t := &store.Turn{ID: state.id, Address: state.msg.Address, Session: state.msg.SessionKey, Started: at}
	t.Inbound = seqs(rows)
	return t
}

func seqs(rows []store.Inbound) []int64 {
	list := make([]int64, len(rows))
	for i, r := range rows {
		list[i] = r.Seq
	}
	return list
}

// turnID names the turn that answers m. It tells for whom the turn works, so
// that what its history holds can be traced to its author.
func turnID(m bus.InboundMessage) string { return bus.Key(m.Channel, m.ID, "turn") + author(m) }

// author is how the name of every turn for the sender of m ends.
func author(m bus.InboundMessage) string { return "-" + bus.Key("author", m.Principal)[:12] }

// prepare fills in what the agent tells us while it runs.
func (g *Gateway) prepare(t *agent.Turn, state *turnState, rows []store.Inbound) {
	t.Messages = messages(rows)
	t.Journal = func(ctx context.Context, tx store.Tx, wait bool) error {
		err := g.journal(ctx, state, tx, wait)
		if err == nil {
			state.keepSteps(tx.Steps)
		}
		return err
	}
	t.Show = func(call tools.Call, text string) []store.Outbound {
		return g.rows(state.id, quoting(state.msg, bus.Key(call.Key(), "user"), text))
	}
	t.AsyncCallback = func(call tools.Call) tools.AsyncCallback { return g.asyncCallback(state, call) }
	t.Pending = func(call tools.Call) store.Task { return taskOf(state, call) }
	t.OnEvent = func(e tools.Event) { g.logEvent(state, e) }
	t.Answered = func() bool {
		_, spoke := state.lastSaid(state.msg.Address)
		return spoke
	}
}

// runAgent runs one turn in a slot, with a time limit and the typing sign. A
// turn under suspicion begins with nothing beside it.
func (g *Gateway) runAgent(ctx context.Context, m bus.InboundMessage, t agent.Turn, resumed *store.Turn) (agent.Outcome, error) {
	defer g.typing(ctx, m.Address)()
	step, over, err := g.pass(ctx, m.Address, resumed)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer over()
	if journal := t.Journal; step != nil {
		t.Journal = func(ctx context.Context, tx store.Tx, wait bool) error {
			err := journal(ctx, tx, wait)
			if err == nil && progress(tx.Steps) > 0 {
				step()
			}
			return err
		}
	}
	if err := g.slots.Acquire(ctx, 1); err != nil {
		return agent.Outcome{}, err
	}
	held := true
	defer func() {
		if held {
			g.slots.Release(1)
		}
	}()
	if g.cfg.TurnTimeout > 0 { // the wait for the slot does not count
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.TurnTimeout)
		defer cancel()
	}
	// A call that waits for a shared instance of a tool gives its slot back.
	ctx = tools.WithYield(ctx, func() func(context.Context) error {
		g.slots.Release(1)
		held = false
		return func(ctx context.Context) error {
			if err := g.slots.Acquire(ctx, 1); err != nil {
				return err
			}
			held = true
			return nil
		}
	})
	return g.cfg.Agent.Run(ctx, t)
}

// answerText is what the person reads at the end of a turn, "" for nothing.
func (g *Gateway) answerText(state *turnState, out agent.Outcome, err error, stopped bool) string {
	switch {
	case stopped:
		return "" // /stop has answered
	case err != nil:
		return insteadOf(state.msg, agent.Apology(err))
	}
	said, spoke := state.lastSaid(state.msg.Address)
	text := visible(out.Answer)
	if spoke && (text == "" || text == said) {
		return "" // the message tool has said it
	}
	if text == "" {
		return agent.Silence(out.StopReason)
	}
	if out.StopReason == tools.StopLength {
		return out.Answer + "\n\n" + agent.CutOff
	}
	return out.Answer
}

// insteadOf is what is shown instead of an answer to m: a finished result reaches
// its conversation whatever became of the turn, for anything else it is excuse.
func insteadOf(m bus.InboundMessage, excuse string) string {
	if m.Kind == bus.KindFollowUp {
		return m.FollowUp.ForLLM
	}
	return excuse
}

// visible is a text without the white space and the invisible characters around
// it.
func visible(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// answer makes the rows of a turn's final text.
func (g *Gateway) answer(state *turnState, text string) []store.Outbound {
	return g.rows(state.id, quoting(state.msg, bus.Key(state.id, "answer"), text))
}

// quoting is a message into the conversation of m that, in a group, quotes it.
func quoting(m bus.InboundMessage, key, text string) bus.OutboundMessage {
	out := bus.OutboundMessage{Address: m.Address, Key: key, Text: text}
	if m.Group {
		out.ReplyTo = m.MessageID
	}
	return out
}

// finish commits the end of a turn or of a message: until it is stored it counts
// as not done. It reports false if the daemon stopped before.
func (g *Gateway) finish(m bus.InboundMessage, turn string, tx store.Tx) bool {
	ctx := context.WithoutCancel(g.work)
	return g.insist(m.Address, turn, func() error {
		failpoint.Hit("turn/before-end")
		res, err := g.cfg.Store.Apply(ctx, tx)
		if err == nil {
			failpoint.Hit("turn/after-end")
			g.senders.enqueue(res.Queued)
		}
		return err
	})
}

// giveUp ends a job that panicked, with an apology.
func (g *Gateway) giveUp(j *job) {
	m := j.rows[len(j.rows)-1].Message
	tx := store.Tx{End: []string{j.id}, Done: seqs(j.rows)}
	if !g.lanes.settle(j) {
		tx.Send = g.outgoing(m, "panic", insteadOf(m, agent.Apology(nil)))
	}
	if g.finish(m, j.id, tx) {
		g.turnOver(j, TurnFailed, nil)
	}
}

// journal writes a step of a turn and sends on what it made visible. What a call
// has done is written whatever becomes of the turn. The pending row of a task is
// left out when its result has come already; the lock is held over the write, so
// that the two cannot pass each other.
func (g *Gateway) journal(ctx context.Context, state *turnState, tx store.Tx, wait bool) error { //nolint:contextcheck // what is done outlives the turn
	if len(tx.Tasks) > 0 {
		state.mu.Lock()
		defer state.mu.Unlock()
		if _, ok := state.fired[tx.Tasks[0].ID]; ok {
			tx.Tasks = nil
		}
	}
	failpoint.Hit("turn/before-step")
	if !wait && len(tx.Send) == 0 {
		g.cfg.Store.Post(tx)
		failpoint.Hit("turn/after-step")
		return nil
	}
	if tx.Steps[0].Kind == store.StepEnd {
		ctx = g.work
	}
	res, err := g.apply(ctx, tx)
	if err != nil {
		return fmt.Errorf("store a step: %w", err)
	}
	failpoint.Hit("turn/after-step")
	g.senders.enqueue(res.Queued)
	return nil
}

func (g *Gateway) logEvent(state *turnState, e tools.Event) {
	if e.Kind == tools.EventModelEnd {
		g.log.Debug("model answered", "turn_id", state.id, "iteration", e.Round, "duration", e.Duration, "err", e.Err)
	}
}

// keepSteps remembers what the turn has done since it began or began again.
func (s *turnState) keepSteps(steps []store.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

func (s *turnState) takeSteps() []store.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.steps
	s.steps = nil
	return steps
}

func (s *turnState) say(to bus.Address, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said == nil {
		s.said = make(map[bus.Address]string)
	}
	s.said[to] = visible(text)
}

func (s *turnState) lastSaid(to bus.Address) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.said[to]
	return text, ok
}

// When the typing sign appears, and how often it is renewed: platforms let it
// go out after five to ten seconds.
const (
	typingAfter = 300 * time.Millisecond
	typingEvery = 4 * time.Second
)

// typing shows that an answer is on its way, from 300 ms on, so that a quick
// answer costs no extra request. The function it returns ends it and waits
// until it has ended.
func (g *Gateway) typing(ctx context.Context, to bus.Address) (stop func()) {
	p := g.ports[to.Channel]
	if p == nil || p.typer == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	timer := time.AfterFunc(typingAfter, func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				g.panicked(to, r)
			}
		}()
		for ctx.Err() == nil {
			select {
			case <-time.After(max(typingEvery, g.showTyping(ctx, p, to))):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-done
		}
	}
}

// showTyping shows the sign once, if the account's rate leaves room for it, and
// returns for how long the platform wants none.
func (g *Gateway) showTyping(ctx context.Context, p *port, to bus.Address) (pause time.Duration) {
	if !g.senders.spare(p, to) {
		return 0
	}
	err := p.typer.Typing(ctx, to)
	if err == nil {
		return 0
	}
	g.log.Debug("typing sign failed", "channel", to.Channel, "chat_id", to.ChatID, "err", err)
	if limit, ok := errors.AsType[*channels.RateLimitError](err); ok {
		return limit.RetryAfter
	}
	return 0
}
