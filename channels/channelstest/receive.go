package channelstest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// receiveRules are the facts an adapter has to report.
func receiveRules() []rule {
	return []rule{
		{"receive-direct", nil, receiveDirect},
		{"receive-group", needsGroups, receiveGroup},
		{"receive-topic", needsTopics, receiveTopic},
		{"mention", needsGroups, mention},
		{"reply-to-bot", needsGroups, replyToBot},
		{"reply-to-person", needsGroups, replyToPerson},
		{"command", nil, command},
		{"command-addressed", needsGroups, commandAddressed},
		{"quoted", nil, quoted},
		{"forwarded", nil, forwarded},
		{"media", nil, media},
		{"bot-sender", needsGroups, botSender},
		{"own-message", needsGroups, ownMessage},
		{"odd-updates", func(p *Platform) bool { return p.Odd != nil }, oddUpdates},
		{"order", nil, order},
		{"ids", func(p *Platform) bool { return p.Redeliver != nil }, ids},
	}
}

// common checks what holds of every message.
func (r *rig) common(m bus.InboundMessage, c Chat, from bus.Sender, group bool) {
	r.t.Helper()
	type common struct {
		Address, Parent bus.Address
		Sender          bus.Sender
		Kind            bus.Kind
		Group           bool
	}
	want := common{c.Address, c.Parent, from, bus.KindMessage, group}
	if diff := cmp.Diff(want, common{m.Address, m.Parent, m.Sender, m.Kind, m.Group}); diff != "" {
		r.t.Errorf("message (-want +got):\n%s", diff)
	}
	if m.ID == "" || m.MessageID == "" || m.ID == m.MessageID {
		r.t.Errorf("ID %q has to hold more than MessageID %q: message ids alone are not unique", m.ID, m.MessageID)
	}
	if age := time.Since(m.Time); age > 24*time.Hour || age < -24*time.Hour {
		r.t.Errorf("Time = %s, want when the platform says it was sent", m.Time)
	}
	if m.Principal != "" || m.SessionKey != "" || m.Hops != 0 || m.FollowUp != nil {
		r.t.Errorf("an adapter filled in what admission decides: %+v", m)
	}
	r.metadata(m, c, from, group)
}

// metadata checks the keys that tools may read.
func (r *rig) metadata(m bus.InboundMessage, c Chat, from bus.Sender, group bool) {
	r.t.Helper()
	meta := map[string]string{"message_id": m.MessageID, "user_id": from.ID}
	if from.Username != "" {
		meta["username"] = from.Username
	}
	if group {
		meta["is_group"] = "true"
	}
	if c.Thread != "" {
		meta["thread_id"] = c.Thread
	}
	for k, v := range meta {
		if m.Metadata[k] != v {
			r.t.Errorf("Metadata[%q] = %q, want %q", k, m.Metadata[k], v)
		}
	}
	for k, v := range m.Metadata {
		switch k {
		case "message_id", "user_id", "username", "first_name", "thread_id", "is_group", "is_forum_topic":
			if v == "" || (strings.HasPrefix(k, "is_") && v != "true") {
				r.t.Errorf("Metadata[%q] = %q; a key without a value is absent", k, v)
			}
		default:
			r.t.Errorf("Metadata has the unknown key %q", k)
		}
	}
}

func receiveDirect(r *rig) {
	r.start()
	for _, c := range r.Direct {
		m := r.hear(Message{Chat: c, Text: "hello there"})
		r.common(m, c, c.People[0], false)
		if m.Text != "hello there" || m.Command != "" || m.Quoted != nil || len(m.Media) != 0 || m.ReplyToBot || m.ForOther {
			r.t.Errorf("got %+v, want just the text", m)
		}
	}
}

func receiveGroup(r *rig) {
	r.start()
	for _, c := range r.Groups {
		for _, person := range c.People {
			m := r.hear(Message{Chat: c, From: person, Text: "hello all"})
			r.common(m, c, person, true)
			if m.Text != "hello all" || m.Mentioned || m.ReplyToBot || m.ForOther || m.Command != "" {
				r.t.Errorf("got %+v, want just the text", m)
			}
		}
	}
}

func receiveTopic(r *rig) {
	r.start()
	seen := map[bus.Address]bool{r.Groups[0].Address: true}
	for _, c := range r.Topics {
		if c.Parent != r.Groups[0].Address || seen[c.Address] || c.Thread == "" {
			r.t.Fatalf("topic %+v has to be a conversation of its own within the first group", c)
		}
		seen[c.Address] = true
		m := r.hear(Message{Chat: c, Text: "in the topic"})
		r.common(m, c, c.People[0], true)
	}
	m := r.hear(Message{Chat: r.Groups[0], Text: "in the group"})
	r.common(m, r.Groups[0], r.Groups[0].People[0], true)
}

func mention(r *rig) {
	r.start()
	g := r.Groups[0]
	if m := r.hear(Message{Chat: g, Text: "what time is it", To: Us}); !m.Mentioned || m.ForOther || !strings.Contains(m.Text, "what time is it") {
		r.t.Errorf("a mention of the bot: got %+v", m)
	}
	if m := r.hear(Message{Chat: g, Text: "what time is it", To: OtherBot}); m.Mentioned {
		r.t.Errorf("a mention of another bot counts as ours: %+v", m)
	}
	if m := r.hear(Message{Chat: g, Text: "nobody in particular"}); m.Mentioned {
		r.t.Errorf("a message without a mention: got %+v", m)
	}
}

func replyToBot(r *rig) {
	r.ready()
	g := r.Groups[0]
	ours := r.mustSend(bus.OutboundMessage{Address: g.Address, Key: "a", Text: "a statement"})
	m := r.hear(Message{Chat: g, Text: "why", ReplyTo: ours.MessageID})
	if !m.ReplyToBot {
		r.t.Errorf("a reply to the bot: got %+v", m)
	}
}

