package discord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

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

// TestManyDirect: after a gap those private channels are looked at that were
// heard last.
func TestManyDirect(t *testing.T) {
	const n = maxDirectLooks + 200
	f := &facts{values: map[string]string{}}
	c := New("discord", DefaultConfig(), state.New(f, "channel/discord"), quiet())
	d := newDelivery(c, nil, nil)
	d.isDirect = map[string]struct{}{}
	for i := range n {
		d.list(fmt.Sprint(i + 1))
		d.move(fmt.Sprint(i+1), uint64(i+1), false)
	}
	d.list("no id")
	f.store(d.cursors(true))
	d = newDelivery(c, nil, nil)
	d.take(t.Context(), event{self: "42", fresh: true})
	if got := len(d.waiting); got != maxDirectLooks || len(d.direct) != n {
		t.Fatalf("%d of %d are looked at", got, len(d.direct))
	}
	for i, l := range d.waiting {
		if l.id != fmt.Sprint(n-i) || l.after != uint64(n-i) {
			t.Fatalf("%d. is %s", i, l.id)
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
