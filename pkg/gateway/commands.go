package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// The commands. Those of the first group are answered at once, also while a
// turn runs; the others wait for their place in the conversation.
const (
	cmdStart = "start"
	cmdHelp  = "help"
	cmdID    = "id"
	cmdStop  = "stop"
	cmdTasks = "tasks"
	cmdZone  = "timezone"

	cmdNew     = "new"
	cmdUndo    = "undo"
	cmdRetry   = "retry"
	cmdCompact = "compact"
	cmdForget  = "forget"
)

// Commands a sender may give at once, and how fast the right to them comes
// back, per second. /stop always works.
const (
	commandBurst = 20
	commandRate  = 0.5
)

const textManyCommands = "That is a lot of commands at once. I leave some unanswered now."

const helpText = `Write to me and I answer; in a group, mention me or reply to me.

/new – leave this conversation behind and start afresh
/undo – take back the last question and its answer
/retry – ask the last question again
/stop – stop what I am doing here, background tasks included
/tasks – what runs in the background and which reminders are set
/compact – summarise the older part of this conversation
/forget – erase this conversation and its reminders for good
/timezone Europe/Berlin – the time zone of this chat, for reminders
/id – the ids of you and of this chat
/help – this text`

func isCommand(name string) bool {
	switch name {
	case cmdStart, cmdHelp, cmdID, cmdStop, cmdTasks, cmdZone, cmdNew, cmdUndo, cmdRetry, cmdCompact, cmdForget:
		return true
	}
	return false
}

// immediate reports whether a message is a command that does not wait for its
// place in the conversation.
func immediate(m bus.InboundMessage) bool {
	if m.Kind != bus.KindMessage {
		return false
	}
	switch m.Command {
	case cmdStart, cmdHelp, cmdID, cmdStop, cmdTasks, cmdZone:
		return true
	}
	return false
}

// command does an immediate command and stores its answer. If that fails the
// worker of the conversation keeps trying.
func (g *Gateway) command(ctx context.Context, row store.Inbound) {
	g.note(ctx, row.Message, g.obey(row))
}

// obey does an immediate command and returns what ends it. It does not block
// for longer than a write to the ledger.
func (g *Gateway) obey(row store.Inbound) store.Tx {
	m, tx := row.Message, store.Tx{}
	text := helpText
	switch allowed, first := g.mayCommand(m); {
	case first:
		text = textManyCommands
	case !allowed:
		text = ""
	case m.Command == cmdStart:
		text, tx = g.start(m)
	case m.Command == cmdID:
		text = idText(m)
	case m.Command == cmdStop:
		text, tx = g.stop(row)
	case m.Command == cmdTasks:
		text = g.tasksText(m.Address)
	case m.Command == cmdZone:
		text, tx = setZone(m)
	}
	return g.closing(row, text, tx)
}

// mayCommand takes one command from the sender's budget. first is true for the
// first one beyond it.
func (g *Gateway) mayCommand(m bus.InboundMessage) (allowed, first bool) {
	if m.Command == cmdStop {
		return true, false
	}
	wait, first := g.turnRate.try("command/"+m.Principal, commandRate, commandBurst)
	return wait == 0, first
}

// closing ends a message that needs no turn, with a text for its sender.
func (g *Gateway) closing(row store.Inbound, text string, tx store.Tx) store.Tx {
	tx.Done = append(tx.Done, row.Seq)
	if text != "" {
		tx.Send = append(tx.Send, g.outgoing(row.Message, "done", text)...)
	}
	return tx
}

// start greets, or makes the sender the owner.
func (g *Gateway) start(m bus.InboundMessage) (string, store.Tx) {
	if m.Args != "" && g.own.claim(m) {
		g.log.Info("the bot has an owner now", "channel", m.Channel, "principal", m.Principal)
		text := fmt.Sprintf("You are my owner now. To make it permanent, put this into the configuration:\n\n`owners: [%q]`\n\n%s", m.Principal, helpText)
		return text, store.Tx{Facts: []store.Fact{{Key: ownerFact, Value: m.Principal}}}
	}
	if p := g.ports[m.Channel]; !g.mayAsk(p, m) {
		return "That code is not valid. The code stands in my log, and it works once.", store.Tx{}
	}
	return "Hello! " + helpText, store.Tx{}
}

func idText(m bus.InboundMessage) string {
	text := fmt.Sprintf("You: `%s`\nThis chat: `%s`", m.Principal, m.Address)
	if !m.Parent.IsZero() {
		text += fmt.Sprintf("\nPart of: `%s`", m.Parent)
	}
	return text
}

