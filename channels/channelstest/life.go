package channelstest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// lifeRules are about Run: its start, its end and what it survives.
func lifeRules() []rule {
	return []rule{
		{"stop", nil, stop},
		{"stop-while-storing", nil, stopWhileStoring},
		{"stop-while-unreachable", func(p *Platform) bool { return p.Down != nil }, stopWhileUnreachable},
		{"send-after-stop", nil, sendAfterStop},
		{"not-stored", nil, notStored},
		{"not-confirmed", func(p *Platform) bool { return p.Confirmed != nil }, notConfirmed},
		{"restart", needsRestart, restart},
		{"wrong-token", nil, wrongToken},
		{"starts-unreachable", func(p *Platform) bool { return p.Down != nil }, startsUnreachable},
		{"reconnect", func(p *Platform) bool { return p.Down != nil }, reconnect},
		{"health", func(p *Platform) bool { return p.Down != nil }, health},
	}
}

// stop: Run leaves no goroutine behind.
func stop(r *rig) {
	before := goleak.IgnoreCurrent()
	r.ready()
	r.mustSend(bus.OutboundMessage{Address: r.Direct[0].Address, Key: "k", Text: "hello"})
	r.stop()
	if err := goleak.Find(before); err != nil {
		r.t.Errorf("Run left goroutines: %v", err)
	}
}

func stopWhileStoring(r *rig) {
	r.ready()
	r.inbox.block()
	r.say(Message{Chat: r.Direct[0], Text: "never stored"})
	r.stop()

	r.inbox.mu.Lock()
	r.inbox.hold, r.inbox.refuse = nil, 1<<30
	r.inbox.mu.Unlock()
	r.ch = r.make(false)
	r.start()
	r.say(Message{Chat: r.Direct[0], Text: "never stored either"})
	r.eventually("a batch is offered", func() bool { return len(r.inbox.refused()) > 0 })
	r.stop()
}

func stopWhileUnreachable(r *rig) {
	r.ready()
	r.Down(r.t, true)
	if h, ok := r.ch.(channels.Healther); ok {
		r.eventually("Health tells", func() bool { return h.Health() != nil })
	}
	r.stop()
}

// sendAfterStop: at shutdown the senders drain after Run has returned. A
// channel that can still send does; one that cannot says it is not ready.
func sendAfterStop(r *rig) {
	r.ready()
	r.stop()
	before := len(r.Sent(r.t))
	_, err := r.send(bus.OutboundMessage{Address: r.Direct[0].Address, Key: "k", Text: "a last word"})
	switch sent := len(r.Sent(r.t)) - before; {
	case err == nil && sent == 1, errors.Is(err, channels.ErrNotReady) && sent == 0:
	default:
		r.t.Errorf("Send after Run = %v, with %d messages sent", err, sent)
	}
}

// notStored: what could not be stored is offered again, unchanged.
func notStored(r *rig) {
	r.ready()
	r.inbox.refuseNext(3)
	posted := r.say(Message{Chat: r.Direct[0], Text: "hold on to this"})
	later := r.say(Message{Chat: r.Direct[0], Text: "and this comes after it"})
	m := r.next()
	if m.MessageID != posted.MessageID || m.Text != "hold on to this" {
		r.t.Errorf("got %+v", m)
	}
	tries := r.inbox.refused()
	if len(tries) != 3 {
		r.t.Fatalf("%d batches were refused, want 3", len(tries))
	}
	for _, b := range tries {
		if len(b.Messages) == 0 {
			r.t.Error("a batch without messages was offered")
			continue
		}
		if diff := cmp.Diff(m, b.Messages[0]); diff != "" {
			r.t.Errorf("what is offered again differs (-stored +refused):\n%s", diff)
		}
	}
	if m := r.next(); m.MessageID != later.MessageID {
		r.t.Errorf("message %s arrived, want %s, which was written after it", m.MessageID, later.MessageID)
	}
	r.nothing()
}

