// Package channelstest holds every channel adapter to the contract of package
// channels: a rule that each of them must keep is written once, here.
//
// A test of an adapter describes its platform, usually a strict fake server, as
// a Platform and calls Run:
//
//	func TestKit(t *testing.T) { channelstest.RunInBubble(t, newPlatform) }
//
// Each rule gets a Platform of its own. RunInBubble runs each rule within
// testing/synctest, where waiting costs no time; use it when the fake needs no
// real socket (an in-memory net.Pipe listener). Use Run otherwise.
package channelstest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// Name is the name every adapter under test is created with.
const Name = "it"

// Platform is a chat platform, as far as the kit needs to play it. A nil
// function says that the platform knows no such thing; the rules that need it
// are then skipped, and Without has to name each of them with a reason.
type Platform struct {
	// New makes an adapter named Name for one bot on this platform, without
	// I/O. It is called again to restart the bot on the same platform.
	New func(t *testing.T, o Options) channels.Channel

	// Direct, Groups and Topics are conversations that exist and that the bot
	// is in: at least two direct ones, two groups, and two topics (or threads)
	// of the first group. Groups and Topics may be empty, see Without.
	Direct, Groups, Topics []Chat

	// Say posts a message as a person (or as whoever Message.From is).
	Say func(t *testing.T, m Message) Posted
	// Sent returns what the platform has accepted from the bot, oldest first.
	Sent func(t *testing.T) []Sent

	// Typed returns where the bot has shown that it is typing.
	Typed func(t *testing.T) []bus.Address
	// Odd delivers every strange update the platform can send or the SDK can
	// hand over: unknown kinds, missing fields, nil authors, empty messages.
	// None of them is a message a person wrote in a conversation.
	Odd func(t *testing.T)
	// Redeliver delivers again everything said so far.
	Redeliver func(t *testing.T)
	// Confirmed returns how many of the messages said so far the platform
	// would not deliver to this bot again.
	Confirmed func(t *testing.T) int
	// Delete removes a message.
	Delete func(t *testing.T, c Chat, messageID string)

	// Throttle makes the platform refuse the next message to c, asking for
	// patience.
	Throttle func(t *testing.T, c Chat, after time.Duration)
	// Block makes the platform refuse every message to c for good.
	Block func(t *testing.T, c Chat)
	// CutNext makes the platform accept the next message and break the
	// connection before it answers.
	CutNext func(t *testing.T)
	// Down takes the platform off the net, or back: connections break, new
	// ones are refused.
	Down func(t *testing.T, down bool)

	// Secrets are strings that must appear in no log line and no error.
	Secrets []string
	// Without names rules that do not apply to this platform, each with the
	// reason. A name that is no rule is an error.
	Without map[string]string
}

// Options is what the kit decides about an adapter under test.
type Options struct {
	Log        *slog.Logger
	Facts      *state.State // durable over restarts
	WrongToken bool         // a token the platform refuses; one of Secrets, too
}

// Chat is a conversation on the platform.
type Chat struct {
	Address bus.Address  // as the adapter has to report it
	Parent  bus.Address  // likewise; of a topic, its group
	People  []bus.Sender // who can write in it, as the adapter has to report them: one in a direct chat, at least two elsewhere
	Thread  string       // the metadata key thread_id; of a topic
}

// Who names a bot.
type Who int

// The bots a message can speak to.
const (
	Nobody   Who = iota
	Us           // the bot under test
	OtherBot     // some other bot
)

// Message is a message somebody posts.
type Message struct {
	Chat Chat
	From bus.Sender // one of Chat.People unless By says otherwise
	By   Who        // a bot wrote it instead of From
	Text string

	// To is mentioned at the start of the text, in the platform's own way; with
	// Command, it is the bot whose name the command carries.
	To Who
	// Command is a slash command that precedes the text ("stop").
	Command string
	// ReplyTo is the platform's id of the message this one replies to.
	ReplyTo string
	// Forwarded makes the message a forward of this text. Text is empty then.
	Forwarded string
	// Media attaches something of a bus.Media kind.
	Media string
}

// Posted is what became of a Message.
type Posted struct {
	MessageID string // the platform's id, as the adapter has to report it
}

// Sent is a message the platform accepted from the bot.
type Sent struct {
	Address   bus.Address
	Text      string // as people see it
	ReplyTo   string // the platform's id of the message it quotes, if that exists
	MessageID string
}
