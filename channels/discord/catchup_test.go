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
