package telegram

// The Bot API's objects, as far as we read them. The SDK's own types predate
// topics, quotes and forward origins.

type user struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

type chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"`
	Title     string `json:"title"`
	Username  string `json:"username"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
}

type entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"` // UTF-16 units, as is Length
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
	User     *user  `json:"user,omitempty"`
}

// origin is where a forwarded or externally quoted message came from.
type origin struct {
	SenderUser      *user  `json:"sender_user"`
	SenderUserName  string `json:"sender_user_name"`
	SenderChat      *chat  `json:"sender_chat"`
	Chat            *chat  `json:"chat"`
	AuthorSignature string `json:"author_signature"`
}

// file is any attachment, or none of the fields of one.
type file struct {
	FileID   string `json:"file_id"`
	FileName string `json:"file_name"`
	MIMEType string `json:"mime_type"`
	FileSize int64  `json:"file_size"`
	Emoji    string `json:"emoji"`
	Title    string `json:"title"`
}

type message struct {
	MessageID       int64          `json:"message_id"`
	MessageThreadID int64          `json:"message_thread_id"`
	IsTopicMessage  bool           `json:"is_topic_message"`
	From            *user          `json:"from"`
	SenderChat      *chat          `json:"sender_chat"`
	Chat            chat           `json:"chat"`
	Date            int64          `json:"date"`
	EditDate        int64          `json:"edit_date"`
	ForwardOrigin   *origin        `json:"forward_origin"`
	ReplyToMessage  *message       `json:"reply_to_message"`
	ExternalReply   *externalReply `json:"external_reply"`
	Quote           *struct {
		Text string `json:"text"`
	} `json:"quote"`

	Text            string   `json:"text"`
	Entities        []entity `json:"entities"`
	Caption         string   `json:"caption"`
	CaptionEntities []entity `json:"caption_entities"`

	Photo     []file `json:"photo"` // one picture in several sizes, the largest last
	Voice     *file  `json:"voice"`
	Audio     *file  `json:"audio"`
	Video     *file  `json:"video"`
	VideoNote *file  `json:"video_note"`
	Animation *file  `json:"animation"` // comes with a Document that is the same file
	Sticker   *file  `json:"sticker"`
	Document  *file  `json:"document"`
	Dice      *file  `json:"dice"`
	Location  *file  `json:"location"`
	Contact   *file  `json:"contact"`
	Poll      *file  `json:"poll"`

	MigrateToChatID int64 `json:"migrate_to_chat_id"`
}

type externalReply struct {
	Origin *origin `json:"origin"`
}

type update struct {
	UpdateID int64    `json:"update_id"`
	Message  *message `json:"message"`
	Edited   *message `json:"edited_message"`
}

// replyParameters quotes a message; the answer goes out also when that message
// has been deleted.
type replyParameters struct {
	MessageID                int64 `json:"message_id"`
	AllowSendingWithoutReply bool  `json:"allow_sending_without_reply"`
}
