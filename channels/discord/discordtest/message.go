package discordtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of Create Message.
const (
	maxContent  = 2000 // characters; the API counts code points
	maxNonce    = 25   // characters
	nonceMemory = 3 * time.Minute
)

// createBody is the body of Create Message.
type createBody struct {
	Content         string            `json:"content"`
	Nonce           json.RawMessage   `json:"nonce"`
	EnforceNonce    bool              `json:"enforce_nonce"`
	Embeds          []json.RawMessage `json:"embeds"`
	StickerIDs      []string          `json:"sticker_ids"`
	AllowedMentions *allowedMentions  `json:"allowed_mentions"`
	Reference       *createReference  `json:"message_reference"`
	Flags           int               `json:"flags"`
}

type allowedMentions struct {
	Parse       []string `json:"parse"`
	Users       []string `json:"users"`
	Roles       []string `json:"roles"`
	RepliedUser bool     `json:"replied_user"`
}

type createReference struct {
	Type            int    `json:"type"`
	MessageID       string `json:"message_id"`
	ChannelID       string `json:"channel_id"`
	FailIfNotExists *bool  `json:"fail_if_not_exists"`
}

// createMessage is Create Message. The caller holds mu.
func (s *Server) createMessage(c *channel, body []byte) response {
	if res, hit := s.faults.next(); hit {
		return res
	}
	header, over, wait := s.limit(c, time.Now())
	if over != nil {
		return tooMany(header, wait, false)
	}
	var in createBody
	if err := json.Unmarshal(body, &in); err != nil {
		return refuse(&apiError{status: 400, Code: 50035, Message: "Invalid Form Body"})
	}
	nonce, e := in.check()
	if e == nil && c.Type == ChannelForum {
		// "JSON Error Codes": 50008 Cannot send messages in a non-text channel.
		e = &apiError{status: 400, Code: 50008, Message: "Cannot send messages in a non-text channel"}
	}
	if e != nil {
		return refuse(e)
	}
	now := time.Now()
	if in.EnforceNonce && nonce != "" {
		// "enforce_nonce": a message of the same author with the same nonce in
		// the past few minutes is returned and no new one is created.
		if m := s.nonce(nonce, now); m != nil {
			return response{status: 200, body: m, header: header}
		}
	}
	m := &Message{
		Author: &s.bot, Content: strings.TrimSpace(in.Content), Flags: in.Flags, Nonce: nonce,
		Attachments: []Attachment{}, Embeds: []json.RawMessage{}, Components: []json.RawMessage{},
	}
	if e := s.quote(c, m, in.Reference); e != nil {
		return refuse(e)
	}
	pings, everyone := s.pings(m, &in)
	s.store(c, m)
	if nonce != "" {
		s.nonces[0][nonce] = m
	}
	sent := s.record(c, m, pings, everyone)
	s.dispatchMessage("MESSAGE_CREATE", c, m)
	res := response{status: 200, body: m, header: header, sent: sent}
	if s.faults.cutAfter > 0 {
		s.faults.cutAfter--
		res.cut = true
	}
	return res
}

// check refuses a body that breaks a rule of its own.
func (in *createBody) check() (nonce string, e *apiError) {
	in.Content = strings.TrimSpace(in.Content) // Discord does the same before it counts
	// "Limitations": one of content, embeds, sticker_ids, ... is required (50006).
	if in.Content == "" && len(in.Embeds) == 0 && len(in.StickerIDs) == 0 {
		return "", &apiError{status: 400, Code: 50006, Message: "Cannot send an empty message"}
	}
	// "content": up to 2000 characters.
	if utf8.RuneCountInString(in.Content) > maxContent {
		return "", formError("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer in length.")
	}
	// "nonce": integer or string, up to 25 characters.
	if nonce, e = readNonce(in.Nonce); e != nil {
		return "", e
	}
	// "flags": only SUPPRESS_EMBEDS, SUPPRESS_NOTIFICATIONS, IS_VOICE_MESSAGE and
	// IS_COMPONENTS_V2 can be set.
	if in.Flags&^(FlagSuppressEmbeds|FlagSuppressNotifications|FlagVoiceMessage|1<<15) != 0 {
		return "", formError("flags", "MESSAGE_FLAGS_INVALID", "Invalid message flags.")
	}
	if in.AllowedMentions != nil {
		e = in.AllowedMentions.check()
	}
	return nonce, e
}

