package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// ledger is the file as its writer sees it: the one connection that writes, and
// what would have to be read again for every change. The writer's goroutine
// owns it.
type ledger struct {
	c     *conn
	busy  time.Duration
	tails *tails // what readers remember
	facts *facts // likewise

	inbox, outbox, turns, sessions int64 // the last number given away; never taken back

	open   map[string]*openTurn // by id
	peak   int                  // how many were open at once
	recent map[string]*session  // by name; some of them
	stale  bool                 // open and recent may say more than the file does
	forgot bool                 // something was forgotten in the transaction
}

type openTurn struct {
	n       int64
	session string
	steps   int64
	rows    []int64
}

const (
	floodSize = 1024
	stepBits  = 20
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
	l.tails.clear() // a commit that failed may yet be there
	l.facts.clear()
	for row, err := range l.c.rows("SELECT id, n, inbound, session FROM turns WHERE ended IS NULL ORDER BY n") {
		if err != nil {
			return err
		}
		rows, err := decodeSeqs(blob(row[2]))
		if err != nil {
			return err
		}
		l.open[text(row[0])] = &openTurn{n: num(row[1]), session: text(row[3]), rows: rows}
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
	if l.stale = err != nil; !l.stale {
		l.tails.update(jobs)
		l.facts.update(jobs)
	}
	if l.forgot {
		_ = l.clear() // what was forgotten is committed, and that is what counts
	}
	return err
}

// apply makes the changes of one Tx, in the order of its fields.
func (l *ledger) apply(j *job, now time.Time) error {
	c, us := j.change, micros(now)
	j.at, j.admitted, j.amended, j.queued = now, nil, nil, nil
	return first(
		func() error { return l.admit(j) },
		func() error { return l.amend(j) },
		func() error { return each(c.facts, l.fact) },
		func() error { return each(c.marks, l.mark) },
		func() error { return l.begin(c.begin) },
		func() error { return each(c.steps, l.step) },
		func() error { return l.remember(c, us) },
		func() error { return l.send(j) },
		func() error { return each(c.receipts, func(r *store.Receipt) error { return l.receive(r, us) }) },
		func() error { return l.done(c.done, us) },
		func() error { return each(c.end, func(id *string) error { return l.end(*id, us) }) },
		func() error { return l.calendar(c, us) },
	)
}

// first does one after the other until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// each does f to one after the other until it fails.
func each[T any](list []T, f func(*T) error) error {
	for i := range list {
		if err := f(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) admit(j *job) error {
	const insert = `INSERT INTO inbox (seq, channel, id, chat, session, admitted, body) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (channel, id) DO NOTHING`
	at := micros(j.at)
	for i := range j.change.admit {
		r := &j.change.admit[i]
		var id any // a message without id cannot be recognised: NULL is no duplicate of NULL
		if r.id != "" {
			id = r.id
		}
		made, err := l.c.exec(insert, l.inbox+1, r.channel, id, r.chat, r.session, at, r.body)
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

func (l *ledger) amend(j *job) error {
	for _, a := range j.change.amend {
		rows, err := collect(l.c, inbound,
			"SELECT seq, admitted, body FROM inbox WHERE channel = ? AND id = ? AND done IS NULL", a.Channel, a.ID)
		if err != nil {
			return err
		}
		for _, r := range rows { // one at most
			if a.Deleted {
				_, err = l.c.exec("UPDATE inbox SET done = ?, body = NULL WHERE seq = ?", micros(j.at), r.Seq)
			} else {
				r.Message.Text, r.Message.Args = a.Text, a.Args
				var body []byte
				if body, err = json.Marshal(&r.Message); err != nil { //nolint:gosec // a session key is no secret
					return err
				}
				_, err = l.c.exec("UPDATE inbox SET body = ? WHERE seq = ?", body, r.Seq)
			}
			if err != nil {
				return err
			}
			j.amended = append(j.amended, r)
		}
	}
	return nil
}

func (l *ledger) fact(f *store.Fact) (err error) {
	if f.Value == "" {
		_, err = l.c.exec("DELETE FROM facts WHERE key = ?", f.Key)
		return err
	}
	_, err = l.c.exec("INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", f.Key, f.Value)
	return err
}

func (l *ledger) mark(m *store.Mark) error {
	t, ok := l.open[m.Turn]
	if !ok {
		return nil
	}
	var alone int64
	if m.Alone {
		alone = 1
	}
	_, err := l.c.exec("UPDATE turns SET strikes = ?, found = ?, alone = ? WHERE n = ?", int64(m.Strikes), int64(m.Steps), alone, t.n)
	return err
}

func (l *ledger) begin(b *store.Turn) error {
	if b == nil {
		return nil
	}
	t, ok := l.open[b.ID]
	if ok {
		t.rows = append(t.rows, b.Inbound...)
		if _, err := l.c.exec("UPDATE turns SET inbound = ? WHERE n = ?", encodeSeqs(t.rows), t.n); err != nil {
			return err
		}
	} else {
		l.turns++
		t = &openTurn{n: l.turns, session: b.Session, rows: b.Inbound}
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

func (l *ledger) send(j *job) error {
	const insert = `INSERT INTO outbox (seq, key, turn, session, channel, chat, reply_to, text, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (key) DO NOTHING`
	for i := range j.change.send {
		r := &j.change.send[i]
		m := &r.Message
		made, err := l.c.exec(insert, l.outbox+1, m.Key, r.Turn, r.Session, m.Channel, m.ChatID, m.ReplyTo, m.Text, micros(r.Created))
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

// receive ends an outbox row. The first receipt counts.
func (l *ledger) receive(r *store.Receipt, now int64) error {
	_, err := l.c.exec("UPDATE outbox SET ended = ?, message_id = ?, received = ?, failed = ? WHERE key = ? AND ended IS NULL",
		now, r.Result.MessageID, micros(r.Result.Time), r.Failed, r.Key)
	return err
}

func (l *ledger) end(id string, now int64) error {
	t, ok := l.open[id]
	if !ok {
		return nil
	}
	if err := l.done(t.rows, now); err != nil {
		return err
	}
	delete(l.open, id)
	if len(l.open) == 0 && l.peak > floodSize {
		l.open, l.peak = make(map[string]*openTurn), 0 // a map keeps the room of its largest size
	}
	_, err := l.c.exec("UPDATE turns SET ended = ? WHERE n = ?", now, t.n)
	return err
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
