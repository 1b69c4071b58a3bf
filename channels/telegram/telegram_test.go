package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// bench is one bot on one server, within a synctest bubble.
type bench struct {
	t     *testing.T
	s     *tt.Server
	net   *tt.Network
	facts *facts
	in    *inbox
	cfg   telegram.Config
	ch    *telegram.Channel
	log   *bytes.Buffer
}

func newBench(t *testing.T, change ...func(*telegram.Config)) *bench {
	t.Helper()
	b := &bench{t: t, s: tt.New(), facts: &facts{}, in: &inbox{}, log: &bytes.Buffer{}}
	b.net = tt.Serve(t, b.s)
	cfg := telegram.DefaultConfig()
	cfg.Token, cfg.APIBase = config.Secret(tt.Token), "http://telegram.test/"
	for _, f := range change {
		f(&cfg)
	}
	b.cfg = cfg
	b.through(b.net.Transport())
	return b
}

// through makes the bot anew, with another way to the server.
func (b *bench) through(rt http.RoundTripper) {
	log := slog.New(slog.NewTextHandler(b.log, nil))
	b.ch = telegram.New("tg", b.cfg, state.New(b.facts, "channel/tg"), log, telegram.WithTransport(rt))
}

// run lets the bot run until the end of the test.
func (b *bench) run() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.ch.Run(ctx, b.in) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run = %v", err)
		}
	})
	synctest.Wait()
}

func (b *bench) post(from tt.User, text string) {
	b.t.Helper()
	b.s.Post(tt.Message{Chat: tt.Chat{ID: from.ID}, From: &from, Text: text})
	synctest.Wait()
}

type inbox struct {
	mu      sync.Mutex
	batches []bus.Batch
}

func (in *inbox) PublishInbound(_ context.Context, b bus.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.batches = append(in.batches, b)
	return nil
}

func (in *inbox) texts() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []string
	for _, b := range in.batches {
		for _, m := range b.Messages {
			out = append(out, m.Text)
		}
	}
	return out
}

type facts struct{ values map[string]string }

func (f *facts) Apply(context.Context, store.Tx) (store.Result, error) { return store.Result{}, nil }

func (f *facts) Fact(_ context.Context, key string) (string, error) { return f.values[key], nil }

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Helper(); synctest.Test(t, f) })
}

func TestPolling(t *testing.T) {
	bubble(t, "asks who it is once and polls at once", func(t *testing.T) {
		b := newBench(t)
		start := time.Now()
		b.run()
		if took := time.Since(start); took != 0 || b.ch.Health() != nil {
			t.Errorf("after %s: %v", took, b.ch.Health())
		}
		if n := b.s.Requests("getMe"); n != 1 {
			t.Errorf("getMe was called %d times", n)
		}
		time.Sleep(10 * time.Minute)
		if n := b.s.Requests("getUpdates"); n > 25 {
			t.Errorf("%d polls in ten quiet minutes", n)
		}
		if err := b.ch.Health(); err != nil {
			t.Errorf("Health = %v", err)
		}
	})
	bubble(t, "the offset goes with the batch and follows the last id", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		b.run()
		b.post(ada, "one")
		b.s.SetNextUpdateID(100) // as after a quiet week
		b.post(ada, "two")
		b.post(ada, "three")
		if got := b.in.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Fatalf("got %q", got)
		}
		for i, want := range []string{"500000002 ", "101 ", "102 "} {
			cursor := b.in.batches[i].Cursors
			if len(cursor) != 1 || cursor[0].Key != fmt.Sprintf("channel/tg/cursor/%d", tt.BotID) || !strings.HasPrefix(cursor[0].Value, want) {
				t.Errorf("batch %d has the cursors %+v, want %q", i, cursor, want)
			}
		}
	})
	bubble(t, "an offset older than six days is not used", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		b.facts.values = map[string]string{
			fmt.Sprintf("channel/tg/cursor/%d", tt.BotID): fmt.Sprintf("600000000 %d", time.Now().Add(-7*24*time.Hour).Unix()),
		}
		b.s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: "after the holidays"})
		b.run()
		if got := b.in.texts(); !slices.Equal(got, []string{"after the holidays"}) {
			t.Errorf("got %q", got)
		}
	})
	bubble(t, "more than one batch, in order", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		for i := range 250 {
			b.s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: fmt.Sprint(i)})
		}
		b.run()
		want := make([]string, 250)
		for i := range want {
			want[i] = fmt.Sprint(i)
		}
		if got := b.in.texts(); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
	bubble(t, "an unreadable update holds nothing up", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		b.s.Push("message", map[string]any{"message_id": "text", "chat": 5})
		b.s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: "fine"})
		b.run()
		if got := b.in.texts(); !slices.Equal(got, []string{"fine"}) {
			t.Errorf("got %q\n%s", got, b.log)
		}
	})
}

