package telegram

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// This file is pure: it turns the platform's objects into ours and back.

// place is a conversation on Telegram: a chat and, within it, a topic.
type place struct {
	chat   int64
	thread int64 // 0 outside topics
}

// String returns the place as a bus.Address has it: "-1001234" or
// "-1001234/42".
func (p place) String() string {
	s := strconv.FormatInt(p.chat, 10)
	if p.thread != 0 {
		s += "/" + strconv.FormatInt(p.thread, 10)
	}
	return s
}

// parsePlace reads what String writes.
func parsePlace(s string) (place, error) {
	id, thread, topic := strings.Cut(s, "/")
	var p place
	var err error
	if p.chat, err = strconv.ParseInt(id, 10, 64); err == nil && topic {
		p.thread, err = strconv.ParseInt(thread, 10, 64)
	}
	if err != nil || p.chat == 0 || p.String() != s {
		return place{}, fmt.Errorf("%q is no Telegram chat: %w", s, channels.ErrPermanent)
	}
	return p, nil
}

// convert turns a message into ours. ok is false for what is no message of
// somebody else in a conversation: service messages, channel posts, our own.
func convert(m *message, name string, me user) (out bus.InboundMessage, ok bool) {
	if m == nil || m.MessageID == 0 || m.Chat.ID == 0 || m.Chat.Type == "channel" {
		return out, false
	}
	sender, ok := senderOf(m)
	if !ok || (m.From != nil && m.From.ID == me.ID) {
		return out, false
	}
	p := place{chat: m.Chat.ID}
	if m.IsTopicMessage {
		// Only then: replies in an ordinary group have a thread id, too.
		p.thread = m.MessageThreadID
	}
	out = bus.InboundMessage{
		Address:   bus.Address{Channel: name, ChatID: p.String()},
		ID:        fmt.Sprintf("m:%d:%d", m.Chat.ID, m.MessageID),
		MessageID: strconv.FormatInt(m.MessageID, 10),
		Sender:    sender,
		Kind:      bus.KindMessage,
		Time:      time.Unix(m.Date, 0).UTC(),
		Media:     mediaOf(m),
		Group:     m.Chat.Type != "private",
	}
	if p.thread != 0 {
		out.Parent = bus.Address{Channel: name, ChatID: place{chat: p.chat}.String()}
	}
	text, entities := m.Text, m.Entities
	if text == "" {
		text, entities = m.Caption, m.CaptionEntities
	}
	switch {
	case m.ForwardOrigin != nil:
		// Forwarded words are not the sender's: no command and no mention.
		if text != "" {
			out.Quoted = &bus.Quoted{Author: m.ForwardOrigin.author(), Text: text, Forwarded: true}
		}
	default:
		out.Text = text
		out.Command, out.Args, out.ForOther = commandOf(text, entities, me)
		out.Mentioned = mentions(text, entities, me)
		out.Quoted, out.ReplyToBot = repliedTo(m, me)
	}
	if out.Text == "" && out.Quoted == nil && len(out.Media) == 0 {
		return bus.InboundMessage{}, false
	}
	out.Metadata = metadata(m, p, sender, out.Group)
	return out, true
}

// convertEdit turns an edited message into the news that it has another text.
func convertEdit(m *message, name string, me user) (out bus.InboundMessage, ok bool) {
	if out, ok = convert(m, name, me); !ok {
		return out, false
	}
	out.Kind, out.Amends = bus.KindEdited, out.ID
	out.ID = fmt.Sprintf("e:%d:%d:%d", m.Chat.ID, m.MessageID, m.EditDate)
	return out, true
}

// senderOf returns who wrote m: a person, or a chat in whose name somebody
// wrote (an anonymous administrator, a linked channel).
func senderOf(m *message) (bus.Sender, bool) {
	switch {
	case m.SenderChat != nil && m.SenderChat.ID != 0:
		c := m.SenderChat
		return bus.Sender{ID: strconv.FormatInt(c.ID, 10), Username: c.Username, Name: c.Title}, true
	case m.From != nil && m.From.ID != 0:
		u := m.From
		return bus.Sender{ID: strconv.FormatInt(u.ID, 10), Username: u.Username, Name: u.name(), Bot: u.IsBot}, true
	}
	return bus.Sender{}, false
}

func (u *user) name() string { return strings.TrimSpace(u.FirstName + " " + u.LastName) }

func (o *origin) author() string {
	switch {
	case o.SenderUser != nil:
		return o.SenderUser.name()
	case o.SenderUserName != "":
		return o.SenderUserName
	case o.SenderChat != nil:
		return o.SenderChat.Title
	case o.Chat != nil:
		return o.Chat.Title
	}
	return o.AuthorSignature
}

