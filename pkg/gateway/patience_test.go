package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// busyChannel counts everything it is asked to do.
type busyChannel struct {
	rated
	typing error // what Typing returns

	lock sync.Mutex
	at   []time.Time // of everything
	typ  int
}

func (b *busyChannel) note() {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.at = append(b.at, time.Now())
}

func (b *busyChannel) Typing(context.Context, bus.Address) error {
	b.note()
	b.lock.Lock()
	defer b.lock.Unlock()
	b.typ++
	return b.typing
}

func (b *busyChannel) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	b.note()
	return b.fakeChannel.Send(ctx, m)
}

func slowly(d time.Duration) fakeModel {
	return func(ctx context.Context, m []providers.Message, t []providers.ToolDefinition) (*providers.LLMResponse, error) {
		time.Sleep(d)
		return echo(ctx, m, t)
	}
}

// Typing signs and messages together stay within what the account may do.
func TestTypingCountsAgainstTheAccountsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSec, chats = 10, 40
		busy := &busyChannel{rated: rated{newFakeChannel("fake"), channels.Rates{GlobalPerSec: perSec}}}
		r := start(t, slowly(20*time.Second), func(c *Config) { c.Channels = []channels.Channel{busy} })
		r.ch = busy.fakeChannel
		for i := range chats {
			r.say(r.ch.from(fmt.Sprint(i), "a", "hi"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range busy.at {
			if j := i + perSec; j < len(busy.at) && busy.at[j].Sub(busy.at[i]) < time.Second {
				t.Fatalf("%d requests within %s", perSec+1, busy.at[j].Sub(busy.at[i]))
			}
		}
		for i := range chats {
			if got := r.ch.texts(fmt.Sprint(i)); len(got) != 1 {
				t.Fatalf("chat %d was sent %q", i, got)
			}
		}
		if busy.typ == 0 {
			t.Error("nobody saw a typing sign")
		}
	})
}

func TestTypingRespectsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &busyChannel{rated: rated{fakeChannel: newFakeChannel("fake")}, typing: &channels.RateLimitError{RetryAfter: 30 * time.Second}}
		r := start(t, slowly(2*time.Minute), func(c *Config) { c.Channels = []channels.Channel{busy} })
		r.ch = busy.fakeChannel
		r.say(r.ch.from("1", "a", "hi"))
		time.Sleep(3 * time.Minute)
		r.wantTexts("1", "re: hi")
		if busy.typ > 4 {
			t.Errorf("the sign was sent %d times in two minutes, against the platform's wish", busy.typ)
		}
	})
}

// A channel that works for a long time between failures is started again soon.
func TestChannelThatFailsRarelyComesBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rare := newFakeChannel("rare")
		var gaps []time.Duration
		var failed time.Time
		rare.run = func(ctx context.Context, _ bus.Inbox) error {
			if !failed.IsZero() {
				gaps = append(gaps, time.Since(failed))
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Hour):
			}
			failed = time.Now()
			return errors.New("broken")
		}
		start(t, fakeModel(echo), func(c *Config) { c.Channels = append(c.Channels, rare) })
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		if len(gaps) < 10 {
			t.Fatalf("started again %d times", len(gaps))
		}
		if last := gaps[len(gaps)-1]; last > 2*time.Second {
			t.Errorf("started again after %s", last)
		}
	})
}

// The end does not wait for the next try of a channel that has long been down.
func TestShutdownDoesNotWaitForALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		r.ch.failing = func(bus.OutboundMessage, int) error { return channels.ErrNotReady }
		r.say(r.ch.from("1", "a", "x"))
		time.Sleep(10 * time.Minute)
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

// A text nobody could see is no answer.
func TestInvisibleAnswerIsNone(t *testing.T) {
	for _, text := range []string{"", " \n", "\u200b", "\ufeff \u2060\u00ad"} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, fakeModel(func(context.Context, []providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
				return reply(text)
			}))
			r.say(r.ch.from("1", "a", "hi"))
			synctest.Wait()
			if got := r.ch.texts("1"); len(got) != 1 || !strings.HasPrefix(got[0], "I have no answer") {
				t.Errorf("%q became %q", text, got)
			}
		})
	}
}
