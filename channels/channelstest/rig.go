package channelstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// patience is how long a rule waits for something that has to happen.
const patience = 30 * time.Second

// rig is one platform with one adapter on it.
type rig struct {
	*Platform
	t     *testing.T
	facts *facts
	inbox *inbox
	log   *logs
	ch    channels.Channel

	keys int // made by key

	cancel context.CancelFunc // of the Run under way
	ended  chan error
}

func newRig(t *testing.T, p *Platform) *rig {
	t.Helper()
	r := &rig{Platform: p, t: t, facts: &facts{values: make(map[string]string)}, log: &logs{}}
	r.inbox = &inbox{facts: r.facts, news: make(chan bus.InboundMessage, 4096), known: make(map[string]bool)}
	r.ch = r.make(false)
	t.Cleanup(func() { r.noSecrets(r.log.String()) })
	return r
}

func (r *rig) make(wrongToken bool) channels.Channel {
	r.t.Helper()
	ch := r.New(r.t, Options{
		Log:        slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Facts:      state.New(r.facts, "channel/"+Name),
		WrongToken: wrongToken,
	})
	if got := ch.Name(); got != Name {
		r.t.Errorf("Name() = %q, want %q", got, Name)
	}
	return ch
}

// start lets the adapter run until stop or the end of the test.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	r.cancel, r.ended = cancel, ended
	go func(ch channels.Channel) { ended <- ch.Run(ctx, r.inbox) }(r.ch)
	r.t.Cleanup(func() {
		if r.ended == ended {
			r.stop()
		}
	})
}

// stop ends Run and checks that it ends well.
func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("Run returned %v after its context ended, want nil", err)
			r.noSecrets(err.Error())
		}
	case <-time.After(patience):
		r.t.Fatal("Run did not return after its context ended")
	}
	r.ended = nil
}

func (r *rig) noSecrets(s string) {
	r.t.Helper()
	for _, secret := range r.Secrets {
		if secret != "" && strings.Contains(s, secret) {
			r.t.Errorf("a secret shows in %q", strings.ReplaceAll(s, secret, "<SECRET>"))
		}
	}
}

// next waits for the next message that was stored.
func (r *rig) next() bus.InboundMessage {
	r.t.Helper()
	select {
	case m := <-r.inbox.news:
		return m
	case err := <-r.ended:
		r.ended = nil
		r.t.Fatalf("Run returned %v while a message was waited for\n%s", err, r.log)
	case <-time.After(patience):
		r.t.Fatalf("no message arrived\n%s", r.log)
	}
	panic("unreachable")
}

// nothing says that no message is on its way: the next one is one that is
// posted now.
func (r *rig) nothing() {
	r.t.Helper()
	posted := r.say(Message{Chat: r.Direct[1], Text: "the one that follows"})
	if m := r.next(); m.MessageID != posted.MessageID || m.Address != r.Direct[1].Address {
		r.t.Fatalf("an unexpected message arrived: %+v", m)
	}
}

// say posts m, by the first person of its conversation unless it says who.
func (r *rig) say(m Message) Posted {
	r.t.Helper()
	if m.From.ID == "" && m.By == Nobody {
		m.From = m.Chat.People[0]
	}
	return r.Say(r.t, m)
}

// hear posts m and returns what arrives.
func (r *rig) hear(m Message) bus.InboundMessage {
	r.t.Helper()
	posted := r.say(m)
	got := r.next()
	if got.MessageID != posted.MessageID {
		r.t.Fatalf("message %q arrived, want %q: %+v", got.MessageID, posted.MessageID, got)
	}
	return got
}

// ready starts the adapter and returns when it works.
func (r *rig) ready() {
	r.t.Helper()
	r.start()
	r.nothing()
}

func (r *rig) send(m bus.OutboundMessage) (bus.Receipt, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	receipt, err := r.ch.Send(ctx, m)
	if err != nil {
		r.noSecrets(err.Error())
	}
	return receipt, err
}

// key makes a fresh idempotency key: a platform that knows them answers the same
// key with the first message.
func (r *rig) key() string {
	r.keys++
	return fmt.Sprint("key-", r.keys)
}

// mustSend sends and returns what the platform got.
func (r *rig) mustSend(m bus.OutboundMessage) Sent {
	r.t.Helper()
	before := len(r.Sent(r.t))
	receipt, err := r.send(m)
	if err != nil {
		r.t.Fatalf("Send to %s: %v", m.Address, err)
	}
	sent := r.Sent(r.t)
	if len(sent) != before+1 {
		r.t.Fatalf("Send to %s made %d messages, want 1", m.Address, len(sent)-before)
	}
	got := sent[before]
	if got.MessageID != receipt.MessageID || receipt.MessageID == "" {
		r.t.Errorf("the receipt names message %q, the platform %q", receipt.MessageID, got.MessageID)
	}
	if receipt.Time.IsZero() {
		r.t.Error("the receipt has no time")
	}
	return got
}

// eventually waits until ok holds.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain: %s\n%s", what, r.log)
		}
	}
}

// inbox stores what arrives, as the gateway does: all or nothing, each message
// once.
type inbox struct {
	facts *facts
	news  chan bus.InboundMessage

	mu     sync.Mutex
	known  map[string]bool
	refuse int         // how many more batches are refused
	tries  []bus.Batch // the refused ones
	hold   chan struct{}
}

var errDisk = errors.New("the disk is full")

func (in *inbox) PublishInbound(ctx context.Context, b bus.Batch) error {
	in.mu.Lock()
	hold := in.hold
	in.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refuse > 0 {
		in.refuse--
		in.tries = append(in.tries, b)
		return errDisk
	}
	in.facts.set(b.Cursors)
	for _, m := range b.Messages {
		if key := m.Channel + "\x00" + m.ID; !in.known[key] {
			in.known[key] = true
			in.news <- m
		}
	}
	return nil
}

func (in *inbox) refuseNext(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse = n
}

func (in *inbox) refused() []bus.Batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]bus.Batch(nil), in.tries...)
}

// block makes PublishInbound wait, without end but for its context.
func (in *inbox) block() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hold = make(chan struct{})
}

// facts is the part of a store an adapter may use.
type facts struct {
	mu     sync.Mutex
	values map[string]string
}

func (f *facts) Apply(_ context.Context, tx store.Tx) (store.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fact := range tx.Facts {
		f.values[fact.Key] = fact.Value
	}
	return store.Result{}, nil
}

func (f *facts) Fact(_ context.Context, key string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.values[key], nil
}

func (f *facts) set(cursors []bus.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range cursors {
		f.values[c.Key] = c.Value
	}
}

// logs collects what an adapter logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*logs)(nil)

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
