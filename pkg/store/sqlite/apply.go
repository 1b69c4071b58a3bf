package sqlite

import (
	"fmt"
	"time"
)

// ledger is the file as its writer sees it: the one connection that writes, and
// what would have to be read again for every change. The writer's goroutine
// owns it.
type ledger struct {
	c *conn

	inbox, outbox, turns, sessions int64 // the last number given away; never taken back

	open   map[string]*openTurn // by id
	peak   int                  // how many were open at once
	recent map[string]*session  // by name; some of them
	stale  bool                 // open and recent may say more than the file does
}

type openTurn struct {
	n     int64
	steps int64
	rows  []int64
}

type session struct {
	id   int64
	last int64 // the history id of its newest row, or the one before its first
}

const (
	recentSessions = 4096
	floodSize      = 1024
	stepBits       = 20
	historyBits    = 32
)

// load reads what the ledger keeps in memory. It touches open turns and the
// ends of tables, so its time does not depend on how much is stored.
func (l *ledger) load() error {
	for _, counter := range []struct {
		n     *int64
		query string
	}{
		{&l.inbox, "SELECT max(seq) FROM inbox"},
		{&l.outbox, "SELECT max(seq) FROM outbox"},
		{&l.turns, "SELECT max(n) FROM turns"},
		{&l.sessions, "SELECT max(id) FROM sessions"},
	} {
		n, err := l.c.number(counter.query)
		if err != nil {
			return err
		}
		*counter.n = max(*counter.n, n)
	}
	l.open, l.recent = make(map[string]*openTurn), make(map[string]*session)
	for row, err := range l.c.rows("SELECT id, n, inbound FROM turns WHERE ended IS NULL ORDER BY n") {
		if err != nil {
			return err
		}
		rows, err := decodeSeqs(blob(row[2]))
		if err != nil {
			return err
		}
		l.open[text(row[0])] = &openTurn{n: num(row[1]), rows: rows}
	}
	for _, t := range l.open {
		last, err := l.c.number("SELECT max(id) FROM steps WHERE id >= ? AND id < ?", t.n<<stepBits, (t.n+1)<<stepBits)
		if err != nil {
			return err
		}
		if last > 0 {
			t.steps = last&(1<<stepBits-1) + 1
		}
	}
	l.stale = false
	return nil
}

// write applies jobs in one transaction, all or none.
func (l *ledger) write(jobs []*job) error {
	if l.stale {
		if err := l.load(); err != nil {
			return err
		}
	}
	now := time.Now()
	err := l.c.atomically(beginWrite, func() error {
		for _, j := range jobs {
			if err := l.apply(j, now); err != nil {
				return err
			}
		}
		return nil
	})
	l.stale = err != nil
	return err
}

// apply makes the changes of one Tx, in the order of its fields.
func (l *ledger) apply(j *job, now time.Time) error {
	c := j.change
	j.at, j.admitted, j.queued = now, nil, nil
	if err := l.admit(j); err != nil {
		return err
	}
	for _, f := range c.facts {
		if err := l.fact(f.Key, f.Value); err != nil {
			return err
		}
	}
	if c.begin != nil {
		if err := l.begin(c); err != nil {
			return err
		}
	}
	for i := range c.steps {
		if err := l.step(&c.steps[i]); err != nil {
			return err
		}
	}
	for i := range c.history {
		if err := l.remember(&c.history[i], micros(now)); err != nil {
			return err
		}
	}
	for _, name := range c.reset {
		if err := l.reset(name); err != nil {
			return err
		}
	}
	if err := l.send(j); err != nil {
		return err
	}
	if err := l.finish(c, micros(now)); err != nil {
		return err
	}
	return l.calendar(c, micros(now))
}

func (l *ledger) admit(j *job) error {
	const insert = `INSERT INTO inbox (seq, channel, id, chat, admitted, body) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (channel, id) DO NOTHING`
	at := micros(j.at)
	for i := range j.change.admit {
		r := &j.change.admit[i]
		var id any // a message without id cannot be recognised: NULL is no duplicate of NULL
		if r.id != "" {
			id = r.id
		}
		made, err := l.c.exec(insert, l.inbox+1, r.channel, id, r.chat, at, r.body)
		if err != nil {
			return err
		}
		if made == 0 {
			j.admitted = append(j.admitted, 0)
			continue
		}
		l.inbox++
		j.admitted = append(j.admitted, l.inbox)
	}
	return nil
}

