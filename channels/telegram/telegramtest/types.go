package telegramtest

import "time"

// User is a Telegram account.
type User struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name,omitempty"`
	Username  string `json:"username,omitempty"`
}

// Chat is a conversation. A private one has its user's id.
type Chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"` // private, group, supergroup or channel
	Title     string `json:"title,omitempty"`
	Username  string `json:"username,omitempty"`
	FirstName string `json:"first_name,omitempty"`
	IsForum   bool   `json:"is_forum,omitempty"`
}

// Entity is a marked range of a text. Offset and Length count UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	User     *User  `json:"user,omitempty"`
	Language string `json:"language,omitempty"`
}

// Message is a message in both directions. It has those fields of the Bot API
// that a test needs.
type Message struct {
	MessageID       int64    `json:"message_id"`
	MessageThreadID int64    `json:"message_thread_id,omitempty"`
	IsTopicMessage  bool     `json:"is_topic_message,omitempty"`
	From            *User    `json:"from,omitempty"`
	SenderChat      *Chat    `json:"sender_chat,omitempty"`
	Chat            Chat     `json:"chat"`
	Date            int64    `json:"date"`
	ForwardOrigin   *Origin  `json:"forward_origin,omitempty"`
	ReplyToMessage  *Message `json:"reply_to_message,omitempty"`
	Quote           *Quote   `json:"quote,omitempty"`
	Text            string   `json:"text,omitempty"`
	Entities        []Entity `json:"entities,omitempty"`
	Caption         string   `json:"caption,omitempty"`
	CaptionEntities []Entity `json:"caption_entities,omitempty"`
	Photo           []File   `json:"photo,omitempty"`
	Voice           *File    `json:"voice,omitempty"`
	Audio           *File    `json:"audio,omitempty"`
	Video           *File    `json:"video,omitempty"`
	Sticker         *File    `json:"sticker,omitempty"`
	Document        *File    `json:"document,omitempty"`
	MigrateToChatID int64    `json:"migrate_to_chat_id,omitempty"`
	NewChatMembers  []User   `json:"new_chat_members,omitempty"`
}

// Origin says where a forwarded message came from.
type Origin struct {
	Type           string `json:"type"` // user, hidden_user, chat or channel
	Date           int64  `json:"date"`
	SenderUser     *User  `json:"sender_user,omitempty"`
	SenderUserName string `json:"sender_user_name,omitempty"`
}

// Quote is the part of a message that a reply quotes.
type Quote struct {
	Text     string `json:"text"`
	Position int    `json:"position"`
}

// File is any kind of attachment.
type File struct {
	FileID       string `json:"file_id"`
	FileUniqueID string `json:"file_unique_id"`
	FileName     string `json:"file_name,omitempty"`
	MIMEType     string `json:"mime_type,omitempty"`
	FileSize     int64  `json:"file_size,omitempty"`
	Width        int    `json:"width,omitempty"`
	Height       int    `json:"height,omitempty"`
	Duration     int    `json:"duration,omitempty"`
	Emoji        string `json:"emoji,omitempty"`
}

// Sent is a message the server accepted from the bot.
type Sent struct {
	ChatID    int64
	ThreadID  int64
	MessageID int64
	ReplyTo   int64 // 0 if nothing is quoted, also because it was deleted
	Text      string
	Entities  []Entity
	NoPreview bool
	Time      time.Time
}

// Action is a chat action the server accepted from the bot.
type Action struct {
	ChatID   int64
	ThreadID int64
	Action   string
}
