package gateway

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Counts is how much a gateway has done since it was made.
type Counts struct {
	Admitted   int64 // messages taken in, follow-ups included
	Duplicates int64 // messages that were known already, and were dropped
	Dropped    int64 // messages that were not for the bot, or too old
	Refused    int64 // messages of people it may not answer

	TurnsDone     int64 // answered
	TurnsFailed   int64 // ended with an apology
	TurnsStopped  int64 // ended by /stop
	TurnsAside    int64 // set aside, because they ended the process again and again
	ModelFailures int64 // of the failed ones: because of the model
	FollowUps     int64 // background results and reminders shown as they were, without a turn

	Sent        int64 // messages that have a receipt of their platform
	SendRetries int64 // attempts to send that failed and were followed by another
	MaybeTwice  int64 // messages sent again that may have arrived before
	GivenUp     int64 // messages that could not be delivered

	LedgerWaits int64 // times something waited for a ledger that could not be written
}

// counters are the Counts while they are counted.
type counters struct {
	admitted, duplicates, dropped, refused                          atomic.Int64
	turnsDone, turnsFailed, turnsStopped, turnsAside, modelFailures atomic.Int64
	followUps, sent, sendRetries, maybeTwice, givenUp, ledgerWaits  atomic.Int64
}

// TurnOutcome is how a turn ended.
type TurnOutcome string

// How turns end.
const (
	TurnDone    TurnOutcome = "done"    // answered
	TurnFailed  TurnOutcome = "failed"  // with an apology
	TurnStopped TurnOutcome = "stopped" // by /stop
)

// turnOver counts a turn that is over; err is what a failed one ended with.
func (g *Gateway) turnOver(j *job, outcome TurnOutcome, err error) {
	switch c := &g.counts; outcome {
	case TurnDone:
		c.turnsDone.Add(1)
	case TurnStopped:
		c.turnsStopped.Add(1)
	case TurnFailed:
		c.turnsFailed.Add(1)
		if providers.KindOf(err) != "" {
			c.modelFailures.Add(1)
		}
	}
	if g.cfg.OnTurn != nil && !j.began.IsZero() {
		g.cfg.OnTurn(outcome, time.Since(j.began))
	}
}

// SendOutcome is what an attempt to send came to.
type SendOutcome string

// What attempts to send come to.
const (
	SendOK        SendOutcome = "ok"
	SendThrottled SendOutcome = "rate_limit" // the platform asks for patience
	SendNotReady  SendOutcome = "not_ready"  // the channel is not connected
	SendUnknown   SendOutcome = "unknown"    // it may have arrived or not
	SendRefused   SendOutcome = "refused"    // it never will
	SendFailed    SendOutcome = "failed"     // anything else, which is tried again
)

func (g *Gateway) sendTried(channel string, err error, took time.Duration) {
	if g.cfg.OnSend != nil {
		g.cfg.OnSend(channel, sendOutcome(err), took)
	}
}

func sendOutcome(err error) SendOutcome {
	if err == nil {
		return SendOK
	}
	_, throttled := errors.AsType[*channels.RateLimitError](err)
	switch {
	case throttled:
		return SendThrottled
	case errors.Is(err, channels.ErrNotReady):
		return SendNotReady
	case errors.Is(err, channels.ErrUnknownOutcome):
		return SendUnknown
	case errors.Is(err, channels.ErrPermanent):
		return SendRefused
	}
	return SendFailed
}

// Counts returns the counts as they are now, each for itself. Safe for
// concurrent use; does not block.
func (g *Gateway) Counts() Counts {
	c := &g.counts
	return Counts{
		Admitted: c.admitted.Load(), Duplicates: c.duplicates.Load(), Dropped: c.dropped.Load(), Refused: c.refused.Load(),
		TurnsDone: c.turnsDone.Load(), TurnsFailed: c.turnsFailed.Load(), TurnsStopped: c.turnsStopped.Load(), TurnsAside: c.turnsAside.Load(),
		ModelFailures: c.modelFailures.Load(), FollowUps: c.followUps.Load(),
		Sent: c.sent.Load(), SendRetries: c.sendRetries.Load(), MaybeTwice: c.maybeTwice.Load(), GivenUp: c.givenUp.Load(),
		LedgerWaits: c.ledgerWaits.Load(),
	}
}
