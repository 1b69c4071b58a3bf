package discord

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// restart ends the adapter, lets f happen, and starts a new one.
func (r *rig) restart(f func()) {
	r.Helper()
	if r.ended != nil {
		r.stop()
	}
	f()
	r.renew()
	before := r.srv.Stats().Identified
	r.start()
	r.until("connected again", func(s discordtest.Stats) bool { return s.Identified > before && s.Connected == 1 })
	synctest.Wait()
}

// reads lists the looks at a channel's messages: the queries, oldest first.
func (r *rig) reads(channel string) []string {
	var out []string
	for _, c := range r.srv.Calls() {
		if c.Method == http.MethodGet && c.Path == "channels/"+channel+"/messages" {
			out = append(out, c.Query)
		}
	}
	return out
}

// quietFor says that no message is on its way.
func (r *rig) quietFor(d time.Duration) {
	r.Helper()
	time.Sleep(d)
	synctest.Wait()
	if n := len(r.in.news); n != 0 {
		r.Errorf("%d messages too many, the first one: %+v", n, <-r.in.news)
	}
}

// say writes numbered messages and returns their texts.
func (r *rig) say(channel string, by discordtest.User, what string, n int) []string {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprint(what, " ", i))
		r.srv.Say(channel, by, texts[i])
	}
	return texts
}

// TestCatchUp: after a gap, whatever caused it, what was written in it arrives
// once, in order, before what came later.
func TestCatchUp(t *testing.T) {
	gaps := map[string]func(r *rig, meanwhile func()){
		"restart": func(r *rig, meanwhile func()) { r.restart(meanwhile) },
		"invalid": func(r *rig, meanwhile func()) {
			r.srv.InvalidateSessions(false)
			meanwhile()
		},
		"timed out": func(r *rig, meanwhile func()) {
			r.srv.CloseSockets(discordtest.CloseSessionTimedOut, "")
			meanwhile()
		},
		"forgotten": func(r *rig, meanwhile func()) {
			r.srv.SetDown(true)
			r.srv.ForgetSessions()
			meanwhile()
			time.Sleep(10 * time.Minute)
			meanwhile()
			r.srv.SetDown(false)
		},
	}
	for name, gap := range gaps {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				guild := r.srv.AddGuild("Guild")
				general, forum := r.srv.AddChannel(guild, "general"), r.srv.AddForum(guild, "forum")
				r.connect()
				places := map[string]string{
					"private": r.srv.AddDM(ann), "channel": general, "thread": r.srv.AddThread(general, "thread"),
					"post": r.srv.AddThread(forum, "post"), "quiet thread": r.srv.AddQuietThread(general, "quiet"),
				}
				want := map[string][]string{}
				say := func(what string, n int) {
					for _, id := range places {
						want[id] = append(want[id], r.say(id, ann, what, n)...)
					}
				}
				say("before", 2)
				r.texts(2 * len(places))
				before := r.srv.Stats().Identified
				gaps := 0
				gap(r, func() { gaps++; say(fmt.Sprint("meanwhile ", gaps), 3) })
				r.until("identified again", func(s discordtest.Stats) bool { return s.Identified == before+1 })
				say("after", 2)
				got := map[string][]string{}
				for range (2 + 3*gaps) * len(places) {
					m := r.next()
					got[m.ChatID] = append(got[m.ChatID], m.Text)
					if m.Group != (m.ChatID != places["private"]) {
						t.Errorf("group: %+v", m)
					}
					if thread := m.ChatID != places["private"] && m.ChatID != general; thread != (m.Metadata["thread_id"] != "") {
						t.Errorf("thread: %+v", m)
					}
				}
				for name, id := range places {
					if w := want[id][2:]; !slices.Equal(got[id], w) {
						t.Errorf("%s: got %q, want %q", name, got[id], w)
					}
				}
				r.quietFor(time.Hour)
			})
		})
	}
}

