package discord

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// TestFetchSeesTooMuch: what a fetch brings beyond the first message that waits
// is left alone: a gap may lie between, and the cursor must not pass it.
func TestFetchSeesTooMuch(t *testing.T) {
	c := New("discord", DefaultConfig(), state.New(&facts{values: map[string]string{}}, "channel/discord"), quiet())
	d := newDelivery(c, nil, nil)
	ann := &discordgo.User{ID: "7"}
	say := func(id uint64) heard {
		return heard{id: id, o: us, m: &discordgo.Message{ID: fmt.Sprint(id), ChannelID: "2", Author: ann, Content: fmt.Sprint(id)}}
	}
	l := &lane{id: "2", after: 10, last: 16}
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
