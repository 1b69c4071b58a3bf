package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Each thing that happens is counted, and once.
func TestCounts(t *testing.T) {
	cases := map[string]struct {
		play func(r *rig)
		want Counts
	}{
		"answered": {func(r *rig) {
			r.say(r.ch.from("1", "a", "hi"))
		}, Counts{Admitted: 1, TurnsDone: 1, Sent: 1}},
		"a duplicate": {func(r *rig) {
			m := r.ch.from("1", "a", "hi")
			r.say(m, m)
			r.say(m)
		}, Counts{Admitted: 1, Duplicates: 2, TurnsDone: 1, Sent: 1}},
		"not for the bot": {func(r *rig) {
			m := r.ch.from("1", "a", "hi")
			m.Group = true
			r.say(m)
		}, Counts{Dropped: 1}},
		"a stranger": {func(r *rig) {
			r.ch.gate.AllowUsers = nil
			r.ports["fake"].gate = &r.ch.gate
			r.say(r.ch.from("1", "a", "hi"), r.ch.from("1", "a", "hi"))
		}, Counts{Refused: 2, Sent: 1}},
		"the model down": {func(r *rig) {
			r.say(r.ch.from("1", "a", "model"))
		}, Counts{Admitted: 1, TurnsFailed: 1, ModelFailures: 1, Sent: 1}},
		"a panic": {func(r *rig) {
			r.say(r.ch.from("1", "a", "panic"))
		}, Counts{Admitted: 1, TurnsFailed: 1, Sent: 1}},
		"stopped": {func(r *rig) {
			r.say(r.ch.from("1", "a", "hang"))
			synctest.Wait()
			r.say(r.ch.from("1", "a", "/stop"))
		}, Counts{Admitted: 2, TurnsStopped: 1, Sent: 1}},
		"a result": {func(r *rig) {
			r.say(r.ch.from("1", "a", "go"))
		}, Counts{Admitted: 2, TurnsDone: 1, FollowUps: 1, Sent: 2}},
		"throttled": {func(r *rig) {
			r.ch.failing = failTwice(&channels.RateLimitError{RetryAfter: time.Second})
			r.say(r.ch.from("1", "a", "hi"))
		}, Counts{Admitted: 1, TurnsDone: 1, Sent: 1, SendRetries: 2}},
		"cut off": {func(r *rig) {
			r.ch.failing = failTwice(fmt.Errorf("cut: %w", channels.ErrUnknownOutcome))
			r.say(r.ch.from("1", "a", "hi"))
		}, Counts{Admitted: 1, TurnsDone: 1, Sent: 1, SendRetries: 2, MaybeTwice: 2}},
		"blocked": {func(r *rig) {
			r.ch.failing = func(bus.OutboundMessage, int) error { return channels.ErrPermanent }
			r.say(r.ch.from("1", "a", "hi"))
		}, Counts{Admitted: 1, TurnsDone: 1, GivenUp: 2}}, // the answer, and the note instead of it
	}
	model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
		switch text := m[len(m)-1].Content; {
		case strings.HasSuffix(text, "model"):
			return nil, &providers.Error{Kind: providers.KindOverloaded}
		case strings.HasSuffix(text, "hang"):
			<-ctx.Done()
			return nil, ctx.Err()
		case strings.HasSuffix(text, "panic"):
			panic("boom")
		}
		return asksLater(ctx, m, d)
	})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended atomic.Int64
				r := start(t, model, withTool(later{time.Second, &tools.ToolResult{ForLLM: "raw", ForUser: "shown"}}), func(c *Config) {
					c.OnTurn = func(TurnOutcome, time.Duration) { ended.Add(1) }
				})
				c.play(r)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := r.Counts(); got != c.want {
					t.Errorf("got  %+v\nwant %+v", got, c.want)
				}
				if n := c.want.TurnsDone + c.want.TurnsFailed + c.want.TurnsStopped; ended.Load() != n {
					t.Errorf("told of %d turns, want %d", ended.Load(), n)
				}
			})
		})
	}
}

// failTwice fails the first two attempts to send each message.
func failTwice(err error) func(bus.OutboundMessage, int) error {
	return func(_ bus.OutboundMessage, try int) error {
		if try <= 2 {
			return err
		}
		return nil
	}
}