// TestCatchUpFacts: what is fetched says the same as what the socket brings.
func TestCatchUpFacts(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "Ann A.")
		general := r.guildChannel()
		thread := r.srv.AddThread(general, "thread")
		r.connect()
		ours, err := r.send(message(general, "k", "a statement"))
		if err != nil {
			t.Fatal(err)
		}
		post := func() {
			r.srv.Say(general, ann, discordtest.Mention(r.srv.Bot())+" /help me")
			r.srv.Reply(general, ann, ours.MessageID, "why")
			r.srv.Post(thread, discordtest.Message{
				Author: &ann, Content: "look", Attachments: []discordtest.Attachment{{ID: "5", Filename: "a.png", ContentType: "image/png", Size: 3}},
			})
		}
		collect := func() map[string]bus.InboundMessage {
			out := map[string]bus.InboundMessage{}
			for range 3 {
				m := r.next()
				out[m.Text] = m
			}
			return out
		}
		post()
		live := collect()
		r.restart(post)
		for text, m := range collect() {
			if m.ID == live[text].ID || m.Time.Before(live[text].Time) {
				t.Errorf("%s: %s at %s after %s at %s", text, m.ID, m.Time, live[text].ID, live[text].Time)
			}
			w := live[text]
			w.ID, w.MessageID, w.Time = m.ID, m.MessageID, m.Time
			w.Metadata["message_id"] = m.MessageID
			if got, want := fmt.Sprintf("%+v %+v", m, m.Quoted), fmt.Sprintf("%+v %+v", w, w.Quoted); cutPointers(got) != cutPointers(want) {
				t.Errorf("fetched %s\nlive    %s", got, want)
			}
		}
	})
}

// cutPointers takes addresses out of a %+v.
func cutPointers(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		words[i], _, _ = strings.Cut(w, "0x")
	}
	return strings.Join(words, " ")
}

// TestFirstSight: a channel that is new to us starts where it is, and from then
// on nothing is missed in it, even if nothing was ever heard there.
func TestFirstSight(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		old, empty := r.srv.AddChannel(guild, "old"), r.srv.AddChannel(guild, "empty")
		r.say(old, ann, "long ago", 5)
		dm := r.srv.AddDM(ann)
		r.say(dm, ann, "nobody was there", 2)
		r.connect()
		r.quietFor(time.Minute)
		if n := len(r.reads(old)) + len(r.reads(empty)) + len(r.reads(dm)); n != 0 {
			t.Errorf("%d looks at new channels", n)
		}
		later := r.srv.AddThread(empty, "made while we look on")
		synctest.Wait()
		r.restart(func() {
			for _, id := range []string{old, empty, later} {
				r.srv.Say(id, ann, "hello")
			}
		})
		for range 3 {
			if m := r.next(); m.Text != "hello" {
				t.Errorf("got %+v", m)
			}
		}
		r.quietFor(time.Minute)
	})
}

// TestLiveWaits: what arrives in a channel waits until it has been caught up
// on, however long that takes; other channels do not.
func TestLiveWaits(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann, bob := r.srv.AddUser("ann", ""), r.srv.AddUser("bob", "")
		a, b := r.srv.AddDM(ann), r.srv.AddDM(bob)
		r.connect()
		r.srv.Say(a, ann, "one")
		r.srv.Say(b, bob, "other one")
		r.texts(2)
		r.restart(func() {
			r.srv.ThrottleReads(a, 3, 20*time.Second)
			r.srv.Say(a, ann, "two")
		})
		start := time.Now()
		r.srv.Say(a, ann, "three")
		r.srv.Say(b, bob, "other two")
		if m := r.next(); m.Text != "other two" || time.Since(start) > time.Second {
			t.Errorf("%q after %s", m.Text, time.Since(start))
		}
		r.quietFor(59 * time.Second)
		if got := r.texts(2); !slices.Equal(got, []string{"two", "three"}) || time.Since(start) > 62*time.Second {
			t.Errorf("got %q after %s", got, time.Since(start))
		}
		r.quietFor(time.Minute)
	})
}

