package telegram_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/channelstest"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKit(t *testing.T) { channelstest.RunInBubble(t, newPlatform) }

// fake is Telegram as the kit plays it.
type fake struct {
	*tt.Server
	net *tt.Network
}

func newPlatform(t *testing.T) *channelstest.Platform {
	t.Helper()
	s := tt.New()
	f := &fake{Server: s, net: tt.Serve(t, s)}
	ada, bob := s.AddUser("Ada", "ada"), s.AddUser("Bob", "")
	forum, group := s.AddGroup("Forum", true), s.AddGroup("Group", false)
	people := []bus.Sender{person(ada), person(bob)}
	topic := func() channelstest.Chat {
		thread := s.AddTopic(forum.ID)
		c := place(forum.ID, thread, people...)
		c.Parent = address(forum.ID, 0)
		c.Thread = fmt.Sprint(thread)
		return c
	}
	return &channelstest.Platform{
		New:     f.new,
		Direct:  []channelstest.Chat{place(ada.ID, 0, people[0]), place(bob.ID, 0, people[1])},
		Groups:  []channelstest.Chat{place(forum.ID, 0, people...), place(group.ID, 0, people...)},
		Topics:  []channelstest.Chat{topic(), topic()},
		Say:     f.say,
		Sent:    f.sent,
		Typed:   f.typed,
		Odd:     f.odd,
		Secrets: []string{tt.Token, tt.WrongToken, strings.Split(tt.Token, ":")[1], strings.Split(tt.WrongToken, ":")[1]},

		Redeliver: func(*testing.T) { s.Redeliver() },
		Confirmed: func(*testing.T) int { return s.Confirmed() },
		Delete: func(t *testing.T, c channelstest.Chat, id string) {
			t.Helper()
			chat, _ := split(t, c.Address)
			s.Delete(chat, number(t, id))
		},
		Throttle: func(t *testing.T, c channelstest.Chat, after time.Duration) {
			t.Helper()
			chat, _ := split(t, c.Address)
			s.Throttle(chat, after)
		},
		Block: func(t *testing.T, c channelstest.Chat) {
			t.Helper()
			chat, _ := split(t, c.Address)
			s.Block(chat)
		},
		CutNext: func(*testing.T) { s.CutNext() },
		Down:    func(_ *testing.T, down bool) { f.net.SetDown(down) },
	}
}

func (f *fake) new(t *testing.T, o channelstest.Options) channels.Channel {
	t.Helper()
	cfg := telegram.DefaultConfig()
	cfg.APIBase = "http://telegram.test"
	cfg.Token = config.Secret(tt.Token)
	if o.WrongToken {
		cfg.Token = config.Secret(tt.WrongToken)
	}
	transport := f.net.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	return telegram.New(channelstest.Name, cfg, o.Facts, o.Log, telegram.WithTransport(transport))
}

func (f *fake) say(t *testing.T, m channelstest.Message) channelstest.Posted {
	t.Helper()
	chat, thread := split(t, m.Chat.Address)
	out := tt.Message{Chat: tt.Chat{ID: chat}, MessageThreadID: thread, From: f.author(t, m)}
	other := tt.User{ID: 7000000099, IsBot: true, FirstName: "Other", Username: "other_bot"}
	text, entities := m.Text, []tt.Entity(nil)
	names := map[channelstest.Who]string{channelstest.Us: "@" + tt.BotName, channelstest.OtherBot: "@" + other.Username}
	switch lead := names[m.To]; {
	case m.Command != "":
		lead = "/" + m.Command + lead
		entities = []tt.Entity{{Type: "bot_command", Length: len(lead)}}
		text = strings.TrimSpace(lead + " " + m.Text)
	case lead != "":
		entities = []tt.Entity{{Type: "mention", Length: len(lead)}}
		text = lead + " " + m.Text
	}
	if m.ReplyTo != "" {
		out.ReplyToMessage = &tt.Message{MessageID: number(t, m.ReplyTo)}
	}
	if m.Forwarded != "" {
		text = m.Forwarded
		out.ForwardOrigin = &tt.Origin{Type: "hidden_user", Date: 1, SenderUserName: "Somebody"}
	}
	switch m.Media {
	case "":
		out.Text, out.Entities = text, entities
	case "photo":
		out.Photo = []tt.File{{FileID: "small"}, {FileID: "large"}}
		out.Caption, out.CaptionEntities = text, entities
	case "document":
		out.Document = &tt.File{FileID: "f", FileName: "notes.txt"}
		out.Caption, out.CaptionEntities = text, entities
	default:
		t.Fatalf("no media of kind %q here", m.Media)
	}
	return channelstest.Posted{MessageID: fmt.Sprint(f.Post(out).MessageID)}
}

