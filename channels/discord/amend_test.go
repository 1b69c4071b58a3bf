package discord

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// sight is what matters of a message here.
func sight(m bus.InboundMessage) string {
	return fmt.Sprintf("%s %s %q", m.Kind, m.Amends, m.Text)
}

// sights are the next n messages.
func (r *rig) sights(n int) []string {
	r.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = sight(r.next())
	}
	return out
}

// TestEdit: an edited message says all that a new one would, and what it is
// about.
func TestEdit(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		thread := r.srv.AddThread(general, "thread")
		r.connect()
		id := r.srv.Say(thread, ann, "what")
		m := r.next()
		cursor := r.facts.cursor(thread)
		time.Sleep(1500 * time.Millisecond)
		r.srv.Edit(thread, id, discordtest.Mention(r.srv.Bot())+" /Help me")
		e := r.next()
		if want := fmt.Sprintf("e:%s:%s:%d", thread, id, time.Now().UnixMilli()); e.ID != want || e.Amends != m.ID {
			t.Errorf("%s amends %s, want %s amends %s", e.ID, e.Amends, want, m.ID)
		}
		if e.Kind != bus.KindEdited || e.Text != "/Help me" || e.Command != "help" || e.Args != "me" || !e.Mentioned {
			t.Errorf("got %+v", e)
		}
		if e.Address != m.Address || e.Parent != m.Parent || e.Sender != m.Sender || e.MessageID != id || !e.Group || !e.Time.Equal(m.Time) {
			t.Errorf("got %+v\nof  %+v", e, m)
		}
		time.Sleep(time.Second)
		r.srv.Edit(thread, id, "once more")
		if again := r.next(); again.ID == e.ID || again.Amends != m.ID || again.Text != "once more" {
			t.Errorf("got %+v", again)
		}
		if got := r.facts.cursor(thread); got != cursor {
			t.Errorf("an edit moved the cursor from %s to %s", cursor, got)
		}
	})
}

// TestNoEdit: what nobody has edited, and what the bot has written, is no news.
func TestNoEdit(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		id := r.srv.Say(dm, ann, "https://example.org")
		r.texts(1)
		r.srv.Embed(dm, id)
		ours, err := r.send(message(dm, "k", "a statement"))
		if err != nil {
			t.Fatal(err)
		}
		r.srv.Edit(dm, ours.MessageID, "another statement")
		const edited = `"edited_timestamp":"2026-01-01T00:00:00.000000+00:00"`
		for _, part := range []string{
			edited,
			`"content":"x",` + edited,
			`"author":{"id":"` + ann.ID + `"},` + edited,
			`"author":{},"content":"x",` + edited,
			`"author":{"id":"` + ann.ID + `"},"content":"x"`,
			`"author":{"id":"` + ann.ID + `"},"content":"x","edited_timestamp":null`,
		} {
			r.srv.Dispatch("MESSAGE_UPDATE", `{"id":"`+id+`","channel_id":"`+dm+`",`+part+`}`)
		}
		r.quietFor(time.Minute)
	})
}

// TestDelete: every deleted message is told of, wherever it was and whoever
// wrote it.
func TestDelete(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		for _, place := range []string{r.srv.AddDM(ann), r.guildChannel()} {
			if r.ended == nil {
				r.connect()
			}
			var ids []string
			for i := range 4 {
				ids = append(ids, r.srv.Say(place, ann, fmt.Sprint(i)))
			}
			r.texts(4)
			cursor := r.facts.cursor(place)
			r.srv.Delete(place, ids[0])
			r.srv.Delete(place, ids[1:]...)
			for _, id := range ids {
				m := r.next()
				want := bus.InboundMessage{
					Address: bus.Address{Channel: "discord", ChatID: place}, ID: "d:" + place + ":" + id,
					MessageID: id, Amends: "m:" + place + ":" + id, Kind: bus.KindDeleted, Time: m.Time,
				}
				if got, want := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", want); got != want || !m.Time.Equal(time.Now()) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
			if got := r.facts.cursor(place); got != cursor {
				t.Errorf("a deletion moved the cursor from %s to %s", cursor, got)
			}
		}
		r.quietFor(time.Minute)
	})
}

// TestAmendsWait: in a channel that is being caught up on, news comes after the
// messages it may be about, and in its own order.
func TestAmendsWait(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann, bob := r.srv.AddUser("ann", ""), r.srv.AddUser("bob", "")
		dm, other := r.srv.AddDM(ann), r.srv.AddDM(bob)
		r.connect()
		first := r.srv.Say(dm, ann, "one")
		elsewhere := r.srv.Say(other, bob, "elsewhere")
		r.texts(2)
		r.restart(func() {
			r.srv.ThrottleReads(dm, 1, 20*time.Second)
			r.srv.Say(dm, ann, "two")
		})
		last := r.srv.Say(dm, ann, "three")
		r.srv.Edit(dm, first, "one, edited")
		r.srv.Edit(dm, last, "three, edited")
		r.srv.Delete(dm, last)
		r.srv.Delete(other, elsewhere)
		id := func(s string) string { return "m:" + dm + ":" + s }
		if got, want := sight(r.next()), `deleted m:`+other+":"+elsewhere+` ""`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		r.quietFor(10 * time.Second)
		want := []string{
			`message  "two"`, `message  "three"`,
			`edited ` + id(first) + ` "one, edited"`, `edited ` + id(last) + ` "three, edited"`, `deleted ` + id(last) + ` ""`,
		}
		if got := r.sights(len(want)); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if got := r.facts.cursor(dm); got != last {
			t.Errorf("the cursor is %s, want %s", got, last)
		}
		r.quietFor(time.Hour)
	})
}

// TestAmendsAtTheEnd: a stop leaves out the messages that wait, which the next
// start finds, but not the news, which it would not.
func TestAmendsAtTheEnd(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		first := r.srv.Say(dm, ann, "one")
		r.texts(1)
		r.restart(func() {
			r.srv.ThrottleReads(dm, 1, 20*time.Minute)
			r.srv.Say(dm, ann, "two")
		})
		r.srv.Say(dm, ann, "three")
		r.srv.Delete(dm, first)
		synctest.Wait()
		r.stop()
		if got, want := r.sights(1), []string{`deleted m:` + dm + ":" + first + ` ""`}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		r.quietFor(0)
		if got := r.facts.cursor(dm); got != first {
			t.Errorf("the cursor is %s, want %s", got, first)
		}
		r.restart(func() {})
		if got := r.texts(2); !slices.Equal(got, []string{"two", "three"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestManyAmendsWait: they count among what waits, and are given free again.
func TestManyAmendsWait(t *testing.T) {
	inBubble(t, discordtest.Options{Replay: 10 * maxHeld}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.connect()
		id := r.srv.Say(dm, ann, "one")
		r.texts(1)
		r.restart(func() {
			r.srv.ThrottleReads(dm, 1, time.Minute)
			r.srv.Say(dm, ann, "two")
		})
		var want []string
		for i := range 3 * maxHeld {
			time.Sleep(time.Millisecond) // each its own ID
			want = append(want, fmt.Sprint("edit ", i))
			r.srv.Edit(dm, id, want[i])
		}
		if got := r.texts(1 + len(want)); !slices.Equal(got[1:], want) {
			t.Errorf("got %q", got)
		}
		r.srv.Say(dm, ann, "last")
		if got := r.next().Text; got != "last" {
			t.Errorf("got %q", got)
		}
		for _, b := range r.in.batches {
			if len(b.Messages) > maxBatch {
				t.Errorf("a batch of %d messages", len(b.Messages))
			}
		}
	})
}