// TestManyWait: what waits is bounded, and nothing is lost or out of order when
// the bound is met.
func TestManyWait(t *testing.T) {
	inBubble(t, discordtest.Options{History: 1, Replay: 10 * maxHeld}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		r.srv.Say(dm, ann, "one")
		r.texts(1)
		r.restart(func() { r.srv.ThrottleReads(dm, 1, time.Minute) })
		want := r.say(dm, ann, "live", 3*maxHeld)
		if got := r.texts(len(want)); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		for _, b := range r.in.batches {
			if len(b.Messages) > maxBatch {
				t.Errorf("a batch of %d messages", len(b.Messages))
			}
		}
	})
}

// TestGapInGap: a session that ends while channels are being caught up on
// leaves one gap more, and everything still comes in order.
func TestGapInGap(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		places := []string{r.srv.AddDM(ann), r.srv.AddChannel(guild, "general")}
		r.connect()
		want := map[string][]string{}
		say := func(what string) {
			for _, id := range places {
				want[id] = append(want[id], r.say(id, ann, what, 2)...)
			}
		}
		say("before")
		r.texts(4)
		r.restart(func() {
			for _, id := range places {
				r.srv.ThrottleReads(id, 1, 30*time.Second)
			}
			say("in the first gap")
		})
		say("live")
		for i := range 3 {
			r.srv.InvalidateSessions(false)
			say(fmt.Sprint("in another gap ", i))
			r.until("identified again", func(s discordtest.Stats) bool { return s.Identified == 3+i && s.Connected == 1 })
			say(fmt.Sprint("live again ", i))
		}
		got := map[string][]string{}
		for range 2 * (2 + 6) * 2 {
			m := r.next()
			got[m.ChatID] = append(got[m.ChatID], m.Text)
		}
		for _, id := range places {
			if w := want[id][2:]; !slices.Equal(got[id], w) {
				t.Errorf("%s: got %q, want %q", id, got[id], w)
			}
		}
		r.quietFor(time.Hour)
	})
}

// TestFetchSeesTooMuch: what a fetch brings beyond the first message that waits
// is left alone: a gap may lie between, and the cursor must not pass it.
func TestFetchSeesTooMuch(t *testing.T) {
	c := New("discord", DefaultConfig(), state.New(&facts{values: map[string]string{}}, "channel/discord"), quiet())
	d := newDelivery(c, nil, nil)
	ann := &discordgo.User{ID: "7"}
	say := func(id uint64) heard {
		return heard{id: id, o: us, m: &discordgo.Message{ID: fmt.Sprint(id), ChannelID: "2", Author: ann, Content: fmt.Sprint(id)}}
	}
	l := &lane{id: "2", last: 16}
	d.open(l)
	d.running, l.running = 1, true
	d.hold(l, say(13))
	d.finish(t.Context(), result{lane: l, found: missed{messages: []heard{say(11), say(13), say(15)}, newest: 15}})
	var got []string
	for _, m := range d.messages {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, []string{"11", "13"}) || d.moved["2"] != 13 || d.spots["2"].cursor != 13 {
		t.Errorf("published %q, cursor %d", got, d.moved["2"])
	}
}