func (f *fake) author(t *testing.T, m channelstest.Message) *tt.User {
	t.Helper()
	switch m.By {
	case channelstest.Us:
		u := f.Bot()
		return &u
	case channelstest.OtherBot:
		return &tt.User{ID: 7000000099, IsBot: true, FirstName: "Other", Username: "other_bot"}
	case channelstest.Nobody:
	}
	return &tt.User{ID: number(t, m.From.ID), FirstName: m.From.Name, Username: m.From.Username}
}

func (f *fake) sent(*testing.T) []channelstest.Sent {
	var out []channelstest.Sent
	for _, s := range f.Sent() {
		one := channelstest.Sent{Address: address(s.ChatID, s.ThreadID), Text: s.Text, MessageID: fmt.Sprint(s.MessageID)}
		if s.ReplyTo != 0 {
			one.ReplyTo = fmt.Sprint(s.ReplyTo)
		}
		for _, e := range s.Entities { // people see them one way or another
			one.Text += suffix(e)
		}
		out = append(out, one)
	}
	return out
}

func suffix(e tt.Entity) string {
	if s := e.URL + e.Language; s != "" {
		return " " + s
	}
	return ""
}

func (f *fake) typed(*testing.T) []bus.Address {
	var out []bus.Address
	for _, a := range f.Actions() {
		out = append(out, address(a.ChatID, a.ThreadID))
	}
	return out
}

func (f *fake) odd(t *testing.T) {
	t.Helper()
	for _, s := range []string{
		`null`, `{}`, `{"message_id":5}`, `{"message_id":5,"chat":{"id":0}}`,
		`{"message_id":5,"date":1,"chat":{"id":1001,"type":"private"}}`,
		`{"message_id":5,"date":1,"chat":{"id":1001,"type":"private"},"text":"nobody wrote this"}`,
		`{"message_id":5,"date":1,"chat":{"id":-1001,"type":"channel"},"sender_chat":{"id":-1001},"text":"a post"}`,
		`{"message_id":"five","text":7}`,
		`{"message_id":5,"date":1,"chat":{"id":1001,"type":"private"},"from":{"id":1001},"new_chat_members":[{}]}`,
		`{"message_id":5,"date":1,"chat":{"id":1001,"type":"private"},"from":{"id":1001},"photo":[],"reply_to_message":null}`,
		`[]`, `"text"`, `17`,
	} {
		f.Push("message", json.RawMessage(s))
	}
	f.Push("edited_message", map[string]any{"message_id": 1})
	f.Push("something_new", []int{1, 2, 3})
}

func person(u tt.User) bus.Sender {
	return bus.Sender{ID: fmt.Sprint(u.ID), Username: u.Username, Name: u.FirstName}
}

func address(chat, thread int64) bus.Address {
	id := fmt.Sprint(chat)
	if thread != 0 {
		id += fmt.Sprint("/", thread)
	}
	return bus.Address{Channel: channelstest.Name, ChatID: id}
}

func place(chat, thread int64, people ...bus.Sender) channelstest.Chat {
	return channelstest.Chat{Address: address(chat, thread), People: people}
}

func split(t *testing.T, a bus.Address) (chat, thread int64) {
	t.Helper()
	id, topic, ok := strings.Cut(a.ChatID, "/")
	if ok {
		thread = number(t, topic)
	}
	return number(t, id), thread
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
