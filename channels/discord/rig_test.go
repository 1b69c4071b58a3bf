package discord

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// rig is the adapter on a fake Discord, in memory and in a bubble.
type rig struct {
	*testing.T
	srv   *discordtest.Server
	base  string
	dial  dialFunc
	cfg   Config
	facts *facts
	ch    *Channel
	in    *inbox
	log   *logs

	cancel context.CancelFunc
	ended  chan error
}

// newYear is when the tests take place: Discord's ids hold no time before 2015,
// where a bubble begins.
func newYear() { time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) }

// inBubble runs f with a rig on which nothing runs yet.
func inBubble(t *testing.T, opts discordtest.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		newYear()
		srv := discordtest.New(opts)
		base, dial, stop := srv.Pipe()
		defer stop()
		r := &rig{T: t, srv: srv, base: base, dial: dial, cfg: DefaultConfig(), facts: &facts{values: map[string]string{}}, log: &logs{}}
		r.in = &inbox{facts: r.facts, known: map[string]bool{}, news: make(chan bus.InboundMessage, 10000)}
		r.cfg.APIBase, r.cfg.Token = base, discordtest.Token
		r.renew()
		defer func() {
			if r.ended != nil { // f gave up
				r.stop()
			}
		}()
		f(r)
		if r.ended != nil {
			r.stop()
		}
		if strings.Contains(r.log.String(), discordtest.Token) {
			t.Error("the token is in the log")
		}
		if r.facts.back != "" {
			t.Errorf("a cursor went back: %s", r.facts.back)
		}
	})
}

// renew makes the adapter anew, as a start of the program does.
func (r *rig) renew() {
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.ch = New("discord", r.cfg, state.New(r.facts, "channel/discord"), logger, WithDialer(r.dial))
}

func (r *rig) start() {
	r.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func(ended chan error) { ended <- r.ch.Run(ctx, r.in) }(r.ended)
}

// connect starts the adapter and returns when it is connected.
func (r *rig) connect() {
	r.Helper()
	r.start()
	r.until("connected", func(s discordtest.Stats) bool { return s.Connected == 1 })
	synctest.Wait()
	if err := r.ch.Health(); err != nil {
		r.Fatalf("Health = %v after READY", err)
	}
}

func (r *rig) stop() {
	r.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.Errorf("Run = %v after its context ended", err)
	}
	r.ended = nil
}

func (r *rig) until(what string, ok func(discordtest.Stats) bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
	defer cancel()
	if err := r.srv.WaitStats(ctx, ok); err != nil {
		r.Fatalf("waited in vain for %s: %+v\n%s", what, r.srv.Stats(), r.log)
	}
}

// next is the next message that was stored.
func (r *rig) next() bus.InboundMessage {
	r.Helper()
	select {
	case m := <-r.in.news:
		return m
	case <-time.After(time.Hour):
		r.Fatalf("no message came\n%s", r.log)
		panic("unreachable")
	}
}

// texts are the next n messages' texts.
func (r *rig) texts(n int) []string {
	r.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = r.next().Text
	}
	return out
}

// inbox stores what it is given, unless told otherwise: all or nothing, each
// message once.
type inbox struct {
	facts *facts // nil keeps none
	news  chan bus.InboundMessage

	mu      sync.Mutex
	known   map[string]bool // nil does not look
	batches []bus.Batch
	hold    chan struct{} // nil: nobody waits
	panics  int           // so many calls panic
	refuse  int           // so many calls fail
}

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
	if in.panics > 0 {
		in.panics--
		in.mu.Unlock()
		panic("a fault of the inbox")
	}
	defer in.mu.Unlock()
	if in.refuse > 0 {
		in.refuse--
		return errors.New("the disk is full")
	}
	in.batches = append(in.batches, b)
	if in.facts != nil {
		in.facts.store(b.Cursors)
	}
	for _, m := range b.Messages {
		if in.known != nil && in.known[m.ID] {
			continue
		}
		if in.known != nil {
			in.known[m.ID] = true
		}
		in.news <- m
	}
	return nil
}

// block makes PublishInbound wait until the returned function, or unblock, is
// called.
func (in *inbox) block() (release func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hold = make(chan struct{})
	return in.unblock
}

// fail makes the next n calls fail.
func (in *inbox) fail(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse = n
}

func (in *inbox) unblock() {
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.hold)
	in.hold = nil
}

// logs is what was logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

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

// facts is the part of a store that an adapter uses.
type facts struct {
	mu     sync.Mutex
	values map[string]string
	reads  int
	fail   int    // so many reads fail
	back   string // a cursor that went back
}

func (f *facts) Apply(context.Context, store.Tx) (store.Result, error) {
	panic("cursors come with their batch")
}

func (f *facts) Fact(_ context.Context, key string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.fail > 0 {
		f.fail--
		return "", errors.New("the disk is gone")
	}
	return f.values[key], nil
}

func (f *facts) failNext(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = n
}

func (f *facts) store(cursors []bus.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range cursors {
		old := f.values[c.Key]
		if strings.Contains(c.Key, "/last/") && c.Value != "" && snowflake(c.Value) < snowflake(old) {
			f.back = c.Key + " from " + old + " to " + c.Value
		}
		f.values[c.Key] = c.Value
	}
}

// cursor is how far a channel has been heard, as it is stored.
func (f *facts) cursor(channel string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.values["channel/discord/last/"+channel]
}