// TestBounds: only the newest messages are taken, and only those that are not
// too old; how many were passed over is logged.
func TestBounds(t *testing.T) {
	tests := map[string]struct {
		cfg    CatchUp
		said   int // one a minute
		want   int // the newest of them
		logged string
		reads  int
	}{
		"all":                  {CatchUp{24 * time.Hour, 200}, 60, 60, "count=60", 1},
		"a full page":          {CatchUp{24 * time.Hour, 200}, 100, 100, "count=100", 2},
		"two pages":            {CatchUp{24 * time.Hour, 200}, 150, 150, "count=150", 2},
		"exactly enough":       {CatchUp{24 * time.Hour, 200}, 200, 200, "count=200", 3},
		"too many":             {CatchUp{24 * time.Hour, 200}, 250, 200, "count=200 passed=50 at_least=false", 3},
		"far too many":         {CatchUp{24 * time.Hour, 200}, 900, 200, "count=200 passed=100 at_least=true", 3},
		"one":                  {CatchUp{24 * time.Hour, 1}, 30, 1, "count=1 passed=29 at_least=false", 1},
		"old":                  {CatchUp{10 * time.Minute, 200}, 30, 10, "count=10 passed=20 at_least=false", 1},
		"old and many":         {CatchUp{10 * time.Minute, 200}, 900, 10, "count=10 passed=190 at_least=true", 2},
		"no longer old enough": {CatchUp{time.Nanosecond, 200}, 5, 0, "passed=5", 1},
		"age off":              {CatchUp{0, 200}, 5, 0, "", 0},
		"count off":            {CatchUp{time.Hour, 0}, 5, 0, "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{History: 1000}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				dm := r.srv.AddDM(ann)
				r.cfg.CatchUp = tt.cfg
				r.renew()
				r.connect()
				r.srv.Say(dm, ann, "before")
				r.texts(1)
				var want []string
				r.restart(func() {
					for i := range tt.said {
						r.srv.Say(dm, ann, fmt.Sprint(i))
						want = append(want, fmt.Sprint(i))
						time.Sleep(time.Minute)
					}
				})
				r.srv.Say(dm, ann, "after")
				want = append(want[tt.said-tt.want:], "after")
				if got := r.texts(len(want)); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				r.quietFor(time.Minute)
				if !strings.Contains(r.log.String(), tt.logged) {
					t.Errorf("the log does not say %q:\n%s", tt.logged, r.log)
				}
				if got := r.reads(dm); len(got) != tt.reads {
					t.Errorf("read %q", got)
				}
			})
		})
	}
}

// TestOnlyOldMessages: a channel whose last message is too old is not asked
// for, and starts from there.
func TestOnlyOldMessages(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		a, b := r.srv.AddChannel(guild, "a"), r.srv.AddChannel(guild, "b")
		r.connect()
		var last string
		r.restart(func() {
			r.srv.Say(b, ann, "old")
			last = r.srv.Say(a, ann, "old")
			time.Sleep(2 * time.Hour)
		})
		r.quietFor(time.Minute)
		if r.facts.cursor(a) != last || len(r.reads(a)) != 0 {
			t.Errorf("cursor %s, want %s; read %q", r.facts.cursor(a), last, r.reads(a))
		}
		if want := `msg="discord channels with nothing but old messages passed over" channel=discord count=2`; strings.Count(r.log.String(), want) != 1 {
			t.Errorf("the log does not say so once:\n%s", r.log)
		}
	})
}

// TestOwnMessagesAreNoGap: the bot's own words after the last question cost the
// next start nothing; after a crash a look, which finds nothing.
func TestOwnMessagesAreNoGap(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		r.connect()
		talk := func(key string) {
			r.srv.Say(general, ann, "question")
			r.texts(1)
			if _, err := r.send(message(general, key, "answer")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		talk("k1")
		batches := len(r.in.batches)
		r.restart(func() {})
		if n := len(r.reads(general)); n != 0 {
			t.Errorf("%d looks after a planned stop", n)
		}
		if n := len(r.in.batches) - batches; n != 1 {
			t.Errorf("%d batches for the cursor at the end, want 1", n)
		}
		talk("k2")
		r.in.block() // as good as a crash: nothing more is stored
		r.restart(func() {})
		r.in.unblock()
		r.quietFor(time.Minute)
		if n := len(r.reads(general)); n != 1 {
			t.Errorf("%d looks after a crash", n)
		}
		r.in.block()
		r.restart(func() {})
		if n := len(r.reads(general)); n != 1 {
			t.Error("what was found to be our own is looked at again")
		}
		r.in.unblock()
	})
}

