package channelstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// sendRules are about what leaves.
func sendRules() []rule {
	return []rule{
		{"send", nil, send},
		{"send-reply", nil, sendReply},
		{"send-reply-deleted", func(p *Platform) bool { return p.Delete != nil }, sendReplyDeleted},
		{"send-foreign", nil, sendForeign},
		{"send-concurrent", nil, sendConcurrent},
		{"text-limit", nil, textLimit},
		{"odd-text", nil, oddText},
		{"throttled", func(p *Platform) bool { return p.Throttle != nil }, throttled},
		{"blocked", func(p *Platform) bool { return p.Block != nil }, blocked},
		{"cut", func(p *Platform) bool { return p.CutNext != nil }, cut},
		{"unreachable", func(p *Platform) bool { return p.Down != nil }, unreachable},
		{"typing", func(p *Platform) bool { return p.Typed != nil }, typing},
		{"rates", nil, rates},
	}
}

func (r *rig) chats() []Chat {
	return append(append(append([]Chat(nil), r.Direct...), r.Groups...), r.Topics...)
}

func send(r *rig) {
	r.ready()
	for i, c := range r.chats() {
		text := fmt.Sprintf("answer %d", i)
		got := r.mustSend(bus.OutboundMessage{Address: c.Address, Key: fmt.Sprint("k", i), Text: text})
		if got.Address != c.Address || got.Text != text || got.ReplyTo != "" {
			r.t.Errorf("sent %q to %s, the platform got %+v", text, c.Address, got)
		}
	}
}

func sendReply(r *rig) {
	r.ready()
	for i, c := range r.chats() {
		m := r.hear(Message{Chat: c, Text: "a question"})
		got := r.mustSend(bus.OutboundMessage{Address: c.Address, Key: fmt.Sprint("k", i), ReplyTo: m.MessageID, Text: "an answer"})
		if got.Address != c.Address || got.ReplyTo != m.MessageID {
			r.t.Errorf("answered message %s in %s, the platform got %+v", m.MessageID, c.Address, got)
		}
	}
}

func sendReplyDeleted(r *rig) {
	r.ready()
	for i, c := range r.chats() {
		m := r.hear(Message{Chat: c, Text: "a question"})
		r.Delete(r.t, c, m.MessageID)
		got := r.mustSend(bus.OutboundMessage{Address: c.Address, Key: fmt.Sprint("k", i), ReplyTo: m.MessageID, Text: "an answer"})
		if got.Address != c.Address || got.Text != "an answer" {
			r.t.Errorf("the quoted message is gone; the platform got %+v", got)
		}
	}
}

// sendForeign: a chat id that is none of this platform is a permanent error
// and nothing else.
func sendForeign(r *rig) {
	r.ready()
	for _, id := range []string{"", "no such chat", "1/2/3", "-", "9999999999999999999999999", "\x00"} {
		_, err := r.send(bus.OutboundMessage{Address: bus.Address{Channel: Name, ChatID: id}, Key: "k", Text: "hello"})
		if !errors.Is(err, channels.ErrPermanent) {
			r.t.Errorf("Send to chat %q = %v, want one that wraps ErrPermanent", id, err)
		}
	}
	if n := len(r.Sent(r.t)); n != 0 {
		r.t.Errorf("%d messages were sent somewhere", n)
	}
}

func sendConcurrent(r *rig) {
	r.ready()
	const each = 20
	chats := r.chats()
	var wg sync.WaitGroup
	for i, c := range chats {
		wg.Go(func() {
			for n := range each {
				m := bus.OutboundMessage{Address: c.Address, Key: fmt.Sprintf("k%d-%d", i, n), Text: fmt.Sprintf("%s number %d", c.Address, n)}
				if _, err := r.ch.Send(r.t.Context(), m); err != nil {
					r.t.Errorf("Send to %s: %v", c.Address, err)
					return
				}
			}
		})
	}
	wg.Wait()
	count := make(map[bus.Address]int)
	for _, s := range r.Sent(r.t) {
		if want := fmt.Sprintf("%s number %d", s.Address, count[s.Address]); s.Text != want {
			r.t.Fatalf("%s got %q, want %q", s.Address, s.Text, want)
		}
		count[s.Address]++
	}
	for _, c := range chats {
		if count[c.Address] != each {
			r.t.Errorf("%s got %d messages, want %d", c.Address, count[c.Address], each)
		}
	}
}