func replyToPerson(r *rig) {
	r.start()
	g := r.Groups[0]
	first := r.hear(Message{Chat: g, From: g.People[0], Text: "a statement"})
	m := r.hear(Message{Chat: g, From: g.People[1], Text: "why", ReplyTo: first.MessageID})
	if m.ReplyToBot {
		r.t.Errorf("a reply to a person counts as one to the bot: %+v", m)
	}
}

func command(r *rig) {
	r.start()
	d := r.Direct[0]
	for _, tt := range []struct{ command, text, name, args string }{
		{"stop", "", "stop", ""},
		{"Start", "CODE  and more", "start", "CODE  and more"},
		{"tasks_2", "", "tasks_2", ""},
	} {
		m := r.hear(Message{Chat: d, Command: tt.command, Text: tt.text})
		if m.Command != tt.name || m.Args != tt.args || m.ForOther {
			r.t.Errorf("/%s %s: got command %q, args %q, for other %v", tt.command, tt.text, m.Command, m.Args, m.ForOther)
		}
		if !strings.HasPrefix(m.Text, "/"+tt.command) {
			r.t.Errorf("/%s: Text = %q, want it all", tt.command, m.Text)
		}
	}
	if m := r.hear(Message{Chat: d, Text: "no /stop here"}); m.Command != "" {
		r.t.Errorf("a slash within a sentence is taken for the command %q", m.Command)
	}
}

func commandAddressed(r *rig) {
	r.start()
	g := r.Groups[0]
	if m := r.hear(Message{Chat: g, Command: "stop"}); m.Command != "stop" || m.ForOther {
		r.t.Errorf("/stop: got %+v", m)
	}
	if m := r.hear(Message{Chat: g, Command: "stop", To: Us, Text: "now"}); m.Command != "stop" || m.Args != "now" || m.ForOther {
		r.t.Errorf("/stop at us: got %+v", m)
	}
	if m := r.hear(Message{Chat: g, Command: "stop", To: OtherBot}); !m.ForOther {
		r.t.Errorf("/stop at another bot: got %+v", m)
	}
}

func quoted(r *rig) {
	r.ready()
	d := r.Direct[0]
	first := r.hear(Message{Chat: d, Text: "the moon is far away"})
	m := r.hear(Message{Chat: d, Text: "how far", ReplyTo: first.MessageID})
	if m.Quoted == nil || m.Quoted.Text != "the moon is far away" || m.Quoted.Forwarded || m.Text != "how far" {
		r.t.Errorf("a reply: got %+v, quoted %+v", m, m.Quoted)
	}
	ours := r.mustSend(bus.OutboundMessage{Address: d.Address, Key: "a", Text: "very far"})
	m = r.hear(Message{Chat: d, Text: "sure", ReplyTo: ours.MessageID})
	if m.Quoted == nil || m.Quoted.Text != "very far" || !m.ReplyToBot {
		r.t.Errorf("a reply to the bot: got %+v, quoted %+v", m, m.Quoted)
	}
}

func forwarded(r *rig) {
	r.start()
	m := r.hear(Message{Chat: r.Direct[0], Forwarded: "somebody else's words"})
	if m.Quoted == nil || !m.Quoted.Forwarded || m.Quoted.Text != "somebody else's words" {
		r.t.Errorf("a forward: got %+v, quoted %+v", m, m.Quoted)
	}
	if m.Text != "" {
		r.t.Errorf("a forward: Text = %q; forwarded words are not the sender's", m.Text)
	}
}

func media(r *rig) {
	r.start()
	for _, kind := range []string{"photo", "document"} {
		m := r.hear(Message{Chat: r.Direct[0], Media: kind, Text: "look"})
		if len(m.Media) != 1 || m.Media[0].Kind != kind || m.Text != "look" {
			r.t.Errorf("a %s with a caption: got %+v", kind, m)
		}
	}
}

func botSender(r *rig) {
	r.start()
	g := r.Groups[0]
	first := r.hear(Message{Chat: g, By: OtherBot, Text: "I am a bot, too"})
	if !first.Sender.Bot || first.Sender.ID == "" {
		r.t.Errorf("another bot's message: got %+v", first)
	}
	if m := r.hear(Message{Chat: g, Text: "why", ReplyTo: first.MessageID}); m.ReplyToBot {
		r.t.Errorf("a reply to another bot counts as one to ours: %+v", m)
	}
}

func ownMessage(r *rig) {
	r.start()
	r.say(Message{Chat: r.Groups[0], By: Us, Text: "my own words"})
	r.nothing()
}

func oddUpdates(r *rig) {
	r.ready()
	r.Odd(r.t)
	r.nothing()
}

func order(r *rig) {
	r.start()
	d := r.Direct[0]
	const n = 50
	for i := range n {
		r.say(Message{Chat: d, Text: fmt.Sprintf("number %d", i)})
	}
	for i := range n {
		if m := r.next(); m.Text != fmt.Sprintf("number %d", i) {
			r.t.Fatalf("message %d says %q", i, m.Text)
		}
	}
}

func ids(r *rig) {
	r.start()
	seen := make(map[string]bool)
	all := append(append(append([]Chat(nil), r.Direct...), r.Groups...), r.Topics...)
	for range 3 {
		for _, c := range all {
			m := r.hear(Message{Chat: c, Text: "again"})
			if seen[m.ID] {
				r.t.Errorf("the ID %q is used twice", m.ID)
			}
			seen[m.ID] = true
		}
	}
	r.Redeliver(r.t)
	r.nothing()
}