func TestPollingTrouble(t *testing.T) {
	bubble(t, "another poller", func(t *testing.T) {
		b := newBench(t)
		b.run()
		other := b.net.Transport()
		defer other.CloseIdleConnections()
		poll := func(ctx context.Context) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://telegram.test/bot"+tt.Token+"/getUpdates?timeout=50", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := other.RoundTrip(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for ctx.Err() == nil {
				poll(ctx)
			}
		}()
		synctest.Wait()
		if err := b.ch.Health(); err == nil || !strings.Contains(err.Error(), "another program") {
			t.Errorf("Health = %v", err)
		}
		cancel()
		<-stopped
		time.Sleep(time.Minute)
		if err := b.ch.Health(); err != nil {
			t.Errorf("after the other is gone: Health = %v", err)
		}
	})
	bubble(t, "a webhook is removed", func(t *testing.T) {
		b := newBench(t)
		b.s.SetWebhook(true)
		b.run()
		time.Sleep(time.Minute)
		if err := b.ch.Health(); err != nil || b.s.Requests("deleteWebhook") != 1 {
			t.Errorf("Health = %v, deleteWebhook called %d times", err, b.s.Requests("deleteWebhook"))
		}
	})
	bubble(t, "connections that break", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		b.s.CutPolls(5)
		b.run()
		if b.ch.Health() == nil {
			t.Error("healthy although every poll breaks")
		}
		b.post(ada, "hello")
		time.Sleep(time.Minute)
		if got := b.in.texts(); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("got %q\n%s", got, b.log)
		}
	})
	bubble(t, "no token", func(t *testing.T) {
		b := newBench(t, func(c *telegram.Config) { c.Token = "" })
		if err := b.ch.Run(t.Context(), b.in); !errors.Is(err, channels.ErrSetup) || b.s.Requests("getMe") != 0 {
			t.Errorf("Run = %v", err)
		}
	})
	bubble(t, "no address", func(t *testing.T) {
		b := newBench(t, func(c *telegram.Config) { c.APIBase = "api.telegram.org" })
		if err := b.ch.Run(t.Context(), b.in); !errors.Is(err, channels.ErrSetup) || !strings.Contains(err.Error(), "api_base") {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestSend(t *testing.T) {
	bubble(t, "formatting arrives and previews are off", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		if _, err := b.ch.Send(t.Context(), bus.OutboundMessage{Address: b.address(ada.ID), Text: "😀 **bold** https://example.org"}); err != nil {
			t.Fatal(err)
		}
		got := b.s.Sent()[0]
		if got.Text != "😀 bold https://example.org" || !got.NoPreview || len(got.Entities) != 1 || got.Entities[0].Offset != 3 || got.Entities[0].Length != 4 {
			t.Errorf("sent %+v", got)
		}
	})
	bubble(t, "a group that became a supergroup", func(t *testing.T) {
		b := newBench(t)
		group := b.s.AddBasicGroup("Friends")
		to := b.s.Migrate(group.ID)
		m := bus.OutboundMessage{Address: b.address(group.ID), Text: "hello"}
		for range 2 {
			if _, err := b.ch.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.ch.Typing(t.Context(), b.address(group.ID)); err != nil {
			t.Error(err)
		}
		for _, sent := range b.s.Sent() {
			if sent.ChatID != to.ID {
				t.Errorf("sent to %d, want %d", sent.ChatID, to.ID)
			}
		}
		if n := b.s.Requests("sendMessage"); n != 3 || len(b.s.Sent()) != 2 {
			t.Errorf("%d requests for two messages, %d sent", n, len(b.s.Sent()))
		}
	})
	bubble(t, "a group whose change was announced", func(t *testing.T) {
		b := newBench(t)
		group := b.s.AddBasicGroup("Friends")
		b.run()
		b.s.Migrate(group.ID)
		synctest.Wait()
		if _, err := b.ch.Send(t.Context(), bus.OutboundMessage{Address: b.address(group.ID), Text: "hello"}); err != nil || b.s.Requests("sendMessage") != 1 {
			t.Errorf("Send = %v after %d requests", err, b.s.Requests("sendMessage"))
		}
	})
	bubble(t, "nothing to see", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		for _, text := range []string{"", " \n", "\u200b\u2060"} {
			if _, err := b.ch.Send(t.Context(), bus.OutboundMessage{Address: b.address(ada.ID), Text: text}); !errors.Is(err, channels.ErrPermanent) {
				t.Errorf("Send %q = %v", text, err)
			}
		}
	})
}

func (b *bench) address(chat int64) bus.Address {
	return bus.Address{Channel: "tg", ChatID: fmt.Sprint(chat)}
}

// answer is a transport that gives one answer to everything.
type answer struct {
	code int
	body string
}

func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(strings.NewReader(a.body)), Request: req}, nil
}

