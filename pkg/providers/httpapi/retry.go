package httpapi

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Retry calls attempt, which sends a request once and returns nil when there is
// an answer, until it does or no more attempt is worth it. In between it sleeps,
// for growing, jittered pauses and as long as the API asked for. It gives up when
// a failure says so, when the attempts or the budget are spent (sooner where
// another model or key is ready), when the API asks for more than MaxRetryAfter,
// or when ctx would end before the next attempt. The error is ctx's own, or the
// last attempt's *providers.Error.
func (c *Client) Retry(ctx context.Context, attempt func() *Failure) error {
	attempts, budget := providers.Patience(ctx, c.MaxAttempts, c.RetryBudget)
	start := time.Now()
	pauses := backoff.ExponentialBackOff{InitialInterval: 500 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 20 * time.Second}
	for n := 1; ; n++ {
		failed := attempt()
		if failed == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if failed.Kind == providers.KindRateLimit && providers.HasSpareKey(ctx) {
			return failed.Error
		}
		if !failed.Retry || n >= attempts || failed.RetryAfter > c.MaxRetryAfter {
			return failed.Error
		}
		wait := max(pauses.NextBackOff(), jitter(failed.RetryAfter))
		if !fits(ctx, start.Add(budget), wait) {
			return failed.Error
		}
		c.Logger.WarnContext(ctx, "model call failed, trying again",
			slog.Int("attempt", n), slog.Duration("pause", wait), slog.String("err", failed.Error.Error()))
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// jitter spreads callers that were all told to come back at the same time.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + rand.N(d/10+1) //nolint:gosec // spreads load, guards nothing
}

// fits reports whether an attempt after the pause begins by a time, and before
// the end of ctx.
func fits(ctx context.Context, by time.Time, pause time.Duration) bool {
	next := time.Now().Add(pause)
	end, ok := ctx.Deadline()
	return !next.After(by) && (!ok || next.Before(end))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
