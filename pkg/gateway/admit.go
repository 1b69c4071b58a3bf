package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/failpoint"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// maxStrangers is how many strangers are remembered as having been told how to
// be let in.
const maxStrangers = 4096

// verdict is what admission decides about a message.
type verdict int

const (
	drop   verdict = iota // not for us: nothing is stored but the cursor
	refuse                // for us, but the sender may not: a hint, once
	accept                // gets its turn, or is a command
)

// PublishInbound implements bus.Inbox.
func (g *Gateway) PublishInbound(ctx context.Context, batch bus.Batch) error {
	select {
	case <-g.started:
	case <-ctx.Done():
		return fmt.Errorf("gateway: admit: %w", ctx.Err())
	}
	tx := store.Tx{}
	var told []string // strangers
	for _, c := range batch.Cursors {
		tx.Facts = append(tx.Facts, store.Fact{Key: c.Key, Value: c.Value})
	}
	for _, m := range batch.Messages {
		p, ok := g.ports[m.Channel]
		if !ok {
			return fmt.Errorf("gateway: admit: no channel is called %q", m.Channel)
		}
		if m.Kind == bus.KindFollowUp {
			return errors.New("gateway: admit: a follow-up cannot come from outside")
		}
		m.Args = strings.ReplaceAll(m.Args, "\x00", "") // what only the gateway writes there holds one
		if y := m.Time.UTC().Year(); y < 1 || y > 9998 {
			m.Time = time.Now() // no ledger takes such a time, and the whole batch would come again for ever
		}
		if m.Kind == bus.KindEdited || m.Kind == bus.KindDeleted {
			tx.Amend = append(tx.Amend, store.Amend{Channel: m.Channel, ID: m.Amends, Text: m.Text, Args: m.Args, Deleted: m.Kind == bus.KindDeleted})
			continue
		}
		m.Principal = bus.Principal(m.Channel, m.Sender.ID)
		m.SessionKey = m.String()
		m.Hops, m.FollowUp = 0, nil
		switch g.decide(p, m) {
		case accept:
			tx.Admit = append(tx.Admit, m)
		case refuse:
			g.counts.refused.Add(1)
			if g.mayRefuse(m) {
				told = append(told, m.Principal)
				tx.Send = append(tx.Send, g.refusal(m)...)
			}
		case drop:
			g.counts.dropped.Add(1)
			g.log.Debug("message dropped", "channel", m.Channel, "chat_id", m.ChatID, "message_id", m.MessageID)
		}
	}
	tx.Send = append(tx.Send, g.late(batch)...)
	err := g.admit(ctx, tx)
	if err != nil {
		g.strange.forget(told) // the batch comes again
	}
	return err
}

const textLate = "I was away for a while, and some of what was written here meanwhile is too old for me to answer now. Please ask again what still matters."

// late tells the conversations in which somebody has asked too long ago. The
// ledger skips a row whose key it knows, so each is told once a gap.
func (g *Gateway) late(batch bus.Batch) (rows []store.Outbound) {
	g.counts.dropped.Add(int64(len(batch.Late)))
	for _, m := range batch.Late {
		m.Principal = bus.Principal(m.Channel, m.Sender.ID)
		if p, ok := g.ports[m.Channel]; ok && g.decide(p, m) == accept {
			rows = append(rows, g.rows("", quoting(m, bus.Key("late", batch.Gap, m.Channel, m.ChatID), textLate))...)
		}
	}
	return rows
}

// admit writes tx and sets in motion what it made: a worker for each admitted
// message, a sender for each outbox row. Every message, whether from a platform
// or a follow-up of our own, comes through here.
func (g *Gateway) admit(ctx context.Context, tx store.Tx) error {
	failpoint.Hit("admit/before")
	res, err := g.cfg.Store.Apply(ctx, tx)
	if err != nil {
		return fmt.Errorf("gateway: admit: %w", err)
	}
	failpoint.Hit("admit/after")
	g.counts.admitted.Add(int64(len(res.Admitted)))
	if res.Duplicates > 0 {
		g.counts.duplicates.Add(int64(res.Duplicates))
		g.log.Info("duplicates dropped", "count", res.Duplicates)
	}
	for _, row := range res.Amended {
		deleted := slices.ContainsFunc(tx.Amend, func(a store.Amend) bool {
			return a.Deleted && a.ID == row.Message.ID && a.Channel == row.Message.Channel
		})
		switch i := slices.IndexFunc(res.Admitted, func(r store.Inbound) bool { return r.Seq == row.Seq }); {
		case i < 0:
			g.lanes.amend(row, deleted)
		case deleted: // it came and went in one batch
			res.Admitted = slices.Delete(res.Admitted, i, i+1)
		default:
			res.Admitted[i] = row
		}
	}
	g.senders.enqueue(res.Queued)
	for rows := res.Admitted; len(rows) > 0; {
		n := together(rows)
		if n == 0 {
			g.command(ctx, rows[0])
			n = 1
		} else {
			g.lanes.enqueue(rows[:n]) //nolint:contextcheck // workers live as long as the gateway, not as this call
		}
		rows = rows[n:]
	}
	return nil
}

