package discord

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/channelstest"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKit(t *testing.T) { channelstest.RunInBubble(t, newPlatform) }

const wrongToken = "MTAwMDAw.wrong.token-of-somebody-else"

// newPlatform is a fake Discord with two private channels, a guild with two
// threads, and a second guild channel.
func newPlatform(t *testing.T) *channelstest.Platform {
	t.Helper()
	newYear()
	srv := discordtest.New(discordtest.Options{})
	base, dial, stop := srv.Pipe()
	t.Cleanup(stop)

	sender := func(u discordtest.User) bus.Sender {
		s := bus.Sender{ID: u.ID, Username: u.Username, Name: u.Username, Bot: u.Bot}
		if u.GlobalName != nil {
			s.Name = *u.GlobalName
		}
		return s
	}
	users := map[string]discordtest.User{}
	person := func(username, name string) bus.Sender {
		u := srv.AddUser(username, name)
		users[u.ID] = u
		return sender(u)
	}
	ann, bob := person("ann", "Ann A."), person("bob", "")
	other := srv.AddBot("otherbot")
	address := func(id string) bus.Address { return bus.Address{Channel: channelstest.Name, ChatID: id} }
	guild := srv.AddGuild("Guild")
	general, random := srv.AddChannel(guild, "general"), srv.AddChannel(guild, "random")
	group := func(id string) channelstest.Chat {
		return channelstest.Chat{Address: address(id), People: []bus.Sender{ann, bob}}
	}
	topic := func(id string) channelstest.Chat {
		c := group(id)
		c.Parent, c.Thread = address(general), id
		return c
	}
	direct := func(s bus.Sender) channelstest.Chat {
		return channelstest.Chat{Address: address(srv.AddDM(users[s.ID])), People: []bus.Sender{s}}
	}
	p := &channelstest.Platform{
		Direct:  []channelstest.Chat{direct(ann), direct(bob)},
		Groups:  []channelstest.Chat{group(general), group(random)},
		Topics:  []channelstest.Chat{topic(srv.AddThread(general, "announced")), topic(srv.AddQuietThread(general, "quiet"))},
		Secrets: []string{discordtest.Token, wrongToken},
	}
	var facts *state.State
	heard := func(t *testing.T, channel string) uint64 {
		t.Helper()
		if facts == nil {
			return 0
		}
		cursor, err := facts.Get(t.Context(), lastKey(channel))
		if err != nil {
			t.Fatal(err)
		}
		return snowflake(cursor)
	}
	said := map[string]string{} // message -> channel
	p.New = func(t *testing.T, o channelstest.Options) channels.Channel {
		t.Helper()
		facts = o.Facts
		cfg := DefaultConfig()
		cfg.APIBase, cfg.Token = base, discordtest.Token
		if o.WrongToken {
			cfg.Token = config.Secret(wrongToken)
		}
		return New(channelstest.Name, cfg, o.Facts, o.Log, WithDialer(dial))
	}
	p.Say = func(t *testing.T, m channelstest.Message) channelstest.Posted {
		t.Helper()
		channel := m.Chat.Address.ChatID
		synctest.Wait()             // a session that ends is gone
		if heard(t, channel) == 0 { // what a new channel says to nobody stays unheard
			if err := srv.WaitSession(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		id := srv.Post(channel, post(srv, other, users, m))
		said[id] = channel
		return channelstest.Posted{MessageID: id}
	}
	p.Confirmed = func(t *testing.T) int { // Discord is asked for what follows the cursor
		t.Helper()
		n := 0
		for id, channel := range said {
			if snowflake(id) <= heard(t, channel) {
				n++
			}
		}
		return n
	}
	p.Sent = func(*testing.T) []channelstest.Sent {
		var out []channelstest.Sent
		for _, s := range srv.Sent() {
			out = append(out, channelstest.Sent{Address: address(s.ChannelID), Text: s.Content, ReplyTo: s.ReplyTo, MessageID: s.MessageID})
		}
		return out
	}
	p.Typed = func(*testing.T) []bus.Address {
		var out []bus.Address
		for _, c := range srv.Calls() {
			if id, ok := strings.CutSuffix(strings.TrimPrefix(c.Path, "channels/"), "/typing"); ok && c.Status == 204 {
				out = append(out, address(id))
			}
		}
		return out
	}
	p.Odd = func(t *testing.T) { t.Helper(); odd(srv, general) }
	p.Redeliver = func(*testing.T) { srv.Redeliver() }
	// The kit waits for messages only, so nobody tells of this one.
	p.Delete = func(_ *testing.T, c channelstest.Chat, id string) { srv.Forget(c.Address.ChatID, id) }
	p.Throttle = func(_ *testing.T, _ channelstest.Chat, after time.Duration) { srv.Throttle(1, after, false) }
	p.Block = func(_ *testing.T, c channelstest.Chat) {
		srv.Block(c.Address.ChatID, discordtest.CodeCannotMessageUser)
	}
	p.CutNext = func(*testing.T) { srv.CutAfterAccept(1) }
	p.Down = func(_ *testing.T, down bool) { srv.SetDown(down) }
	return p
}

// post is how a message of the kit looks on Discord.
func post(srv *discordtest.Server, other discordtest.User, users map[string]discordtest.User, m channelstest.Message) discordtest.Message {
	author := users[m.From.ID]
	switch m.By {
	case channelstest.Us:
		author = srv.Bot()
	case channelstest.OtherBot:
		author = other
	case channelstest.Nobody:
	}
	text := m.Text
	if m.Command != "" {
		text = strings.TrimSpace("/" + m.Command + " " + text)
	}
	switch m.To {
	case channelstest.Us:
		text = discordtest.Mention(srv.Bot()) + " " + text
	case channelstest.OtherBot:
		text = discordtest.Mention(other) + " " + text
	case channelstest.Nobody:
	}
	out := discordtest.Message{Author: &author, Content: text}
	switch {
	case m.ReplyTo != "":
		out.Type = discordtest.MessageReply
		out.MessageReference = &discordtest.Reference{MessageID: m.ReplyTo, ChannelID: m.Chat.Address.ChatID}
	case m.Forwarded != "":
		out.MessageReference = &discordtest.Reference{Type: 1, MessageID: "1", ChannelID: "2"}
		out.MessageSnapshots = []discordtest.Snapshot{{Message: discordtest.SnapshotMessage{Content: m.Forwarded}}}
	}
	switch m.Media {
	case "photo":
		out.Attachments = []discordtest.Attachment{{ID: "5", Filename: "a.png", ContentType: "image/png", Size: 3}}
	case "document":
		out.Attachments = []discordtest.Attachment{{ID: "6", Filename: "a.pdf", ContentType: "application/pdf", Size: 3}}
	}
	return out
}

// odd sends events that hold no message of a person.
func odd(srv *discordtest.Server, channel string) {
	author := srv.AddUser("odd", "")
	srv.Post(channel, discordtest.Message{Type: discordtest.MessageJoin, Author: &author})
	srv.Post(channel, discordtest.Message{Content: "no author"})
	for _, raw := range []string{
		`{}`, `null`, `[]`, `{"id":"1"}`, `{"id":"1","channel_id":"` + channel + `","author":null,"content":"x"}`,
		`{"id":"1","channel_id":"` + channel + `","author":{},"content":"x","mentions":[null],"attachments":[null]}`,
		`{"id":7,"channel_id":"` + channel + `"}`,
	} {
		srv.Dispatch("MESSAGE_CREATE", raw)
	}
	for _, kind := range []string{"GUILD_CREATE", "THREAD_CREATE", "THREAD_LIST_SYNC", "CHANNEL_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK", "TYPING_START", "NOBODY_KNOWS_THIS", ""} {
		srv.Dispatch(kind, `{}`)
		srv.Dispatch(kind, `null`)
		srv.Dispatch(kind, `{"channels":[null],"threads":null,"id":null}`)
	}
	srv.AskHeartbeat()
}
