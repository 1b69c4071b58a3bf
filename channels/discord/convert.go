package discord

import (
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// flagVoice marks a message whose attachment is a voice recording
// (IS_VOICE_MESSAGE).
const flagVoice = 1 << 13

// origin is what a message does not say about itself.
type origin struct {
	channel string // the instance's name
	self    string // the bot's user id
	parent  string // the channel a thread belongs to; "" if it is no thread
	group   bool   // it was written in a server; only what the socket brings says so itself
}

// convert turns a message into facts. ok is false for what is nothing anybody
// said: the bot's own messages, notices such as joins and pins, and messages
// without a sender. It is pure.
func convert(o origin, m *discordgo.Message) (msg bus.InboundMessage, ok bool) {
	if m == nil || m.ID == "" || m.ChannelID == "" {
		return bus.InboundMessage{}, false
	}
	if m.Type != discordgo.MessageTypeDefault && m.Type != discordgo.MessageTypeReply {
		return bus.InboundMessage{}, false
	}
	sender := senderOf(m)
	if sender.ID == "" || sender.ID == o.self {
		return bus.InboundMessage{}, false
	}
	text, mentioned := stripLeadingMention(m.Content, o.self)
	msg = bus.InboundMessage{
		Address:   bus.Address{Channel: o.channel, ChatID: m.ChannelID},
		ID:        messageID(m.ChannelID, m.ID),
		MessageID: m.ID,
		Sender:    sender,
		Kind:      bus.KindMessage,
		Time:      timeOf(m),
		Text:      nameMentions(text, m.Mentions),
		Media:     mediaOf(m),
		Group:     o.group || m.GuildID != "",
		Mentioned: mentioned || names(m, o.self),
	}
	if o.parent != "" {
		msg.Parent = bus.Address{Channel: o.channel, ChatID: o.parent}
	}
	msg.Command, msg.Args, _ = channels.ParseCommand(msg.Text)
	if name, args, other := commandForOther(text, m.Mentions); other {
		msg.Command, msg.Args, msg.ForOther = name, args, true
	}
	msg.Metadata = metadataOf(&msg)
	quote(&msg, o, m)
	return msg, true
}

// messageID is the ID of a message that somebody wrote.
func messageID(channel, id string) string { return "m:" + channel + ":" + id }

// senderOf says who wrote m. A webhook has a partial author or none; its id
// stands in.
func senderOf(m *discordgo.Message) bus.Sender {
	a := m.Author
	if a == nil || a.ID == "" {
		return bus.Sender{ID: m.WebhookID, Bot: true}
	}
	s := bus.Sender{ID: a.ID, Username: a.Username, Name: nameOf(a), Bot: a.Bot || m.WebhookID != ""}
	if m.Member != nil && m.Member.Nick != "" {
		s.Name = m.Member.Nick
	}
	return s
}

// nameOf is how people see a user: the display name, else the user name.
func nameOf(u *discordgo.User) string {
	if u.GlobalName != "" {
		return u.GlobalName
	}
	return u.Username
}

// timeOf is when m was sent; its id says so, too.
func timeOf(m *discordgo.Message) time.Time {
	if m.Timestamp.IsZero() {
		if t, err := discordgo.SnowflakeTimestamp(m.ID); err == nil {
			return t.UTC()
		}
	}
	return m.Timestamp.UTC()
}

// names reports whether m mentions the user by id. @everyone and roles name
// nobody.
func names(m *discordgo.Message, user string) bool {
	if user == "" {
		return false
	}
	for _, u := range m.Mentions {
		if u != nil && u.ID == user {
			return true
		}
	}
	return strings.Contains(m.Content, "<@"+user+">") || strings.Contains(m.Content, "<@!"+user+">")
}

// stripLeadingMention takes the bot's own mention off the front, so that
// "<@bot> /help" and "<@bot>, hello" read like what was meant.
func stripLeadingMention(text, self string) (rest string, found bool) {
	rest = strings.TrimSpace(text)
	for self != "" {
		after, ok := strings.CutPrefix(rest, "<@"+self+">")
		if !ok {
			after, ok = strings.CutPrefix(rest, "<@!"+self+">")
		}
		if !ok {
			break
		}
		found = true
		rest = strings.TrimSpace(strings.TrimLeft(after, ",:"))
	}
	return rest, found
}

// commandForOther reads "<@other bot> /stop", which is not meant for us.
func commandForOther(text string, users []*discordgo.User) (name, args string, ok bool) {
	for _, u := range users {
		if u == nil || !u.Bot || u.ID == "" {
			continue
		}
		if rest, found := stripLeadingMention(text, u.ID); found {
			return channels.ParseCommand(rest)
		}
	}
	return "", "", false
}

// nameMentions writes "@name" for the users that text names by id.
func nameMentions(text string, users []*discordgo.User) string {
	for _, u := range users {
		if u == nil || u.ID == "" || !strings.Contains(text, "<@") {
			continue
		}
		name := "@" + nameOf(u)
		text = strings.ReplaceAll(text, "<@"+u.ID+">", name)
		text = strings.ReplaceAll(text, "<@!"+u.ID+">", name)
	}
	return text
}

// quote adds what m replies to or forwards.
func quote(msg *bus.InboundMessage, o origin, m *discordgo.Message) {
	if r := m.ReferencedMessage; r != nil && m.Type == discordgo.MessageTypeReply {
		author := ""
		if r.Author != nil {
			author = nameOf(r.Author)
			msg.ReplyToBot = o.self != "" && r.Author.ID == o.self
		}
		if text := nameMentions(r.Content, r.Mentions); text != "" {
			msg.Quoted = &bus.Quoted{Author: author, Text: text}
		}
		return
	}
	for _, s := range m.MessageSnapshots { // a forward; Discord keeps its author to itself
		if s.Message == nil {
			continue
		}
		if msg.Quoted == nil {
			msg.Quoted = &bus.Quoted{Text: s.Message.Content, Forwarded: true}
		}
		msg.Media = append(msg.Media, mediaOf(s.Message)...)
	}
}

// mediaOf lists what is not text.
func mediaOf(m *discordgo.Message) []bus.Media {
	var media []bus.Media
	for _, a := range m.Attachments {
		if a == nil {
			continue
		}
		kind := kindOf(a.ContentType)
		if m.Flags&flagVoice != 0 {
			kind = "voice"
		}
		media = append(media, bus.Media{Kind: kind, ID: a.ID, Name: a.Filename, MIME: a.ContentType, Size: int64(a.Size)})
	}
	for _, s := range m.StickerItems {
		if s != nil {
			media = append(media, bus.Media{Kind: "sticker", ID: s.ID, Name: s.Name})
		}
	}
	if m.Poll != nil {
		media = append(media, bus.Media{Kind: "poll", Name: m.Poll.Question.Text})
	}
	return media
}

func kindOf(mime string) string {
	family, _, _ := strings.Cut(mime, "/")
	switch family {
	case "image":
		return "photo"
	case "audio", "video":
		return family
	}
	return "document"
}

// metadataOf is what tools may read.
func metadataOf(msg *bus.InboundMessage) map[string]string {
	md := map[string]string{"message_id": msg.MessageID, "user_id": msg.Sender.ID}
	if msg.Sender.Username != "" {
		md["username"] = msg.Sender.Username
	}
	if msg.Sender.Name != "" {
		md["first_name"] = msg.Sender.Name
	}
	if msg.Group {
		md["is_group"] = "true"
	}
	if !msg.Parent.IsZero() {
		md["thread_id"] = msg.ChatID
	}
	return md
}
