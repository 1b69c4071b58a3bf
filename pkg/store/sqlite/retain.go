package sqlite

import (
	"database/sql/driver"
	"fmt"
	"log/slog"
	"time"
)

const (
	sweepRows    = 500                  // looked at in one step, which is one commit
	sweepPause   = 5 * time.Millisecond // between steps
	longestSweep = 10 * time.Minute     // between sweeps
	leap         = time.Hour            // by which the wall clock goes ahead at once before it is doubted
	doubt        = 6                    // for how many times the pause between sweeps
)

// sweeper removes what has been over for long enough, a few rows at a time, in
// the order in which they were written: the first that is too young ends the
// sweep of its table. The room becomes free pages, which new rows use again.
//
// Histories lie session by session, so the oldest row of each is looked at.
// With very many sessions that reads much of the file, and is done less often.
//
// What is removed is gone, and clocks are wrong at times. One that leaps ahead
// makes everything old, so it is believed only after it has stood for a while:
// for an hour usually, within which whatever keeps clocks right has looked at it
// (the slowest does so every 34 minutes). A day would be safer, but who is off
// at night would never sweep. See also ages.
type sweeper struct {
	every   time.Duration
	rules   []rule
	history time.Duration // how long it is kept; 0 or less is for ever
	due     time.Time     // when histories are looked at again
	at      int           // the rule whose turn it is; after the last one come the histories
	after   int64         // the last row, or session, that was dealt with
	seen    int64         // the last row looked at; those from after on wait for one that tells their age

	opened  time.Time
	began   time.Time     // the same, by the wall clock as it was of late
	doubted time.Duration // until when after the start the clock is not believed
}

// rule says how one table is kept small.
type rule struct {
	name   string
	keep   time.Duration
	rows   string   // the key and when it was over, NULL while it is open
	remove []string // what to do to what is over, but not since ?3 to ?4, behind the key ?1 and up to ?2
	mark   bool     // rows stay: remember how far the last sweep came
}

const dayLong = 24 * time.Hour

