package sqlite

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// held opens the ledger of a test without its writer, to write at any time.
func held(t *testing.T) *ledger {
	t.Helper()
	l, err := openLedger(filepath.Join(t.TempDir(), fileName), Options{Durability: Fast, busy: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.c.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// write applies tx as if it were now.
func (l *ledger) writeAt(t *testing.T, now time.Time, tx store.Tx) *job {
	t.Helper()
	c, err := encode(&tx)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{change: c}
	if err := l.c.atomically(beginWrite, func() error { return l.apply(j, now) }); err != nil {
		t.Fatal(err)
	}
	return j
}

// swept runs whole sweeps as if it were now.
func (s *sweeper) swept(t *testing.T, l *ledger, now time.Time) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.step(l, now); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *ledger) count(t *testing.T, query string) int64 {
	t.Helper()
	n, err := l.c.number(query)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wholeTurn is a message with its turn, answer and receipt.
func (l *ledger) wholeTurn(t *testing.T, now time.Time, id string) {
	t.Helper()
	j := l.writeAt(t, now, store.Tx{Admit: []bus.InboundMessage{{ID: id, Text: "hello"}}})
	l.writeAt(t, now, store.Tx{
		Begin:   &store.Turn{ID: id, Inbound: j.admitted},
		Steps:   []store.Step{{Turn: id, Kind: store.StepReply}},
		History: []store.Entry{{Session: "s", Turn: id}},
	})
	l.writeAt(t, now, store.Tx{
		Steps: []store.Step{{Turn: id, Kind: store.StepEnd}}, End: []string{id},
		Send:     []store.Outbound{{Turn: id, Message: bus.OutboundMessage{Key: id, Text: "hi"}}},
		Receipts: []store.Receipt{{Key: id}},
		Tasks:    []store.Task{{ID: id, State: store.TaskDelivered}},
	})
}

// manyRows take a sweep several steps.
const manyRows = 2*sweepRows + 50

var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestWhatIsOverGoesWithTime(t *testing.T) {
	l, s := held(t), newSweeper(Retention{})
	const old, all = manyRows, manyRows + 1
	for n := range old {
		l.wholeTurn(t, start, fmt.Sprint("old", n))
	}
	l.wholeTurn(t, start.Add(6*dayLong), "young")
	for _, c := range []struct {
		after                                              time.Duration
		texts, ids, turns, steps, outcomes, tasks, history int64
	}{
		{0, all, all, all, 2 * all, all, all, all},
		{7 * dayLong, all, all, all, 2 * all, all, all, all},
		{7*dayLong + time.Hour, 1, all, 1, 2, 1, all, all},
		{13*dayLong + time.Hour, 0, all, 1, 2, 1, all, all}, // the newest row of a table stays
		{30*dayLong + time.Hour, 0, 1, 1, 2, 1, 1, all},
		{99 * dayLong, 0, 1, 1, 2, 1, 0, all},
	} {
		s.swept(t, l, start.Add(c.after))
		for query, want := range map[string]int64{
			"SELECT count(*) FROM inbox WHERE body IS NOT NULL": c.texts,
			"SELECT count(*) FROM inbox":                        c.ids,
			"SELECT count(*) FROM turns":                        c.turns,
			"SELECT count(*) FROM steps":                        c.steps,
			"SELECT count(*) FROM outbox":                       c.outcomes,
			"SELECT count(*) FROM tasks":                        c.tasks,
			"SELECT count(*) FROM history":                      c.history,
		} {
			if got := l.count(t, query); got != want {
				t.Errorf("after %v: %s: %d, not %d", c.after, query, got, want)
			}
		}
	}
	if err := l.load(); err != nil {
		t.Fatal(err)
	}
	if j := l.writeAt(t, start, store.Tx{Admit: []bus.InboundMessage{{ID: "old1"}}}); j.admitted[0] != all+1 {
		t.Errorf("the next message has the number %d", j.admitted[0])
	}
}

func TestWhatIsOpenStays(t *testing.T) {
	l, s := held(t), newSweeper(Retention{})
	j := l.writeAt(t, start, store.Tx{Admit: []bus.InboundMessage{{ID: "waiting"}, {ID: "taken"}}})
	l.writeAt(t, start, store.Tx{
		Begin: &store.Turn{ID: "open", Inbound: j.admitted[1:]},
		Steps: []store.Step{{Turn: "open", Kind: store.StepReply}},
		Send:  []store.Outbound{{Message: bus.OutboundMessage{Key: "unsent"}}},
		Tasks: []store.Task{{ID: "pending", State: store.TaskPending}, {ID: "done", State: store.TaskDone}},
	})
	for n := range 2 * sweepRows {
		l.wholeTurn(t, start, fmt.Sprint(n))
	}
	s.swept(t, l, start.Add(99*dayLong))
	for query, want := range map[string]int64{
		"SELECT count(*) FROM inbox WHERE body IS NOT NULL": 2,
		"SELECT count(*) FROM inbox":                        3,
		"SELECT count(*) FROM turns":                        2,
		"SELECT count(*) FROM outbox":                       2,
		"SELECT count(*) FROM tasks":                        2,
	} {
		if got := l.count(t, query); got != want {
			t.Errorf("%s: %d, not %d", query, got, want)
		}
	}
}

func TestNothingGoesIfToldSo(t *testing.T) {
	l, s := held(t), newSweeper(Retention{Journal: -1, Dedupe: -1})
	l.wholeTurn(t, start, "a")
	l.wholeTurn(t, start, "b")
	s.swept(t, l, start.Add(9999*dayLong))
	if n := l.count(t, "SELECT count(*) FROM inbox WHERE body IS NOT NULL"); n != 2 {
		t.Errorf("%d messages are left", n)
	}
}

// What comes and goes at the same pace needs no more room after a while.
func TestDiskReachesAPlateau(t *testing.T) {
	l, s := held(t), newSweeper(Retention{Journal: time.Hour, Dedupe: 2 * time.Hour, History: time.Hour})
	size := func() int64 {
		t.Helper()
		if _, err := l.c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(l.file(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	now, n := start, 0
	hours := func(many int) {
		t.Helper()
		for range many {
			for range 60 {
				l.wholeTurn(t, now, fmt.Sprint(n))
				now = now.Add(time.Minute)
				n++
			}
			s.swept(t, l, now)
		}
	}
	hours(10)
	half := size()
	hours(20)
	if all := size(); all > half+half/20 {
		t.Errorf("%d bytes after 10 hours, %d after 30", half, all)
	}
}

// said writes a row of a history as if it were now.
func (l *ledger) said(t *testing.T, now time.Time, session, turn string) {
	t.Helper()
	l.writeAt(t, now, store.Tx{History: []store.Entry{{Session: session, Turn: turn}}})
}

// What was said goes with time, from the oldest, whether it is shown or not.
func TestHistoryGoesWithTime(t *testing.T) {
	l, s := held(t), newSweeper(Retention{History: 30 * dayLong})
	for n := range manyRows {
		l.said(t, start, "long", fmt.Sprint("old", n))
	}
	l.said(t, start.Add(10*dayLong), "long", "young")
	for n := range manyRows {
		l.said(t, start, fmt.Sprint("once", n), "t")
	}
	l.said(t, start, "undone", "t")
	l.writeAt(t, start, store.Tx{Undo: []string{"undone"}})
	l.said(t, start.Add(10*dayLong), "undone", "t")
	l.said(t, start, "summed", "t")
	l.writeAt(t, start, store.Tx{Summaries: []store.Summary{{Session: "summed", Text: "so far"}}})
	for range 3 {
		l.said(t, start, "reset", "t")
	}
	l.writeAt(t, start, store.Tx{Reset: []string{"reset"}})
	for _, c := range []struct {
		after          time.Duration
		rows, sessions int64
	}{
		{30 * dayLong, 2*manyRows + 7, manyRows + 4},
		{30*dayLong + time.Hour, 2*manyRows + 7, manyRows + 4}, // they were looked at an hour ago
		{33*dayLong + time.Hour, 2, 3},
		{99 * dayLong, 0, 1},
	} {
		s.swept(t, l, start.Add(c.after))
		if rows := l.count(t, "SELECT count(*) FROM history"); rows != c.rows {
			t.Errorf("after %v there are %d rows, not %d", c.after, rows, c.rows)
		}
		if sessions := l.count(t, "SELECT count(*) FROM sessions"); sessions != c.sessions {
			t.Errorf("after %v there are %d sessions, not %d", c.after, sessions, c.sessions)
		}
	}
	if len(l.recent) != 1 {
		t.Errorf("the writer still knows %d sessions", len(l.recent))
	}
}

// What is said after everything was swept is seen, also where a summary or a
// reset had moved the start on.
func TestHistoryGoesOnAfterASweep(t *testing.T) {
	for name, tx := range map[string]store.Tx{
		"nothing": {},
		"summary": {Summaries: []store.Summary{{Session: "s", Text: "so far"}}},
		"keep":    {Summaries: []store.Summary{{Session: "s", Text: "so far", Keep: 1}}},
		"reset":   {Reset: []string{"s"}},
		"undo":    {Undo: []string{"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := held(t), newSweeper(Retention{History: time.Hour})
			for n := range 5 {
				l.said(t, start, "s", fmt.Sprint(n))
			}
			l.writeAt(t, start, tx)
			s.swept(t, l, start.Add(dayLong))
			clear(l.recent) // as after a start
			l.said(t, start.Add(dayLong), "s", "new")
			entries, err := history(l.c, "s", 10)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(entries); n == 0 || entries[n-1].Turn != "new" || n > 1 && !entries[0].Summary || n > 2 {
				t.Errorf("the history is %+v", entries)
			}
		})
	}
}

// What a turn that is open has said stays, and so does what was said after it.
func TestHistoryOfAnOpenTurnStays(t *testing.T) {
	l, s := held(t), newSweeper(Retention{History: time.Hour})
	l.said(t, start, "s", "over")
	l.writeAt(t, start, store.Tx{Begin: &store.Turn{ID: "open", Session: "s"}, History: []store.Entry{{Session: "s", Turn: "open"}}})
	l.said(t, start, "s", "over")
	s.swept(t, l, start.Add(dayLong))
	if n := l.count(t, "SELECT count(*) FROM history"); n != 2 {
		t.Errorf("%d rows are left", n)
	}
	l.writeAt(t, start, store.Tx{End: []string{"open"}})
	s.swept(t, l, start.Add(2*dayLong))
	if n := l.count(t, "SELECT count(*) FROM history"); n != 0 {
		t.Errorf("%d rows are left after its end", n)
	}
}

func (l *ledger) file(t *testing.T) string {
	t.Helper()
	for row, err := range l.c.rows("PRAGMA database_list") {
		if err != nil {
			t.Fatal(err)
		}
		return text(row[2])
	}
	return ""
}

// The writer cleans up by itself, while nothing else happens and while much does.
func TestWriterCleansUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(start)) // its clock begins before there were ledgers
		s := fresh(t, dir, Options{Durability: Fast})
		lane := bus.Address{Channel: "c", ChatID: "1"}
		for n := range 300 {
			rows := apply(t, s, store.Tx{Admit: []bus.InboundMessage{{Address: lane, ID: fmt.Sprint(n)}}}).Admitted
			apply(t, s, store.Tx{Done: []int64{rows[0].Seq}})
		}
		held := func() (n int) {
			for seq := range int64(300) {
				rows, err := s.Inbound(t.Context(), []int64{seq + 1})
				if err != nil {
					t.Fatal(err)
				}
				n += len(rows)
			}
			return n
		}
		time.Sleep(7*dayLong - time.Hour)
		if n := held(); n != 300 {
			t.Errorf("%d messages are left before it is time", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := held(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		shut(t, s)
	})
}

// Rows that a wrong clock has stamped are as old as what was written next.
func TestWhatAWrongClockHasStamped(t *testing.T) {
	counts := []string{
		"SELECT count(*) FROM inbox WHERE body IS NOT NULL", "SELECT count(*) FROM inbox", "SELECT count(*) FROM turns",
		"SELECT count(*) FROM steps", "SELECT count(*) FROM outbox", "SELECT count(*) FROM tasks", "SELECT count(*) FROM history",
	}
	for name, wrong := range map[string]time.Time{"1970": time.Unix(60, 0), "last year": start.AddDate(-1, 0, 0), "a year ahead": start.AddDate(1, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			l, s := held(t), newSweeper(Retention{Journal: dayLong, Dedupe: dayLong, History: dayLong})
			for n := range manyRows {
				l.writeAt(t, wrong, store.Tx{Admit: []bus.InboundMessage{{ID: fmt.Sprint("open", n)}}})
			}
			const some = 20
			for n := range some {
				l.wholeTurn(t, wrong, fmt.Sprint("wrong", n))
			}
			l.wholeTurn(t, start, "right")
			left := func(when string, after time.Duration, want ...int64) {
				t.Helper()
				s.swept(t, l, start.Add(after))
				for i, query := range counts {
					if got := l.count(t, query); got != want[i] {
						t.Errorf("%s: %s: %d, not %d", when, query, got, want[i])
					}
				}
			}
			const all = some + 1
			left("before it is time", dayLong-time.Minute, manyRows+all, manyRows+all, all, 2*all, all, all, all)
			l.wholeTurn(t, start.Add(dayLong), "new") // the newest row of a table stays
			left("at last", 2*dayLong-time.Minute, manyRows+1, manyRows+1, 1, 2, 1, 1, 1)
		})
	}
}

// What is done while a sweep goes on is young, whatever lies around it.
func TestWhatIsDoneDuringASweepStays(t *testing.T) {
	l, s := held(t), newSweeper(Retention{})
	l.wholeTurn(t, time.Unix(60, 0), "wrong")
	open := l.writeAt(t, start, store.Tx{Admit: []bus.InboundMessage{{ID: "open"}}}).admitted
	for n := range sweepRows {
		l.wholeTurn(t, time.Unix(60, 0), fmt.Sprint("wrong", n))
	}
	for n := range sweepRows {
		l.wholeTurn(t, start, fmt.Sprint("right", n))
	}
	now := start.Add(8 * dayLong)
	if _, err := s.step(l, now); err != nil {
		t.Fatal(err)
	}
	l.writeAt(t, now, store.Tx{Done: open})
	s.swept(t, l, now)
	if n := l.count(t, "SELECT count(*) FROM inbox WHERE body IS NOT NULL"); n != 1 {
		t.Errorf("%d texts are left", n)
	}
}

// A clock that leaps ahead is not believed at once, and never one that comes back.
func TestLeapOfTheClock(t *testing.T) {
	const year = 365 * dayLong
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	s := newSweeper(Retention{})
	s.began = start
	for _, c := range []struct {
		up, off time.Duration // since the start, and how far the clock is ahead
		steady  bool
		said    int
	}{
		{longestSweep, 0, true, 0},
		{2 * longestSweep, 50 * time.Minute, true, 0}, // who was asleep
		{time.Hour, year, false, 1},
		{time.Hour + longestSweep, year, false, 1},
		{time.Hour + 2*longestSweep, 0, false, 1}, // it came back
		{2*time.Hour - 1, 0, false, 1},
		{2 * time.Hour, 0, true, 1},
		{3 * time.Hour, -56 * year, true, 1},
		{3*time.Hour + longestSweep, 0, false, 2}, // and was put right
		{4*time.Hour + longestSweep, 0, true, 2},
		{5 * time.Hour, 2 * dayLong, false, 3}, // and this is the right one
		{6 * time.Hour, 2 * dayLong, true, 3},
	} {
		if got := s.steady(start.Add(c.up+c.off), c.up, log); got != c.steady {
			t.Errorf("after %v, %v ahead: steady is %t", c.up, c.off, got)
		}
		if n := strings.Count(said.String(), "leapt ahead"); n != c.said {
			t.Errorf("after %v it was said %d times", c.up, n)
		}
	}
}
