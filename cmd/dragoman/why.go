package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/spf13/cobra"
)

func (p *program) whyCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "why MESSAGE", Short: "Tell the whole story of one message or turn", Args: cobra.ExactArgs(1),
		Long: `Tell the whole story of one message, of a person or of the bot: when it was
admitted, how long it waited, what the model and the tools did, what was sent and
whether it arrived. MESSAGE is the platform's message id, channel:chat:message,
or the turn_id of the log.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return p.look(path, func(l ledger) error { return p.why(l, args[0]) })
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// about are the texts the gateway sends about a message without a turn; each
// has its key made of the message's id and one of these.
var about = []string{"done", "result", "refusal", "panic", "aside", "slow", "overflow"}

const textUnknown = `nothing is kept of %s. A message that was not addressed to the bot, or whose sender is not allowed, leaves no trace by design, and the ids of the others are kept for a time (store.retention.dedupe). Where to look: the log at level debug ("message dropped"), "a stranger was refused" at level info, and the "groups", "allow_users" and "allow_chats" of the channel`

func (p *program) why(l ledger, what string) error {
	story := teller{out: p.out, l: l, told: map[string]bool{}}
	for _, tell := range []func(what string) (found bool, err error){story.turn, story.messages, story.ours, story.refusal} {
		found, err := tell(what)
		if found || err != nil {
			return err
		}
	}
	return fmt.Errorf(textUnknown, printable(what))
}

// parts takes channel:chat:message apart; anything else is a message.
func parts(what string) (channel, chat, message string) {
	if i, j := strings.IndexByte(what, ':'), strings.LastIndexByte(what, ':'); i < j {
		return what[:i], what[i+1 : j], what[j+1:]
	}
	return "", "", what
}

// messages tells the messages of people that go by that name.
func (t *teller) messages(what string) (found bool, err error) {
	list, err := t.l.FindMessages("", "", what)
	if channel, chat, id := parts(what); err == nil && len(list) == 0 && channel != "" {
		list, err = t.l.FindMessages(channel, chat, id)
	}
	for _, m := range list {
		if err := t.message(m); err != nil {
			return true, err
		}
	}
	return len(list) > 0, err
}

// ours tells the messages of the bot that go by that name.
func (t *teller) ours(what string) (found bool, err error) {
	list, err := t.l.FindSent(parts(what))
	for _, s := range list {
		if err := t.sent(s); err != nil {
			return true, err
		}
	}
	return len(list) > 0, err
}

// refusal tells of a stranger's message, of which only the hint is kept.
func (t *teller) refusal(what string) (found bool, err error) {
	channel, chat, id := parts(what)
	list, err := t.l.SentWithKeys(bus.Key(channel, "m:"+chat+":"+id, "refusal"))
	if len(list) == 0 || err != nil {
		return false, err
	}
	fmt.Fprintf(t.out, "%s was refused: its sender is not allowed, and was told so\n", printable(what))
	for _, s := range list {
		t.print(sentEvents(s))
	}
	return true, nil
}

// event is something that happened.
type event struct {
	at   time.Time // zero: not known, at the time of the one before
	text string
}

// teller prints stories, each turn once.
type teller struct {
	out  io.Writer
	l    ledger
	told map[string]bool // turns
}

// turn tells a turn; found is false if nothing is kept of it.
func (t *teller) turn(id string) (found bool, err error) {
	if t.told[id] {
		return true, nil
	}
	turn, ok, err := t.l.Turn(id)
	if err != nil || !ok {
		return false, err
	}
	t.told[id] = true
	fmt.Fprintf(t.out, "turn %s of %s\n", printable(id), printable(turn.Address.String()))
	var events []event
	for _, m := range turn.Messages {
		events = append(events, admitted(m))
		notes, err := t.notes(m)
		if err != nil {
			return true, err
		}
		events = append(events, notes...)
	}
	events = append(events, event{turn.Started, began(turn)})
	events = append(events, stepEvents(turn)...)
	for _, s := range turn.Sent {
		events = append(events, sentEvents(s)...)
	}
	t.print(events)
	fmt.Fprintln(t.out, turnEnd(turn))
	return true, nil
}

// message tells a message and what came of it.
func (t *teller) message(m sqlite.Message) error {
	if m.Turn != "" {
		found, err := t.turn(m.Turn)
		if found || err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "message %s of %s\n", printable(m.Message.ID), printable(m.Message.String()))
	notes, err := t.notes(m)
	if err != nil {
		return err
	}
	events := append([]event{admitted(m)}, notes...)
	if !m.Done.IsZero() {
		events = append(events, event{m.Done, "done"})
	}
	t.print(events)
	switch {
	case m.Done.IsZero():
		fmt.Fprintln(t.out, "it waits for its turn")
	case m.Erased:
		fmt.Fprintln(t.out, "it was deleted or forgotten, or is older than store.retention.journal: no more is kept")
	default:
		fmt.Fprintln(t.out, "it took no turn of the model: a command, a result shown as it is, or nothing to answer")
	}
	return nil
}

// notes are the texts about a message that belong to no turn.
func (t *teller) notes(m sqlite.Message) (events []event, err error) {
	keys := make([]string, len(about))
	for i, what := range about {
		keys[i] = bus.Key(m.Message.Channel, m.Message.ID, what)
	}
	sent, err := t.l.SentWithKeys(keys...)
	for _, s := range sent {
		events = append(events, sentEvents(s)...)
	}
	return events, err
}

// sent tells a text of the bot.
func (t *teller) sent(s sqlite.Sent) error {
	if s.Turn != "" {
		found, err := t.turn(s.Turn)
		if found || err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "a text of the bot in %s\n", printable(s.Message.String()))
	t.print(sentEvents(s))
	return nil
}

// print prints events in the order of time.
func (t *teller) print(events []event) {
	type timed struct {
		event
		order time.Time
	}
	list := make([]timed, len(events))
	var last time.Time
	for i, e := range events {
		if !e.at.IsZero() {
			last = e.at
		}
		list[i] = timed{e, last}
	}
	slices.SortStableFunc(list, func(a, b timed) int { return a.order.Compare(b.order) })
	for _, e := range list {
		const form = "2006-01-02 15:04:05.000"
		head := strings.Repeat(" ", len(form))
		if !e.at.IsZero() {
			head = e.at.In(t.l.zone).Format(form)
		}
		fmt.Fprintf(t.out, "%s  %s\n", head, indent(e.text))
	}
}

func admitted(m sqlite.Message) event {
	text := "admitted " + m.Message.ID
	if name := cmp.Or(m.Message.Sender.Name, m.Message.Sender.Username, m.Message.Sender.ID); name != "" {
		text += " from " + name
	}
	switch {
	case m.Erased:
		text += ", its text is not kept any more"
	case m.Message.FollowUp != nil:
		text += ", the result of " + cmp.Or(m.Message.FollowUp.Label, m.Message.FollowUp.Task) + ": " + short(cmp.Or(m.Message.FollowUp.ForUser, m.Message.FollowUp.ForLLM))
	default:
		text += ": " + short(m.Message.Text)
	}
	return event{m.Admitted, text}
}

// began says when a turn began, and for what.
func began(turn sqlite.TurnRecord) string {
	text := "the turn began"
	if len(turn.Messages) == 0 {
		return text + "; of its messages nothing is kept"
	}
	text += fmt.Sprintf(", %s after the first of its messages was admitted", span(turn.Started.Sub(turn.Messages[0].Admitted)))
	if n := len(turn.Messages); n > 1 {
		text += fmt.Sprintf("; it answers %d messages together", n)
	}
	return text
}

func stepEvents(turn sqlite.TurnRecord) []event {
	type call struct {
		round int
		id    string
	}
	ended := map[call]bool{}
	for _, s := range turn.Steps {
		if s.Kind == store.StepEnd {
			ended[call{s.Round, s.CallID}] = true
		}
	}
	var events []event
	for _, s := range turn.Steps {
		switch s.Kind {
		case store.StepReply:
			events = append(events, event{s.Time, replyText(s)})
		case store.StepBegin:
			if ended[call{s.Round, s.CallID}] {
				continue // its end says it all
			}
			events = append(events, event{s.Time, fmt.Sprintf("call %s of %s began, and no end of it is recorded", s.CallID, s.Tool)})
		case store.StepEnd:
			events = append(events, event{s.Time, fmt.Sprintf("call %s of %s ended%s: %s", s.CallID, s.Tool, costs(s), short(s.Message.Content))})
		case store.StepInject:
			events = append(events, event{s.Time, "a message came in: " + short(s.Message.Content)})
		}
	}
	return events
}

func replyText(s store.Step) string {
	var text strings.Builder
	fmt.Fprintf(&text, "round %d: the model replied%s", s.Round, costs(s))
	if s.Message.Content != "" {
		text.WriteString(": " + short(s.Message.Content))
	}
	for _, c := range s.Message.ToolCalls {
		text.WriteString("\ncalls " + strings.ReplaceAll(cut(callText(c)), "\n", " "))
	}
	return text.String()
}

// costs says what a step took, as far as it is known.
func costs(s store.Step) string {
	var parts []string
	if s.Took > 0 {
		parts = append(parts, "after "+span(s.Took))
	}
	if s.Usage != (providers.Usage{}) {
		parts = append(parts, fmt.Sprintf("%d + %d tokens", s.Usage.PromptTokens, s.Usage.CompletionTokens))
	}
	if s.Finish != "" {
		parts = append(parts, "finish reason "+s.Finish)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func sentEvents(s sqlite.Sent) []event {
	text := "to be sent, key " + s.Message.Key
	if s.Message.ReplyTo != "" {
		text += ", quoting " + s.Message.ReplyTo
	}
	events := []event{{s.Created, text + ": " + short(s.Message.Text)}}
	switch {
	case s.Ended.IsZero():
		return append(events, event{text: "not delivered yet, key " + s.Message.Key})
	case s.Receipt.Failed != "":
		return append(events, event{s.Ended, "given up, key " + s.Message.Key + ": " + s.Receipt.Failed})
	}
	return append(events, event{s.Ended, fmt.Sprintf("delivered after %s as message %s, key %s", span(s.Ended.Sub(s.Created)), s.Receipt.Result.MessageID, s.Message.Key)})
}

func turnEnd(turn sqlite.TurnRecord) string {
	var parts []string
	if turn.Ended.IsZero() {
		parts = append(parts, "the turn is open: it runs, or the next start carries it on")
		if turn.Mark.Strikes > 0 {
			parts = append(parts, fmt.Sprintf("%d starts in a row found no new step of it", turn.Mark.Strikes))
		}
	} else {
		parts = append(parts, "the turn ended after "+span(turn.Ended.Sub(turn.Started)))
	}
	var in, out int
	for _, s := range turn.Steps {
		in, out = in+s.Usage.PromptTokens, out+s.Usage.CompletionTokens
	}
	if in+out > 0 {
		parts = append(parts, fmt.Sprintf("%d + %d tokens", in, out))
	}
	if len(turn.Steps) == 0 {
		parts = append(parts, "no step of it is recorded")
	}
	return strings.Join(parts, ", ")
}

// span is a duration for people.
func span(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// short is the beginning of a text, in quotes that keep it on one line.
func short(text string) string { return fmt.Sprintf("%q", cut(text)) }

// cut is the beginning of a text.
func cut(text string) string {
	const most = 200
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return fmt.Sprintf("%s… (and %d more)", string(runes[:most]), len(runes)-most)
}