// notConfirmed: the platform hears of a message's arrival only when it is
// stored.
func notConfirmed(r *rig) {
	r.ready()
	r.say(Message{Chat: r.Direct[0], Text: "one"})
	r.next()
	r.eventually("the platform hears of it", func() bool { return r.Confirmed(r.t) == 2 })
	r.inbox.refuseNext(1 << 30)
	r.say(Message{Chat: r.Direct[0], Text: "two"})
	r.eventually("it is offered", func() bool { return len(r.inbox.refused()) > 2 })
	if n := r.Confirmed(r.t); n != 2 {
		r.t.Errorf("%d messages are confirmed, but only 2 are stored", n)
	}
	r.stop()
	if n := r.Confirmed(r.t); n != 2 {
		r.t.Errorf("after Run %d messages are confirmed, but only 2 are stored", n)
	}
	// The next Run starts where the store is, not where the last one was.
	r.inbox.refuseNext(0)
	r.ch = r.make(false)
	r.start()
	if m := r.next(); m.Text != "two" {
		r.t.Errorf("after a restart %q arrived, want what was not stored", m.Text)
	}
}

// restart: what is written while the bot is down arrives afterwards, once and
// in order; what was stored before does not come again.
func restart(r *rig) {
	r.ready()
	r.hear(Message{Chat: r.Direct[0], Text: "before"})
	r.stop()
	r.say(Message{Chat: r.Direct[0], Text: "meanwhile"})
	r.say(Message{Chat: r.Direct[0], Text: "meanwhile, too"})
	r.ch = r.make(false)
	r.start()
	for _, want := range []string{"meanwhile", "meanwhile, too"} {
		if m := r.next(); m.Text != want {
			r.t.Fatalf("after a restart %q arrived, want %q", m.Text, want)
		}
	}
	r.nothing()
}

func wrongToken(r *rig) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	ch := r.make(true)
	err := ch.Run(ctx, r.inbox)
	if !errors.Is(err, channels.ErrSetup) {
		r.t.Fatalf("Run = %v, want one that wraps ErrSetup", err)
	}
	r.noSecrets(err.Error())
	if len(strings.Fields(err.Error())) < 6 {
		r.t.Errorf("%q does not say what to do", err)
	}
	if h, ok := ch.(channels.Healther); ok && h.Health() == nil {
		r.t.Error("a channel with a wrong token is healthy")
	}
}

// startsUnreachable: no network at the start is nothing the operator has to
// mend.
func startsUnreachable(r *rig) {
	r.Down(r.t, true)
	r.start()
	if h, ok := r.ch.(channels.Healther); ok && h.Health() == nil {
		r.t.Error("the channel is healthy without ever having reached its platform")
	}
	select {
	case err := <-r.ended:
		r.ended = nil
		r.t.Fatalf("Run returned %v because the platform was unreachable", err)
	case <-time.After(3 * time.Second):
	}
	r.Down(r.t, false)
	r.nothing()
}

// reconnect: an outage costs no message that the platform keeps.
func reconnect(r *rig) {
	r.ready()
	for range 3 {
		r.Down(r.t, true)
		if h, ok := r.ch.(channels.Healther); ok {
			r.eventually("Health tells of the outage", func() bool { return h.Health() != nil })
		}
		r.Down(r.t, false)
		r.nothing()
	}
}

func health(r *rig) {
	h, ok := r.ch.(channels.Healther)
	if !ok {
		r.t.Fatal("the adapter is no channels.Healther")
	}
	if h.Health() == nil {
		r.t.Error("healthy before Run")
	}
	r.ready()
	r.eventually("healthy", func() bool { return h.Health() == nil })
	r.Down(r.t, true)
	r.eventually("not healthy while the platform is gone", func() bool {
		err := h.Health()
		if err != nil {
			r.noSecrets(err.Error())
		}
		return err != nil
	})
	r.Down(r.t, false)
	r.eventually("healthy again", func() bool { return h.Health() == nil })
	r.stop()
	if h.Health() == nil {
		r.t.Error("healthy after Run")
	}
}