// TestOwnMessageHidesNoGap: an answer in a thread that nobody tells of does not
// stand for what was missed before it.
func TestOwnMessageHidesNoGap(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		thread := r.srv.AddQuietThread(r.guildChannel(), "quiet")
		r.connect()
		r.srv.Say(thread, ann, "before")
		r.texts(1)
		r.restart(func() { r.srv.Say(thread, ann, "meanwhile") })
		if _, err := r.send(message(thread, "k", "a reminder")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.restart(func() {})
		r.srv.Say(thread, ann, "after")
		if got := r.texts(2); !slices.Equal(got, []string{"meanwhile", "after"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestCursorsOfOwnMessagesComeAlong: a bot that never stops stores them as
// well, seldom.
func TestCursorsOfOwnMessagesComeAlong(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		a, b := r.srv.AddChannel(guild, "a"), r.srv.AddChannel(guild, "b")
		r.connect()
		ours, err := r.send(message(a, "k", "news"))
		if err != nil {
			t.Fatal(err)
		}
		r.srv.Say(b, ann, "one")
		r.texts(1)
		if r.facts.cursor(a) == ours.MessageID {
			t.Error("stored at once")
		}
		time.Sleep(2 * laterFor)
		r.srv.Say(b, ann, "two")
		r.texts(1)
		if got := r.facts.cursor(a); got != ours.MessageID {
			t.Errorf("cursor %s, want %s", got, ours.MessageID)
		}
	})
}

// TestForbidden: a channel that cannot be read is passed over, said once, and
// not asked for again until something new is in it.
func TestForbidden(t *testing.T) {
	for name, code := range map[string]int{"no access": discordtest.CodeMissingAccess, "gone": discordtest.CodeUnknownChannel} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				guild := r.srv.AddGuild("Guild")
				open, hidden, dm := r.srv.AddChannel(guild, "open"), r.srv.AddChannel(guild, "hidden"), r.srv.AddDM(ann)
				r.connect()
				r.srv.Say(dm, ann, "hello")
				r.texts(1)
				r.restart(func() {
					for _, id := range []string{open, hidden, dm} {
						r.srv.Say(id, ann, "meanwhile")
					}
					r.srv.Block(hidden, code)
					r.srv.Block(dm, code)
				})
				if m := r.next(); m.ChatID != open {
					t.Errorf("got %+v", m)
				}
				r.quietFor(time.Hour)
				for range 3 {
					before := r.srv.Stats().Identified
					r.srv.InvalidateSessions(false)
					r.until("identified again", func(s discordtest.Stats) bool { return s.Identified == before+1 })
				}
				r.restart(func() {})
				for _, id := range []string{hidden, dm} {
					if n := len(r.reads(id)); n != 1 {
						t.Errorf("%s was read %d times", id, n)
					}
					if n := strings.Count(r.log.String(), `does not let the bot read what was missed" channel=discord chat_id=`+id); n != 1 {
						t.Errorf("said %d times:\n%s", n, r.log)
					}
					r.srv.Block(id, 0)
					r.srv.Say(id, ann, "and now")
					if m := r.next(); m.ChatID != id || m.Text != "and now" {
						t.Errorf("got %+v", m)
					}
				}
			})
		})
	}
}

// TestNoHistory: without the right to read history there is nothing to be
// found, and what arrives is heard.
func TestNoHistory(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		r.srv.HideHistory(true)
		r.connect()
		r.restart(func() { r.srv.Say(general, ann, "meanwhile") })
		r.srv.Say(general, ann, "after")
		if got := r.texts(1); got[0] != "after" {
			t.Errorf("got %q", got)
		}
		r.restart(func() {})
		if n := len(r.reads(general)); n != 1 {
			t.Errorf("read %d times", n)
		}
	})
}