// tracing tells the request's trace that it went out, as a real transport does.
type tracing struct{ answer }

func (a tracing) RoundTrip(req *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	return a.answer.RoundTrip(req)
}

func TestSendOutcomes(t *testing.T) {
	for _, tc := range []struct {
		name string
		answer
		want error
		not  error
	}{
		{"gateway page", answer{502, "<html>Bad Gateway</html>"}, channels.ErrUnknownOutcome, channels.ErrPermanent},
		{"gateway in JSON", answer{502, `{"ok":false,"error_code":502,"description":"Bad Gateway"}`}, channels.ErrUnknownOutcome, channels.ErrPermanent},
		{"somebody else's JSON", answer{502, `{"message":"upstream timed out"}`}, channels.ErrUnknownOutcome, channels.ErrPermanent},
		{"half an answer", answer{200, `{"ok":true,"result":{"mess`}, channels.ErrUnknownOutcome, channels.ErrPermanent},
		{"revoked token", answer{401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`}, channels.ErrNotReady, channels.ErrPermanent},
		{"kicked", answer{403, `{"ok":false,"error_code":403,"description":"Forbidden: bot was kicked"}`}, channels.ErrPermanent, channels.ErrUnknownOutcome},
		{"token in the answer", answer{400, `{"ok":false,"error_code":400,"description":"` + tt.Token + `"}`}, channels.ErrPermanent, channels.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := telegram.DefaultConfig()
			cfg.Token = config.Secret(tt.Token)
			ch := telegram.New("tg", cfg, nil, slog.New(slog.DiscardHandler), telegram.WithTransport(tracing{tc.answer}))
			_, err := ch.Send(t.Context(), bus.OutboundMessage{Address: bus.Address{Channel: "tg", ChatID: "7"}, Text: "hello"})
			if !errors.Is(err, tc.want) || errors.Is(err, tc.not) {
				t.Errorf("Send = %v, want %v and not %v", err, tc.want, tc.not)
			}
			if strings.Contains(fmt.Sprintf("%v %+v", err, err), tt.Token) {
				t.Error("the error shows the token")
			}
		})
	}
}

func TestRates(t *testing.T) {
	cfg := telegram.DefaultConfig()
	ch := telegram.New("tg", cfg, nil, slog.New(slog.DiscardHandler))
	for chat, want := range map[string]channels.Rates{
		"7":          {GlobalPerSec: 30, Key: "7", PerSec: 1},
		"-1001":      {GlobalPerSec: 30, Key: "-1001", PerSec: 1, PerMin: 20},
		"-1001/42":   {GlobalPerSec: 30, Key: "-1001", PerSec: 1, PerMin: 20},
		"no address": {GlobalPerSec: 30, Key: "no address", PerSec: 1},
	} {
		if got := ch.RatesFor(bus.Address{Channel: "tg", ChatID: chat}); got != want {
			t.Errorf("RatesFor(%s) = %+v, want %+v", chat, got, want)
		}
	}
}
