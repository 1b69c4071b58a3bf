package discord

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

var us = origin{channel: "discord", self: "42"}

func TestConvert(t *testing.T) {
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	ann := &discordgo.User{ID: "7", Username: "ann", GlobalName: "Ann A."}
	bot := &discordgo.User{ID: "42", Username: "dragoman", Bot: true}
	other := &discordgo.User{ID: "43", Username: "other", Bot: true}
	// base is a message in a guild; change makes the case.
	tests := map[string]struct {
		change func(m *discordgo.Message)
		parent string
		want   func(m *bus.InboundMessage)
	}{
		"plain": {},
		"private": {
			change: func(m *discordgo.Message) { m.GuildID = "" },
			want:   func(m *bus.InboundMessage) { m.Group = false; delete(m.Metadata, "is_group") },
		},
		"thread": {
			parent: "99",
			want: func(m *bus.InboundMessage) {
				m.Parent = bus.Address{Channel: "discord", ChatID: "99"}
				m.Metadata["thread_id"] = "2"
			},
		},
		"nick": {
			change: func(m *discordgo.Message) { m.Member = &discordgo.Member{Nick: "Annie"} },
			want:   func(m *bus.InboundMessage) { m.Sender.Name, m.Metadata["first_name"] = "Annie", "Annie" },
		},
		"no display name": {
			change: func(m *discordgo.Message) { m.Author = &discordgo.User{ID: "7", Username: "ann"} },
			want:   func(m *bus.InboundMessage) { m.Sender.Name, m.Metadata["first_name"] = "ann", "ann" },
		},
		"mention": {
			change: func(m *discordgo.Message) { m.Content, m.Mentions = "<@42> hello", []*discordgo.User{bot} },
			want:   func(m *bus.InboundMessage) { m.Mentioned = true },
		},
		"old mention, comma, twice": {
			change: func(m *discordgo.Message) { m.Content = " <@!42>, <@42>: hello" },
			want:   func(m *bus.InboundMessage) { m.Mentioned = true },
		},
		"mention alone": {
			change: func(m *discordgo.Message) { m.Content, m.Mentions = "<@42>", []*discordgo.User{bot} },
			want:   func(m *bus.InboundMessage) { m.Text, m.Mentioned = "", true },
		},
		"mentions within": {
			change: func(m *discordgo.Message) {
				m.Content, m.Mentions = "<@7> asks <@42> and <@!43> and <@44>", []*discordgo.User{bot, other, ann, nil}
			},
			want: func(m *bus.InboundMessage) { m.Text, m.Mentioned = "@Ann A. asks @dragoman and @other and <@44>", true },
		},
		"everyone and roles are nobody": {
			change: func(m *discordgo.Message) {
				m.Content, m.MentionEveryone, m.MentionRoles = "@everyone <@&42>", true, []string{"42"}
			},
			want: func(m *bus.InboundMessage) { m.Text = "@everyone <@&42>" },
		},
		"command after a mention": {
			change: func(m *discordgo.Message) { m.Content = "<@42> /Remind me  later" },
			want: func(m *bus.InboundMessage) {
				m.Text, m.Command, m.Args, m.Mentioned = "/Remind me  later", "remind", "me  later", true
			},
		},
		"command": {
			change: func(m *discordgo.Message) { m.Content = "/help" },
			want:   func(m *bus.InboundMessage) { m.Text, m.Command = "/help", "help" },
		},
		"command for another bot": {
			change: func(m *discordgo.Message) { m.Content, m.Mentions = "<@43> /stop now", []*discordgo.User{other} },
			want: func(m *bus.InboundMessage) {
				m.Text, m.Command, m.Args, m.ForOther = "@other /stop now", "stop", "now", true
			},
		},
		"command at a person": {
			change: func(m *discordgo.Message) { m.Content, m.Mentions = "<@7> /shrug", []*discordgo.User{ann} },
			want:   func(m *bus.InboundMessage) { m.Text = "@Ann A. /shrug" },
		},
		"reply to us": {
			change: func(m *discordgo.Message) {
				m.Type = discordgo.MessageTypeReply
				m.ReferencedMessage = &discordgo.Message{ID: "9", Author: bot, Content: "said <@7>", Mentions: []*discordgo.User{ann}}
			},
			want: func(m *bus.InboundMessage) {
				m.ReplyToBot, m.Quoted = true, &bus.Quoted{Author: "dragoman", Text: "said @Ann A."}
			},
		},
		"reply to a deleted message": {
			change: func(m *discordgo.Message) { m.Type = discordgo.MessageTypeReply },
		},
		"reply to a message without author or text": {
			change: func(m *discordgo.Message) {
				m.Type, m.ReferencedMessage = discordgo.MessageTypeReply, &discordgo.Message{ID: "9"}
			},
		},
		"forward": {
			change: func(m *discordgo.Message) {
				m.Content = ""
				m.MessageSnapshots = []discordgo.MessageSnapshot{{}, {Message: &discordgo.Message{
					Content: "old words", Attachments: []*discordgo.MessageAttachment{{ID: "5", Filename: "a.mp4", ContentType: "video/mp4", Size: 3}},
				}}}
			},
			want: func(m *bus.InboundMessage) {
				m.Text, m.Quoted = "", &bus.Quoted{Text: "old words", Forwarded: true}
				m.Media = []bus.Media{{Kind: "video", ID: "5", Name: "a.mp4", MIME: "video/mp4", Size: 3}}
			},
		},
		"another bot": {
			change: func(m *discordgo.Message) { m.Author = other },
			want: func(m *bus.InboundMessage) {
				m.Sender = bus.Sender{ID: "43", Username: "other", Name: "other", Bot: true}
				m.Metadata["user_id"], m.Metadata["username"], m.Metadata["first_name"] = "43", "other", "other"
			},
		},
		"webhook": {
			change: func(m *discordgo.Message) {
				m.Author, m.WebhookID = &discordgo.User{ID: "50", Username: "hook"}, "50"
			},
			want: func(m *bus.InboundMessage) {
				m.Sender = bus.Sender{ID: "50", Username: "hook", Name: "hook", Bot: true}
				m.Metadata["user_id"], m.Metadata["username"], m.Metadata["first_name"] = "50", "hook", "hook"
			},
		},
		"webhook without author": {
			change: func(m *discordgo.Message) { m.Author, m.WebhookID = nil, "50" },
			want: func(m *bus.InboundMessage) {
				m.Sender = bus.Sender{ID: "50", Bot: true}
				m.Metadata["user_id"] = "50"
				delete(m.Metadata, "username")
				delete(m.Metadata, "first_name")
			},
		},
		"media": {
			change: func(m *discordgo.Message) {
				m.Attachments = []*discordgo.MessageAttachment{
					{ID: "1", ContentType: "image/png"}, nil, {ID: "2", ContentType: "audio/ogg"}, {ID: "3", Filename: "x"},
				}
				m.StickerItems = []*discordgo.StickerItem{{ID: "4", Name: "wave"}, nil}
				m.Poll = &discordgo.Poll{Question: discordgo.PollMedia{Text: "who?"}}
			},
			want: func(m *bus.InboundMessage) {
				m.Media = []bus.Media{
					{Kind: "photo", ID: "1", MIME: "image/png"},
					{Kind: "audio", ID: "2", MIME: "audio/ogg"},
					{Kind: "document", ID: "3", Name: "x"},
					{Kind: "sticker", ID: "4", Name: "wave"},
					{Kind: "poll", Name: "who?"},
				}
			},
		},
		"voice": {
			change: func(m *discordgo.Message) {
				m.Flags, m.Attachments = flagVoice, []*discordgo.MessageAttachment{{ID: "2", ContentType: "audio/ogg"}}
			},
			want: func(m *bus.InboundMessage) {
				m.Media = []bus.Media{{Kind: "voice", ID: "2", MIME: "audio/ogg"}}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &discordgo.Message{ID: "1", ChannelID: "2", GuildID: "3", Author: ann, Content: "hello", Timestamp: at}
			if tt.change != nil {
				tt.change(m)
			}
			want := bus.InboundMessage{
				Address: bus.Address{Channel: "discord", ChatID: "2"}, ID: "m:2:1", MessageID: "1",
				Sender: bus.Sender{ID: "7", Username: "ann", Name: "Ann A."}, Kind: bus.KindMessage, Time: at, Text: "hello", Group: true,
				Metadata: map[string]string{"message_id": "1", "user_id": "7", "username": "ann", "first_name": "Ann A.", "is_group": "true"},
			}
			if tt.want != nil {
				tt.want(&want)
			}
			o := us
			o.parent = tt.parent
			got, ok := convert(o, m)
			if !ok {
				t.Fatal("it was dropped")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConvertDrops(t *testing.T) {
	ann := &discordgo.User{ID: "7"}
	for name, m := range map[string]*discordgo.Message{
		"nil":           nil,
		"no id":         {ChannelID: "2", Author: ann},
		"no channel":    {ID: "1", Author: ann},
		"no author":     {ID: "1", ChannelID: "2", Content: "x"},
		"empty author":  {ID: "1", ChannelID: "2", Author: &discordgo.User{}},
		"our own":       {ID: "1", ChannelID: "2", Author: &discordgo.User{ID: "42"}},
		"join":          {ID: "1", ChannelID: "2", Author: ann, Type: discordgo.MessageTypeGuildMemberJoin},
		"pin":           {ID: "1", ChannelID: "2", Author: ann, Type: discordgo.MessageTypeChannelPinnedMessage},
		"thread starts": {ID: "1", ChannelID: "2", Author: ann, Type: discordgo.MessageTypeThreadCreated},
	} {
		if got, ok := convert(us, m); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestTimeFromID: an event without a time still has one.
func TestTimeFromID(t *testing.T) {
	m := &discordgo.Message{ID: "1179000000000000000"}
	want := time.UnixMilli(1179000000000000000>>22 + 1420070400000).UTC()
	if got := timeOf(m); !got.Equal(want) {
		t.Errorf("timeOf = %s, want %s", got, want)
	}
}

// FuzzConvert: whatever Discord sends, reading it does not panic, and what
// comes out holds what the contract asks for.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{
		`{"id":"1","channel_id":"2","author":{"id":"7","username":"ann"},"content":"<@42> /help me","type":0}`,
		`{"id":"1","channel_id":"2","guild_id":"3","author":{"id":"7"},"content":"x","type":19,"referenced_message":{"author":{"id":"42"},"content":"y"}}`,
		`{"id":"1","channel_id":"2","author":null,"webhook_id":"5","mentions":[null,{"id":"42"}]}`,
		`{"id":"1","channel_id":"2","author":{"id":"7"},"message_snapshots":[{"message":null},{"message":{"content":"z"}}]}`,
		`{"channels":[{"id":"1","type":11,"parent_id":"2"}],"threads":[null]}`, `null`, `[]`, `{"author":{"id":"42"}}`,
	} {
		for _, kind := range []string{"MESSAGE_CREATE", "GUILD_CREATE", "THREAD_LIST_SYNC", "THREAD_CREATE"} {
			f.Add(kind, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		e, err := parseEvent(kind, data, "42")
		if err != nil {
			return
		}
		for _, p := range e.places {
			_ = p.parent()
		}
		m, ok := convert(origin{channel: "discord", self: "42", parent: "9"}, e.message)
		if !ok {
			return
		}
		if m.ID != "m:"+m.ChatID+":"+m.MessageID || m.ChatID == "" || m.MessageID == "" {
			t.Errorf("ids %q, %q, %q", m.ID, m.ChatID, m.MessageID)
		}
		if m.Sender.ID == "" || m.Sender.ID == "42" || m.Kind != bus.KindMessage || m.Channel != "discord" {
			t.Errorf("got %+v", m)
		}
		if !utf8.ValidString(m.Text) {
			t.Errorf("Text %q is no text", m.Text)
		}
		if m.ForOther && m.Command == "" {
			t.Errorf("for another bot, but no command: %+v", m)
		}
		for k, v := range m.Metadata {
			if v == "" {
				t.Errorf("Metadata[%q] is empty", k)
			}
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}