// TestFetchFails: a page that fails is asked for again; one that keeps failing
// is given up, so that what waits is heard.
func TestFetchFails(t *testing.T) {
	tests := map[string]struct {
		fail func(s *discordtest.Server, dm string)
		want []string
	}{
		"errors": {func(s *discordtest.Server, dm string) { s.FailReads(dm, 3, http.StatusBadGateway) }, []string{"meanwhile", "after"}},
		"cuts":   {func(s *discordtest.Server, dm string) { s.FailReads(dm, 2*maxTries, 0) }, []string{"meanwhile", "after"}},
		"429s":   {func(s *discordtest.Server, dm string) { s.ThrottleReads(dm, 2*maxTries, time.Second) }, []string{"meanwhile", "after"}},
		"always": {func(s *discordtest.Server, dm string) { s.FailReads(dm, maxTries, http.StatusBadGateway) }, []string{"after"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				dm := r.srv.AddDM(ann)
				r.connect()
				r.srv.Say(dm, ann, "before")
				r.texts(1)
				r.restart(func() {
					r.srv.Say(dm, ann, "meanwhile")
					tt.fail(r.srv, dm)
				})
				start := time.Now()
				r.srv.Say(dm, ann, "after")
				if got := r.texts(len(tt.want)); !slices.Equal(got, tt.want) {
					t.Errorf("got %q", got)
				}
				if took := time.Since(start); took > 20*time.Minute {
					t.Errorf("took %s", took)
				}
				r.quietFor(time.Hour)
				if given := strings.Contains(r.log.String(), "cannot be fetched"); given != (name == "always") {
					t.Errorf("logged that it was given up: %v", given)
				}
			})
		})
	}
}

