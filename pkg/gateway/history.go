package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// The commands about a conversation's past wait for their place in it, since
// they change what the next turn sees.

const (
	textFresh    = "A fresh start. What is it about?"
	textUndone   = "I have taken back the last question and its answer."
	textNoRetry  = "The last thing here was no question of yours, so there is nothing to ask again."
	textForget   = "This erases what was said in this conversation and its reminders, for good. The files in its folder stay. To do it, write /forget yes"
	textNotYours = "In a group only an owner of mine may have me erase the conversation."
	textForgot   = "I have erased this conversation and its reminders."
	textShort    = "This conversation is short enough already."
	textCompact  = "I have summarised the older part of this conversation."
	textNoLedger = "I could not do that just now. Please try again."
)

// pastCommand returns what ends a command about the past, the one of a retry
// excepted.
func (g *Gateway) pastCommand(j *job) store.Tx {
	row := j.rows[len(j.rows)-1]
	m, session := row.Message, []string{row.Message.SessionKey}
	switch allowed, first := g.mayCommand(m); {
	case first:
		return g.closing(row, textManyCommands, store.Tx{})
	case !allowed:
		return g.closing(row, "", store.Tx{})
	}
	switch m.Command {
	case cmdUndo:
		return g.closing(row, textUndone, store.Tx{Undo: session})
	case cmdForget:
		if m.Group && !g.isOwner(g.ports[m.Channel], m.Principal) {
			return g.closing(row, textNotYours, store.Tx{}) // it is everybody's conversation
		}
		if !strings.EqualFold(strings.TrimSpace(m.Args), "yes") {
			return g.closing(row, textForget, store.Tx{})
		}
		return g.forget(row)
	case cmdCompact:
		return g.compactNow(j)
	}
	return g.closing(row, textFresh, store.Tx{Reset: session})
}

// forget erases a conversation, and the reminders that belong to its history.
func (g *Gateway) forget(row store.Inbound) store.Tx {
	m := row.Message
	reminders, err := g.Reminders(g.work, m.Address)
	if err != nil {
		g.log.Error("cannot read the reminders", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
		return g.closing(row, textNoLedger, store.Tx{})
	}
	tx := store.Tx{Forget: []string{m.SessionKey}}
	for _, s := range reminders {
		if s.SessionKey == m.SessionKey {
			tx.Unschedule = append(tx.Unschedule, s.ID)
		}
	}
	return g.closing(row, textForgot, tx)
}

// retry turns a /retry into the question that was asked last, and takes back
// the turn that answered it. Both happen at once, so a crash between this and
// the new answer finds the question in the ledger. It reports whether there is
// a question of the same sender: another's would run with the wrong rights.
func (g *Gateway) retry(j *job) bool {
	row := &j.rows[len(j.rows)-1]
	m := &row.Message
	if m.Args == agent.Retried {
		return true // a resumed turn
	}
	var question, turn string
	err := g.patiently(j.ctx, func() (err error) {
		question, turn, err = g.cfg.Agent.LastQuestion(j.ctx, m.SessionKey)
		return err
	})
	text := textNoRetry
	if err == nil && question != "" && strings.HasSuffix(turn, author(*m)) {
		amend := store.Amend{Channel: m.Channel, ID: m.ID, Text: question, Args: agent.Retried}
		_, err = g.apply(j.ctx, store.Tx{Amend: []store.Amend{amend}, Undo: []string{m.SessionKey}})
		if err == nil {
			m.Text, m.Args = question, agent.Retried
			return true
		}
	}
	if err != nil {
		g.log.Error("cannot take back a turn", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
		text = textNoLedger
	}
	if g.lanes.settle(j) {
		text = "" // /stop has answered
	}
	g.finish(*m, "", g.closing(*row, text, store.Tx{}))
	return false
}

func (g *Gateway) compactNow(j *job) store.Tx {
	row := j.rows[len(j.rows)-1]
	m := row.Message
	defer g.typing(j.ctx, m.Address)()
	limited, cancel := g.inTime(j.ctx)
	defer cancel()
	draft, err := g.cfg.Agent.Compact(limited, m.SessionKey, true)
	if g.lanes.settle(j) {
		return g.closing(row, "", store.Tx{}) // /stop has answered
	}
	if errors.Is(err, agent.ErrNothingToCompact) {
		return g.closing(row, textShort, store.Tx{})
	}
	if err == nil {
		var s store.Summary
		var ok bool
		if s, ok, err = g.cfg.Agent.Settle(j.ctx, draft); ok && err == nil {
			return g.closing(row, textCompact, store.Tx{Summaries: []store.Summary{s}})
		}
	}
	if err != nil {
		g.log.Error("cannot summarise a conversation", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
	}
	return g.closing(row, textNoLedger, store.Tx{})
}

// inTime bounds a summary as a turn is bounded.
func (g *Gateway) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.cfg.TurnTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, g.cfg.TurnTimeout)
}

// compaction summarises conversations that have outgrown their budget, beside
// the turns that go on meanwhile.
type compaction struct {
	mu      sync.Mutex      // workers of all conversations begin one
	under   map[string]bool // sessions that are being summarised
	stopped bool
	ctx     context.Context //nolint:containedctx // of all of them; a summary outlives the turn that asked for it
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// atOnce bounds the summaries under way. A conversation that finds no place
// asks again after its next turn.
const atOnce = 4

func (c *compaction) init() {
	c.under = make(map[string]bool)
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

func (c *compaction) begin(session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.under[session] || len(c.under) >= atOnce {
		return false
	}
	c.under[session] = true
	c.running.Add(1)
	return true
}

func (c *compaction) end(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.under, session)
	c.running.Done()
}

// stop ends them; what they would have said can be said after the next start.
func (c *compaction) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}

// compact summarises the conversation of m in the background. The summary is
// put in by the conversation's worker, between two turns.
func (g *Gateway) compact(m bus.InboundMessage) {
	if !g.compaction.begin(m.SessionKey) {
		return
	}
	go func() {
		defer g.compaction.end(m.SessionKey)
		defer g.caught("a summary", m)
		ctx, cancel := g.inTime(g.compaction.ctx)
		defer cancel()
		draft, err := g.cfg.Agent.Compact(ctx, m.SessionKey, false)
		if err != nil {
			if !errors.Is(err, agent.ErrNothingToCompact) && g.compaction.ctx.Err() == nil {
				g.log.Warn("no summary was made", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
			}
			return
		}
		g.lanes.chore(m.Address, func() { g.settle(m, draft) })
	}()
}

func (g *Gateway) settle(m bus.InboundMessage, draft agent.Draft) {
	defer g.caught("a summary", m)
	s, ok, err := g.cfg.Agent.Settle(g.work, draft)
	if err == nil && ok {
		_, err = g.apply(g.work, store.Tx{Summaries: []store.Summary{s}})
	}
	switch {
	case err != nil:
		g.log.Warn("a summary could not be stored", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
	case ok:
		g.log.Info("conversation summarised", "channel", m.Channel, "chat_id", m.ChatID)
	}
}
