package sqlite

import (
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

const (
	recentSessions = 4096
	historyBits    = 32
)

// session is what the writer knows of a history.
type session struct {
	id   int64
	last int64 // the highest history id it ever had; new rows follow it
}

// first and end are the bounds of its history ids; end is not one of them.
func (s *session) first() int64 { return s.id<<historyBits + 1 }
func (s *session) end() int64   { return (s.id + 1) << historyBits }

// remember makes the changes of histories, in the order of the fields of a Tx.
func (l *ledger) remember(c *change, now int64) error {
	return first(
		func() error { return each(c.history, func(r *historyRow) error { return l.say(r, now) }) },
		func() error { return each(c.undo, l.undo) },
		func() error { return each(c.summaries, l.summarize) },
		func() error { return each(c.reset, l.reset) },
		func() error { return l.forget(c) },
	)
}

// session finds a session, or makes it if asked to; otherwise it returns nil.
func (l *ledger) session(name string, create bool) (*session, error) {
	if s, ok := l.recent[name]; ok {
		return s, nil
	}
	s, start := &session{}, int64(0)
	for row, err := range l.c.rows("SELECT id, start FROM sessions WHERE name = ?", name) {
		if err != nil {
			return nil, err
		}
		s.id, start = num(row[0]), num(row[1])
	}
	switch {
	case s.id > 0:
		shown, err := l.c.number("SELECT max(id) FROM history WHERE id >= ? AND id < ?", s.first(), s.end())
		if err != nil {
			return nil, err
		}
		undone, err := l.c.number("SELECT min(id) FROM history WHERE id <= ? AND id > ?", -s.first(), -s.end())
		if err != nil {
			return nil, err
		}
		s.last = max(start-1, shown, -undone) // all rows before start may have been swept
	case !create:
		return nil, nil
	default:
		l.sessions++
		s.id = l.sessions
		s.last = s.first() - 1
		if _, err := l.c.exec("INSERT INTO sessions (id, name, start, skip) VALUES (?, ?, ?, 0)", s.id, name, s.first()); err != nil {
			return nil, err
		}
	}
	if len(l.recent) >= recentSessions {
		clear(l.recent)
	}
	l.recent[name] = s
	return s, nil
}

// say writes what a turn adds.
func (l *ledger) say(r *historyRow, now int64) error {
	s, err := l.session(r.entries[0].Session, true)
	if err != nil {
		return err
	}
	s.last++
	_, err = l.c.exec("INSERT INTO history (id, at, body) VALUES (?, ?, ?)", s.last, now, r.body)
	return err
}

// shownRow is a row of a history, as much of it as is shown.
type shownRow struct {
	id      int64
	hidden  int64 // how many of its first entries are not shown
	entries []store.Entry
}

// backwards calls f with the shown rows of a session, the newest first, until f
// returns false.
func (l *ledger) backwards(s *session, f func(shownRow) bool) error {
	const query = `SELECT h.id, CASE h.id WHEN s.start THEN s.skip ELSE 0 END, h.body
		FROM sessions s CROSS JOIN history h ON h.id >= s.start AND h.id < ?2
		WHERE s.id = ?1 ORDER BY h.id DESC`
	for row, err := range l.c.rows(query, s.id, s.end()) {
		if err != nil {
			return err
		}
		r := shownRow{id: num(row[0]), hidden: num(row[1])}
		if r.entries, err = decodeEntries("", blob(row[2])); err != nil {
			return err
		}
		r.entries = r.entries[min(r.hidden, int64(len(r.entries))):]
		if !f(r) {
			return nil
		}
	}
	return nil
}

// undo takes the newest turn out of sight. Its rows keep their place, below
// zero, where nothing reads them.
func (l *ledger) undo(name *string) error {
	s, err := l.session(*name, false)
	if err != nil || s == nil {
		return err
	}
	var ids []int64
	var turn string
	err = l.backwards(s, func(r shownRow) bool {
		if len(ids) > 0 && r.entries[0].Turn != turn {
			return false
		}
		turn = r.entries[0].Turn
		ids = append(ids, r.id)
		return turn != "" || r.entries[0].Message.Role != providers.RoleUser
	})
	if err != nil {
		return err
	}
	return each(ids, func(id *int64) error {
		_, err := l.c.exec("UPDATE history SET id = ? WHERE id = ?", -*id, *id)
		return err
	})
}

// summarize moves the start of what is shown to the newest entries it keeps.
func (l *ledger) summarize(sum *store.Summary) error {
	s, err := l.session(sum.Session, sum.Text != "")
	if err != nil || s == nil {
		return err
	}
	start, skip, left := s.last+1, int64(0), sum.Keep
	if left > 0 {
		err = l.backwards(s, func(r shownRow) bool {
			start, skip = r.id, r.hidden+int64(max(0, len(r.entries)-left))
			left -= len(r.entries)
			return left > 0
		})
	}
	if err != nil {
		return err
	}
	var text any
	if sum.Text != "" {
		text = sum.Text
	}
	_, err = l.c.exec("UPDATE sessions SET start = ?, skip = ?, summary = ? WHERE id = ?", start, skip, text, s.id)
	return err
}

// reset hides all that a session has so far.
func (l *ledger) reset(name *string) error {
	s, err := l.session(*name, false)
	if err != nil || s == nil {
		return err
	}
	_, err = l.c.exec("UPDATE sessions SET start = ?, skip = 0, summary = NULL WHERE id = ?", s.last+1, s.id)
	return err
}

// forget erases histories, and of what belongs to their sessions all that is
// over.
func (l *ledger) forget(c *change) error {
	if len(c.forget) == 0 {
		return nil
	}
	l.forgot = true
	err := each(c.forget, func(name *string) error {
		s, err := l.session(*name, false)
		if err != nil || s == nil {
			return err
		}
		delete(l.recent, *name)
		for _, query := range []string{
			"DELETE FROM history WHERE id >= ?1 AND id < ?2",
			"DELETE FROM history WHERE id <= -?1 AND id > -?2",
		} {
			if _, err := l.c.exec(query, s.first(), s.end()); err != nil {
				return err
			}
		}
		_, err = l.c.exec("DELETE FROM sessions WHERE id = ?", s.id)
		return err
	})
	if err != nil {
		return err
	}
	b := c.belongings.clone()
	if err := b.find(l.c, c.forget); err != nil {
		return err
	}
	return b.erase(l.c)
}

// clear empties the log, where a page is still as it was before something was
// forgotten. Somebody who reads may be in the way; then the log is written over
// as time goes by.
func (l *ledger) clear() error {
	l.forgot = false
	return first(
		func() error { _, err := l.c.exec("PRAGMA busy_timeout = 50"); return err },
		func() error { _, err := l.c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); return err },
		func() error {
			_, err := l.c.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", l.busy.Milliseconds()))
			return err
		},
	)
}

