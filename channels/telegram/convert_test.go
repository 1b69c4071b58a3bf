package telegram

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

var us = user{ID: 42, IsBot: true, FirstName: "Dragoman", Username: "Dragoman_Bot"}

// read decodes a message as it comes from the platform.
func read(tb testing.TB, raw string) *message {
	tb.Helper()
	var m message
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		tb.Fatal(err)
	}
	return &m
}

const ada = `"from":{"id":7,"first_name":"Ada","last_name":"L.","username":"ada"},"date":1700000000`

func TestConvert(t *testing.T) {
	t.Parallel()
	group := `"chat":{"id":-1001,"type":"supergroup","title":"G"}`
	private := `"chat":{"id":7,"type":"private"}`
	tests := []struct {
		name string
		raw  string
		want func(m *bus.InboundMessage) // changes to a plain message in the chat
	}{
		{"private", `{"message_id":1,` + private + `,` + ada + `,"text":"hello"}`, func(m *bus.InboundMessage) {
			m.Text = "hello"
		}},
		{"topic", `{"message_id":1,` + group + `,` + ada + `,"message_thread_id":55,"is_topic_message":true,"text":"hello"}`, func(m *bus.InboundMessage) {
			m.Text, m.ChatID = "hello", "-1001/55"
			m.Parent = bus.Address{Channel: "tg", ChatID: "-1001"}
			m.Metadata["thread_id"], m.Metadata["is_forum_topic"] = "55", "true"
		}},
		{"topic in a private chat", `{"message_id":1,` + private + `,` + ada + `,"message_thread_id":55,"is_topic_message":true,"text":"hello"}`, func(m *bus.InboundMessage) {
			m.Text, m.ChatID = "hello", "7/55"
			m.Parent = bus.Address{Channel: "tg", ChatID: "7"}
			m.Metadata["thread_id"], m.Metadata["is_forum_topic"] = "55", "true"
		}},
		{"a reply thread is no topic", `{"message_id":1,` + group + `,` + ada + `,"message_thread_id":55,"text":"hello"}`, func(m *bus.InboundMessage) {
			m.Text = "hello"
		}},
		{"the opening of a topic is no reply to us", `{"message_id":60,` + group + `,` + ada + `,"message_thread_id":55,"is_topic_message":true,"text":"x",
			"reply_to_message":{"message_id":55,"from":{"id":42},"chat":{"id":-1001},"forum_topic_created":{"name":"T"}}}`, func(m *bus.InboundMessage) {
			m.ID, m.MessageID, m.Metadata["message_id"] = "m:-1001:60", "60", "60"
			m.Text, m.ChatID = "x", "-1001/55"
			m.Parent = bus.Address{Channel: "tg", ChatID: "-1001"}
			m.Metadata["thread_id"], m.Metadata["is_forum_topic"] = "55", "true"
		}},
		{"mention in another case, after emoji", `{"message_id":1,` + group + `,` + ada + `,"text":"😀 @dragoman_bot hi","entities":[{"type":"mention","offset":3,"length":13}]}`, func(m *bus.InboundMessage) {
			m.Text, m.Mentioned = "😀 @dragoman_bot hi", true
		}},
		{"a longer name is another bot", `{"message_id":1,` + group + `,` + ada + `,"text":"@dragoman_bot2 hi","entities":[{"type":"mention","offset":0,"length":14}]}`, func(m *bus.InboundMessage) {
			m.Text = "@dragoman_bot2 hi"
		}},
		{"a name within an address is no mention", `{"message_id":1,` + group + `,` + ada + `,"text":"mail a@dragoman_bot.org"}`, func(m *bus.InboundMessage) {
			m.Text = "mail a@dragoman_bot.org"
		}},
		{"mention without a username", `{"message_id":1,` + group + `,` + ada + `,"text":"Dragoman, hi","entities":[{"type":"text_mention","offset":0,"length":8,"user":{"id":42}}]}`, func(m *bus.InboundMessage) {
			m.Text, m.Mentioned = "Dragoman, hi", true
		}},
		{"mention in a caption", `{"message_id":1,` + group + `,` + ada + `,"photo":[{"file_id":"s"},{"file_id":"l","file_size":9}],"caption":"@Dragoman_Bot look","caption_entities":[{"type":"mention","offset":0,"length":13}]}`, func(m *bus.InboundMessage) {
			m.Text, m.Mentioned = "@Dragoman_Bot look", true
			m.Media = []bus.Media{{Kind: "photo", ID: "l", Size: 9}}
		}},
		{"command", `{"message_id":1,` + group + `,` + ada + `,"text":"/Stop@dragoman_bot now please","entities":[{"type":"bot_command","offset":0,"length":18}]}`, func(m *bus.InboundMessage) {
			m.Text, m.Command, m.Args, m.Mentioned = "/Stop@dragoman_bot now please", "stop", "now please", true
		}},
		{"command of another", `{"message_id":1,` + group + `,` + ada + `,"text":"/stop@other","entities":[{"type":"bot_command","offset":0,"length":11}]}`, func(m *bus.InboundMessage) {
			m.Text, m.Command, m.ForOther = "/stop@other", "stop", true
		}},
		{"a path is no command", `{"message_id":1,` + private + `,` + ada + `,"text":"/etc/hosts","entities":[{"type":"bot_command","offset":0,"length":4}]}`, func(m *bus.InboundMessage) {
			m.Text = "/etc/hosts"
		}},
		{"a command later on is none", `{"message_id":1,` + private + `,` + ada + `,"text":"say /stop","entities":[{"type":"bot_command","offset":4,"length":5}]}`, func(m *bus.InboundMessage) {
			m.Text = "say /stop"
		}},
		{"reply with a quoted part", `{"message_id":1,` + group + `,` + ada + `,"text":"this?","quote":{"text":"part"},"reply_to_message":{"message_id":9,"from":{"id":42,"first_name":"Dragoman"},"text":"the whole, part of it"}}`, func(m *bus.InboundMessage) {
			m.Text, m.ReplyToBot, m.Quoted = "this?", true, &bus.Quoted{Author: "Dragoman", Text: "part"}
		}},
		{"reply to a caption", `{"message_id":1,` + group + `,` + ada + `,"text":"nice","reply_to_message":{"message_id":9,"from":{"id":8,"first_name":"Bob"},"caption":"my cat","photo":[{}]}}`, func(m *bus.InboundMessage) {
			m.Text, m.Quoted = "nice", &bus.Quoted{Author: "Bob", Text: "my cat"}
		}},
		{"reply to another chat's message", `{"message_id":1,` + private + `,` + ada + `,"text":"true?","quote":{"text":"news"},"external_reply":{"origin":{"type":"channel","chat":{"id":-5,"title":"The News"}}}}`, func(m *bus.InboundMessage) {
			m.Text, m.Quoted = "true?", &bus.Quoted{Author: "The News", Text: "news"}
		}},
		{"forward", `{"message_id":1,` + private + `,` + ada + `,"text":"/stop @dragoman_bot","entities":[{"type":"bot_command","offset":0,"length":5},{"type":"mention","offset":6,"length":13}],
			"forward_origin":{"type":"user","sender_user":{"id":8,"first_name":"Bob"}}}`, func(m *bus.InboundMessage) {
			m.Quoted = &bus.Quoted{Author: "Bob", Text: "/stop @dragoman_bot", Forwarded: true}
		}},
		{"sticker", `{"message_id":1,` + private + `,` + ada + `,"sticker":{"file_id":"s","emoji":"👍"}}`, func(m *bus.InboundMessage) {
			m.Media = []bus.Media{{Kind: "sticker", ID: "s", Name: "👍"}}
		}},
		{"animation comes with a document", `{"message_id":1,` + private + `,` + ada + `,"animation":{"file_id":"a"},"document":{"file_id":"a"}}`, func(m *bus.InboundMessage) {
			m.Media = []bus.Media{{Kind: "video", ID: "a"}}
		}},
		{"location", `{"message_id":1,` + private + `,` + ada + `,"location":{"latitude":1.5,"longitude":2}}`, func(m *bus.InboundMessage) {
			m.Media = []bus.Media{{Kind: "location"}}
		}},
		{"anonymous administrator", `{"message_id":1,` + group + `,"date":1700000000,"from":{"id":1087968824,"is_bot":true,"username":"GroupAnonymousBot"},"sender_chat":{"id":-1001,"title":"G","type":"supergroup"},"text":"hi"}`, func(m *bus.InboundMessage) {
			m.Text, m.Sender = "hi", bus.Sender{ID: "-1001", Name: "G"}
			m.Metadata = map[string]string{"message_id": "1", "user_id": "-1001", "is_group": "true"}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := read(t, tt.raw)
			got, ok := convert(m, "tg", us)
			if !ok {
				t.Fatal("not taken for a message")
			}
			want := plain(m)
			tt.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("convert (-want +got):\n%s", diff)
			}
		})
	}
}

