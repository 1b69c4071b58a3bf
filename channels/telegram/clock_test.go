package telegram

import (
	"testing"
	"time"
)

// Where the clock was set back a quiet week cannot be told from a moment, and an
// old offset would make Telegram forget updates that nobody has seen.
func TestOffsetAfterAQuietWeek(t *testing.T) {
	seen := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for now, want := range map[time.Time]int64{
		seen:                     7,
		seen.Add(staleAfter):     7,
		seen.Add(staleAfter + 1): 0,
		seen.AddDate(1, 0, 0):    0,
		seen.AddDate(-1, 0, 0):   0,
		time.Unix(0, 0):          0,
	} {
		if got := (cursor{next: 7, seen: seen}).offset(now); got != want {
			t.Errorf("at %s the offset is %d, want %d", now, got, want)
		}
	}
}
