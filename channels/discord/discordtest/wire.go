package discordtest

import "encoding/json"

// Channel types of Discord that the fake knows.
const (
	ChannelGuildText     = 0
	ChannelDM            = 1
	ChannelPublicThread  = 11
	ChannelPrivateThread = 12
	ChannelForum         = 15
)

// Message types and flags of Discord that matter here.
const (
	MessageDefault = 0
	MessageJoin    = 7 // a system message; nobody can reply to it
	MessageReply   = 19

	FlagSuppressEmbeds        = 1 << 2
	FlagSuppressNotifications = 1 << 12
	FlagVoiceMessage          = 1 << 13
)

// Gateway intents that the fake looks at.
const (
	IntentGuilds         = 1 << 0
	IntentGuildMembers   = 1 << 1
	IntentGuildPresences = 1 << 8
	IntentGuildMessages  = 1 << 9
	IntentDirectMessages = 1 << 12
	IntentMessageContent = 1 << 15

	privilegedIntents = IntentGuildMembers | IntentGuildPresences | IntentMessageContent
	knownIntents      = 1<<17 - 1 | 1<<20 | 1<<21 | 1<<24 | 1<<25
)

// User is a user object.
type User struct {
	ID            string  `json:"id"`
	Username      string  `json:"username"`
	Discriminator string  `json:"discriminator"`
	GlobalName    *string `json:"global_name"`
	Avatar        *string `json:"avatar"`
	Bot           bool    `json:"bot,omitempty"`
}

// Member is the part of a guild member that comes with a message.
type Member struct {
	Nick  *string  `json:"nick"`
	Roles []string `json:"roles"`
}

// Attachment is a file in a message.
type Attachment struct {
	ID          string `json:"id"`
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"`
	Size        int    `json:"size"`
	URL         string `json:"url"`
	ProxyURL    string `json:"proxy_url"`
}

// Sticker is a sticker in a message.
type Sticker struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	FormatType int    `json:"format_type"`
}

// Reference is what a reply (Type 0) or a forward (Type 1) points at.
type Reference struct {
	Type      int    `json:"type"`
	MessageID string `json:"message_id,omitempty"`
	ChannelID string `json:"channel_id,omitempty"`
	GuildID   string `json:"guild_id,omitempty"`
}

// Snapshot is a forwarded message as it was.
type Snapshot struct {
	Message SnapshotMessage `json:"message"`
}

// SnapshotMessage is the subset of a message that a forward carries; it has no
// author.
type SnapshotMessage struct {
	Type        int          `json:"type"`
	Content     string       `json:"content"`
	Attachments []Attachment `json:"attachments"`
}

// Message is a message object.
type Message struct {
	ID                string            `json:"id"`
	ChannelID         string            `json:"channel_id"`
	GuildID           string            `json:"guild_id,omitempty"` // in gateway events only
	Type              int               `json:"type"`
	Content           string            `json:"content"`
	Timestamp         string            `json:"timestamp"`
	EditedTimestamp   *string           `json:"edited_timestamp"`
	Author            *User             `json:"author,omitempty"`
	Member            *Member           `json:"member,omitempty"` // in gateway events only
	WebhookID         string            `json:"webhook_id,omitempty"`
	TTS               bool              `json:"tts"`
	MentionEveryone   bool              `json:"mention_everyone"`
	Mentions          []User            `json:"mentions"`
	MentionRoles      []string          `json:"mention_roles"`
	Attachments       []Attachment      `json:"attachments"`
	Embeds            []json.RawMessage `json:"embeds"`
	Components        []json.RawMessage `json:"components"`
	StickerItems      []Sticker         `json:"sticker_items,omitempty"`
	MessageReference  *Reference        `json:"message_reference,omitempty"`
	ReferencedMessage *Message          `json:"referenced_message,omitempty"`
	MessageSnapshots  []Snapshot        `json:"message_snapshots,omitempty"`
	Pinned            bool              `json:"pinned"`
	Flags             int               `json:"flags"`
	Nonce             string            `json:"nonce,omitempty"`
}

// Channel is a channel object.
type Channel struct {
	ID            string  `json:"id"`
	Type          int     `json:"type"`
	GuildID       string  `json:"guild_id,omitempty"`
	ParentID      string  `json:"parent_id,omitempty"`
	Name          string  `json:"name,omitempty"`
	LastMessageID *string `json:"last_message_id"`
	Recipients    []User  `json:"recipients,omitempty"`
	NewlyCreated  bool    `json:"newly_created,omitempty"` // in THREAD_CREATE only
}

// guild is a guild object as GUILD_CREATE carries it.
type guild struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	MemberCount int       `json:"member_count"`
	Large       bool      `json:"large"`
	Unavailable bool      `json:"unavailable"`
	Channels    []Channel `json:"channels"`
	Threads     []Channel `json:"threads"`
	Members     []any     `json:"members"`
	Roles       []any     `json:"roles"`
}

// Sent is one message that the bot created.
type Sent struct {
	ChannelID   string
	MessageID   string
	Content     string
	Nonce       string
	ReplyTo     string   // the message it shows as quoted, "" if none
	Pings       []string // ids of the users it notified
	Everyone    bool     // it notified @everyone or @here
	Flags       int
	Attachments int
}

// Call is one REST request as the fake answered it.
type Call struct {
	Method string
	Path   string // without the version prefix: "channels/1/messages"
	Query  string // what follows the "?"
	Body   string
	Status int // 0 when the connection was cut instead of answering
}

// apiError is a refusal: an HTTP status and Discord's own code and words.
type apiError struct {
	status  int
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Errors  json.RawMessage `json:"errors,omitempty"`
}

// formError is "Invalid Form Body" for one field (JSON error code 50035).
func formError(field, code, message string) *apiError {
	type leaf struct {
		Errors []map[string]string `json:"_errors"`
	}
	detail, _ := json.Marshal(map[string]leaf{field: {Errors: []map[string]string{{"code": code, "message": message}}}})
	return &apiError{status: 400, Code: 50035, Message: "Invalid Form Body", Errors: detail}
}
