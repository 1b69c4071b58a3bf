// Package channels is the contract between the gateway and a chat platform.
//
// An adapter lives in a folder of its own, imports this package, pkg/bus and
// one SDK, and never another adapter. It has two halves: I/O, and a pure
// convert.go that turns platform updates into bus.InboundMessage values.
// channelstest is the kit every adapter passes.
package channels

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// Channel is one account on one chat platform.
type Channel interface {
	// Name returns the instance's key in the configuration. It never changes.
	Name() string

	// Run connects and receives until ctx ends, reconnecting by itself, and
	// returns when every goroutine it started is gone. The gateway calls it from
	// a goroutine of its own, and again, after a pause, when it has failed. It
	// returns nil when ctx ended. An error that the operator has to mend (a
	// wrong token, a missing permission, a taken port) wraps ErrSetup and its
	// text says what to do; then Run is not called again. Secrets never appear
	// in it.
	Run(ctx context.Context, in bus.Inbox) error

	// Send delivers one message, already split to fit. Safe for concurrent
	// use; the gateway never calls it twice at once for one conversation. It
	// blocks for one attempt at most. Errors: *RateLimitError, or one that
	// wraps ErrPermanent, ErrNotReady or ErrUnknownOutcome; anything else is
	// known not to have been delivered and may be tried again.
	Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error)
}

// Errors of a channel. They are wrapped, never returned bare.
var (
	// ErrSetup: the operator has to change something before Run can work. See
	// Setupf.
	ErrSetup = errors.New("channel setup")
	// ErrPermanent: this message can never be delivered (blocked, chat gone,
	// text refused); sending it again unchanged is useless.
	ErrPermanent = errors.New("cannot be delivered")
	// ErrNotReady: the channel is not connected at the moment; nothing was sent.
	ErrNotReady = errors.New("channel not ready")
	// ErrUnknownOutcome: the connection broke after the request went out, so
	// the platform may or may not have delivered it.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Setupf returns an error that wraps ErrSetup and whose text, which says what
// to do, is all the operator reads.
func Setupf(format string, args ...any) error { return &setupError{fmt.Errorf(format, args...)} }

type setupError struct{ error }

func (e *setupError) Unwrap() []error { return []error{ErrSetup, e.error} }

// RateLimitError is the platform asking for patience. Nothing was delivered.
type RateLimitError struct {
	RetryAfter time.Duration
	Global     bool // the whole account is limited, not one conversation
}

func (e *RateLimitError) Error() string {
	return fmt.Sprintf("rate limited by the platform, retry after %s", e.RetryAfter)
}

// The capabilities below are asked for once, by type assertion, when the
// gateway starts.

// Healther tells whether the channel really works.
type Healther interface {
	// Health returns nil when a poll or a heartbeat has completed recently, and
	// otherwise what is wrong, in a sentence without secrets. A channel that
	// has not finished its first one is not healthy. Called from any goroutine,
	// does not block. A channel without it counts as healthy while Run runs.
	Health() error
}

// Typer shows that an answer is on its way.
type Typer interface {
	// Typing shows it once; the gateway repeats it every few seconds while a
	// turn runs. An error is logged at debug level and changes nothing else.
	Typing(ctx context.Context, to bus.Address) error
}

// TextLimiter tells how much text fits one message.
type TextLimiter interface {
	// TextLimit returns the limit and how the platform measures a text against
	// it. measure is pure and safe for concurrent use. Without this capability
	// nothing is split.
	TextLimit() (limit int, measure func(string) int)
}

// Rates is how fast the platform may be spoken to. 0 means no limit of ours.
type Rates struct {
	GlobalPerSec float64 // whole account
	// Key is what the platform counts a conversation by: for a forum topic its
	// group. Conversations with the same Key share PerSec and PerMin.
	Key    string
	PerSec float64
	PerMin float64
}

// Rater gives the limits for a conversation.
type Rater interface {
	// RatesFor is pure and safe for concurrent use.
	RatesFor(to bus.Address) Rates
}

// Gate decides who is answered on a channel. It is part of every adapter's
// configuration section (inline) and is evaluated by the gateway, in one place
// for all of them.
type Gate struct {
	// AllowUsers lists platform user ids or "@username"; "*" is everyone. Empty
	// admits nobody but the owners.
	AllowUsers []string `yaml:"allow_users"`
	// AllowChats lists groups (or their topics) in which everyone may ask; "*"
	// is all of them.
	AllowChats []string `yaml:"allow_chats"`
	// Groups says when to answer in a group: "mention" (when mentioned, replied
	// to or commanded), "always" or "never". Empty means "mention".
	Groups string `yaml:"groups" enum:"mention,always,never"`
}

// Gater is a channel with a gate. Without it everyone is admitted: the
// channel has a wall of its own (a loopback listener, a terminal).
type Gater interface {
	Gate() Gate
}

// OwnerChannel is a channel whose every user is the person who runs the
// machine, such as the terminal.
type OwnerChannel interface {
	OwnerOnly() bool
}
