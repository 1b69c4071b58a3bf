package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// usable returns an error if nothing may be read any more.
func (s *Store) usable(ctx context.Context, what string) error {
	if s.isClosed() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	return nil
}

// read runs f with one of the reading connections. Each sees the ledger as it
// was when its transaction began, whatever the writer does meanwhile.
func (s *Store) read(ctx context.Context, what string, f func(c *conn) error) error {
	if err := s.usable(ctx, what); err != nil {
		return err
	}
	var c *conn
	select {
	case c = <-s.readers:
	case <-s.closing:
		return store.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("store: %s: %w", what, ctx.Err())
	}
	defer func() { s.readers <- c }()
	if c == nil { // the first use of this place
		var err error
		if c, err = dial(s.file, "ro", s.busy, "cache_size(-1024)"); err != nil {
			return fmt.Errorf("store: %s: %w", what, err)
		}
	}
	if err := f(c); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	return nil
}

// collect reads one value from each row of a query.
func collect[T any](c *conn, value func(row []driver.Value) (T, error), query string, args ...any) ([]T, error) {
	var list []T
	for row, err := range c.rows(query, args...) {
		if err != nil {
			return nil, err
		}
		v, err := value(row)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Lanes implements store.Queue.
func (s *Store) Lanes(ctx context.Context) (lanes []bus.Address, err error) {
	err = s.read(ctx, "lanes", func(c *conn) (err error) {
		lanes, err = collect(c, func(row []driver.Value) (bus.Address, error) {
			return bus.Address{Channel: text(row[0]), ChatID: text(row[1])}, nil
		}, "SELECT DISTINCT channel, chat FROM inbox WHERE done IS NULL")
		return err
	})
	return lanes, err
}

func inbound(row []driver.Value) (r store.Inbound, err error) {
	r.Seq, r.Admitted = num(row[0]), instant(num(row[1]))
	if err := json.Unmarshal(blob(row[2]), &r.Message); err != nil {
		return r, fmt.Errorf("row %d: %w: %w", r.Seq, errForm, err)
	}
	return r, nil
}

// Waiting implements store.Queue.
func (s *Store) Waiting(ctx context.Context, lane bus.Address, after int64, limit int) (rows []store.Inbound, err error) {
	err = s.read(ctx, "waiting", func(c *conn) (err error) {
		rows, err = collect(c, inbound, `SELECT seq, admitted, body FROM inbox
			WHERE channel = ? AND chat = ? AND seq > ? AND done IS NULL AND turn IS NULL ORDER BY seq LIMIT ?`,
			lane.Channel, lane.ChatID, after, int64(max(0, limit)))
		return err
	})
	return rows, err
}

// Inbound implements store.Queue. Done rows are kept as long as
// Retention.Journal says.
func (s *Store) Inbound(ctx context.Context, seqs []int64) (rows []store.Inbound, err error) {
	err = s.read(ctx, "inbound", func(c *conn) error {
		for _, seq := range seqs {
			found, err := collect(c, inbound, "SELECT seq, admitted, body FROM inbox WHERE seq = ? AND body IS NOT NULL", seq)
			if err != nil {
				return err
			}
			rows = append(rows, found...)
		}
		return nil
	})
	return rows, err
}

// OpenTurns implements store.Queue.
func (s *Store) OpenTurns(ctx context.Context) (open []store.Turn, err error) {
	err = s.read(ctx, "open turns", func(c *conn) error {
		return c.atomically(beginRead, func() (err error) {
			open, err = openTurns(c)
			return err
		})
	})
	return open, err
}

func openTurns(c *conn) ([]store.Turn, error) {
	var numbers []int64
	open, err := collect(c, func(row []driver.Value) (t store.Turn, err error) {
		numbers = append(numbers, num(row[0]))
		t = store.Turn{
			ID: text(row[1]), Address: bus.Address{Channel: text(row[2]), ChatID: text(row[3])},
			Session: text(row[4]), Started: instant(num(row[5])),
		}
		if row[7] != nil {
			t.Mark = store.Mark{Turn: t.ID, Strikes: int(num(row[7])), Steps: int(num(row[8])), Alone: num(row[9]) != 0}
		}
		t.Inbound, err = decodeSeqs(blob(row[6]))
		return t, err
	}, "SELECT n, id, channel, chat, session, started, inbound, strikes, found, alone FROM turns WHERE ended IS NULL ORDER BY n")
	if err != nil {
		return nil, err
	}
	for i, n := range numbers {
		t := &open[i]
		for row, err := range c.rows("SELECT body FROM steps WHERE id >= ? AND id < ? ORDER BY id", n<<stepBits, (n+1)<<stepBits) {
			if err != nil {
				return nil, err
			}
			steps, err := decodeSteps(t.ID, blob(row[0]))
			if err != nil {
				return nil, fmt.Errorf("turn %s: %w", t.ID, err)
			}
			t.Steps = append(t.Steps, steps...)
		}
	}
	return open, nil
}

// Unsent implements store.Queue.
func (s *Store) Unsent(ctx context.Context) (rows []store.Outbound, err error) {
	err = s.read(ctx, "unsent", func(c *conn) (err error) {
		rows, err = collect(c, func(row []driver.Value) (store.Outbound, error) {
			return store.Outbound{
				Seq: num(row[0]), Turn: text(row[2]), Session: text(row[8]), Created: instant(num(row[7])),
				Message: bus.OutboundMessage{
					Address: bus.Address{Channel: text(row[3]), ChatID: text(row[4])},
					Key:     text(row[1]), ReplyTo: text(row[5]), Text: text(row[6]),
				},
			}, nil
		}, "SELECT seq, key, turn, channel, chat, reply_to, text, created, session FROM outbox WHERE ended IS NULL ORDER BY seq")
		return err
	})
	return rows, err
}

// newest reads a session from its end. A row holds one entry at least.
const newest = `SELECT s.summary, s.start, s.skip, h.id, h.body
	FROM sessions s LEFT JOIN history h ON h.id >= s.start AND h.id < (s.id + 1) << 32
	WHERE s.name = ? ORDER BY h.id DESC LIMIT ?`

// History implements store.Memory.
func (s *Store) History(ctx context.Context, session string, limit int) (entries []store.Entry, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.usable(ctx, "history"); err != nil {
		return nil, err
	}
	entries, unknown := s.tails.find(session, limit)
	if unknown == nil {
		return entries, nil
	}
	err = s.read(ctx, "history", func(c *conn) (err error) {
		if entries, err = history(c, session, limit); err == nil {
			s.tails.fill(session, unknown, limit, entries)
		}
		return err
	})
	return entries, err
}

func history(c *conn, session string, limit int) ([]store.Entry, error) {
	var entries []store.Entry
	var rows [][]store.Entry // the newest first
	found := 0
	for row, err := range c.rows(newest, session, int64(limit)) {
		if err != nil {
			return nil, err
		}
		if row[0] != nil && entries == nil {
			m := providers.Message{Role: providers.RoleUser, Content: text(row[0])}
			entries = append(entries, store.Entry{Session: session, Summary: true, Message: m})
		}
		if row[3] == nil { // nothing is shown but perhaps a summary
			break
		}
		part, err := decodeEntries(session, blob(row[4]))
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", session, err)
		}
		if num(row[3]) == num(row[1]) {
			part = part[min(num(row[2]), int64(len(part))):]
		}
		rows = append(rows, part)
		if found += len(part); found >= limit {
			break
		}
	}
	slices.Reverse(rows)
	shown := slices.Concat(rows...)
	return append(entries, shown[max(0, len(shown)-limit):]...), nil
}

// Fact implements store.Memory.
func (s *Store) Fact(ctx context.Context, key string) (value string, err error) {
	if err := s.usable(ctx, "fact"); err != nil {
		return "", err
	}
	value, unknown := s.facts.find(key)
	if unknown == nil {
		return value, nil
	}
	err = s.read(ctx, "fact", func(c *conn) error {
		for row, err := range c.rows("SELECT value FROM facts WHERE key = ?", key) {
			if err != nil {
				return err
			}
			value = text(row[0])
		}
		s.facts.fill(unknown, value)
		return nil
	})
	return value, err
}

// ReceiptFor implements store.Memory. An outcome is known as long as
// Retention.Journal says.
func (s *Store) ReceiptFor(ctx context.Context, key string) (r store.Receipt, ok bool, err error) {
	err = s.read(ctx, "receipt", func(c *conn) error {
		for row, err := range c.rows("SELECT message_id, received, failed FROM outbox WHERE key = ? AND ended IS NOT NULL", key) {
			if err != nil {
				return err
			}
			ok = true
			r = store.Receipt{
				Key: key, Failed: text(row[2]),
				Result: bus.Receipt{MessageID: text(row[0]), Time: instant(num(row[1]))},
			}
		}
		return nil
	})
	return r, ok, err
}

func schedule(row []driver.Value) (e store.Schedule, err error) {
	if err := json.Unmarshal(blob(row[0]), (*scheduleBody)(&e)); err != nil {
		return e, fmt.Errorf("%w: %w", errForm, err)
	}
	return e, nil
}

// Schedules implements store.Calendar.
func (s *Store) Schedules(ctx context.Context, of bus.Address) (list []store.Schedule, err error) {
	query, args := "SELECT body FROM schedules WHERE channel = ? AND chat = ? ORDER BY due, id", []any{of.Channel, of.ChatID}
	if of.IsZero() {
		query, args = "SELECT body FROM schedules ORDER BY due, id", nil
	}
	err = s.read(ctx, "schedules", func(c *conn) (err error) {
		list, err = collect(c, schedule, query, args...)
		return err
	})
	return list, err
}

// Due implements store.Calendar.
func (s *Store) Due(ctx context.Context, t time.Time, limit int) (due []store.Schedule, next time.Time, err error) {
	limit = min(max(0, limit), math.MaxInt-1)
	now := micros(t)
	err = s.read(ctx, "due", func(c *conn) error {
		for row, err := range c.rows("SELECT body, due FROM schedules ORDER BY due, id LIMIT ?", int64(limit)+1) {
			if err != nil {
				return err
			}
			if at := num(row[1]); at > now || len(due) == limit {
				next = instant(at)
				return nil
			}
			e, err := schedule(row)
			if err != nil {
				return err
			}
			due = append(due, e)
		}
		return nil
	})
	return due, next, err
}

// OpenTasks implements store.Calendar.
func (s *Store) OpenTasks(ctx context.Context) (tasks []store.Task, err error) {
	err = s.read(ctx, "open tasks", func(c *conn) (err error) {
		tasks, err = collect(c, func(row []driver.Value) (t store.Task, err error) {
			if err := json.Unmarshal(blob(row[0]), (*taskBody)(&t)); err != nil {
				return t, fmt.Errorf("%w: %w", errForm, err)
			}
			return t, nil
		}, "SELECT body FROM tasks WHERE stage < 2 ORDER BY started, id")
		return err
	})
	return tasks, err
}
