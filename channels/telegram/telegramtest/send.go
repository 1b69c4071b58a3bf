package telegramtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxText is "text of the message to be sent, 1-4096 characters after entities
// parsing", in UTF-16 units.
const maxText = 4096

func (s *Server) sendMessage(w http.ResponseWriter, _ *http.Request, p params) {
	resp, cut, sent := s.accept(p)
	if sent.MessageID != 0 && s.OnSend != nil {
		s.OnSend(sent)
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
	reply(w, resp)
}

// accept checks a message and records it if the platform would take it.
func (s *Server) accept(p params) (resp response, cut bool, sent Sent) {
	text, entities, refused := formatted(p)
	options := p.get("link_preview_options")
	var preview struct {
		IsDisabled bool `json:"is_disabled"`
	}
	if options != "" && json.Unmarshal([]byte(options), &preview) != nil {
		return badRequest("can't parse link preview options JSON object"), false, sent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, thread, problem := s.target(p)
	if problem != nil {
		return *problem, false, sent
	}
	// The text is looked at after the chat.
	if refused != nil {
		return *refused, false, sent
	}
	replyTo, problem := c.replyTarget(p)
	if problem != nil {
		return *problem, false, sent
	}
	if wait := time.Until(c.until); wait > 0 {
		seconds := int((wait + time.Second - 1) / time.Second)
		resp := fail(http.StatusTooManyRequests, fmt.Sprintf("Too Many Requests: retry after %d", seconds))
		resp.Parameters = &parameters{RetryAfter: seconds}
		return resp, false, sent
	}
	c.lastID++
	c.remember(c.lastID, stored{from: s.bot, text: text, thread: thread}, s.Forget)
	sent = Sent{
		ChatID: c.ID, ThreadID: thread, MessageID: c.lastID, ReplyTo: replyTo, Text: text, Entities: entities,
		NoPreview: preview.IsDisabled || p.flag("disable_web_page_preview"), Time: time.Now(),
	}
	if !s.Forget {
		s.sent = append(s.sent, sent)
	}
	m := Message{
		MessageID: c.lastID, MessageThreadID: thread, IsTopicMessage: thread != 0,
		From: &s.bot, Chat: c.Chat, Date: sent.Time.Unix(), Text: text, Entities: entities,
	}
	if replyTo != 0 {
		old := c.messages[replyTo]
		m.ReplyToMessage = &Message{MessageID: replyTo, From: &old.from, Chat: c.Chat, Date: m.Date, Text: old.text}
	}
	cut, s.cutNext = s.cutNext, false
	return ok(m), cut, sent
}

// target finds the chat and topic a request speaks of.
func (s *Server) target(p params) (c *chat, thread int64, problem *response) {
	no := func(r response) (*chat, int64, *response) { return nil, 0, &r }
	id := strings.TrimSpace(p.get("chat_id"))
	if id == "" {
		return no(badRequest("chat_id is empty"))
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return no(badRequest("chat not found")) // "@channelusername" is another kind of chat
	}
	c = s.chats[n]
	switch {
	case c == nil:
		return no(badRequest("chat not found"))
	case c.migrated != 0:
		// "The group has been migrated to a supergroup with the specified
		// identifier": in ResponseParameters.
		r := badRequest("group chat was upgraded to a supergroup chat")
		r.Parameters = &parameters{MigrateToChatID: c.migrated}
		return no(r)
	case c.blocked != "":
		return no(fail(http.StatusForbidden, c.blocked))
	}
	// "message_thread_id: unique identifier for the target message thread of a
	// forum; for forum supergroups and private chats of bots with forum topic
	// mode enabled only". The General topic has none: id 1 is refused, too.
	if p.get("message_thread_id") != "" {
		thread = p.number("message_thread_id")
		if thread != 0 && !c.topics[thread] {
			return no(badRequest("message thread not found"))
		}
	}
	return c, thread, nil
}

// replyTarget reads reply_parameters: "message_id: identifier of the message
// that will be replied to in the current chat; allow_sending_without_reply:
// pass True if the message should be sent even if the specified message to be
// replied to is not found".
func (c *chat) replyTarget(p params) (int64, *response) {
	var reply struct {
		MessageID int64  `json:"message_id"`
		Allow     bool   `json:"allow_sending_without_reply"`
		Quote     string `json:"quote"`
	}
	if raw := p.get("reply_parameters"); raw != "" {
		if json.Unmarshal([]byte(raw), &reply) != nil {
			r := badRequest("can't parse reply parameters JSON object")
			return 0, &r
		}
	} else if reply.MessageID = p.number("reply_to_message_id"); reply.MessageID != 0 {
		reply.Allow = p.flag("allow_sending_without_reply")
	}
	if reply.MessageID == 0 {
		return 0, nil
	}
	old, known := c.messages[reply.MessageID]
	switch {
	case !known && reply.Allow:
		return 0, nil
	case !known:
		r := badRequest("message to be replied not found")
		return 0, &r
	case reply.Quote != "" && !strings.Contains(old.text, reply.Quote):
		r := badRequest("QUOTE_TEXT_INVALID")
		return 0, &r
	}
	return reply.MessageID, nil
}

// formatted reads text and entities as the platform does: control characters
// go, outer whitespace goes with the entities moved along, and then the text
// has to be neither empty nor too long.
func formatted(p params) (string, []Entity, *response) {
	no := func(what string) (string, []Entity, *response) {
		r := badRequest(what)
		return "", nil, &r
	}
	text := p.get("text")
	if !utf8.ValidString(text) {
		return no("strings must be encoded in UTF-8")
	}
	if p.get("parse_mode") != "" {
		return no("unsupported parse_mode") // the adapter sends entities
	}
	var entities []Entity
	if raw := p.get("entities"); raw != "" {
		if json.Unmarshal([]byte(raw), &entities) != nil {
			return no("can't parse entities JSON object")
		}
	}
	if text == "" {
		return no("message text is empty")
	}
	units := unitsOf(text)
	for _, e := range entities {
		if why := e.check(units); why != "" {
			return no(why)
		}
	}
	text, entities = tidy(text, entities)
	if text == "" {
		return no("message text is empty")
	}
	if len(unitsOf(text)) > maxText {
		return no("message is too long")
	}
	return text, entities, nil
}

// unitsOf returns, for each UTF-16 unit of text, whether a character begins
// there.
func unitsOf(text string) []bool {
	units := make([]bool, 0, len(text))
	for _, r := range text {
		units = append(units, true)
		if r > 0xFFFF {
			units = append(units, false)
		}
	}
	return units
}

// entityTypes are the types a bot may send; true for those that need the field
// named in check.
var entityTypes = map[string]bool{
	"bold": false, "italic": false, "underline": false, "strikethrough": false, "spoiler": false,
	"blockquote": false, "expandable_blockquote": false, "code": false, "pre": false,
	"mention": false, "hashtag": false, "cashtag": false, "bot_command": false, "url": false, "email": false, "phone_number": false,
	"text_link": true, "text_mention": true, "custom_emoji": true,
}

func (e Entity) check(units []bool) string {
	needs, known := entityTypes[e.Type]
	end := e.Offset + e.Length
	switch {
	case !known:
		return "unsupported type specified: " + e.Type
	case needs && e.Type == "text_link" && e.URL == "":
		return `can't parse MessageEntity: Field "url" of type String is required`
	case e.Offset < 0 || e.Offset > 1e6:
		return fmt.Sprintf("receive an entity with incorrect offset = %d", e.Offset)
	case e.Length < 0 || e.Length > 1e6:
		return fmt.Sprintf("receive an entity with incorrect length = %d", e.Length)
	case e.Offset > len(units) || end > len(units):
		return fmt.Sprintf("entity beginning at UTF-16 offset %d ends after the end of the text at UTF-16 offset %d", e.Offset, len(units))
	case e.Offset < len(units) && !units[e.Offset]:
		return fmt.Sprintf("entity begins in a middle of a UTF-16 symbol at offset %d", e.Offset)
	case end < len(units) && !units[end]:
		return fmt.Sprintf("entity beginning at UTF-16 offset %d ends in a middle of a UTF-16 symbol", e.Offset)
	}
	return ""
}

// tidy drops what the platform drops. Characters below 32 become spaces but
// for newlines; carriage returns vanish.
func tidy(text string, entities []Entity) (string, []Entity) {
	var b strings.Builder
	shift := make([]int, 0, len(text)+1) // new offset of each old unit
	units := 0
	add := func(r rune, n int) {
		for range n {
			shift = append(shift, units)
			units++
		}
		b.WriteRune(r)
	}
	for _, r := range text {
		switch {
		case r == '\r':
			shift = append(shift, units)
		case r < ' ' && r != '\n':
			add(' ', 1)
		case r > 0xFFFF:
			add(r, 2)
		default:
			add(r, 1)
		}
	}
	shift = append(shift, units)
	whole := b.String()
	right := strings.TrimRight(whole, " \n\u00a0\u200b\u2060")
	if right == "" {
		return "", nil
	}
	left := strings.TrimLeft(right, " \n")
	cut := len(right) - len(left)
	length := len(unitsOf(left))
	kept := make([]Entity, 0, len(entities))
	for _, e := range entities {
		start := max(shift[e.Offset]-cut, 0)
		end := min(shift[e.Offset+e.Length]-cut, length)
		if end <= start {
			continue // empty entities are dropped
		}
		e.Offset, e.Length = start, end-start
		kept = append(kept, e)
	}
	return left, kept[:min(len(kept), 100)] // "up to 100 entities"; the rest is ignored
}

// actions of sendChatAction, as documented.
var chatActions = map[string]bool{
	"typing": true, "upload_photo": true, "record_video": true, "upload_video": true, "record_voice": true, "upload_voice": true,
	"upload_document": true, "choose_sticker": true, "find_location": true, "record_video_note": true, "upload_video_note": true,
}

func (s *Server) sendChatAction(p params) response {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, thread, problem := s.target(p)
	if problem != nil {
		return *problem
	}
	if !chatActions[p.get("action")] {
		return badRequest("wrong parameter action in request")
	}
	if !s.Forget {
		s.actions = append(s.actions, Action{ChatID: c.ID, ThreadID: thread, Action: p.get("action")})
	}
	return ok(true)
}