func (l *ledger) fact(key, value string) (err error) {
	if value == "" {
		_, err = l.c.exec("DELETE FROM facts WHERE key = ?", key)
		return err
	}
	_, err = l.c.exec("INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
	return err
}

func (l *ledger) begin(c *change) error {
	b := c.begin
	t, ok := l.open[b.ID]
	if ok {
		t.rows = append(t.rows, b.Inbound...)
		if _, err := l.c.exec("UPDATE turns SET inbound = ? WHERE n = ?", encodeSeqs(t.rows), t.n); err != nil {
			return err
		}
	} else {
		l.turns++
		t = &openTurn{n: l.turns, rows: b.Inbound}
		_, err := l.c.exec("INSERT INTO turns (n, id, channel, chat, session, started, inbound) VALUES (?, ?, ?, ?, ?, ?, ?)",
			t.n, b.ID, b.Address.Channel, b.Address.ChatID, b.Session, micros(b.Started), encodeSeqs(t.rows))
		if err != nil {
			return err
		}
		l.open[b.ID] = t
		l.peak = max(l.peak, len(l.open))
	}
	for _, seq := range b.Inbound {
		if _, err := l.c.exec("UPDATE inbox SET turn = ? WHERE seq = ? AND done IS NULL", t.n, seq); err != nil {
			return err
		}
	}
	return nil
}

// step writes steps of a turn that is open; those of others are of no use.
func (l *ledger) step(s *stepRow) error {
	t, ok := l.open[s.turn]
	if !ok {
		return nil
	}
	if t.steps == 1<<stepBits {
		return fmt.Errorf("turn %s has too many steps", s.turn)
	}
	_, err := l.c.exec("INSERT INTO steps (id, body) VALUES (?, ?)", t.n<<stepBits|t.steps, s.body)
	t.steps++
	return err
}

func (l *ledger) remember(r *historyRow, at int64) error {
	s, err := l.session(r.session, true)
	if err != nil {
		return err
	}
	s.last++
	_, err = l.c.exec("INSERT INTO history (id, at, body) VALUES (?, ?, ?)", s.last, at, r.body)
	return err
}

// reset hides what a session has so far.
func (l *ledger) reset(name string) error {
	s, err := l.session(name, false)
	if err != nil || s == nil {
		return err
	}
	_, err = l.c.exec("UPDATE sessions SET start = ? WHERE id = ?", s.last, s.id)
	return err
}

// session finds a session, or makes it if asked to; otherwise it returns nil.
func (l *ledger) session(name string, create bool) (*session, error) {
	if s, ok := l.recent[name]; ok {
		return s, nil
	}
	id, err := l.c.number("SELECT id FROM sessions WHERE name = ?", name)
	if err != nil {
		return nil, err
	}
	s := &session{id: id, last: id << historyBits}
	switch {
	case id > 0:
		last, err := l.c.number("SELECT max(id) FROM history WHERE id > ? AND id < ?", s.last, (id+1)<<historyBits)
		if err != nil {
			return nil, err
		}
		s.last = max(s.last, last)
	case !create:
		return nil, nil
	default:
		l.sessions++
		s.id, s.last = l.sessions, l.sessions<<historyBits
		if _, err := l.c.exec("INSERT INTO sessions (id, name, start) VALUES (?, ?, ?)", s.id, name, s.last); err != nil {
			return nil, err
		}
	}
	if len(l.recent) >= recentSessions {
		clear(l.recent)
	}
	l.recent[name] = s
	return s, nil
}

func (l *ledger) send(j *job) error {
	const insert = `INSERT INTO outbox (seq, key, turn, channel, chat, reply_to, text, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (key) DO NOTHING`
	for i := range j.change.send {
		r := &j.change.send[i]
		m := &r.Message
		made, err := l.c.exec(insert, l.outbox+1, m.Key, r.Turn, m.Channel, m.ChatID, m.ReplyTo, m.Text, micros(r.Created))
		if err != nil {
			return err
		}
		if made == 0 {
			j.queued = append(j.queued, 0)
			continue
		}
		l.outbox++
		j.queued = append(j.queued, l.outbox)
	}
	return nil
}

// finish ends outbox rows, inbox rows and turns.
func (l *ledger) finish(c *change, now int64) error {
	for i := range c.receipts {
		r := &c.receipts[i]
		_, err := l.c.exec("UPDATE outbox SET ended = ?, message_id = ?, received = ?, failed = ? WHERE key = ? AND ended IS NULL",
			now, r.Result.MessageID, micros(r.Result.Time), r.Failed, r.Key)
		if err != nil {
			return err
		}
	}
	if err := l.done(c.done, now); err != nil {
		return err
	}
	for _, id := range c.end {
		t, ok := l.open[id]
		if !ok {
			continue
		}
		if err := l.done(t.rows, now); err != nil {
			return err
		}
		if _, err := l.c.exec("UPDATE turns SET ended = ? WHERE n = ?", now, t.n); err != nil {
			return err
		}
		delete(l.open, id)
		if len(l.open) == 0 && l.peak > floodSize {
			l.open, l.peak = make(map[string]*openTurn), 0 // a map keeps the room of its largest size
		}
	}
	return nil
}

func (l *ledger) done(seqs []int64, now int64) error {
	for _, seq := range seqs {
		if _, err := l.c.exec("UPDATE inbox SET done = ? WHERE seq = ? AND done IS NULL", now, seq); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) calendar(c *change, now int64) error {
	for i := range c.schedules {
		s := &c.schedules[i]
		_, err := l.c.exec(`INSERT INTO schedules (id, channel, chat, due, body) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET channel = excluded.channel, chat = excluded.chat, due = excluded.due, body = excluded.body`,
			s.id, s.of.Channel, s.of.ChatID, s.due, s.body)
		if err != nil {
			return err
		}
	}
	for _, id := range c.unschedule {
		if _, err := l.c.exec("DELETE FROM schedules WHERE id = ?", id); err != nil {
			return err
		}
	}
	for i := range c.tasks {
		t := &c.tasks[i]
		_, err := l.c.exec(`INSERT INTO tasks (id, stage, started, changed, body) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET stage = excluded.stage, started = excluded.started, changed = excluded.changed, body = excluded.body
			WHERE excluded.stage >= stage`,
			t.id, t.stage, t.started, now, t.body)
		if err != nil {
			return err
		}
	}
	return nil
}

// probe writes and removes something large enough to need room on the disk.
func (l *ledger) probe() error {
	if l.stale {
		if err := l.load(); err != nil {
			return err
		}
	}
	// No turn has the number 0.
	if _, err := l.c.exec("INSERT OR REPLACE INTO steps (id, body) VALUES (0, zeroblob(65536))"); err != nil {
		return err
	}
	_, err := l.c.exec("DELETE FROM steps WHERE id = 0")
	return err
}