func newSweeper(r Retention) *sweeper {
	journal, dedupe := orDefault(r.Journal, 7*dayLong), orDefault(r.Dedupe, 30*dayLong)
	now := time.Now()
	s := &sweeper{every: longestSweep, history: r.History, opened: now, began: now.Round(0)}
	if s.history > 0 {
		s.every = min(s.every, max(s.history/10, time.Second))
	}
	for _, rule := range []rule{
		{
			name: "messages", keep: journal, mark: true,
			rows:   "SELECT seq, done FROM inbox WHERE seq > ? ORDER BY seq LIMIT ?",
			remove: []string{"UPDATE inbox SET body = NULL WHERE seq > ?1 AND seq <= ?2 AND done NOT BETWEEN ?3 AND ?4"},
		},
		{
			name: "message ids", keep: dedupe,
			// The newest row stays, for the sake of its number.
			rows:   "SELECT seq, done FROM inbox WHERE seq > ? AND seq < (SELECT max(seq) FROM inbox) ORDER BY seq LIMIT ?",
			remove: []string{"DELETE FROM inbox WHERE seq > ?1 AND seq <= ?2 AND done NOT BETWEEN ?3 AND ?4"},
		},
		{
			name: "turns", keep: journal,
			rows: "SELECT n, ended FROM turns WHERE n > ? AND n < (SELECT max(n) FROM turns) ORDER BY n LIMIT ?",
			remove: []string{
				fmt.Sprintf("DELETE FROM steps WHERE id >= (?1 + 1) << %[1]d AND id < (?2 + 1) << %[1]d AND (SELECT ended FROM turns WHERE n = steps.id >> %[1]d) NOT BETWEEN ?3 AND ?4", stepBits),
				"DELETE FROM turns WHERE n > ?1 AND n <= ?2 AND ended NOT BETWEEN ?3 AND ?4",
			},
		},
		{
			name: "outcomes", keep: journal,
			rows:   "SELECT seq, ended FROM outbox WHERE seq > ? AND seq < (SELECT max(seq) FROM outbox) ORDER BY seq LIMIT ?",
			remove: []string{"DELETE FROM outbox WHERE seq > ?1 AND seq <= ?2 AND ended NOT BETWEEN ?3 AND ?4"},
		},
		{
			name: "tasks", keep: dedupe,
			rows:   "SELECT n, CASE stage WHEN 2 THEN changed END FROM tasks WHERE n > ? ORDER BY n LIMIT ?",
			remove: []string{"DELETE FROM tasks WHERE n > ?1 AND n <= ?2 AND stage = 2 AND changed NOT BETWEEN ?3 AND ?4"},
		},
	} {
		if rule.keep > 0 {
			s.rules = append(s.rules, rule)
			s.every = min(s.every, max(rule.keep/10, time.Second))
		}
	}
	return s
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// steady reports whether the wall clock, now, has gone on lately like the time
// up that has passed since the start.
func (s *sweeper) steady(now time.Time, up time.Duration, log *slog.Logger) bool {
	began := now.Round(0).Add(-up)
	if d := began.Sub(s.began); d > leap {
		s.doubted = up + doubt*s.every
		log.Warn("the clock has leapt ahead: nothing old is removed for a while", "duration", d)
	}
	s.began = began
	return up >= s.doubted
}

// ages tells by its stamp what is old. A stamp from before there were ledgers,
// or from the future, is of a clock that was wrong. Rows are written in order, so
// such a row is at least as old as the next one that has a right stamp, and goes
// with it.
type ages struct{ before, future int64 }

const firstLedger = 1767225600 * 1e6 // 2026

func agesAt(now time.Time, keep time.Duration) ages {
	return ages{before: micros(now.Add(-keep)), future: micros(now.Add(dayLong))}
}

func (a ages) wrong(at int64) bool { return at < firstLedger || at > a.future }
func (a ages) young(at int64) bool { return at >= a.before && !a.wrong(at) }

// step looks at some rows of one table and reports whether the sweep goes on.
func (s *sweeper) step(l *ledger, now time.Time) (more bool, err error) {
	if s.at > len(s.rules) {
		s.at = 0 // a new sweep
	}
	if s.at == len(s.rules) {
		return s.stepHistories(l, now)
	}
	r := &s.rules[s.at]
	if r.mark && s.seen == 0 {
		if s.after, err = l.c.number("SELECT value FROM marks WHERE name = ?", r.name); err != nil {
			return false, err
		}
		s.seen = s.after
	}
	a := agesAt(now, r.keep)
	through, some, all, err := s.look(l.c, r, a)
	if err != nil {
		return false, err
	}
	if some || r.mark && through > s.after {
		if err := l.c.atomically(beginWrite, func() error { return r.clear(l.c, s.after, through, a) }); err != nil {
			return false, err
		}
	}
	s.after = through
	if all {
		s.at, s.after, s.seen = s.at+1, 0, 0
	}
	return true, nil
}

// look goes through the next rows up to one that is too young at most. It returns
// up to where they can be dealt with, whether some have to be removed, and
// whether there is nothing more to be found.
func (s *sweeper) look(c *conn, r *rule, a ages) (through int64, some, all bool, err error) {
	through = s.after
	count := 0
	for row, err := range c.rows(r.rows, s.seen, int64(sweepRows)) {
		if err != nil {
			return through, false, false, err
		}
		over := row[1] != nil
		if over && a.young(num(row[1])) {
			return through, some, true, nil
		}
		told := over && !a.wrong(num(row[1]))
		if told || !over && through == s.seen {
			through = num(row[0])
		}
		count++
		some = some || told
		s.seen = num(row[0])
	}
	return through, some, count < sweepRows, nil
}

func (r *rule) clear(c *conn, after, through int64, a ages) error {
	for _, q := range r.remove {
		if _, err := c.exec(q, after, through, a.before, a.future); err != nil {
			return err
		}
	}
	if !r.mark {
		return nil
	}
	_, err := c.exec("INSERT INTO marks (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", r.name, through)
	return err
}

// stepHistories looks at some sessions, unless all of them were looked at lately.
func (s *sweeper) stepHistories(l *ledger, now time.Time) (more bool, err error) {
	if s.after == 0 {
		if s.history <= 0 || now.Before(s.due) {
			s.at++
			return false, nil
		}
		s.due = now.Add(min(s.history/10, dayLong))
	}
	all := false
	if s.after, all, err = l.sweepHistories(s.after, agesAt(now, s.history)); err != nil {
		return false, err
	}
	if all {
		s.at, s.after = s.at+1, 0
	}
	return !all, nil
}

// oldest is when the first row of each session was written, among those that
// were not undone and among those that were.
const oldest = `SELECT s.id, s.name, s.summary IS NOT NULL,
	(SELECT at FROM history WHERE id >= s.id << 32 AND id < (s.id + 1) << 32 ORDER BY id LIMIT 1),
	(SELECT at FROM history WHERE id <= -(s.id << 32) AND id > -((s.id + 1) << 32) ORDER BY id DESC LIMIT 1)
	FROM sessions s WHERE s.id >= ? ORDER BY s.id LIMIT ?`

// removeEmpty removes a session of which nothing is left.
const removeEmpty = `DELETE FROM sessions WHERE id = ?1 AND summary IS NULL
	AND NOT EXISTS (SELECT 1 FROM history WHERE id >= ?1 << 32 AND id < (?1 + 1) << 32)
	AND NOT EXISTS (SELECT 1 FROM history WHERE id <= -(?1 << 32) AND id > -((?1 + 1) << 32))`

// overdueSession is one of which something has to go.
type overdueSession struct {
	session
	name string
}

// overdue finds sessions that hold rows which may be old, or nothing at all,
// among the next ones from the session from on. It returns where to go on,
// and whether it has come to the end.
func (l *ledger) overdue(from int64, a ages) (list []overdueSession, next int64, all bool, err error) {
	old := func(at driver.Value) bool { return at != nil && !a.young(num(at)) }
	next = from
	seen := 0
	for row, err := range l.c.rows(oldest, from, int64(sweepRows)) {
		if err != nil {
			return nil, from, false, err
		}
		seen++
		id, summed, shown, undone := num(row[0]), num(row[2]) != 0, row[3], row[4]
		if old(shown) || old(undone) || !summed && shown == nil && undone == nil {
			list = append(list, overdueSession{session{id: id}, text(row[1])})
		}
		next = id + 1
	}
	return list, next, seen < sweepRows, nil
}

// sweepHistories looks at the next sessions from the session from on, and
// removes what is overdue of them, up to the size of a step. It returns the same
// as overdue.
func (l *ledger) sweepHistories(from int64, a ages) (next int64, all bool, err error) {
	list, next, all, err := l.overdue(from, a)
	if err != nil || len(list) == 0 {
		return next, all, err
	}
	err = l.c.atomically(beginWrite, func() error {
		left := int64(sweepRows)
		for i := range list {
			removed, err := l.removeOld(&list[i], a, left)
			if err != nil {
				return err
			}
			if left -= removed; left <= 0 {
				next, all = list[i].id, false // there may be more of it
				return nil
			}
		}
		return nil
	})
	l.tails.clear()
	return next, all, err
}

// removeOld removes up to limit rows of a session that are old, the oldest first,
// and the session if nothing is left. What an open turn has written stays.
func (l *ledger) removeOld(s *overdueSession, a ages, limit int64) (removed int64, err error) {
	for _, part := range []struct{ look, remove string }{
		{
			"SELECT id, at, body FROM history WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3",
			"DELETE FROM history WHERE id >= ?1 AND id <= ?2",
		},
		{
			"SELECT -id, at, body FROM history WHERE id <= -?1 AND id > -?2 ORDER BY id DESC LIMIT ?3",
			"DELETE FROM history WHERE id <= -?1 AND id >= -?2",
		},
	} {
		last := int64(0)
		for row, err := range l.c.rows(part.look, s.first(), s.end(), limit-removed) {
			if err != nil {
				return 0, err
			}
			at := num(row[1])
			if a.young(at) || l.open[decode(blob(row[2])).string()] != nil {
				break
			}
			if !a.wrong(at) {
				last = num(row[0])
			}
		}
		n, err := l.c.exec(part.remove, s.first(), last)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	gone, err := l.c.exec(removeEmpty, s.id)
	if gone > 0 {
		delete(l.recent, s.name)
	}
	return removed, err
}
