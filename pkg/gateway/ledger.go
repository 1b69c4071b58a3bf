package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// How soon something the ledger would not do is tried again.
const (
	soonAgain   = 100 * time.Millisecond
	latestAgain = 2 * time.Second
)

// patiently does something with the ledger. While the ledger is ill, such as
// with a full disk, it waits and does it again, until ctx ends. An error that
// comes while the ledger is well is returned; it has to come twice, since the
// ledger may have been cured just then.
func (g *Gateway) patiently(ctx context.Context, do func() error) error {
	well := false
	for pause := soonAgain; ; pause = min(2*pause, latestAgain) {
		err := do()
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return err
		}
		if g.cfg.Store.Health() == nil {
			if well {
				return err
			}
			well = true
			continue
		}
		well = false
		g.counts.ledgerWaits.Add(1)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// apply writes tx, patiently.
func (g *Gateway) apply(ctx context.Context, tx store.Tx) (res store.Result, err error) {
	err = g.patiently(ctx, func() error {
		res, err = g.cfg.Store.Apply(ctx, tx)
		return err
	})
	return res, err
}

// runKey is the key of the context of a turn's run, which whoever stops the turn
// ends.
type runKey struct{}

// untilStopped is how long something that the turn in ctx does may wait for the
// ledger, whatever time ctx has: until the person stops the turn, or the daemon.
func (g *Gateway) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	run, ok := ctx.Value(runKey{}).(context.Context)
	if !ok {
		return g.work, func() {}
	}
	until, cancel := context.WithCancel(g.work)
	stop := context.AfterFunc(run, func() {
		if errors.Is(context.Cause(run), agent.ErrStopped) {
			cancel()
		}
	})
	return until, func() {
		stop()
		cancel()
	}
}

// insist repeats a write until it succeeds or the daemon stops, whatever the
// reason: what it ends counts as not done until then. It reports whether it was
// written.
func (g *Gateway) insist(at bus.Address, turn string, write func() error) bool {
	for pause := soonAgain; ; pause = min(2*pause, latestAgain) {
		err := write()
		if err == nil {
			return true
		}
		g.log.Error("cannot write to the ledger", "channel", at.Channel, "chat_id", at.ChatID, "turn_id", turn, "err", err)
		select {
		case <-time.After(pause):
		case <-g.work.Done():
			return false
		}
	}
}

// note stores something about m that is no turn. It does not wait: if the ledger
// does not take it, the worker of the conversation keeps trying.
func (g *Gateway) note(ctx context.Context, m bus.InboundMessage, tx store.Tx) {
	res, err := g.cfg.Store.Apply(ctx, tx)
	if err != nil {
		g.log.Error("cannot store an answer", "channel", m.Channel, "chat_id", m.ChatID, "err", err)
		g.lanes.owe(m, tx) //nolint:contextcheck // workers live as long as the gateway, not as this call
		return
	}
	g.senders.enqueue(res.Queued)
}

// illFact is written to see whether the ledger can be written. It is empty, so
// nothing is kept.
const illFact = "gateway/ill"

// wasIll reports whether the ledger is ill, or was since the writes that waited
// for it were so many. If so it returns when the ledger can be written, or ctx
// has ended.
func (g *Gateway) wasIll(ctx context.Context, waits int64) bool {
	if g.cfg.Store.Health() == nil && g.counts.ledgerWaits.Load() == waits {
		return false
	}
	_, err := g.apply(ctx, store.Tx{Facts: []store.Fact{{Key: illFact}}})
	return err == nil || ctx.Err() != nil
}
