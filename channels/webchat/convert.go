package webchat

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// maxText is how long a message may be, in bytes.
const maxText = 32 << 10

// Why a message is not taken, in words for the person who wrote it.
var (
	errNoText   = errors.New("The message is empty.")                             //nolint:staticcheck,revive // shown to people as it is
	errLongText = errors.New("The message is too long. Please send it in parts.") //nolint:staticcheck,revive // shown to people as it is
	errBadID    = errors.New("The message has no usable id.")                     //nolint:staticcheck,revive // shown to people as it is
)

// post is the body of POST /api/messages. ID is made by the page: sending the
// same one again is safe.
type post struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// check says why the post cannot be taken.
func (p post) check() error {
	switch {
	case !validClientID(p.ID):
		return errBadID
	case strings.TrimSpace(p.Text) == "":
		return errNoText
	case len(p.Text) > maxText || !utf8.ValidString(p.Text):
		return errLongText
	}
	return nil
}

func validClientID(id string) bool {
	if len(id) < 8 || len(id) > 64 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// toInbound turns a post into what the gateway admits. key is the browser's
// conversation key; it does not appear in the result.
func toInbound(channel, key string, p post, at time.Time) bus.InboundMessage {
	chat, sender := chatIDOf(key), senderIDOf(key)
	m := bus.InboundMessage{
		Address:   bus.Address{Channel: channel, ChatID: chat},
		ID:        "m:" + chat + ":" + p.ID,
		MessageID: p.ID,
		Sender:    bus.Sender{ID: sender},
		Kind:      bus.KindMessage,
		Time:      at,
		Text:      p.Text,
		Metadata:  map[string]string{"message_id": p.ID, "user_id": sender},
	}
	if name, args, ok := channels.ParseCommand(p.Text); ok {
		m.Command, m.Args = name, args
	}
	return m
}
