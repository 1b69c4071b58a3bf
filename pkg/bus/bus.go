// Package bus holds what travels between chat platforms and the agent: the
// address of a conversation, the messages in both directions, and the two
// interfaces through which they pass.
//
// Everything here is a plain value. An address is fixed when a message is
// admitted and is copied with every call, reply, timer, retry and background
// result that follows from it, so nothing ever has to ask "which chat is this".
package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Address is one conversation.
//
// Channel is the key of the channel instance in the configuration ("telegram",
// "work"), so two accounts on one platform never share a conversation. ChatID
// is made and read only by that channel's adapter; everybody else compares it
// and passes it on. A forum topic or thread is part of it ("-1001234/42"), so a
// tool that knows no more than (channel, chatID) still answers in the topic.
type Address struct {
	Channel string `json:"channel"`
	ChatID  string `json:"chat_id"`
}

// String returns "channel:chatID", the form ParseAddress reads.
func (a Address) String() string { return a.Channel + ":" + a.ChatID }

// IsZero reports whether a names no conversation.
func (a Address) IsZero() bool { return a == Address{} }

// ParseAddress reads "channel:chatID". Everything after the first colon is the
// chat id, colons included.
func ParseAddress(s string) (Address, error) {
	channel, chat, ok := strings.Cut(s, ":")
	if !ok || channel == "" || chat == "" {
		return Address{}, fmt.Errorf("%q is not an address: write channel:chat, for example telegram:12345", s)
	}
	return Address{Channel: channel, ChatID: chat}, nil
}

// Sender is who wrote a message, as the platform names them.
type Sender struct {
	ID       string `json:"id"`                 // the platform's user id; never empty for a person's message
	Username string `json:"username,omitempty"` // handle, without "@"
	Name     string `json:"name,omitempty"`     // display name
	Bot      bool   `json:"bot,omitempty"`      // another bot or a webhook
}

// Principal names somebody across the whole system: the channel's key, a
// colon, the platform's user id ("telegram:12345"). It is the form `owners` in
// the configuration uses.
func Principal(channel, userID string) string { return channel + ":" + userID }

// Kind says where an inbound message comes from.
type Kind string

const (
	// KindMessage is a message a person (or another bot) wrote.
	KindMessage Kind = "message"
	// KindFollowUp is the result of a background task or a reminder that comes
	// back to the conversation that asked. Only the gateway makes these.
	KindFollowUp Kind = "follow_up"
	// KindEdited says that the message Amends has another text now. It matters
	// only until that is answered.
	KindEdited Kind = "edited"
	// KindDeleted says that the message Amends was taken back, likewise.
	KindDeleted Kind = "deleted"
)

// Quoted is text that came along with a message: what it replies to, or what
// it forwards.
type Quoted struct {
	Author    string `json:"author,omitempty"` // display name of who wrote it, if known
	Text      string `json:"text"`
	Forwarded bool   `json:"forwarded,omitempty"` // the message itself is this forwarded text
}

// Media is something in a message that is not text.
type Media struct {
	Kind string `json:"kind"` // "photo", "voice", "audio", "video", "sticker", "document", "location", "contact", "poll"
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	MIME string `json:"mime,omitempty"`
	Size int64  `json:"size,omitempty"` // bytes, 0 if unknown
}

// FollowUp is the payload of a KindFollowUp message.
type FollowUp struct {
	Task    string `json:"task"`               // id of the background task or reminder
	Label   string `json:"label,omitempty"`    // what it was, in a few words
	ForLLM  string `json:"for_llm,omitempty"`  // the result as the model reads it
	ForUser string `json:"for_user,omitempty"` // the result as the person reads it; shown as it is, without a model
	IsError bool   `json:"is_error,omitempty"`
}