// together is how many rows from the first on are for one conversation and wait
// there: what came together, such as the photos of an album, goes into one turn.
func together(rows []store.Inbound) int {
	for i, row := range rows {
		if immediate(row.Message) || row.Message.Address != rows[0].Message.Address {
			return i
		}
	}
	return len(rows)
}

// decide is the one place that says who is answered, for all channels.
func (g *Gateway) decide(p *port, m bus.InboundMessage) verdict {
	if m.ForOther || m.Sender.Bot {
		return drop
	}
	if m.Group && !addressed(p, m) {
		return drop
	}
	if g.mayAsk(p, m) || g.own.claims(m) {
		return accept
	}
	return refuse
}

// addressed reports whether a message in a group is meant for the bot.
func addressed(p *port, m bus.InboundMessage) bool {
	groups := ""
	if p.gate != nil {
		groups = p.gate.Groups
	}
	switch groups {
	case "never":
		return false
	case "always":
		return true
	}
	return m.Mentioned || m.ReplyToBot || isCommand(m.Command)
}

// mayAsk reports whether the sender may use the bot where the message stands.
func (g *Gateway) mayAsk(p *port, m bus.InboundMessage) bool {
	if p.gate == nil || g.isOwner(p, m.Principal) {
		return true
	}
	for _, u := range p.gate.AllowUsers {
		if u == "*" || u == m.Sender.ID || m.Sender.Username != "" && strings.EqualFold(u, "@"+m.Sender.Username) {
			return true
		}
	}
	if !m.Group {
		return false
	}
	for _, c := range p.gate.AllowChats {
		if c == "*" || c == m.ChatID || c == m.Parent.ChatID && c != "" {
			return true
		}
	}
	return false
}

func (g *Gateway) isOwner(p *port, principal string) bool {
	return p.owners || g.own.has(principal)
}

// IsOwner reports whether principal may do everything. Safe for concurrent use.
func (g *Gateway) IsOwner(principal string) bool {
	channel, _, _ := strings.Cut(principal, ":")
	p, ok := g.ports[channel]
	return ok && g.isOwner(p, principal)
}

// Known returns the names of the channels, sorted.
func (g *Gateway) Known() []string {
	names := make([]string, 0, len(g.ports))
	for name := range g.ports {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Strangers who are told at once on a channel, and how fast the right to tell
// more of them comes back, per second. Whoever comes beyond that is told when
// they write again.
const (
	refusalBurst = 20
	refusalRate  = 0.5
)

// mayRefuse reports whether the sender of m is to be told how to be let in: once,
// and not so many at a time that they would hold up the answers to others.
func (g *Gateway) mayRefuse(m bus.InboundMessage) bool {
	if !g.strange.first(m.Principal) {
		return false
	}
	if wait, _ := g.turnRate.try("refusal/"+m.Channel, refusalRate, refusalBurst); wait > 0 {
		g.strange.forget([]string{m.Principal})
		return false
	}
	return true
}

// refusal tells a stranger how to be let in, and the operator which line
// lets them in.
func (g *Gateway) refusal(m bus.InboundMessage) []store.Outbound {
	add := fmt.Sprintf("'%s' to channels.%s.allow_users", m.Sender.ID, m.Channel) // in quotes that no log escapes
	text := "I am a private bot and do not know you yet. Whoever runs me can let you in; tell them this id: `" + m.Sender.ID + "`"
	if m.Group {
		group := cmp.Or(m.Parent.ChatID, m.ChatID)
		add += fmt.Sprintf(", or for everybody there '%s' to channels.%s.allow_chats", group, m.Channel)
		text += ", or, for everybody here, the id of this chat: `" + group + "`"
	}
	g.log.Warn("a stranger was refused", "channel", m.Channel, "chat_id", m.ChatID, "sender", m.Sender.ID, "add", add)
	return g.outgoing(m, "refusal", text)
}

// outgoing makes the outbox rows for a text in the conversation of m, quoting
// it in a group. what distinguishes several texts about one message.
func (g *Gateway) outgoing(m bus.InboundMessage, what, text string) []store.Outbound {
	return g.rows("", quoting(m, bus.Key(m.Channel, m.ID, what), text))
}