// metadata is what tools may read about a message.
func metadata(m *message, p place, sender bus.Sender, group bool) map[string]string {
	meta := map[string]string{"message_id": strconv.FormatInt(m.MessageID, 10), "user_id": sender.ID}
	if sender.Username != "" {
		meta["username"] = sender.Username
	}
	if m.SenderChat == nil && m.From != nil && m.From.FirstName != "" {
		meta["first_name"] = m.From.FirstName
	}
	if group {
		meta["is_group"] = "true"
	}
	if p.thread != 0 {
		meta["thread_id"] = strconv.FormatInt(p.thread, 10)
		meta["is_forum_topic"] = "true"
	}
	return meta
}

// commandOf reads a command that text begins with.
func commandOf(text string, entities []entity, me user) (name, args string, forOther bool) {
	for _, e := range entities {
		if e.Type != "bot_command" || e.Offset != 0 {
			continue
		}
		word := cutUTF16(text, 0, e.Length)
		rest := text[len(word):]
		if len(word) < 2 || word[0] != '/' || (rest != "" && !strings.ContainsRune(" \t\n", rune(rest[0]))) {
			return "", "", false // such as a path: /etc/hosts
		}
		name, bot, named := strings.Cut(word[1:], "@")
		return strings.ToLower(name), strings.TrimSpace(rest), named && !strings.EqualFold(bot, me.Username)
	}
	return "", "", false
}

// mentions reports whether text names the bot: by @username, by a mention that
// carries its id, or by a command with its name.
func mentions(text string, entities []entity, me user) bool {
	for _, e := range entities {
		switch e.Type {
		case "text_mention":
			if e.User != nil && e.User.ID == me.ID {
				return true
			}
		case "mention", "bot_command":
			_, bot, named := strings.Cut(cutUTF16(text, e.Offset, e.Length), "@")
			if named && me.Username != "" && strings.EqualFold(bot, me.Username) {
				return true
			}
		}
	}
	return false
}

// repliedTo returns what m replies to, and whether that is the bot's.
func repliedTo(m *message, me user) (quoted *bus.Quoted, bot bool) {
	r := m.ReplyToMessage
	if r != nil && m.IsTopicMessage && r.MessageID == m.MessageThreadID {
		r = nil // every message in a topic "replies" to the one that opened it
	}
	var q bus.Quoted
	switch {
	case r != nil:
		q.Text = r.Text
		if q.Text == "" {
			q.Text = r.Caption
		}
		if sender, ok := senderOf(r); ok {
			q.Author = sender.Name
		}
		bot = r.From != nil && r.From.ID == me.ID
	case m.ExternalReply != nil && m.ExternalReply.Origin != nil:
		q.Author = m.ExternalReply.Origin.author()
	}
	if m.Quote != nil && m.Quote.Text != "" {
		q.Text = m.Quote.Text
	}
	if q.Text == "" {
		return nil, bot
	}
	return &q, bot
}

// mediaOf lists what m holds beside text.
func mediaOf(m *message) []bus.Media {
	var out []bus.Media
	add := func(kind string, f *file) {
		if f == nil {
			return
		}
		name := f.FileName
		if name == "" {
			name = f.Title
		}
		if name == "" {
			name = f.Emoji
		}
		out = append(out, bus.Media{Kind: kind, ID: f.FileID, Name: name, MIME: f.MIMEType, Size: f.FileSize})
	}
	if n := len(m.Photo); n > 0 {
		add("photo", &m.Photo[n-1])
	}
	add("voice", m.Voice)
	add("audio", m.Audio)
	add("video", m.Video)
	add("video", m.VideoNote)
	add("video", m.Animation)
	add("sticker", m.Sticker)
	add("sticker", m.Dice)
	if m.Animation == nil {
		add("document", m.Document)
	}
	add("location", m.Location)
	add("contact", m.Contact)
	add("poll", m.Poll)
	return out
}

// cutUTF16 returns the part of s at an offset and of a length in UTF-16 units,
// as far as it exists.
func cutUTF16(s string, offset, length int) string {
	if offset < 0 || length <= 0 {
		return ""
	}
	start := skipUTF16(s, offset)
	return s[start : start+skipUTF16(s[start:], length)]
}

// skipUTF16 returns how many bytes of s the first n UTF-16 units take.
func skipUTF16(s string, n int) int {
	i := 0
	for i < len(s) && n > 0 {
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		n -= unitsOf(r)
	}
	return i
}

// unitsOf returns how many UTF-16 units r takes.
func unitsOf(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}
