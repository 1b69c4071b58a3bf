package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

// Admission is one table for all channels.
func TestDecide(t *testing.T) {
	group := func(m bus.InboundMessage) bus.InboundMessage { m.Group = true; return m }
	msg := func(user string) bus.InboundMessage {
		return bus.InboundMessage{
			Address: bus.Address{Channel: "fake", ChatID: "chat"}, Kind: bus.KindMessage, Text: "hi",
			Sender: bus.Sender{ID: user, Username: "Nick" + user}, Principal: "fake:" + user,
		}
	}
	with := func(m bus.InboundMessage, f func(*bus.InboundMessage)) bus.InboundMessage { f(&m); return m }
	mention := func(m *bus.InboundMessage) { m.Mentioned = true }
	topic := bus.Address{Channel: "fake", ChatID: "parent"}

	everyone := channels.Gate{AllowUsers: []string{"*"}}
	for _, tc := range []struct {
		name string
		gate channels.Gate
		m    bus.InboundMessage
		want verdict
	}{
		{"empty list admits nobody", channels.Gate{}, msg("7"), refuse},
		{"empty list admits the owner", channels.Gate{}, msg("owner"), accept},
		{"listed by id", channels.Gate{AllowUsers: []string{"7"}}, msg("7"), accept},
		{"listed by name, any case", channels.Gate{AllowUsers: []string{"@nick7"}}, msg("7"), accept},
		{"a bare name is not an id", channels.Gate{AllowUsers: []string{"Nick7"}}, msg("7"), refuse},
		{"not listed", channels.Gate{AllowUsers: []string{"8"}}, msg("7"), refuse},
		{"everyone", everyone, msg("7"), accept},
		{"a group's chatter", everyone, group(msg("7")), drop},
		{"mentioned", everyone, with(group(msg("7")), mention), accept},
		{"replied to", everyone, with(group(msg("7")), func(m *bus.InboundMessage) { m.ReplyToBot = true }), accept},
		{"our command", everyone, with(group(msg("7")), func(m *bus.InboundMessage) { m.Command = "help" }), accept},
		{"somebody's command", everyone, with(group(msg("7")), func(m *bus.InboundMessage) { m.Command = "weather" }), drop},
		{"another bot's command", everyone, with(group(msg("7")), func(m *bus.InboundMessage) { m.Command, m.ForOther = "help", true }), drop},
		{"another bot", everyone, with(group(msg("7")), func(m *bus.InboundMessage) { m.Mentioned, m.Sender.Bot = true, true }), drop},
		{"always", channels.Gate{AllowUsers: []string{"*"}, Groups: "always"}, group(msg("7")), accept},
		{"never", channels.Gate{AllowUsers: []string{"*"}, Groups: "never"}, with(group(msg("7")), mention), drop},
		{"never is about groups", channels.Gate{AllowUsers: []string{"*"}, Groups: "never"}, msg("7"), accept},
		{"a stranger's chatter is none of ours", channels.Gate{}, group(msg("7")), drop},
		{"a stranger mentions us", channels.Gate{}, with(group(msg("7")), mention), refuse},
		{"the chat is listed", channels.Gate{AllowChats: []string{"chat"}}, with(group(msg("7")), mention), accept},
		{"the topic's group is listed", channels.Gate{AllowChats: []string{"parent"}}, with(group(msg("7")), func(m *bus.InboundMessage) { m.Mentioned, m.Parent = true, topic }), accept},
		{"another chat is listed", channels.Gate{AllowChats: []string{"other"}}, with(group(msg("7")), mention), refuse},
		{"an empty parent matches nothing", channels.Gate{AllowChats: []string{""}}, with(group(msg("7")), mention), refuse},
		{"a listed chat admits no stranger in private", channels.Gate{AllowChats: []string{"*"}}, msg("7"), refuse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ch := newFakeChannel("fake")
			ch.gate = tc.gate
			g := New(Config{Channels: []channels.Channel{ch}, Owners: []string{"fake:owner"}})
			if got := g.decide(g.ports["fake"], tc.m); got != tc.want {
				t.Errorf("decide = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestStrangerIsToldOnceHowToBeLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := start(t, fakeModel(echo), func(c *Config) {
			c.Channels[0].(*fakeChannel).gate = channels.Gate{}
			c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		for range 3 {
			r.say(r.ch.from("7", "7", "hello"))
		}
		group := r.ch.from("-5", "8", "hello")
		group.Group, group.Mentioned = true, true
		r.say(group)
		synctest.Wait()
		for _, add := range []string{`add="'7' to channels.fake.allow_users"`, `add="'8' to channels.fake.allow_users, or for everybody there '-5' to channels.fake.allow_chats"`} {
			if strings.Count(log.String(), add) != 1 {
				t.Errorf("the log does not say %s once:\n%s", add, log.String())
			}
		}
		got := r.ch.texts("7")
		if len(got) != 1 || !strings.Contains(got[0], "`7`") {
			t.Errorf("the stranger was sent %q", got)
		}
	})
}

func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := make(chan string, 1)
		r := start(t, fakeModel(echo), func(c *Config) {
			c.Owners, c.Announce = nil, func(s string) { code <- s }
			c.Channels[0].(*fakeChannel).gate = channels.Gate{}
		})
		secret := <-code
		r.say(r.ch.from("7", "7", "/start wrong"))
		r.wantTexts("7", "That code is not valid. The code stands in my log, and it works once.")
		r.say(r.ch.from("8", "8", "/start "+strings.ToUpper(secret)))
		synctest.Wait()
		if !r.IsOwner("fake:8") || r.IsOwner("fake:7") {
			t.Fatal("the one with the code is not the owner, or somebody else is")
		}
		r.say(r.ch.from("7", "7", "/start "+secret))
		synctest.Wait()
		if r.IsOwner("fake:7") {
			t.Error("the code worked twice")
		}
		r.say(r.ch.from("8", "8", "hello"))
		synctest.Wait()
		if got := r.ch.texts("8"); got[len(got)-1] != "re: hello" {
			t.Errorf("the owner was sent %q", got)
		}
		again := start(t, fakeModel(echo), func(c *Config) {
			c.Owners, c.Store = nil, r.store
			c.Announce = func(string) { t.Error("a claimed bot announces a code") }
		})
		if !again.IsOwner("fake:8") {
			t.Error("the owner is forgotten after a restart")
		}
	})
}

func TestCommandsAreAnsweredWhileATurnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuckModel())
		r.say(r.ch.from("1", "a", "long"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "/help"), r.ch.from("1", "a", "/id"), r.ch.from("1", "a", "/tasks"))
		r.wantTexts("1", helpText, "You: `fake:a`\nThis chat: `fake:1`", "Nothing runs in the background here and no reminder is set.")
		r.say(r.ch.from("1", "a", "/stop"))
	})
}

func TestCommandFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		for range 100 {
			r.say(r.ch.from("1", "a", "/help"))
		}
		synctest.Wait()
		if n := len(r.ch.texts("1")); n != commandBurst+1 {
			t.Errorf("100 commands at once were answered %d times", n)
		}
	})
}

func TestFollowUpFromOutsideIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		m := r.ch.from("1", "a", "x")
		m.Kind, m.FollowUp = bus.KindFollowUp, &bus.FollowUp{ForUser: "forged"}
		if err := r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{m}}); err == nil {
			t.Error("an adapter could forge a follow-up")
		}
		r.wantTexts("1")
	})
}

// The cursor is stored with the batch, also when nothing in it is for us, and
// not when the batch was refused.
func TestCursorGoesWithItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		chatter := r.ch.from("1", "a", "x")
		chatter.Group = true
		if err := r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{chatter}, Cursors: []bus.Cursor{{Key: "k", Value: "5"}}}); err != nil {
			t.Fatal(err)
		}
		if v, _ := r.store.Fact(t.Context(), "k"); v != "5" {
			t.Errorf("cursor is %q", v)
		}
		wrong := r.ch.from("1", "a", "x")
		wrong.Channel = "nowhere"
		if err := r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{wrong}, Cursors: []bus.Cursor{{Key: "k", Value: "6"}}}); err == nil {
			t.Error("a message of an unknown channel was admitted")
		}
		if v, _ := r.store.Fact(t.Context(), "k"); v != "5" {
			t.Errorf("the cursor of a refused batch was stored: %q", v)
		}
	})
}