// belongings are the rows of some sessions outside their histories. Nothing
// leads from a session to them: an index that is kept for a day that hardly ever
// comes would cost every turn. They are looked for twice: by whoever wants them
// forgotten, through all that is kept, beside the writer's work; and by the
// writer, from where that ended.
type belongings struct {
	inbox, turns, outbox []int64
	ids                  map[string]bool // of turns
	through              [3]int64        // the last row of inbox, turns and outbox looked at
}

func (b *belongings) clone() belongings {
	return belongings{
		inbox: slices.Clone(b.inbox), turns: slices.Clone(b.turns), outbox: slices.Clone(b.outbox),
		ids: b.ids, through: b.through,
	}
}

// find adds what belongs to the sessions and stands behind what was looked at
// before.
func (b *belongings) find(c *conn, sessions []string) error {
	look := func(i int, query string, mine func(row []driver.Value) bool) (found []int64, err error) {
		for row, err := range c.rows(query, b.through[i]) {
			if err != nil {
				return nil, err
			}
			b.through[i] = num(row[0])
			if mine(row) {
				found = append(found, b.through[i])
			}
		}
		return found, nil
	}
	inbox, err := look(0, "SELECT seq, session FROM inbox WHERE seq > ? ORDER BY seq", func(row []driver.Value) bool {
		return slices.Contains(sessions, text(row[1]))
	})
	if err != nil {
		return err
	}
	ids := make(map[string]bool)
	turns, err := look(1, "SELECT n, session, id FROM turns WHERE n > ? ORDER BY n", func(row []driver.Value) bool {
		mine := slices.Contains(sessions, text(row[1]))
		if mine {
			ids[text(row[2])] = true
		}
		return mine
	})
	if err != nil {
		return err
	}
	outbox, err := look(2, "SELECT seq, session, turn FROM outbox WHERE seq > ? ORDER BY seq", func(row []driver.Value) bool {
		session, turn := text(row[1]), text(row[2])
		if session == "" {
			return turn != "" && (ids[turn] || b.ids[turn])
		}
		return slices.Contains(sessions, session)
	})
	b.inbox, b.turns, b.outbox = append(b.inbox, inbox...), append(b.turns, turns...), append(b.outbox, outbox...)
	b.ids = ids
	return err
}

// erase removes the texts of what is over. What is open by now stays.
func (b *belongings) erase(c *conn) error {
	run := func(query string) func(key *int64) error {
		return func(key *int64) error {
			_, err := c.exec(query, *key)
			return err
		}
	}
	return first(
		func() error {
			return each(b.inbox, run("UPDATE inbox SET body = NULL WHERE seq = ? AND done IS NOT NULL"))
		},
		func() error { return each(b.turns, run(eraseSteps)) },
		func() error {
			return each(b.outbox, run("UPDATE outbox SET text = '' WHERE seq = ? AND ended IS NOT NULL"))
		},
	)
}

// eraseSteps removes the steps of a turn that has ended.
const eraseSteps = `DELETE FROM steps WHERE id >= ?1 << 20 AND id < (?1 + 1) << 20
	AND (SELECT ended FROM turns WHERE n = ?1) IS NOT NULL`