// setZone gives a conversation a time zone of its own.
func setZone(m bus.InboundMessage) (string, store.Tx) {
	name := strings.TrimSpace(m.Args)
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || strings.EqualFold(name, "local") {
		return "Tell me the zone by its name, for example: /timezone Europe/Berlin", store.Tx{}
	}
	return "It is " + time.Now().In(zone).Format("15:04 on Monday, 2 January") + " here now.",
		store.Tx{Facts: []store.Fact{{Key: zoneFact(m.Address), Value: name}}}
}

// stop ends the turn and the background tasks of a conversation, and sets aside
// what the sender has waiting there.
func (g *Gateway) stop(row store.Inbound) (string, store.Tx) {
	m := row.Message
	h := g.lanes.cancel(m.Address, m.Principal, row.Seq)
	waiting, err := g.waitingOf(row, h.behind)
	if err != nil {
		g.log.Error("cannot read waiting messages", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
	}
	waiting = append(waiting, h.waiting...)
	tx := store.Tx{Done: append(waiting, h.answers...)}
	for _, t := range g.cfg.Tools.Outstanding(m.Channel, m.ChatID) {
		tx.Tasks = append(tx.Tasks, store.Task{ID: t.Call.Key(), State: store.TaskDelivered}) // nobody waits for it any more
	}
	tasks := g.cfg.Tools.CancelOutstanding(m.Channel, m.ChatID)
	var what []string
	if h.turn != "" {
		what = append(what, "my answer")
		tx.Facts = []store.Fact{{Key: stoppedFact(m.Address), Value: h.turn}}
	}
	if tasks > 0 {
		what = append(what, count(tasks, "background task"))
	}
	switch {
	case err != nil: // they are set aside when they can be read
		what = append(what, "whatever of yours waits")
	case len(waiting) > 0:
		what = append(what, count(len(waiting), "waiting message")+" of yours")
	}
	if len(what) == 0 {
		return "There is nothing to stop.", tx
	}
	return "Stopped: " + strings.Join(what, ", ") + ".", tx
}

// stoppedFact is the key of the turn that was stopped last in a conversation. What
// /stop has said holds from then on, also if the process ends before the turn has.
func stoppedFact(at bus.Address) string { return "gateway/stopped/" + at.String() }

// waitingOf returns which of the messages behind, in the ledger, the /stop in row
// ends.
func (g *Gateway) waitingOf(row store.Inbound, behind []int64) (seqs []int64, err error) {
	const page = 1024
	m := row.Message
	for len(behind) > 0 {
		rows, err := g.cfg.Store.Waiting(g.work, m.Address, behind[0]-1, page)
		if err != nil {
			return seqs, err
		}
		for _, r := range rows {
			if _, ok := slices.BinarySearch(behind, r.Seq); ok && setAside(r, m.Principal, row.Seq) {
				seqs = append(seqs, r.Seq)
			}
		}
		if len(rows) < page {
			break
		}
		read, _ := slices.BinarySearch(behind, rows[len(rows)-1].Seq+1)
		behind = behind[read:]
	}
	return seqs, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// tasksText lists what runs or waits for its time in a conversation.
func (g *Gateway) tasksText(at bus.Address) string {
	var b strings.Builder
	for _, t := range g.cfg.Tools.Outstanding(at.Channel, at.ChatID) {
		fmt.Fprintf(&b, "- %s: %s, for %s\n", t.Call.Tool, t.Label, time.Since(t.Started).Round(time.Second))
	}
	schedules, err := g.cfg.Store.Schedules(g.work, at)
	if err != nil {
		g.log.Error("cannot read the reminders", "channel", at.Channel, "chat_id", at.ChatID, "err", err)
		b.WriteString("I cannot see the reminders just now. Please ask again.\n")
	}
	for _, s := range schedules {
		fmt.Fprintf(&b, "- reminder `%s` at %s: %s\n", s.ID, s.Due.In(g.Zone(g.work, at, s.Due.Location())).Format("2006-01-02 15:04:05 MST"), s.Text)
	}
	if b.Len() == 0 {
		return "Nothing runs in the background here and no reminder is set."
	}
	return b.String()
}

// unreadable is the answer to a message that holds nothing we can read.
func unreadable(m bus.InboundMessage) string {
	if strings.TrimSpace(m.Text) != "" || len(m.Media) == 0 || m.Quoted != nil {
		return ""
	}
	kind := m.Media[0].Kind
	switch kind {
	case "voice", "audio":
		return "I cannot listen to " + kind + " messages yet. Could you write it to me instead?"
	case "photo", "video", "sticker":
		return "I cannot see a " + kind + " yet. Could you tell me in words what it is about?"
	}
	return "I cannot read a " + kind + " yet. Could you write me the text?"
}