// TestGivenUpWithNobodyWaiting: then the next message asks again, and nothing
// is lost.
func TestGivenUpWithNobodyWaiting(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		r.srv.Say(dm, ann, "before")
		r.texts(1)
		r.restart(func() {
			r.srv.Say(dm, ann, "meanwhile")
			r.srv.FailReads(dm, maxTries, http.StatusBadGateway)
		})
		r.quietFor(time.Hour)
		r.srv.Say(dm, ann, "after")
		if got := r.texts(2); !slices.Equal(got, []string{"meanwhile", "after"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestStopWhileCatchingUp: a stop waits for no fetch, and what was missed is
// still found after the next start, with what had waited.
func TestStopWhileCatchingUp(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		r.srv.Say(dm, ann, "before")
		r.texts(1)
		r.restart(func() {
			r.srv.ThrottleReads(dm, 1, 20*time.Minute)
			r.srv.Say(dm, ann, "meanwhile")
		})
		r.srv.Say(dm, ann, "live")
		synctest.Wait()
		start := time.Now()
		r.stop()
		if took := time.Since(start); took != 0 {
			t.Errorf("Run took %s to end", took)
		}
		r.quietFor(0)
		r.restart(func() { r.srv.Say(dm, ann, "while stopped") })
		if got := r.texts(3); !slices.Equal(got, []string{"meanwhile", "live", "while stopped"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestFetchCutShort: a fetch that the stop has ended stands for nothing.
func TestFetchCutShort(t *testing.T) {
	quit := make(chan struct{})
	c := New("discord", DefaultConfig(), state.New(&facts{values: map[string]string{}}, "channel/discord"), quiet())
	d := newDelivery(c, nil, quit)
	l := &lane{id: "2", last: 16}
	d.open(l)
	d.running, l.running, l.cancel = 1, true, func() {}
	d.hold(l, heard{id: 13, o: us, m: &discordgo.Message{ID: "13", ChannelID: "2", Author: &discordgo.User{ID: "7"}}})
	close(quit)
	d.finish(t.Context(), result{lane: l, err: context.Canceled})
	if len(d.messages) != 0 || len(d.moved) != 0 || d.running != 0 {
		t.Errorf("published %v, moved %v", d.messages, d.moved)
	}
}

// TestStopWhileManyWait: nor does a stop wait for room.
func TestStopWhileManyWait(t *testing.T) {
	inBubble(t, discordtest.Options{History: 10 * maxHeld, Replay: 10 * maxHeld}, func(r *rig) {
		r.cfg.CatchUp.MaxMessages = 10 * maxHeld
		r.renew()
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		r.srv.Say(dm, ann, "before")
		r.texts(1)
		r.restart(func() { r.srv.ThrottleReads(dm, 1, time.Hour) })
		want := r.say(dm, ann, "live", 3*maxHeld)
		synctest.Wait()
		start := time.Now()
		r.stop()
		if took := time.Since(start); took > drainGrace {
			t.Errorf("Run took %s to end", took)
		}
		r.quietFor(0)
		r.restart(func() {})
		if got := r.texts(len(want)); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// TestNothingIsStoredAfterALoss: a batch that could not be stored at the end is
// the last one, and the next start begins before it.
func TestNothingIsStoredAfterALoss(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		r.srv.Say(dm, ann, "before")
		r.texts(1)
		r.in.block()
		want := r.say(dm, ann, "lost", 2*maxBatch)
		synctest.Wait()
		r.cancel()
		r.in.fail(1) // only the first batch
		r.in.unblock()
		r.stop()
		r.quietFor(0)
		r.cfg.CatchUp.MaxMessages = len(want)
		r.restart(func() {})
		if got := r.texts(100); !slices.Equal(got, want[len(want)-100:]) { // the fake remembers so many
			t.Errorf("got %q", got)
		}
	})
}

// TestFewAtOnce: a large gap is read from a few channels at a time.
func TestFewAtOnce(t *testing.T) {
	const n = 20
	inBubble(t, discordtest.Options{}, func(r *rig) {
		r.cfg.Rate.GlobalPerSec = 0
		r.renew()
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		var ids []string
		for i := range n {
			ids = append(ids, r.srv.AddChannel(guild, fmt.Sprint(i)))
		}
		r.connect()
		r.restart(func() {
			for _, id := range ids {
				r.srv.Say(id, ann, "meanwhile")
				r.srv.ThrottleReads(id, 1, 10*time.Second)
			}
		})
		start := time.Now()
		r.texts(n)
		if took, want := time.Since(start), n/maxFetches*10*time.Second; took != want {
			t.Errorf("took %s, want %s", took, want)
		}
	})
}

// TestUrgent: somebody who writes does not wait for everybody else.
func TestUrgent(t *testing.T) {
	const n = 300
	inBubble(t, discordtest.Options{}, func(r *rig) {
		var dms []string
		var users []discordtest.User
		for i := range n {
			u := r.srv.AddUser(fmt.Sprint(i), "")
			users, dms = append(users, u), append(dms, r.srv.AddDM(u))
		}
		r.connect()
		for i := range n {
			r.srv.Say(dms[i], users[i], "before")
		}
		r.texts(n)
		r.restart(func() { r.srv.Say(dms[0], users[0], "meanwhile") }) // the one that was heard first is looked at last
		start := time.Now()
		r.srv.Say(dms[0], users[0], "after")
		if got := r.texts(2); !slices.Equal(got, []string{"meanwhile", "after"}) || time.Since(start) > time.Second {
			t.Errorf("got %q after %s", got, time.Since(start))
		}
		time.Sleep(time.Minute)
		looks := 0
		for _, id := range dms {
			looks += len(r.reads(id))
		}
		if looks != n {
			t.Errorf("%d looks at %d private channels", looks, n)
		}
	})
}

// TestPace: the looks leave half of the bot's requests to its answers.
func TestPace(t *testing.T) {
	const n = 200
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		var ids []string
		for i := range n {
			ids = append(ids, r.srv.AddChannel(guild, fmt.Sprint(i)))
		}
		r.connect()
		r.restart(func() {
			for _, id := range ids {
				r.srv.Say(id, ann, "meanwhile")
			}
		})
		start := time.Now()
		r.texts(n)
		if took := time.Since(start); took < 6*time.Second || took > 8*time.Second {
			t.Errorf("%d looks took %s", n, took)
		}
	})
}

// TestFactsFail: a ledger that cannot be read stops nothing for good.
func TestFactsFail(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		r.connect()
		r.restart(func() {
			r.srv.Say(general, ann, "meanwhile")
			r.facts.failNext(5)
		})
		if got := r.texts(1); got[0] != "meanwhile" {
			t.Errorf("got %q", got)
		}
		r.restart(func() { r.facts.failNext(1 << 30) })
		r.stop() // and not a stop either
	})
}

// TestDirectList: private channels are remembered, also when there are many; the
// one that has been quiet for longest makes room.
func TestDirectList(t *testing.T) {
	f := &facts{values: map[string]string{}}
	c := New("discord", DefaultConfig(), state.New(f, "channel/discord"), quiet())
	fill := func(d *delivery, from, to int) {
		for i := from; i < to; i++ {
			d.list(fmt.Sprint(i))
			d.list(fmt.Sprint(i))
			d.move(fmt.Sprint(i), uint64(i), false)
			if i%7 == 0 || i == to-1 {
				f.store(d.cursors(true))
			}
		}
	}
	again := func() *delivery {
		d := newDelivery(c, nil, nil)
		d.readDirect(context.Background())
		for _, id := range d.direct {
			d.spot(context.Background(), id)
		}
		return d
	}
	for i, n := range []int{0, 1, directPerFact - 1, directPerFact, directPerFact + 1, 3*directPerFact + 5, maxDirect, maxDirect + 250} {
		d := again()
		fill(d, 1+len(d.direct), 1+n)
		f.reads = 0
		d = again()
		if want := min(n, maxDirect); len(d.direct) != want || len(d.isDirect) != want {
			t.Errorf("%d are listed, want %d", len(d.direct), want)
		}
		if n > maxDirect {
			got := slices.Sorted(func(yield func(uint64) bool) {
				for _, id := range d.direct {
					if !yield(snowflake(id)) {
						return
					}
				}
			})
			if got[0] != uint64(n-maxDirect+1) {
				t.Errorf("%d is still listed", got[0])
			}
		}
		if reads := f.reads - len(d.direct); reads > 1+n/directPerFact {
			t.Errorf("%d: %d reads for %d channels", i, reads, n)
		}
	}
}

// TestManyChannels: a thousand channels cost one read each at the start, none
// after a new session, and no request.
func TestManyChannels(t *testing.T) {
	const n = 1000
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		for i := range n {
			r.srv.Say(r.srv.AddChannel(guild, fmt.Sprint(i)), ann, "old")
		}
		r.connect()
		if got := r.facts.reads; got != n+1 {
			t.Errorf("%d reads at the first start, want %d", got, n+1)
		}
		if got := len(r.in.batches); got != 1 {
			t.Errorf("%d batches for new channels", got)
		}
		r.restart(func() {})
		if got := r.facts.reads; got != 2*(n+1) {
			t.Errorf("%d reads after the second start, want %d", got, 2*(n+1))
		}
		r.srv.InvalidateSessions(false)
		r.until("identified again", func(s discordtest.Stats) bool { return s.Identified == 3 })
		synctest.Wait()
		if got := r.facts.reads; got != 2*(n+1) {
			t.Errorf("%d reads after a new session, want none more than %d", got, 2*(n+1))
		}
		if got := len(r.in.batches); got != 1 {
			t.Errorf("%d batches", got)
		}
		for _, c := range r.srv.Calls() {
			if strings.HasPrefix(c.Path, "channels/") {
				t.Errorf("asked for %s", c.Path)
			}
		}
	})
}
