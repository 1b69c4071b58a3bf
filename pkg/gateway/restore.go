package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// restore takes up what an earlier run left in the ledger.
func (g *Gateway) restore(ctx context.Context) error {
	defer close(g.started)
	code, err := g.own.load(ctx)
	if err != nil {
		return fmt.Errorf("gateway: read the owners: %w", err)
	}
	if code != "" && g.cfg.Announce != nil {
		g.cfg.Announce(code)
	}
	unsent, err := g.cfg.Store.Unsent(ctx)
	if err != nil {
		return fmt.Errorf("gateway: read the outbox: %w", err)
	}
	tasks, err := g.cfg.Store.OpenTasks(ctx)
	if err != nil {
		return fmt.Errorf("gateway: read background tasks: %w", err)
	}
	unsent = slices.DeleteFunc(unsent, func(row store.Outbound) bool { return g.left(row.Message.Address) })
	if err := g.suspectSent(ctx, unsent); err != nil {
		return err
	}
	g.senders.enqueue(unsent)
	turns, waiting, err := g.restoreLanes(ctx)
	if err != nil {
		return err
	}
	if turns+waiting+len(unsent)+len(tasks) > 0 {
		g.log.Info("going on with what the ledger holds", "turns", turns, "conversations_waiting", waiting, "unsent", len(unsent), "tasks", len(tasks))
	}
	if err := g.restoreTasks(ctx, tasks); err != nil {
		return err
	}
	g.clock.start() //nolint:contextcheck // the clock lives as long as the gateway, not as this call
	return nil
}

// left is absent, said to the operator: what the ledger holds for a conversation
// waits there until its channel is back.
func (g *Gateway) left(at bus.Address) bool {
	if !g.absent(at) {
		return false
	}
	g.log.Warn("left in the ledger, since this channel is not configured", "channel", at.Channel, "chat_id", at.ChatID)
	return true
}

// suspectSent takes note of the messages that an earlier process left without a
// receipt. It may have sent them: a receipt is not waited for. A platform that
// recognises a repetition shows them once all the same.
func (g *Gateway) suspectSent(ctx context.Context, rows []store.Outbound) error {
	for i, row := range rows {
		m := &rows[i].Message
		after, err := g.cfg.Store.Fact(ctx, sentFact(m.Address))
		if err != nil {
			return fmt.Errorf("gateway: read what was sent last: %w", err)
		}
		m.Since, m.After = row.Created, after
		g.counts.maybeTwice.Add(1)
		g.log.Warn("message without a receipt, sending it again", "channel", m.Channel, "chat_id", m.ChatID, "turn_id", row.Turn,
			"may_appear_twice", true)
	}
	return nil
}

// restoreLanes takes up turns that did not end and messages that wait, and says
// how many turns and in how many conversations.
func (g *Gateway) restoreLanes(ctx context.Context) (turns, waiting int, err error) {
	open, err := g.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("gateway: read open turns: %w", err)
	}
	var resumed []resumedTurn
	lanes, err := g.cfg.Store.Lanes(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("gateway: read waiting messages: %w", err)
	}
	tx := store.Tx{}
	for i := range open {
		t := &open[i]
		if g.left(t.Address) {
			continue
		}
		rows, err := g.cfg.Store.Inbound(ctx, t.Inbound)
		if err != nil {
			return 0, 0, fmt.Errorf("gateway: read the messages of a turn: %w", err)
		}
		stopped, err := g.cfg.Store.Fact(ctx, stoppedFact(t.Address))
		if err != nil {
			return 0, 0, fmt.Errorf("gateway: read what was stopped: %w", err)
		}
		switch {
		case len(rows) == 0: // nothing is left to answer
			tx.End = append(tx.End, t.ID)
		case stopped == t.ID:
			closeTurn(&tx, t, rows, textStopped)
		default:
			resumed = append(resumed, resumedTurn{*t, rows})
		}
	}
	resumed = g.judge(&tx, resumed)
	res, err := g.apply(ctx, tx)
	if err != nil {
		return 0, 0, fmt.Errorf("gateway: mark open turns: %w", err)
	}
	g.senders.enqueue(res.Queued)
	g.quarantine.hold(resumed)
	for _, r := range resumed {
		g.lanes.resume(r.turn, r.rows) //nolint:contextcheck // workers live as long as the gateway, not as this call
	}
	for _, addr := range lanes {
		if g.left(addr) {
			continue
		}
		waiting++
		if err := g.restoreLane(ctx, addr); err != nil {
			return 0, 0, err
		}
	}
	return len(resumed), waiting, nil
}

// restoreLane notes what waits in a conversation.
func (g *Gateway) restoreLane(ctx context.Context, addr bus.Address) error {
	const page = 1024
	for last := int64(0); ; {
		rows, err := g.cfg.Store.Waiting(ctx, addr, last, page)
		if err != nil {
			return fmt.Errorf("gateway: read waiting messages: %w", err)
		}
		if len(rows) > 0 {
			g.lanes.leave(addr, seqs(rows)...) //nolint:contextcheck // likewise
		}
		if len(rows) < page {
			return nil
		}
		last = rows[len(rows)-1].Seq
	}
}