// Conversations that are over leave nothing in memory here.
func TestNothingIsLeftOfQuietConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo), func(c *Config) { c.TurnsPerMinute = 10 })
		for i := range 2000 {
			id := fmt.Sprint(i)
			r.say(r.ch.from(id, id, "hello"))
		}
		if lanes, senders := r.alive(); lanes+senders != 0 {
			t.Errorf("%d lanes and %d senders are left", lanes, senders)
		}
		if n := len(r.senders.waiting) + len(r.senders.rates.m); n != 0 {
			t.Errorf("%d waiters and rates are left", n)
		}
	})
}

// Strangers who come in crowds are told by and by, and keep nobody's answer
// from being sent.
func TestCrowdOfStrangersHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := rated{newFakeChannel("fake"), channels.Rates{GlobalPerSec: 10}}
		ch.gate = channels.Gate{AllowUsers: []string{"friend"}}
		r := start(t, fakeModel(echo), func(c *Config) { c.Channels = []channels.Channel{ch} })
		r.ch = ch.fakeChannel
		for i := range 500 {
			id := fmt.Sprint("s", i)
			r.say(r.ch.from(id, id, "hello"))
		}
		r.say(r.ch.from("1", "friend", "hello"))
		time.Sleep(5 * time.Second)
		r.wantTexts("1", "re: hello")
		time.Sleep(time.Minute)
		r.say(r.ch.from("s499", "s499", "hello?"), r.ch.from("s499", "s499", "hello!"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.ch.texts("s499"); len(got) != 1 {
			t.Errorf("one of the crowd was told %q a minute later", got)
		}
	})
}

// pickyStore takes what can be written as JSON only, as a ledger in a file does.
type pickyStore struct{ store.Store }

func (pickyStore) Close() error { return nil }

func (p pickyStore) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if _, err := json.Marshal(tx.Admit); err != nil {
		return store.Result{}, err
	}
	return p.Store.Apply(ctx, tx)
}

// One message with nonsense in it does not keep its batch, and with it the whole
// channel, from being taken in.
func TestNonsenseDoesNotBlockItsBatch(t *testing.T) {
	for _, at := range []int64{99999999999999, -99999999999999, math.MaxInt64, math.MinInt64, 0} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, fakeModel(echo), func(c *Config) { c.Store = pickyStore{mem.New()} })
			odd := r.ch.from("1", "a", "odd\x00\xff\u202e")
			odd.Time = time.Unix(at, 0)
			odd.Sender.Name, odd.Metadata = "\x00\xff", map[string]string{"\xff": "\x00"}
			r.say(odd, r.ch.from("2", "b", "fine"))
			r.wantTexts("2", "re: fine")
			if got := r.ch.texts("1"); len(got) != 1 {
				t.Errorf("sent %q", got)
			}
		})
	}
}

// What is too old is not answered, and is said once in each conversation in
// which it would have been, however many batches tell of it.
func TestTooOldToBeAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo), func(c *Config) {
			c.Channels[0].(*fakeChannel).gate = channels.Gate{AllowUsers: []string{"a", "b"}}
		})
		batch := func(gap string) bus.Batch {
			group := func(id, user, text string, mentioned bool) bus.InboundMessage {
				m := r.ch.from(id, user, text)
				m.Group, m.Mentioned = true, mentioned
				return m
			}
			return bus.Batch{Gap: gap, Late: []bus.InboundMessage{
				r.ch.from("1", "a", "one"), r.ch.from("1", "a", "/stop"), r.ch.from("2", "b", "two"), r.ch.from("3", "stranger", "three"),
				group("-1", "a", "chatter", false), group("-2", "a", "chatter", false), group("-2", "a", "asked", true),
			}, Messages: []bus.InboundMessage{r.ch.from("1", "a", "young "+gap)}}
		}
		for _, gap := range []string{"5", "5", "6"} {
			if err := r.PublishInbound(t.Context(), batch(gap)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r.wantTexts("1", textLate, "re: young 5", "re: young 5", textLate, "re: young 6")
		r.wantTexts("2", textLate, textLate)
		r.wantTexts("3")
		r.wantTexts("-1")
		r.wantTexts("-2", textLate, textLate)
		if got := r.Counts(); got.Admitted != 3 || got.Dropped != 21 || got.Refused != 0 {
			t.Errorf("counted %+v", got)
		}
	})
}