// textLimit: what measures as much as the limit is accepted, what measures more
// is not.
func textLimit(r *rig) {
	l, ok := r.ch.(channels.TextLimiter)
	if !ok {
		return
	}
	limit, measure := l.TextLimit()
	if limit <= 0 {
		r.t.Fatalf("TextLimit = %d", limit)
	}
	r.ready()
	to := r.Direct[0].Address
	for _, unit := range []string{"a", "漢", "😀", "a**b**", "`x` ", "[a](https://example.org/) ", "- a\n", "<&>\"", "e\u0301", "&amp;", "~~a~~ \\*"} {
		each := max(1, measure(strings.Repeat(unit, 100))/100)
		text := strings.Repeat(unit, limit/each+2)
		parts := channels.Split(text, limit, measure)
		if len(parts) == 0 {
			r.t.Fatalf("Split made nothing of %q", unit)
		}
		for _, part := range parts {
			if n := measure(part); n > limit {
				r.t.Fatalf("a part of %q measures %d", unit, n)
			}
			r.mustSend(bus.OutboundMessage{Address: to, Key: r.key(), Text: part})
		}
	}
	full := strings.Repeat("a", limit)
	if got := r.mustSend(bus.OutboundMessage{Address: to, Key: r.key(), Text: full}); got.Text != full {
		r.t.Errorf("a text of %d characters arrived as %d", len(full), len(got.Text))
	}
	if _, err := r.send(bus.OutboundMessage{Address: to, Key: r.key(), Text: full + "a"}); !errors.Is(err, channels.ErrPermanent) {
		r.t.Errorf("a text of %d characters: %v, want one that wraps ErrPermanent", len(full)+1, err)
	}
}

// oddText: whatever a model writes is delivered, and no word of it is lost.
func oddText(r *rig) {
	r.ready()
	to := r.Direct[0].Address
	for _, text := range []string{
		"plain", "**bold** and *italic*", "**never closed", "`a` ``b`` ```c", "_ * ` [ ] ( ) ~ > # + - = | { } . ! \\",
		"```go\nfunc main() {}\n```", "```\nnever closed", "<b>html</b> <script>x</script> &lt; &", "[text](", "[a](b) ![i](j)",
		"# Heading\n\n- one\n- two\n\n1. first\n2. second", "> quoted\n> more", "| a | b |\n|---|---|\n| 1 | 2 |", "***", "---", "**", "``", "[]()",
		"@everyone and <@123> and @someone", "a\u0000b", "\xff\xfe", "\u202eright to left", "\u200b", "👩‍👩‍👧", "*\u0301*", "line\r\nline\rline",
	} {
		before := len(r.Sent(r.t))
		if _, err := r.send(bus.OutboundMessage{Address: to, Key: r.key(), Text: text}); err != nil {
			if text == "\u200b" && errors.Is(err, channels.ErrPermanent) {
				continue // nobody could see it
			}
			r.t.Errorf("Send %q: %v", text, err)
			continue
		}
		got := r.Sent(r.t)[before:]
		if len(got) != 1 {
			r.t.Errorf("Send %q made %d messages", text, len(got))
			continue
		}
		for _, word := range strings.FieldsFunc(text, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }) {
			if !strings.Contains(got[0].Text, word) {
				r.t.Errorf("Send %q: %q is lost in %q", text, word, got[0].Text)
			}
		}
	}
}

