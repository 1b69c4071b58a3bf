package tools

import (
	"context"
	"maps"
	"strconv"

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

type (
	callKeyType struct{}
	metaKeyType struct{}
)

// CallFrom returns the call ctx belongs to. ok is false outside of one. The
// Metadata map is shared: read it only.
func CallFrom(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKeyType{}).(*Call)
	if !ok {
		return Call{}, false
	}
	return *c, true
}

// WithCall returns a context for a turn: every call made under it starts from
// c. The loop and the registry fill in ID, Tool, Channel, ChatID and Round.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKeyType{}, &c)
}

// WithMetadata returns a context whose calls carry a copy of m, what a
// MetadataAwareTool is told and Call.Metadata holds.
func WithMetadata(ctx context.Context, m map[string]string) context.Context {
	return context.WithValue(ctx, metaKeyType{}, maps.Clone(m))
}
