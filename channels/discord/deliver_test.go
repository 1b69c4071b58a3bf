package discord

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// TestBatch: what waits goes to the inbox at once, with the last message of
// each channel as its cursor, and with a private channel that was not listed.
func TestBatch(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann, bob := r.srv.AddUser("ann", ""), r.srv.AddUser("bob", "")
		a, b := r.srv.AddDM(ann), r.srv.AddDM(bob)
		r.connect()
		release := r.in.block()
		r.srv.Say(a, ann, "first")
		synctest.Wait() // it is with the inbox, alone
		var lastA, lastB string
		for i := range 10 {
			lastA = r.srv.Say(a, ann, fmt.Sprint(i))
			lastB = r.srv.Say(b, bob, fmt.Sprint(i))
		}
		synctest.Wait()
		release()
		synctest.Wait()
		if n := len(r.in.batches); n != 2 {
			t.Fatalf("%d batches, want 2", n)
		}
		got := r.in.batches[1]
		if len(got.Messages) != 20 {
			t.Errorf("%d messages in the second batch", len(got.Messages))
		}
		cursors := map[string]string{}
		for _, c := range got.Cursors {
			cursors[c.Key] = c.Value
		}
		if len(got.Cursors) != 3 || cursors["channel/discord/direct/0"] != a+" "+b || cursors["channel/discord/last/"+a] != lastA || cursors["channel/discord/last/"+b] != lastB {
			t.Errorf("cursors %v, want %s and %s, and both channels", got.Cursors, lastA, lastB)
		}
	})
}

// TestFullQueue: an inbox that stands still stops the socket, and nothing is
// lost or out of order when it goes on, even after the connection was given up.
func TestFullQueue(t *testing.T) {
	const n = 2*queueSize + 300
	inBubble(t, discordtest.Options{Replay: 10000}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		release := r.in.block()
		for i := range n {
			r.srv.Say(dm, ann, fmt.Sprint(i))
		}
		time.Sleep(10 * time.Minute)
		if r.ch.Health() == nil {
			t.Error("healthy although nothing moves")
		}
		release()
		for i := range n {
			if m := r.next(); m.Text != fmt.Sprint(i) {
				t.Fatalf("message %d says %q", i, m.Text)
			}
		}
		for _, b := range r.in.batches {
			if len(b.Messages) > maxBatch {
				t.Errorf("a batch of %d messages", len(b.Messages))
			}
		}
	})
}

// TestStopDrains: what has been read when the stop comes is still stored.
func TestStopDrains(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		release := r.in.block()
		for i := range 300 {
			r.srv.Say(dm, ann, fmt.Sprint(i))
		}
		synctest.Wait()
		r.cancel()
		synctest.Wait()
		release()
		r.stop()
		if n := len(r.in.news); n != 300 {
			t.Errorf("%d messages were stored, want all 300", n)
		}
	})
}

// TestThread: a thread is a conversation of its own with its channel as parent,
// and finding that out costs one request at most.
func TestThread(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		general, forum := r.srv.AddChannel(guild, "general"), r.srv.AddForum(guild, "forum")
		known := r.srv.AddThread(general, "in GUILD_CREATE")
		r.connect()
		later := r.srv.AddThread(general, "in THREAD_CREATE")
		post := r.srv.AddThread(forum, "a post in a forum")
		quiet := r.srv.AddQuietThread(general, "not announced")
		for thread, parent := range map[string]string{known: general, later: general, post: forum, quiet: general, general: ""} {
			for range 3 {
				r.srv.Say(thread, ann, "hello")
				m := r.next()
				want := bus.Address{}
				if parent != "" {
					want = bus.Address{Channel: "discord", ChatID: parent}
				}
				if m.Address != (bus.Address{Channel: "discord", ChatID: thread}) || m.Parent != want || !m.Group {
					t.Errorf("got %+v, want parent %v", m, want)
				}
				if (m.Metadata["thread_id"] == thread) != (parent != "") {
					t.Errorf("metadata %v", m.Metadata)
				}
			}
		}
		var lookups []string
		for _, c := range r.srv.Calls() {
			if strings.HasPrefix(c.Path, "channels/") {
				lookups = append(lookups, c.Path)
			}
		}
		if len(lookups) != 1 || lookups[0] != "channels/"+quiet {
			t.Errorf("looked up %q, want the quiet thread once", lookups)
		}
	})
}

// TestThreadUnknown: a thread that cannot be looked up is still heard.
func TestThreadUnknown(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		quiet := r.srv.AddQuietThread(r.guildChannel(), "quiet")
		r.connect()
		r.srv.Block(quiet, discordtest.CodeMissingAccess)
		r.srv.Say(quiet, ann, "hello")
		if m := r.next(); m.Text != "hello" || m.ChatID != quiet || !m.Parent.IsZero() {
			t.Errorf("got %+v", m)
		}
	})
}

func TestPlacesAreBounded(t *testing.T) {
	all := spots{}
	for i := range maxPlaces + 100 {
		all.learn(place{ID: fmt.Sprint(i)})
	}
	if n := len(all); n != maxPlaces {
		t.Errorf("%d channels are remembered, want %d", n, maxPlaces)
	}
}

// TestOwnEcho: the bot's answers come back to it as events, and stay there,
// also where they name others or are named.
func TestOwnEcho(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		if _, err := r.send(message(dm, "k", "I am "+discordtest.Mention(r.srv.Bot()))); err != nil {
			t.Fatal(err)
		}
		r.srv.Say(dm, ann, "you are "+discordtest.Mention(r.srv.Bot()))
		if m := r.next(); m.Text != "you are @dragoman" || !m.Mentioned {
			t.Errorf("got %+v", m)
		}
		synctest.Wait()
		if n := len(r.in.news); n != 0 {
			t.Errorf("%d messages too many", n)
		}
	})
}

func TestParseEventKeepsForeignMessages(t *testing.T) {
	const at = "2026-05-01T10:00:00.000000+00:00"
	own, _ := json.Marshal(discordtest.Message{ID: "1", ChannelID: "2", Timestamp: at, Author: &discordtest.User{ID: "42"}, Content: "x"})
	other, _ := json.Marshal(discordtest.Message{ID: "1", ChannelID: "42", Timestamp: at, Author: &discordtest.User{ID: "7"}, Content: "<@42>"})
	if e, err := parseEvent("MESSAGE_CREATE", own, "42"); err != nil || e.message != nil || e.own == nil || e.own.ID != "1" || e.own.ChannelID != "2" {
		t.Errorf("own message: %+v, %v", e, err)
	}
	if e, err := parseEvent("MESSAGE_CREATE", other, "42"); err != nil || e.message == nil {
		t.Errorf("other's message: %+v, %v", e, err)
	}
}