func readNonce(raw json.RawMessage) (string, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	nonce := string(raw)
	if raw[0] == '"' {
		if json.Unmarshal(raw, &nonce) != nil {
			return "", formError("nonce", "NONCE_TYPE_INVALID", "Invalid nonce.")
		}
	}
	if utf8.RuneCountInString(nonce) > maxNonce {
		return "", formError("nonce", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")
	}
	return nonce, nil
}

// check follows "Allowed Mentions Object": parse holds roles, users and
// everyone; users and roles hold at most 100 ids and exclude the same word in
// parse.
func (a *allowedMentions) check() *apiError {
	for _, word := range a.Parse {
		switch word {
		case "roles", "users", "everyone":
		default:
			return formError("allowed_mentions", "BASE_TYPE_CHOICES", "Value must be one of ('roles', 'users', 'everyone').")
		}
		if word == "users" && len(a.Users) > 0 || word == "roles" && len(a.Roles) > 0 {
			return formError("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
				"parse and explicit ids are mutually exclusive.")
		}
	}
	if len(a.Users) > 100 || len(a.Roles) > 100 {
		return formError("allowed_mentions", "BASE_TYPE_MAX_LENGTH", "Must be 100 or fewer in length.")
	}
	return nil
}

// quote resolves a message_reference. The caller holds mu.
func (s *Server) quote(c *channel, m *Message, r *createReference) *apiError {
	if r == nil {
		return nil
	}
	// "Message Reference Structure": message_id is a snowflake.
	if !snowflake(r.MessageID) {
		return formError("message_reference", "NUMBER_TYPE_COERCE", `Value "`+r.MessageID+`" is not snowflake.`)
	}
	// A reply stays in its channel.
	if r.ChannelID != "" && r.ChannelID != c.ID {
		return formError("message_reference", "REPLIES_CANNOT_REFERENCE_OTHER_CHANNEL", "Cannot reply to a message in another channel.")
	}
	if s.faults.noHistory {
		// "JSON Error Codes": 160002 Cannot reply without permission to read
		// message history.
		return &apiError{status: 400, Code: 160002, Message: "Cannot reply without permission to read message history"}
	}
	target := c.find(r.MessageID)
	switch {
	case target != nil && target.Type != MessageDefault && target.Type != MessageReply:
		return formError("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", "Cannot reply to a system message")
	case target != nil:
		m.Type = MessageReply
		m.MessageReference = &Reference{MessageID: r.MessageID, ChannelID: c.ID, GuildID: c.GuildID}
		quoted := *target
		quoted.ReferencedMessage = nil // one level, like Discord
		m.ReferencedMessage = &quoted
	case r.FailIfNotExists == nil || *r.FailIfNotExists:
		// "fail_if_not_exists": error if the referenced message does not exist;
		// defaults to true. When false it is sent as a normal message.
		return formError("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
	}
	return nil
}

// pings works out who is notified: without allowed_mentions everybody the text
// names, with it only what it allows. The caller holds mu.
func (s *Server) pings(m *Message, in *createBody) (users []string, everyone bool) {
	all := strings.Contains(m.Content, "@everyone") || strings.Contains(m.Content, "@here")
	named := s.mentioned(m.Content)
	allowed := func(User) bool { return true }
	replied := true
	if a := in.AllowedMentions; a != nil {
		everyone = all && slices.Contains(a.Parse, "everyone")
		allowed = func(u User) bool { return slices.Contains(a.Parse, "users") || slices.Contains(a.Users, u.ID) }
		replied = a.RepliedUser
	} else {
		everyone = all
	}
	m.MentionEveryone = everyone
	for _, u := range named {
		if allowed(u) {
			users, m.Mentions = append(users, u.ID), append(m.Mentions, u)
		}
	}
	if q := m.ReferencedMessage; q != nil && q.Author != nil && replied {
		users, m.Mentions = append(users, q.Author.ID), append(m.Mentions, *q.Author)
	}
	return users, everyone
}

// nonce finds a message by its nonce in the past few minutes. The caller holds
// mu.
func (s *Server) nonce(nonce string, now time.Time) *Message {
	if age := now.Sub(s.noncesAt); age > nonceMemory {
		s.nonces[1], s.nonces[0], s.noncesAt = s.nonces[0], map[string]*Message{}, now
		if age > 2*nonceMemory {
			s.nonces[1] = s.nonces[0] // all of them are older than a few minutes
		}
	}
	if m := s.nonces[0][nonce]; m != nil {
		return m
	}
	return s.nonces[1][nonce]
}

// record remembers a created message for the test. The caller holds mu.
func (s *Server) record(c *channel, m *Message, pings []string, everyone bool) *Sent {
	sent := &Sent{
		ChannelID: c.ID, MessageID: m.ID, Content: m.Content, Nonce: m.Nonce,
		Pings: pings, Everyone: everyone, Flags: m.Flags,
	}
	if m.MessageReference != nil {
		sent.ReplyTo = m.MessageReference.MessageID
	}
	if !s.opts.NoRecord {
		s.sent = append(s.sent, *sent)
	}
	s.notify()
	return sent
}

// faults is the trouble that lies ahead for messages.
type faults struct {
	queue       []response // answers for the next messages, instead of the real one
	cutAfter    int        // so many messages are accepted without an answer
	cutBefore   int        // so many requests are cut without being looked at
	noHistory   bool
	noResumes   int // so many RESUMEs are closed with 4000
	startsUsed  int
	startsReset time.Duration
}

// next returns the fault for this request, if one is due.
func (f *faults) next() (response, bool) {
	if f.cutBefore > 0 {
		f.cutBefore--
		return response{cut: true, status: http.StatusOK}, true
	}
	if len(f.queue) == 0 {
		return response{}, false
	}
	res := f.queue[0]
	f.queue = f.queue[1:]
	return res, true
}
