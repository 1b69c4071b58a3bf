package tools

import (
	"context"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// Call identifies one execution of a tool. The registry puts it into the
// context, so that a tool needs no state of its own to know for whom it works.
type Call struct {
	ID         string // the model's id of the call, or one of ours
	Tool       string
	Label      string // what an asynchronous call is about, in a few words; for lists of tasks
	Channel    string // with ChatID: the conversation that asked
	ChatID     string
	ThreadID   string // the topic or thread inside it, as the platform names it
	MessageID  string // the message that asked
	ReplyTo    string // what an answer to it quotes, "" for nothing
	SenderID   string // who wrote it, by the platform's id
	Principal  string // who the call acts for ("telegram:12345"); checked before anything is done for somebody
	SessionKey string // whose history
	AgentID    string // "" in the chat's own turn, otherwise the sub-agent's task
	Turn       string // the turn, unique for ever
	Round      int    // 1-based round of the loop within the turn
	Hops       int    // how many follow-ups led here
	Metadata   map[string]string
}

// Key names the call itself, the same after a crash and a resumed turn. What a
// tool stores under it is stored once.
func (c Call) Key() string { return bus.Key(c.Turn, strconv.Itoa(c.Round), c.ID) }

// callState is what a context holds: a turn's base (core is nil) or a call that
// runs.
type callState struct {
	Call
	core   *core         // nil: a base, not a call
	via    Handler       // the loop's middleware, nil for none
	limit  time.Duration // the loop's limit for it, 0 for the registry's
	raw    string        // the arguments as the model wrote them, "" if it is not known
	ticket *ticket       // the call may report back later
	inst   *instance     // the call's legacy AsyncTool, with or without a ticket
	nested atomic.Int32

	// args are the arguments that checker has checked, which a tool that brings
	// its own checker need not do again.
	args    map[string]interface{}
	checker *argChecker
}

type (
	callKeyType struct{}
	metaKeyType struct{}
)

func stateFrom(ctx context.Context) *callState {
	s, _ := ctx.Value(callKeyType{}).(*callState)
	return s
}

// CallFrom returns the call ctx belongs to. ok is false outside of one. The
// Metadata map is shared: read it only.
func CallFrom(ctx context.Context) (call Call, ok bool) {
	s := stateFrom(ctx)
	if s == nil {
		return Call{}, false
	}
	return s.Call, true
}

// WithCall returns a context for a turn: every call made under it starts from
// c. The loop and the registry fill in ID, Tool, Label, Channel, ChatID and Round. A
// call made with ExecuteWithContext keeps c.ID if it is set.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKeyType{}, &callState{Call: c})
}

// WithMetadata returns a context whose calls carry a copy of m: it is what a
// MetadataAwareTool is told and what Call.Metadata holds. It comes before the
// Metadata of WithCall.
func WithMetadata(ctx context.Context, m map[string]string) context.Context {
	return context.WithValue(ctx, metaKeyType{}, maps.Clone(m))
}

// newCallState makes the state of a call under ctx; ID and Tool are still those
// of the turn's base or of the call around it.
func newCallState(ctx context.Context, channel, chatID string) *callState {
	s := &callState{}
	if base := stateFrom(ctx); base != nil {
		s.Call = base.Call
		s.Label = ""
	}
	if channel != "" && chatID != "" {
		s.Channel, s.ChatID = channel, chatID
	}
	if m, ok := ctx.Value(metaKeyType{}).(map[string]string); ok && m != nil {
		s.Metadata = m
	}
	return s
}

// nestedID names the next thing done within the call that ctx belongs to, the
// same whenever that call is repeated in the same way, so that Key stays stable.
// ok is false outside of a call.
func nestedID(ctx context.Context) (id string, ok bool) {
	outer := stateFrom(ctx)
	if outer == nil || outer.core == nil {
		return "", false
	}
	return outer.ID + "." + strconv.Itoa(int(outer.nested.Add(1))), true
}

// newCallID makes an id for a call that has none.
func newCallID() string {
	return "call_" + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // it identifies, it protects nothing
}
