package discord

import (
	"bytes"
	"context"
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
	srv *discordtest.Server
	ch  *Channel
	in  *inbox
	log *logs

	cancel context.CancelFunc
	ended  chan error
}

// inBubble runs f with a rig on which nothing runs yet.
func inBubble(t *testing.T, opts discordtest.Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := discordtest.New(opts)
		base, dial, stop := srv.Pipe()
		defer stop()
		r := &rig{T: t, srv: srv, in: &inbox{news: make(chan bus.InboundMessage, 10000)}, log: &logs{}}
		cfg := DefaultConfig()
		cfg.APIBase, cfg.Token = base, discordtest.Token
		logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r.ch = New("discord", cfg, state.New(noFacts{}, "channel/discord"), logger, WithDialer(dial))
		f(r)
		if r.ended != nil {
			r.stop()
		}
		if strings.Contains(r.log.String(), discordtest.Token) {
			t.Error("the token is in the log")
		}
	})
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

// inbox stores what it is given, unless told otherwise.
type inbox struct {
	news chan bus.InboundMessage

	mu      sync.Mutex
	batches []bus.Batch
	hold    chan struct{} // nil: nobody waits
	panics  int           // so many calls panic
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
	in.batches = append(in.batches, b)
	in.mu.Unlock()
	for _, m := range b.Messages {
		in.news <- m
	}
	return nil
}

// block makes PublishInbound wait until the returned function is called.
func (in *inbox) block() (release func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	hold := make(chan struct{})
	in.hold = hold
	return func() {
		in.mu.Lock()
		in.hold = nil
		in.mu.Unlock()
		close(hold)
	}
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

// noFacts is a store that only names keys.
type noFacts struct{}

func (noFacts) Apply(context.Context, store.Tx) (store.Result, error) { return store.Result{}, nil }
func (noFacts) Fact(context.Context, string) (string, error)          { return "", nil }
