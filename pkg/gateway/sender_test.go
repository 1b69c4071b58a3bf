package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

func stuckModel() fakeModel {
	return func(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func out(chat, key, text string) bus.OutboundMessage {
	return bus.OutboundMessage{Address: bus.Address{Channel: "fake", ChatID: chat}, Key: key, Text: text}
}

// A throttled or broken conversation delays no other and keeps its order.
func TestSendRetriesInOrderAndAlone(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"rate limit", &channels.RateLimitError{RetryAfter: 33 * time.Second}},
		{"not ready", fmt.Errorf("x: %w", channels.ErrNotReady)},
		{"outcome unknown", fmt.Errorf("x: %w", channels.ErrUnknownOutcome)},
		{"server error", errors.New("502")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, fakeModel(echo))
				r.ch.failing = func(m bus.OutboundMessage, try int) error {
					if m.ChatID == "1" && try < 3 {
						return tc.err
					}
					return nil
				}
				r.say(r.ch.from("1", "a", "one"))
				synctest.Wait()
				r.say(r.ch.from("1", "a", "two"), r.ch.from("2", "b", "other"))
				r.wantTexts("2", "re: other")
				r.wantTexts("1")
				time.Sleep(3 * time.Minute)
				r.wantTexts("1", "re: one", "re: two")
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(_ bus.OutboundMessage, try int) error {
			if try == 1 {
				return &channels.RateLimitError{RetryAfter: 33 * time.Second}
			}
			return nil
		}
		r.say(r.ch.from("1", "a", "x"))
		time.Sleep(32 * time.Second)
		r.wantTexts("1")
		time.Sleep(2 * time.Second)
		r.wantTexts("1", "re: x")
	})
}

func TestGlobalRateLimitPausesTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(m bus.OutboundMessage, try int) error {
			if m.ChatID == "1" && try == 1 {
				return &channels.RateLimitError{RetryAfter: 5 * time.Second, Global: true}
			}
			return nil
		}
		r.say(r.ch.from("1", "a", "x"))
		synctest.Wait()
		r.say(r.ch.from("2", "b", "y"))
		time.Sleep(4 * time.Second)
		r.wantTexts("2")
		time.Sleep(2 * time.Second)
		r.wantTexts("2", "re: y")
		r.wantTexts("1", "re: x")
	})
}

func TestPermanentFailureEndsAtOnceAndTheNextIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(m bus.OutboundMessage, _ int) error {
			if strings.Contains(m.Text, "blocked") {
				return fmt.Errorf("blocked by the user: %w", channels.ErrPermanent)
			}
			return nil
		}
		r.say(r.ch.from("1", "a", "blocked"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "fine"))
		r.wantTexts("1", textUndeliverable, "re: fine")
		if unsent, _ := r.store.Unsent(t.Context()); len(unsent) != 0 {
			t.Errorf("%d rows are still open", len(unsent))
		}
	})
}

func TestPublishOutbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.limit = 10
		got, err := r.PublishOutbound(t.Context(), out("1", "k1", "first words and more words"))
		if err != nil || got.MessageID != "3" {
			t.Fatalf("receipt %v, %v", got, err)
		}
		if n := len(r.ch.texts("1")); n != 3 {
			t.Errorf("sent in %d parts", n)
		}
		again, err := r.PublishOutbound(t.Context(), out("1", "k1", "first words and more words"))
		if err != nil || again.MessageID != got.MessageID || len(r.ch.texts("1")) != 3 {
			t.Errorf("the same key again: %v, %v, %d sent", again, err, len(r.ch.texts("1")))
		}
		if _, err := r.PublishOutbound(t.Context(), bus.OutboundMessage{Address: bus.Address{Channel: "nowhere", ChatID: "1"}, Key: "k2", Text: "x"}); !errors.Is(err, channels.ErrPermanent) || !strings.Contains(err.Error(), "fake") {
			t.Errorf("unknown channel: %v", err)
		}
		if _, err := r.PublishOutbound(t.Context(), out("1", "k3", " \n")); !errors.Is(err, channels.ErrPermanent) {
			t.Errorf("empty text: %v", err)
		}
		r.ch.failing = func(bus.OutboundMessage, int) error { return fmt.Errorf("gone: %w", channels.ErrPermanent) }
		if _, err := r.PublishOutbound(t.Context(), out("1", "k4", "x")); !errors.Is(err, channels.ErrPermanent) {
			t.Errorf("permanent failure: %v", err)
		}
		r.ch.failing = func(bus.OutboundMessage, int) error { return channels.ErrNotReady }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := r.PublishOutbound(ctx, out("1", "k5", "x")); !errors.Is(err, bus.ErrQueued) {
			t.Errorf("a delivery that takes longer: %v", err)
		}
		if n := len(r.senders.waiting); n != 0 {
			t.Errorf("%d waiters are left", n)
		}
	})
}

// What could not be sent before the end is sent after the next start, once.
func TestOutboxSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(bus.OutboundMessage, int) error { return channels.ErrNotReady }
		r.say(r.ch.from("1", "a", "x"))
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		again.wantTexts("1", "re: x")
	})
}

// rated is a channel with limits.
type rated struct {
	*fakeChannel
	rates channels.Rates
}

func (r rated) RatesFor(to bus.Address) channels.Rates {
	rates := r.rates
	rates.Key, _, _ = strings.Cut(to.ChatID, "/")
	return rates
}

// No window of a minute or a second ever holds more sends than allowed, topics
// of one group counting together.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		ch := newFakeChannel("fake")
		ch.failing = func(bus.OutboundMessage, int) error { times = append(times, time.Now()); return nil }
		r := start(t, fakeModel(echo), func(c *Config) {
			c.Channels = []channels.Channel{rated{ch, channels.Rates{GlobalPerSec: 30, PerSec: 1, PerMin: 20}}}
		})
		for i := range 60 {
			chat := fmt.Sprintf("g/%d", i%3)
			go func() { _, _ = r.PublishOutbound(t.Context(), out(chat, fmt.Sprint("k", i), "x")) }()
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(times) != 60 {
			t.Fatalf("%d of 60 sent", len(times))
		}
		for i := range times {
			n := 0
			for _, u := range times[i:] {
				if u.Sub(times[i]) < time.Minute {
					n++
				}
			}
			if n > 20 {
				t.Fatalf("%d sends within a minute", n)
			}
		}
	})
}

// A channel that has stopped takes nothing any more: what is left for it stays
// in the ledger, and the end does not wait for it.
func TestShutdownDoesNotWaitForAStoppedChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(bus.OutboundMessage, int) error { return fmt.Errorf("stopped: %w", channels.ErrNotReady) }
		r.say(r.ch.from("1", "a", "x"))
		synctest.Wait()
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %s", took)
		}
		if unsent, _ := r.store.Unsent(t.Context()); len(unsent) != 1 {
			t.Errorf("%d rows are left for the next start, want 1", len(unsent))
		}
	})
}

// A platform that asks for patience without saying how much is not hammered.
func TestRateLimitWithoutATimeBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		tries := 0
		r.ch.failing = func(_ bus.OutboundMessage, try int) error {
			tries = try
			return &channels.RateLimitError{}
		}
		r.say(r.ch.from("1", "a", "hi"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if tries > 60 {
			t.Errorf("%d tries in ten minutes", tries)
		}
	})
}