// maxStrikes is how many starts in a row may find a turn where the one before
// found it. After that the turn begins alone (see quarantine), and if the process
// ends even then, maxAlone times, it is the turn that ends it. Once would not do:
// whoever kills the process from outside often enough meets a turn that is alone.
// That there are many suspects speaks for such a killer, so that each gets that
// many more chances, up to mostDoubt times.
const (
	maxStrikes = 2
	maxAlone   = 3
	mostDoubt  = 8
)

// judge marks the turns that an earlier process left open, sets aside those that
// end the process, and returns the others, suspects first: none must wait behind
// a turn that waits for it.
func (g *Gateway) judge(tx *store.Tx, open []resumedTurn) (resumed []resumedTurn) {
	alone := make(map[string]bool)
	suspects := 0
	for i := range open {
		t := &open[i].turn
		alone[t.ID] = strike(t)
		if suspect(t) {
			suspects++
		}
	}
	most := maxStrikes + maxAlone*min(suspects, mostDoubt)
	for _, r := range open {
		if alone[r.turn.ID] && r.turn.Mark.Strikes > most {
			g.setTurnAside(tx, &r.turn, r.rows)
			continue
		}
		tx.Marks = append(tx.Marks, r.turn.Mark)
		resumed = append(resumed, r)
	}
	slices.SortStableFunc(resumed, func(a, b resumedTurn) int { return cmp.Compare(b.turn.Mark.Strikes, a.turn.Mark.Strikes) })
	return resumed
}

// strike updates the mark of a turn that an earlier process left open, and
// reports whether the process ended while it was alone. A turn that has made a step since is
// under no suspicion: processes end for many reasons, and most are not a turn.
// Nor is it held against a suspect that it waited until others had been alone.
func strike(t *store.Turn) (alone bool) {
	was := t.Mark
	t.Mark = store.Mark{Turn: t.ID, Steps: progress(t.Steps)}
	if t.Mark.Steps > was.Steps {
		return false
	}
	if t.Mark.Strikes = was.Strikes; was.Alone || was.Strikes <= maxStrikes {
		t.Mark.Strikes++
	}
	return was.Alone
}

// progress counts what a turn has got done. That a call has begun does not
// count: one that may be made again begins anew each time.
func progress(steps []store.Step) (n int) {
	for i := range steps {
		if steps[i].Kind != store.StepBegin {
			n++
		}
	}
	return n
}

// absolve notes of the turns that are left open that they did not end this
// process: it was stopped in order.
func (g *Gateway) absolve(ctx context.Context) {
	const tries = 3
	for range tries {
		open, err := g.cfg.Store.OpenTurns(ctx)
		if err == nil {
			tx := store.Tx{}
			for _, t := range open {
				tx.Marks = append(tx.Marks, store.Mark{Turn: t.ID, Steps: -1})
			}
			_, err = g.cfg.Store.Apply(ctx, tx)
		}
		if err == nil {
			return
		}
		g.log.Warn("cannot note that open turns were stopped in order", "err", err)
	}
}

// suspect reports whether a turn has to begin alone.
func suspect(t *store.Turn) bool { return t.Mark.Strikes > maxStrikes }

// setTurnAside ends a turn that ended the process while it ran alone, and tells
// its sender.
func (g *Gateway) setTurnAside(tx *store.Tx, t *store.Turn, rows []store.Inbound) {
	m := rows[len(rows)-1].Message
	g.counts.turnsAside.Add(1)
	g.log.Error("a turn that ended the process while it ran alone is set aside", "channel", m.Channel, "chat_id", m.ChatID, "turn_id", t.ID)
	closeTurn(tx, t, rows, textSetAside) // what is told, so that a page shows it once
	tx.Send = append(tx.Send, g.outgoing(m, "aside", insteadOf(m, textSetAside))...)
}

const (
	textSetAside = "I stopped working each time I tried to answer this, so I have set it aside. Please ask in another way."
	textStopped  = "(stopped by the person before the answer was finished)"
)

// closeTurn ends a turn with words, which only the model reads, for its answer.
func closeTurn(tx *store.Tx, t *store.Turn, rows []store.Inbound, words string) {
	session, now := rows[len(rows)-1].Message.SessionKey, time.Now()
	entry := func(role, text string) store.Entry {
		return store.Entry{Session: session, Turn: t.ID, Message: providers.Message{Role: role, Content: text}, Time: now}
	}
	tx.End = append(tx.End, t.ID)
	tx.Done = append(tx.Done, seqs(rows)...)
	tx.History = append(tx.History, entry(providers.RoleUser, agent.Question(messages(rows))), entry(providers.RoleAssistant, words))
}

func messages(rows []store.Inbound) []bus.InboundMessage {
	list := make([]bus.InboundMessage, len(rows))
	for i, r := range rows {
		list[i] = r.Message
	}
	return list
}
