package sqlite

import (
	"fmt"
	"time"
)

const (
	sweepRows    = 100                  // looked at in one step, which is one commit
	sweepPause   = 5 * time.Millisecond // between steps
	longestSweep = 10 * time.Minute     // between sweeps
)

// sweeper removes what has been over for long enough, a few rows at a time, in
// the order in which they were written: the first that is too young ends the
// sweep of its table. The room becomes free pages, which new rows use again.
type sweeper struct {
	every time.Duration
	rules []rule
	at    int   // the rule whose turn it is
	after int64 // the last row looked at
}

// rule says how one table is kept small.
type rule struct {
	name   string
	keep   time.Duration
	rows   string   // the key and when it was over, NULL while it is open
	remove []string // what to do to a key that has been over for longer than keep
	mark   bool     // rows stay: remember how far the last sweep came
}

const dayLong = 24 * time.Hour

func newSweeper(r Retention) *sweeper {
	journal, dedupe, outcomes := orDefault(r.Journal, 7*dayLong), orDefault(r.Dedupe, 30*dayLong), orDefault(r.Outcomes, 7*dayLong)
	s := &sweeper{every: longestSweep}
	for _, rule := range []rule{
		{
			name: "messages", keep: journal, mark: true,
			rows:   "SELECT seq, done FROM inbox WHERE seq > ? ORDER BY seq LIMIT ?",
			remove: []string{"UPDATE inbox SET body = NULL WHERE seq = ?"},
		},
		{
			name: "message ids", keep: dedupe,
			// The newest row stays, for the sake of its number.
			rows:   "SELECT seq, done FROM inbox WHERE seq > ? AND seq < (SELECT max(seq) FROM inbox) ORDER BY seq LIMIT ?",
			remove: []string{"DELETE FROM inbox WHERE seq = ?"},
		},
		{
			name: "turns", keep: journal,
			rows: "SELECT n, ended FROM turns WHERE n > ? AND n < (SELECT max(n) FROM turns) ORDER BY n LIMIT ?",
			remove: []string{
				fmt.Sprintf("DELETE FROM steps WHERE id >= ?1 << %d AND id < (?1 + 1) << %d", stepBits, stepBits),
				"DELETE FROM turns WHERE n = ?",
			},
		},
		{
			name: "outcomes", keep: outcomes,
			rows:   "SELECT seq, ended FROM outbox WHERE seq > ? AND seq < (SELECT max(seq) FROM outbox) ORDER BY seq LIMIT ?",
			remove: []string{"DELETE FROM outbox WHERE seq = ?"},
		},
		{
			name: "tasks", keep: dedupe,
			rows:   "SELECT n, CASE stage WHEN 2 THEN changed END FROM tasks WHERE n > ? ORDER BY n LIMIT ?",
			remove: []string{"DELETE FROM tasks WHERE n = ?"},
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

// step looks at some rows of one table and reports whether the sweep goes on.
func (s *sweeper) step(c *conn, now time.Time) (more bool, err error) {
	if s.at >= len(s.rules) {
		s.at = 0 // a new sweep; and there may be no rule at all
		if len(s.rules) == 0 {
			return false, nil
		}
	}
	r := &s.rules[s.at]
	if r.mark && s.after == 0 {
		if s.after, err = c.number("SELECT value FROM marks WHERE name = ?", r.name); err != nil {
			return false, err
		}
	}
	through, old, all, err := s.look(c, r, micros(now.Add(-r.keep)))
	if err != nil {
		return false, err
	}
	if len(old) > 0 || r.mark && through > s.after {
		if err := c.atomically(beginWrite, func() error { return r.clear(c, old, through) }); err != nil {
			return false, err
		}
	}
	s.after = through
	if all {
		s.at, s.after = s.at+1, 0
	}
	return s.at < len(s.rules), nil
}

// look returns which of the next rows have been over since before, the last one
// it passed, and whether there is nothing more to be found.
func (s *sweeper) look(c *conn, r *rule, before int64) (through int64, old []int64, all bool, err error) {
	through = s.after
	seen := 0
	for row, err := range c.rows(r.rows, s.after, int64(sweepRows)) {
		if err != nil {
			return through, nil, false, err
		}
		if row[1] != nil && num(row[1]) >= before {
			return through, old, true, nil
		}
		seen++
		through = num(row[0])
		if row[1] != nil {
			old = append(old, through)
		}
	}
	return through, old, seen < sweepRows, nil
}

func (r *rule) clear(c *conn, keys []int64, through int64) error {
	for _, key := range keys {
		for _, q := range r.remove {
			if _, err := c.exec(q, key); err != nil {
				return err
			}
		}
	}
	if !r.mark {
		return nil
	}
	_, err := c.exec("INSERT INTO marks (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", r.name, through)
	return err
}
