package discordtest

import (
	"slices"
	"time"
)

// timestamp is how Discord writes a time.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// Edit gives a message another text and tells the bot. A message the channel
// does not remember stays as it is.
func (s *Server) Edit(channelID, messageID, content string) {
	now := timestamp(time.Now())
	s.update(channelID, messageID, func(m *Message) {
		m.Content, m.EditedTimestamp, m.Mentions = content, &now, append([]User{}, s.mentioned(content)...)
	})
}

// Embed tells the bot of a message once more, as Discord does when it adds a
// preview of a link: nobody has edited it.
func (s *Server) Embed(channelID, messageID string) {
	s.update(channelID, messageID, func(*Message) {})
}

func (s *Server) update(channelID, messageID string, f func(*Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil {
		return
	}
	if m := c.find(messageID); m != nil {
		changed := *m // what was answered before may still be read
		f(&changed)
		c.messages[slices.Index(c.messages, m)] = &changed
		s.dispatchMessage("MESSAGE_UPDATE", c, &changed)
	}
}

// Delete removes messages and tells the bot: of one with MESSAGE_DELETE, of
// several with MESSAGE_DELETE_BULK.
func (s *Server) Delete(channelID string, messageIDs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil || len(messageIDs) == 0 {
		return
	}
	c.messages = slices.DeleteFunc(c.messages, func(m *Message) bool { return slices.Contains(messageIDs, m.ID) })
	intent := IntentGuildMessages
	if c.Type == ChannelDM {
		intent = IntentDirectMessages
	}
	gone := deleted{ChannelID: c.ID, GuildID: c.GuildID}
	if len(messageIDs) == 1 {
		gone.ID = messageIDs[0]
		s.dispatch("MESSAGE_DELETE", gone, intent)
		return
	}
	gone.IDs = messageIDs
	s.dispatch("MESSAGE_DELETE_BULK", gone, intent)
}

// Forget removes a message without telling the bot, as if the news were lost.
func (s *Server) Forget(channelID, messageID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil {
		c.messages = slices.DeleteFunc(c.messages, func(m *Message) bool { return m.ID == messageID })
	}
}

// deleted is what MESSAGE_DELETE and MESSAGE_DELETE_BULK carry.
type deleted struct {
	ID        string   `json:"id,omitempty"`
	IDs       []string `json:"ids,omitempty"`
	ChannelID string   `json:"channel_id"`
	GuildID   string   `json:"guild_id,omitempty"`
}
