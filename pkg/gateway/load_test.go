package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// What waits is counted, with the age of the first, wherever it waits.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := start(t, fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(time.Minute)
			return echo(ctx, m, d)
		}))
		r.ch.failing = func(bus.OutboundMessage, int) error {
			if open.Load() {
				return nil
			}
			return &channels.RateLimitError{RetryAfter: time.Hour}
		}
		want := func(what string, want Load) {
			t.Helper()
			synctest.Wait()
			if got := r.Load(); got != want {
				t.Errorf("%s: got %+v, want %+v", what, got, want)
			}
		}
		want("at first", Load{})
		r.say(r.ch.from("1", "a", "one"))
		want("a turn runs", Load{Turns: 1})
		time.Sleep(10 * time.Second)
		r.say(r.ch.from("1", "b", "two"))
		time.Sleep(10 * time.Second)
		r.say(r.ch.from("1", "c", "three"), r.ch.from("2", "d", "four"))
		time.Sleep(10 * time.Second)
		want("two wait", Load{Turns: 2, Waiting: 2, OldestWaiting: 20 * time.Second})
		time.Sleep(40 * time.Second) // ten seconds into the second turn
		want("an answer waits for its platform", Load{Turns: 2, Waiting: 1, OldestWaiting: 50 * time.Second, Unsent: 1, OldestUnsent: 10 * time.Second})
		time.Sleep(2 * time.Minute)
		want("all of them do", Load{Unsent: 4, OldestUnsent: 130 * time.Second})

		// What memory has no room for counts as well.
		var many []bus.InboundMessage
		for i := range maxWaiting + 10 {
			many = append(many, r.ch.from("3", fmt.Sprint("u", i), "hi"))
		}
		r.say(many...)
		time.Sleep(time.Second)
		want("more than there is room for", Load{
			Turns: 1, Waiting: maxWaiting + 9, OldestWaiting: time.Second, Unsent: 5, OldestUnsent: 131 * time.Second, // the fifth says so
		})
		open.Store(true)
		time.Sleep(2 * time.Hour)
		want("at the end", Load{})
	})
}

// Turns and attempts to send are told of with what they came to and how long
// they took.
func TestOnTurnOnSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		tell := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf(format, args...))
		}
		r := start(t, fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(2 * time.Second)
			return echo(ctx, m, d)
		}), func(c *Config) {
			c.OnTurn = func(o TurnOutcome, took time.Duration) { tell("turn %s %v", o, took) }
			c.OnSend = func(channel string, o SendOutcome, took time.Duration) { tell("%s %s %v", channel, o, took) }
		})
		r.ch.failing = func(m bus.OutboundMessage, try int) error {
			if m.ChatID == "2" {
				return channels.ErrPermanent
			}
			time.Sleep(time.Second)
			return map[int]error{
				1: &channels.RateLimitError{RetryAfter: time.Second}, 2: fmt.Errorf("cut: %w", channels.ErrUnknownOutcome),
				3: fmt.Errorf("off: %w", channels.ErrNotReady), 4: errors.New("bad gateway"),
			}[try]
		}
		r.say(r.ch.from("1", "a", "hi"))
		time.Sleep(5 * time.Minute)
		r.say(r.ch.from("2", "a", "hi"))
		time.Sleep(time.Minute)
		want := []string{
			"turn done 2s", "fake rate_limit 1s", "fake unknown 1s", "fake not_ready 1s", "fake failed 1s", "fake ok 1s",
			"turn done 2s", "fake refused 0s", "fake refused 0s",
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			t.Errorf("told %q\nwant %q", told, want)
		}
	})
}