func throttled(r *rig) {
	r.ready()
	c := r.Direct[0]
	const after = 3 * time.Second
	r.Throttle(r.t, c, after)
	_, err := r.send(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "too fast"})
	var limited *channels.RateLimitError
	if !errors.As(err, &limited) || limited.RetryAfter < after || limited.RetryAfter > after+time.Second {
		r.t.Fatalf("Send = %v, want a RateLimitError of %s", err, after)
	}
	if errors.Is(err, channels.ErrPermanent) || errors.Is(err, channels.ErrUnknownOutcome) {
		r.t.Errorf("Send = %v: nothing was delivered and it can be tried again", err)
	}
	// Nobody else is delayed, and the same message goes through afterwards.
	r.mustSend(bus.OutboundMessage{Address: r.Direct[1].Address, Key: "k2", Text: "another chat"})
	time.Sleep(limited.RetryAfter)
	r.mustSend(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "too fast"})
}

func blocked(r *rig) {
	r.ready()
	c := r.Direct[0]
	r.Block(r.t, c)
	if _, err := r.send(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "hello"}); !errors.Is(err, channels.ErrPermanent) {
		r.t.Errorf("Send = %v, want one that wraps ErrPermanent", err)
	}
	r.mustSend(bus.OutboundMessage{Address: r.Direct[1].Address, Key: "k2", Text: "another chat"})
}

func cut(r *rig) {
	r.ready()
	c := r.Direct[0]
	before := len(r.Sent(r.t))
	r.CutNext(r.t)
	_, err := r.send(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "did it arrive"})
	if !errors.Is(err, channels.ErrUnknownOutcome) {
		r.t.Errorf("Send = %v, want one that wraps ErrUnknownOutcome", err)
	}
	if n := len(r.Sent(r.t)) - before; n != 1 {
		r.t.Errorf("one attempt made %d messages", n)
	}
	r.mustSend(bus.OutboundMessage{Address: c.Address, Key: "k2", Text: "another message"})
}

func unreachable(r *rig) {
	r.ready()
	c := r.Direct[0]
	r.Down(r.t, true)
	r.eventually("a Send that knows nothing was sent", func() bool {
		_, err := r.send(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "hello"})
		if err == nil || errors.Is(err, channels.ErrPermanent) {
			r.t.Fatalf("Send = %v, want an error that lets it be tried again", err)
		}
		return !errors.Is(err, channels.ErrUnknownOutcome)
	})
	r.Down(r.t, false)
	r.eventually("a Send after the platform came back", func() bool {
		_, err := r.send(bus.OutboundMessage{Address: c.Address, Key: "k", Text: "hello"})
		return err == nil
	})
}

func typing(r *rig) {
	ch, ok := r.ch.(channels.Typer)
	if !ok {
		r.t.Fatal("the platform shows typing, but the adapter is no channels.Typer")
	}
	r.ready()
	for _, c := range r.chats() {
		before := len(r.Typed(r.t))
		if err := ch.Typing(r.t.Context(), c.Address); err != nil {
			r.t.Errorf("Typing in %s: %v", c.Address, err)
			continue
		}
		if got := r.Typed(r.t)[before:]; len(got) != 1 || got[0] != c.Address {
			r.t.Errorf("Typing in %s showed in %v", c.Address, got)
		}
	}
	if err := ch.Typing(r.t.Context(), bus.Address{Channel: Name, ChatID: "no such chat"}); err == nil {
		r.t.Error("Typing in no chat succeeded")
	}
}

// rates: a topic counts as its group, and nothing else shares a key.
func rates(r *rig) {
	ch, ok := r.ch.(channels.Rater)
	if !ok {
		return
	}
	keys := make(map[string]bus.Address)
	for _, c := range r.chats() {
		got := ch.RatesFor(c.Address)
		if got.Key == "" || got.GlobalPerSec < 0 || got.PerSec < 0 || got.PerMin < 0 {
			r.t.Errorf("RatesFor(%s) = %+v", c.Address, got)
		}
		if c.Parent.IsZero() {
			if other, used := keys[got.Key]; used {
				r.t.Errorf("%s and %s share the key %q", c.Address, other, got.Key)
			}
			keys[got.Key] = c.Address
		}
	}
}
