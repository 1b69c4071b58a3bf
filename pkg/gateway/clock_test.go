package gateway

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

const year = 365 * 24 * time.Hour

// remindedAt starts a gateway with a reminder and a clock of its own.
func remindedAt(t *testing.T, due time.Time, wall func() time.Time) *rig {
	t.Helper()
	r := start(t, fakeModel(echo))
	synctest.Wait() // the clock's goroutine waits
	r.clock.wall = wall
	at := bus.Address{Channel: "fake", ChatID: "1"}
	tea := store.Schedule{ID: "s", Address: at, SessionKey: at.String(), Due: due, Text: "tea"}
	if _, err := r.store.Apply(t.Context(), store.Tx{Schedules: []store.Schedule{tea}}); err != nil {
		t.Fatal(err)
	}
	r.clock.look()
	return r
}

// A reminder comes when its time has come by a clock that stands by it, however
// the clock has jumped on the way there.
func TestReminderOutlivesJumpsOfTheClock(t *testing.T) {
	type jump struct{ after, off time.Duration }
	for name, c := range map[string]struct {
		due   time.Duration
		jumps []jump
		none  time.Duration // nothing has come by then
		come  time.Duration // it has come by then
	}{
		"a year ahead and back":    {24 * time.Hour, []jump{{time.Minute, year}, {20 * time.Second, 0}}, 24*time.Hour - time.Minute, 24*time.Hour + time.Minute},
		"ahead for good":           {24 * time.Hour, []jump{{time.Minute, year}}, 90 * time.Second, 3 * time.Minute},
		"a year back and right":    {time.Hour, []jump{{time.Minute, -year}, {10 * time.Minute, 0}}, 59 * time.Minute, 61 * time.Minute},
		"from 1970, set at start":  {time.Hour, []jump{{0, -56 * year}, {time.Minute, 0}}, 59 * time.Minute, 61 * time.Minute},
		"passed while it was 1970": {30 * time.Minute, []jump{{0, -56 * year}, {time.Hour, 0}}, 59 * time.Minute, 62 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var off atomic.Int64
				began := time.Now()
				wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(off.Load())) }
				r := remindedAt(t, began.Add(c.due), wall)
				for _, j := range c.jumps {
					time.Sleep(j.after)
					off.Store(int64(j.off))
				}
				time.Sleep(time.Until(began.Add(c.none)))
				r.wantTexts("1")
				time.Sleep(time.Until(began.Add(c.come)))
				r.wantTexts("1", "⏰ tea")
			})
		})
	}
}
