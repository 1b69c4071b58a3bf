package builtin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the zones do not depend on the machine

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// book keeps reminders in memory.
type book struct {
	mu   sync.Mutex
	rows []store.Schedule
	err  error
}

func (b *book) Remind(_ context.Context, call tools.Call, r store.Schedule) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	r.Address = bus.Address{Channel: call.Channel, ChatID: call.ChatID}
	if !slices.ContainsFunc(b.rows, func(s store.Schedule) bool { return s.ID == r.ID }) {
		b.rows = append(b.rows, r)
	}
	return nil
}

func (b *book) Reminders(_ context.Context, of bus.Address) ([]store.Schedule, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []store.Schedule
	for _, r := range b.rows {
		if r.Address == of {
			out = append(out, r)
		}
	}
	return out, b.err
}

func (b *book) CancelReminder(_ context.Context, of bus.Address, id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.rows)
	b.rows = slices.DeleteFunc(b.rows, func(r store.Schedule) bool { return r.Address == of && r.ID == id })
	return len(b.rows) < before, b.err
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func remindTool(b *book, loc *time.Location, now time.Time) *builtin.RemindTool {
	return builtin.NewRemindTool(b, func(context.Context, bus.Address) *time.Location { return loc }, func() time.Time { return now })
}

func TestRemindReadsTimes(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 27, 17, 30, 0, 0, time.UTC) // 18:30 in Berlin, a Friday
	at := func(y int, m time.Month, d, hh, mm, ss int) time.Time {
		return time.Date(y, m, d, hh, mm, ss, 0, berlin)
	}
	cases := []struct {
		delay, at string
		want      time.Time
		problem   string
	}{
		{delay: "5s", want: at(2026, 11, 27, 18, 30, 5)},
		{delay: "5 seconds", want: at(2026, 11, 27, 18, 30, 5)},
		{delay: "in 10 minutes", want: at(2026, 11, 27, 18, 40, 0)},
		{delay: "90 minutes", want: at(2026, 11, 27, 20, 0, 0)},
		{delay: "2h", want: at(2026, 11, 27, 20, 30, 0)},
		{delay: "1h30m", want: at(2026, 11, 27, 20, 0, 0)},
		{delay: "1 hour and 30 minutes", want: at(2026, 11, 27, 20, 0, 0)},
		{delay: "1 hour, 5 min", want: at(2026, 11, 27, 19, 35, 0)},
		{delay: "1.5 hours", want: at(2026, 11, 27, 20, 0, 0)},
		{delay: "1d", want: at(2026, 11, 28, 18, 30, 0)},
		{delay: "2 Weeks", want: at(2026, 12, 11, 18, 30, 0)},
		{delay: "0.5 days", want: at(2026, 11, 28, 6, 30, 0)},
		{delay: "150 days", want: at(2027, 4, 26, 18, 30, 0)}, // summer time by then: the hour stays
		{at: "19:00", want: at(2026, 11, 27, 19, 0, 0)},
		{at: "18:30:01", want: at(2026, 11, 27, 18, 30, 1)},
		{at: "18:30", want: at(2026, 11, 28, 18, 30, 0)}, // now is not later
		{at: "9:05", want: at(2026, 11, 28, 9, 5, 0)},
		{at: "2026-12-01 09:00", want: at(2026, 12, 1, 9, 0, 0)},
		{at: "2026-12-01T09:00", want: at(2026, 12, 1, 9, 0, 0)},
		{at: "2026-12-01T09:00:00Z", want: at(2026, 12, 1, 10, 0, 0)},
		{at: "2026-12-01T09:00:00+09:00", want: at(2026, 12, 1, 1, 0, 0)},
		{at: "2026-11-27 18:29", problem: "has passed"},
		{at: "2036-01-01 00:00", problem: "more than 5 years"},
		{at: "half past nine", problem: "cannot be read"},
		{at: "25:00", problem: "cannot be read"},
		{delay: "0s", problem: "has passed"},
		{delay: "-5m", problem: "cannot be read"},
		{delay: "5", problem: "cannot be read"},
		{delay: "soon", problem: "cannot be read"},
		{delay: "5 parsecs", problem: "cannot be read"},
		{delay: "1.2.3h", problem: "cannot be read"},
		{delay: "6000 days", problem: "more than 5 years"},
		{delay: "99999999999999999999 days", problem: "more than 5 years"},
		{delay: "999999999999999999h", problem: "more than 5 years"},
		{delay: "5s", at: "19:00", problem: "not both"},
		{problem: "say when"},
	}
	for _, c := range cases {
		var b book
		a := args{"text": "stretch"}
		if c.delay != "" {
			a["delay"] = c.delay
		}
		if c.at != "" {
			a["at"] = c.at
		}
		r := remindTool(&b, berlin, now).Execute(during(t, "telegram", "1", "c1"), a)
		if c.problem != "" {
			wantError(t, r, c.problem)
			if len(b.rows) != 0 {
				t.Errorf("delay %q at %q stored %v", c.delay, c.at, b.rows)
			}
			continue
		}
		wantOK(t, r, "stretch", "(Europe/Berlin)", c.want.Format("15:04:05 MST"), c.want.Format("2 January 2006"))
		if len(b.rows) != 1 || !b.rows[0].Due.Equal(c.want) || b.rows[0].Text != "stretch" {
			t.Errorf("delay %q at %q stored %+v, want %s", c.delay, c.at, b.rows, c.want)
		}
	}
}