// InboundMessage is one message as an adapter saw it: facts, no judgements.
// Whether it is answered is decided at admission, in one place for every
// adapter.
type InboundMessage struct {
	Address
	// Parent is what allow-lists and gates look at when the conversation is
	// part of something larger: the group of a topic, the server channel of a
	// thread. Zero when Address is the whole of it.
	Parent Address `json:"parent,omitzero"`
	// ID is unique within the channel and stable over redeliveries:
	// "m:<chat>:<message>" for a message. Message ids alone are not unique on
	// every platform.
	ID string `json:"id"`
	// MessageID is the platform's own id of the message, what a reply quotes.
	MessageID string `json:"message_id,omitempty"`
	// Amends is the ID of the message that a KindEdited or KindDeleted one is
	// about; its own ID is another.
	Amends string    `json:"amends,omitempty"`
	Sender Sender    `json:"sender"`
	Kind   Kind      `json:"kind"`
	Time   time.Time `json:"time"` // when the platform says it was sent

	Text   string  `json:"text,omitempty"`
	Quoted *Quoted `json:"quoted,omitempty"`
	Media  []Media `json:"media,omitempty"`
	// Command is the lower-case name of a leading slash command without slash
	// and without "@bot" ("stop"); Args is the rest. Text still holds it all.
	Command string `json:"command,omitempty"`
	Args    string `json:"args,omitempty"`

	Group      bool `json:"group,omitempty"`        // more than one person can read it
	Mentioned  bool `json:"mentioned,omitempty"`    // names this bot, by its own id
	ReplyToBot bool `json:"reply_to_bot,omitempty"` // replies to a message of this bot
	ForOther   bool `json:"for_other,omitempty"`    // a command with another bot's name (/start@other)

	// Metadata is what tools may read, see tools.Call: thread_id,
	// message_id, user_id, username, first_name, is_group and is_forum_topic,
	// the last two "true" or absent.
	Metadata map[string]string `json:"metadata,omitempty"`

	// The rest is filled in at admission, not by adapters.

	// Principal is who the turn acts for; see the function Principal.
	Principal string `json:"principal,omitempty"`
	// SessionKey names the history the message belongs to.
	SessionKey string `json:"session_key,omitempty"`
	// Hops counts follow-up upon follow-up, so that nothing circles for ever.
	Hops     int       `json:"hops,omitempty"`
	FollowUp *FollowUp `json:"follow_up,omitempty"`
}

// OutboundMessage is one message for a platform.
type OutboundMessage struct {
	Address
	// Key is the idempotency key: the same key is never sent twice knowingly.
	// At most 25 characters of [0-9A-Za-z-], because Discord's nonce holds no
	// more.
	Key string `json:"key"`
	// ReplyTo is the platform's id of the message to quote, fixed when the
	// question was admitted; empty quotes nothing. A quoted message that has
	// been deleted meanwhile never stops the answer.
	ReplyTo string `json:"reply_to,omitempty"`
	// Text is Markdown as models write it. Before it reaches an adapter it has
	// been split so that it fits one platform message.
	Text string `json:"text"`

	// The rest is filled in by whoever sends, for a channel that can look whether
	// the message has arrived already.

	// Since is from when on the message may have been sent without our hearing of
	// it; zero: it has not been.
	Since time.Time `json:"since,omitzero"`
	// After is the platform's id of a message that was delivered in the
	// conversation before this one; "" if none is known.
	After string `json:"after,omitempty"`
}

// Receipt is the platform's word that a message was delivered.
type Receipt struct {
	MessageID string    `json:"message_id"` // the platform's id of the new message
	Time      time.Time `json:"time"`       // when we heard
}

// Cursor is a fact that has to be stored together with the messages it stands
// for, such as the offset of a poll.
type Cursor struct{ Key, Value string }

// Batch is what one delivery of a platform holds.
type Batch struct {
	Messages []InboundMessage
	Cursors  []Cursor
	// Late are messages, in order, that are too old to be answered. They are not
	// admitted. Each conversation in which one would have been is told so, once
	// for all batches with the same Gap.
	Late []InboundMessage
	Gap  string
}

// Inbox takes messages in.
type Inbox interface {
	// PublishInbound admits a batch and stores it together with its cursors in
	// one transaction. It is called by adapters, from any goroutine; it blocks
	// until everything is stored, and only after nil may the platform be told
	// that the batch arrived. A duplicate (same channel and ID) is dropped
	// silently. On an error nothing was stored and the same batch is to be
	// offered again.
	PublishInbound(ctx context.Context, batch Batch) error
}

// ErrQueued says that a message is stored and will be sent, but had not been
// delivered when the caller's context ended.
var ErrQueued = errors.New("queued: it will be delivered later")

// Outbox sends messages out.
type Outbox interface {
	// PublishOutbound stores m, split into as many platform messages as it
	// needs, and waits for the outcome: the receipt of the last part, ErrQueued
	// if ctx ended first, or the error that made delivery impossible (an
	// unknown channel, or one that wraps channels.ErrPermanent). Publishing the
	// same Key again sends nothing and reports the first outcome.
	PublishOutbound(ctx context.Context, m OutboundMessage) (Receipt, error)
}

// Bus is both directions. The gateway implements it in one process; another
// implementation may stand on a message broker.
type Bus interface {
	Inbox
	Outbox
}

// Key makes an idempotency key: 20 characters of [0-9a-v] that depend on all
// parts and nothing else. A suffix such as "-3" for the third part of a long
// message still fits OutboundMessage.Key.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p))))
		h.Write([]byte{':'})
		h.Write([]byte(p))
	}
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:12]))
}