// plain is a message by Ada, before anything particular is said of it.
func plain(m *message) bus.InboundMessage {
	want := bus.InboundMessage{
		Address:   bus.Address{Channel: "tg", ChatID: place{chat: m.Chat.ID}.String()},
		ID:        "m:" + place{chat: m.Chat.ID}.String() + ":1",
		MessageID: "1",
		Sender:    bus.Sender{ID: "7", Username: "ada", Name: "Ada L."},
		Kind:      bus.KindMessage,
		Time:      time.Unix(1700000000, 0).UTC(),
		Metadata:  map[string]string{"message_id": "1", "user_id": "7", "username": "ada", "first_name": "Ada"},
	}
	if m.Chat.ID < 0 {
		want.Group, want.Metadata["is_group"] = true, "true"
	}
	return want
}

func TestConvertIgnores(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"service message": `{"message_id":1,"chat":{"id":-1,"type":"group"},` + ada + `,"new_chat_members":[{"id":9}]}`,
		"migration":       `{"message_id":1,"chat":{"id":-1,"type":"group"},` + ada + `,"migrate_to_chat_id":-1001}`,
		"channel post":    `{"message_id":1,"chat":{"id":-1,"type":"channel"},` + ada + `,"text":"x"}`,
		"our own":         `{"message_id":1,"chat":{"id":-1,"type":"group"},"from":{"id":42},"text":"x"}`,
		"nobody's":        `{"message_id":1,"chat":{"id":-1,"type":"group"},"text":"x"}`,
		"nothing":         `{}`,
	} {
		if got, ok := convert(read(t, raw), "tg", us); ok {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if _, ok := convert(nil, "tg", us); ok {
		t.Error("nil is taken for a message")
	}
}

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"7", "-1001234", "-1001234/42", "7/42"} {
		if p, err := parsePlace(s); err != nil || p.String() != s {
			t.Errorf("parsePlace(%q) = %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "0", "+7", "07", "7/", "7/0", "/42", "7/42/1", "seven", "@name", " 7", "7 ", "99999999999999999999"} {
		if p, err := parsePlace(s); err == nil {
			t.Errorf("parsePlace(%q) = %v", s, p)
		}
	}
}

func FuzzConvert(f *testing.F) {
	f.Add(`{"message_id":1,"chat":{"id":-1001,"type":"supergroup"},`+ada+`,"text":"😀 /stop@x","entities":[{"type":"bot_command","offset":0,"length":9}]}`, 0, 3)
	f.Add(`{"message_id":1,"chat":{"id":7,"type":"private"},`+ada+`,"caption":"@dragoman_bot","caption_entities":[{"type":"mention"}],"quote":{"text":"q"},"reply_to_message":{}}`, -1, 1<<30)
	f.Fuzz(func(t *testing.T, raw string, offset, length int) {
		var m message
		if json.Unmarshal([]byte(raw), &m) != nil {
			t.Skip()
		}
		for _, e := range []string{"bot_command", "mention", "text_mention"} {
			m.Entities = append(m.Entities, entity{Type: e, Offset: offset, Length: length})
		}
		got, ok := convert(&m, "tg", us)
		if !ok {
			return
		}
		if got.Sender.ID == "" || got.MessageID == "" || got.ID == "" || got.Channel != "tg" {
			t.Fatalf("%s: %+v", raw, got)
		}
		if _, err := parsePlace(got.ChatID); err != nil {
			t.Fatalf("%s: its chat id cannot be sent to: %v", raw, err)
		}
		if got.Command != "" && !strings.HasPrefix(got.Text, "/") {
			t.Fatalf("%s: command %q of %q", raw, got.Command, got.Text)
		}
	})
}
