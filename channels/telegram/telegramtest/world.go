package telegramtest

import (
	"encoding/json"
	"slices"
	"time"
)

// Bot returns the bot's own account.
func (s *Server) Bot() User { return s.bot }

// AddUser makes an account that has opened a private chat with the bot.
func (s *Server) AddUser(firstName, username string) User {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastChat++
	u := User{ID: s.lastChat, FirstName: firstName, Username: username}
	s.chats[u.ID] = &chat{Chat: Chat{ID: u.ID, Type: "private", FirstName: firstName, Username: username}}
	return u
}

// AddGroup makes a supergroup the bot is in; a forum has topics.
func (s *Server) AddGroup(title string, forum bool) Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastChat++
	c := Chat{ID: -1_000_000_000_000 - s.lastChat, Type: "supergroup", Title: title, IsForum: forum}
	s.chats[c.ID] = &chat{Chat: c}
	return c
}

// AddBasicGroup makes a group of the old kind, which can become a supergroup.
func (s *Server) AddBasicGroup(title string) Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastChat++
	c := Chat{ID: -s.lastChat, Type: "group", Title: title}
	s.chats[c.ID] = &chat{Chat: c}
	return c
}

// AddTopic opens a topic in a forum or a private chat and returns its thread
// id.
func (s *Server) AddTopic(chatID int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	c.lastID++
	if c.topics == nil {
		c.topics = make(map[int64]bool)
	}
	c.topics[c.lastID] = true
	return c.lastID
}

// Private returns a user's private chat.
func (s *Server) Private(u User) Chat { return s.Chat(u.ID) }

// Chat returns a chat by id.
func (s *Server) Chat(id int64) Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chats[id].Chat
}

// Post delivers a message a person wrote and returns it as delivered. From and
// Chat.ID say who and where; the server fills in the rest: the message id, the
// date, the chat, the message that ReplyToMessage names by its id, and whether
// a thread is a topic.
func (s *Server) Post(m Message) Message {
	m = s.complete(m)
	body, err := json.Marshal(m)
	if err != nil {
		panic("telegramtest: " + err.Error())
	}
	s.enqueue("message", body)
	return m
}

func (s *Server) complete(m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[m.Chat.ID]
	m.Chat = c.Chat
	c.lastID++
	m.MessageID = c.lastID
	if m.Date == 0 {
		m.Date = time.Now().Unix()
	}
	m.IsTopicMessage = m.MessageThreadID != 0 && c.topics[m.MessageThreadID]
	if r := m.ReplyToMessage; r != nil {
		old, known := c.messages[r.MessageID]
		if known {
			m.ReplyToMessage = &Message{MessageID: r.MessageID, From: &old.from, Chat: c.Chat, Date: m.Date, Text: old.text}
		} else if r.From == nil {
			m.ReplyToMessage = nil
		}
	}
	var from User
	if m.From != nil {
		from = *m.From
	}
	c.remember(m.MessageID, stored{from: from, text: m.Text + m.Caption, thread: m.MessageThreadID}, s.Forget)
	return m
}

// forgetAfter is how many messages of a chat are kept under Forget.
const forgetAfter = 64

func (c *chat) remember(id int64, m stored, forget bool) {
	if c.messages == nil {
		c.messages = make(map[int64]stored)
	}
	c.messages[id] = m
	if forget {
		delete(c.messages, id-forgetAfter)
	}
}

// Delete removes a message, so that nothing can quote it any more.
func (s *Server) Delete(chatID, messageID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.chats[chatID].messages, messageID)
}

// Block makes the platform refuse everything the bot sends to a chat.
func (s *Server) Block(chatID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	switch c.Type {
	case "private":
		c.blocked = "Forbidden: bot was blocked by the user"
	default:
		c.blocked = "Forbidden: bot was kicked from the " + c.Type + " chat"
	}
}

// Throttle makes the platform ask for patience in a chat for a time.
func (s *Server) Throttle(chatID int64, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	c.retry, c.until = d, time.Now().Add(d)
}

// CutNext makes the server accept the next message and break the connection
// instead of answering.
func (s *Server) CutNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutNext = true
}

// Migrate makes a basic group a supergroup, tells the bot, and returns the new
// chat.
func (s *Server) Migrate(chatID int64) Chat {
	old := s.Chat(chatID)
	c := s.AddGroup(old.Title, false)
	s.mu.Lock()
	s.chats[chatID].migrated = c.ID
	s.mu.Unlock()
	s.Post(Message{Chat: old, From: &User{ID: 1, FirstName: "Admin"}, MigrateToChatID: c.ID})
	return c
}

// Sent returns what was accepted from the bot, oldest first.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Actions returns the accepted chat actions, oldest first.
func (s *Server) Actions() []Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.actions)
}