// When the clocks change, a time of day is the one on the wall.
func TestRemindAcrossAChangeOfClocks(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, berlin) // summer time ends in the night
	for _, a := range []args{{"text": "x", "delay": "1 day"}, {"text": "x", "at": "12:00"}} {
		var b book
		wantOK(t, remindTool(&b, berlin, now).Execute(during(t, "telegram", "1", "c1"), a), "12:00:00 CET")
		if want := time.Date(2026, 10, 25, 12, 0, 0, 0, berlin); len(b.rows) != 1 || !b.rows[0].Due.Equal(want) {
			t.Errorf("%v stored %v, want %s", a, b.rows, want)
		}
	}
}

func TestRemindStoresACallOnce(t *testing.T) {
	var b book
	tool := remindTool(&b, time.UTC, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, call := range []string{"c1", "c1", "c2"} {
		wantOK(t, tool.Execute(during(t, "telegram", "1", call), args{"text": "x", "delay": "1h"}))
	}
	if len(b.rows) != 2 || b.rows[0].ID == b.rows[1].ID || len(b.rows[0].ID) > 10 {
		t.Errorf("stored %+v, want two with short ids", b.rows)
	}
}

func TestRemindListsAndCancelsHereOnly(t *testing.T) {
	var b book
	tool := remindTool(&b, time.UTC, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	mine, other := during(t, "telegram", "1", "c1"), during(t, "telegram", "2", "c1")
	wantOK(t, tool.Execute(mine, args{"action": "list"}), "no reminders")
	wantOK(t, tool.Execute(mine, args{"action": "set", "text": "mine", "delay": "1h"}))
	wantOK(t, tool.Execute(other, args{"text": "theirs", "delay": "2h"}))
	id := b.rows[0].ID
	listed := tool.Execute(mine, args{"action": "list"})
	wantOK(t, listed, id, "mine", "Thursday, 1 January 2026 at 01:00:00 UTC")
	if strings.Contains(listed.ForLLM, "theirs") {
		t.Errorf("another conversation's reminder is listed: %s", listed.ForLLM)
	}
	wantError(t, tool.Execute(other, args{"action": "cancel", "id": id}), "no reminder "+id)
	wantError(t, tool.Execute(mine, args{"action": "cancel"}), "id is required")
	wantOK(t, tool.Execute(mine, args{"action": "cancel", "id": id}), "cancelled")
	if len(b.rows) != 1 || b.rows[0].Text != "theirs" {
		t.Errorf("left are %+v", b.rows)
	}
}

func TestRemindBounds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b book
	tool := remindTool(&b, time.UTC, now)
	ctx := during(t, "telegram", "1", "c1")
	wantError(t, tool.Execute(ctx, args{"delay": "1h"}), "text is required")
	wantError(t, tool.Execute(ctx, args{"text": strings.Repeat("ö", 2001), "delay": "1h"}), "too long")
	wantError(t, tool.Execute(ctx, args{"action": "snooze"}), "snooze is unknown")
	wantError(t, tool.Execute(t.Context(), args{"text": "x", "delay": "1h"}), "belongs to none")
	wantError(t, builtin.NewRemindTool(nil, nil, nil).Execute(ctx, args{"text": "x", "delay": "1h"}), "not available")
	for i := range 100 {
		wantOK(t, tool.Execute(during(t, "telegram", "1", fmt.Sprint(i)), args{"text": "x", "delay": "1h"}))
	}
	wantError(t, tool.Execute(during(t, "telegram", "1", "one too many"), args{"text": "x", "delay": "1h"}), "already has 100")
	wantOK(t, tool.Execute(during(t, "telegram", "1", "99"), args{"text": "x", "delay": "1h"}))
	wantOK(t, tool.Execute(during(t, "telegram", "2", "c1"), args{"text": "x", "delay": "1h"}))

	broken := &book{err: errors.New("disk on fire")}
	for _, a := range []args{{"text": "x", "delay": "1h"}, {"action": "list"}, {"action": "cancel", "id": "a"}} {
		r := remindTool(broken, time.UTC, now).Execute(ctx, a)
		wantError(t, r, "Try again later")
		if r.Err == nil || strings.Contains(r.ForLLM, "fire") {
			t.Errorf("a failing store reads %q (%v): the cause is for the log only", r.ForLLM, r.Err)
		}
	}
}
