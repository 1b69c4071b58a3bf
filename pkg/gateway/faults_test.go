package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

var errDisk = errors.New("disk full")

// faulty is a store that fails when it is told to.
type faulty struct {
	store.Store
	mu     sync.Mutex
	broken func(store.Tx) bool // nil: works
	calls  int                 // of Apply
}

func newFaulty() *faulty { return &faulty{Store: mem.New()} }

func (*faulty) Close() error { return nil }

func (f *faulty) breakWhen(broken func(store.Tx) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

func (f *faulty) fails(tx store.Tx) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.broken != nil && f.broken(tx)
}

func (f *faulty) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if f.fails(tx) {
		return store.Result{}, errDisk
	}
	return f.Store.Apply(ctx, tx)
}

func (f *faulty) Post(tx store.Tx) {
	if !f.fails(tx) {
		f.Store.Post(tx)
	}
}

func always(store.Tx) bool { return true }

// afterAdmission is everything but the taking in of what people write.
func afterAdmission(tx store.Tx) bool {
	return len(tx.Admit) == 0 || tx.Admit[0].Kind == bus.KindFollowUp
}

// While the ledger cannot be written everything waits; when it heals everything
// is answered, each thing once, without anybody having to write again.
func TestNothingIsLostWhileTheLedgerCannotBeWritten(t *testing.T) {
	sticker := func(f *fakeChannel) bus.InboundMessage {
		m := f.from("1", "a", "")
		m.Media = []bus.Media{{Kind: "sticker"}}
		return m
	}
	cases := map[string]struct {
		message func(*fakeChannel) bus.InboundMessage
		want    []string
	}{
		"text":       {func(f *fakeChannel) bus.InboundMessage { return f.from("1", "a", "hi") }, []string{"re: hi"}},
		"new":        {func(f *fakeChannel) bus.InboundMessage { return f.from("1", "a", "/new") }, []string{"A fresh start. What is it about?"}},
		"help":       {func(f *fakeChannel) bus.InboundMessage { return f.from("1", "a", "/help") }, []string{helpText}},
		"stop":       {func(f *fakeChannel) bus.InboundMessage { return f.from("1", "a", "/stop") }, []string{"There is nothing to stop."}},
		"unreadable": {sticker, []string{"I cannot see a sticker yet. Could you tell me in words what it is about?"}},
		"task": {
			func(f *fakeChannel) bus.InboundMessage { return f.from("1", "a", "go") },
			[]string{"working on it", "re: [The background task has finished. Give its result to the person who asked for it:]\n42"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newFaulty()
				tool := later{30 * time.Second, tools.NewToolResult("42")}
				r := start(t, fakeModel(asksLater), withTool(tool), func(c *Config) { c.Store = ledger })
				if name == "task" {
					r.say(c.message(r.ch))
					synctest.Wait()
					ledger.breakWhen(afterAdmission)
				} else {
					ledger.breakWhen(afterAdmission)
					r.say(c.message(r.ch))
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				ledger.mu.Lock()
				if ledger.calls > 200 {
					t.Errorf("%d attempts to write within two minutes", ledger.calls)
				}
				ledger.mu.Unlock()
				ledger.breakWhen(nil)
				time.Sleep(time.Minute)
				r.wantTexts("1", c.want...)
				if open := left(t, ledger); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}

// What cannot be stored is not acknowledged, and a stranger whose message comes
// again is still told how to be let in.
func TestUnstoredIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newFaulty()
		r := start(t, fakeModel(echo), func(c *Config) { c.Store = ledger })
		r.ch.gate.AllowUsers = nil
		r.ports["fake"].gate = &r.ch.gate
		ledger.breakWhen(always)
		batch := bus.Batch{
			Messages: []bus.InboundMessage{r.ch.from("1", "owner", "hi"), r.ch.from("2", "stranger", "hi")},
			Cursors:  []bus.Cursor{{Key: "k", Value: "1"}},
		}
		for range 3 {
			if err := r.PublishInbound(t.Context(), batch); !errors.Is(err, errDisk) {
				t.Fatalf("PublishInbound: %v", err)
			}
		}
		r.wantTexts("1")
		ledger.breakWhen(nil)
		r.say(batch.Messages...)
		r.wantTexts("1", "re: hi")
		if got := r.ch.texts("2"); len(got) != 1 || !strings.Contains(got[0], "stranger") {
			t.Errorf("the stranger was told %q", got)
		}
	})
}

// A turn whose beginning was never written down is over when it is over: a full
// conversation, which reads on in the ledger, does not answer it again.
func TestTurnWithoutItsBeginningIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newFaulty()
		ledger.breakWhen(func(tx store.Tx) bool { return tx.Begin != nil })
		var asked []string
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(time.Millisecond)
			asked = append(asked, m[len(m)-1].Content)
			return reply("ok")
		})
		r := start(t, model, func(c *Config) { c.Store = ledger })
		for i := range 2 * maxWaiting {
			r.say(r.ch.from("1", fmt.Sprint("u", i), fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		slices.Sort(asked)
		if n := len(slices.Compact(asked)); n != 2*maxWaiting || len(asked) != n {
			t.Errorf("%d questions were asked, %d different ones; want %d once each", len(asked), n, 2*maxWaiting)
		}
		if open := left(t, ledger); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}

// Stopping before everything has started is a stop like any other.
func TestStoppedBeforeItStarted(t *testing.T) {
	g := New(Config{Store: mem.New(), Tools: tools.NewToolRegistry(), Log: slog.New(slog.DiscardHandler), Grace: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := g.cfg.Store.Health(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("the store is left open: %v", err)
	}
}

// A ledger that cannot be read at the start is an error that leaves nothing
// behind.
func TestUnreadableLedgerAtStart(t *testing.T) {
	ledger := &blind{Store: mem.New()}
	at := bus.Address{Channel: "fake", ChatID: "1"}
	if _, err := ledger.Apply(t.Context(), store.Tx{Tasks: []store.Task{{ID: "t", Address: at, SessionKey: at.String()}}}); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"fact", "unsent", "turns", "lanes", "tasks"} {
		ledger.what = what
		g := New(Config{
			Channels: []channels.Channel{newFakeChannel("fake")}, Store: ledger, Tools: tools.NewToolRegistry(), Log: slog.New(slog.DiscardHandler), Grace: time.Second,
		})
		if err := g.Run(t.Context()); !errors.Is(err, errDisk) {
			t.Errorf("%s cannot be read, and Run returns %v", what, err)
		}
	}
}

// blind is a store in which one thing cannot be read.
type blind struct {
	store.Store
	what string
}

func (u *blind) Close() error { return nil }

func (u *blind) Fact(ctx context.Context, key string) (string, error) {
	if u.what == "fact" {
		return "", errDisk
	}
	return u.Store.Fact(ctx, key)
}

func (u *blind) Unsent(ctx context.Context) ([]store.Outbound, error) {
	if u.what == "unsent" {
		return nil, errDisk
	}
	return u.Store.Unsent(ctx)
}

func (u *blind) OpenTurns(ctx context.Context) ([]store.Turn, error) {
	if u.what == "turns" {
		return nil, errDisk
	}
	return u.Store.OpenTurns(ctx)
}

func (u *blind) Lanes(ctx context.Context) ([]bus.Address, error) {
	if u.what == "lanes" {
		return nil, errDisk
	}
	return u.Store.Lanes(ctx)
}

func (u *blind) OpenTasks(ctx context.Context) ([]store.Task, error) {
	if u.what == "tasks" {
		return nil, errDisk
	}
	return u.Store.OpenTasks(ctx)
}
