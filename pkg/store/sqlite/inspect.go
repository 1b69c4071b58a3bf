package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// Reader looks into a ledger and changes nothing, with a daemon at work beside
// it or without. It takes no lock that a daemon waits for. One goroutine at a
// time uses it.
type Reader struct{ c *conn }

// ErrNoLedger is wrapped by OpenReader's error when there is no ledger.
var ErrNoLedger = errors.New("there is no ledger")

// OpenReader opens the ledger in dir. A file of a newer or an older version, or
// one that is no ledger, is refused with a sentence.
func OpenReader(dir string) (*Reader, error) {
	r, err := openReader(filepath.Join(dir, fileName), "ro", int64(len(migrations)))
	if err != nil {
		return nil, fmt.Errorf("store: look into %s: %w", dir, err)
	}
	return r, nil
}

// openReader opens a file whose version is oldest at least.
func openReader(file, mode string, oldest int64, pragmas ...string) (*Reader, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoLedger
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory")
	}
	c, err := dial(file, mode, 5*time.Second, append(pragmas, "cache_size(-4096)")...)
	if err != nil {
		return nil, err
	}
	if err := known(c, oldest); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &Reader{c}, nil
}

// known refuses a file that this program cannot read.
func known(c *conn, oldest int64) error {
	app, err := c.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	switch newest := int64(len(migrations)); {
	case app != appID:
		return reason{errors.New("the file is no ledger of dragoman"), ErrUnusable}
	case version > newest:
		return reason{fmt.Errorf("a newer version of dragoman wrote the ledger (format %d, this one knows %d): upgrade", version, newest), ErrUnusable}
	case version < oldest:
		return fmt.Errorf("an older version of dragoman wrote the ledger (format %d, this one reads %d): start the daemon once, it brings the file up to date", version, newest)
	}
	return nil
}

// Close releases the file.
func (r *Reader) Close() error { return r.c.close() }

// SessionInfo says what is stored of a history.
type SessionInfo struct {
	Name   string
	Shown  int       // messages the model sees
	Hidden int       // messages kept out of its sight: by /new, /undo or a summary
	Bytes  int64     // all of them
	Last   time.Time // when the newest was written; zero: there is none
}

// Sessions lists the histories that hold something, the most recent first. It
// reads all of them, one at a time.
func (r *Reader) Sessions() ([]SessionInfo, error) {
	type head struct {
		SessionInfo
		id, start, skip int64
	}
	heads, err := collect(r.c, func(row []driver.Value) (head, error) {
		return head{SessionInfo{Name: text(row[1]), Bytes: int64(len(text(row[4])))}, num(row[0]), num(row[2]), num(row[3])}, nil
	}, "SELECT id, name, start, skip, summary FROM sessions ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("store: sessions: %w", err)
	}
	var list []SessionInfo
	for _, h := range heads {
		s := session{id: h.id}
		err := r.rowsOf(&s, func(id int64, at time.Time, body []byte) error {
			n, err := countEntries(body)
			if err != nil {
				return err
			}
			shown := 0
			if id >= h.start {
				shown = n
			}
			if id == h.start {
				shown = max(0, n-int(h.skip))
			}
			h.Shown, h.Hidden, h.Bytes = h.Shown+shown, h.Hidden+n-shown, h.Bytes+int64(len(body))
			if at.After(h.Last) {
				h.Last = at
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("store: session %s: %w", h.Name, err)
		}
		if h.Bytes > 0 {
			list = append(list, h.SessionInfo)
		}
	}
	slices.SortStableFunc(list, func(a, b SessionInfo) int {
		if c := b.Last.Compare(a.Last); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list, nil
}

// rowsOf calls f with all rows of a session, first the undone ones, whose id is
// below zero.
func (r *Reader) rowsOf(s *session, f func(id int64, at time.Time, body []byte) error) error {
	for _, part := range []struct {
		query      string
		from, upTo int64
	}{
		{"SELECT id, at, body FROM history WHERE id >= ? AND id < ? ORDER BY id", -s.end() + 1, -s.first() + 1},
		{"SELECT id, at, body FROM history WHERE id >= ? AND id < ? ORDER BY id", s.first(), s.end()},
	} {
		for row, err := range r.c.rows(part.query, part.from, part.upTo) {
			if err != nil {
				return err
			}
			if err := f(num(row[0]), instant(num(row[1])), blob(row[2])); err != nil {
				return err
			}
		}
	}
	return nil
}

// countEntries counts the messages in a row of a history.
func countEntries(body []byte) (n int, err error) {
	d := decode(body)
	_ = d.string() // the turn
	for d.more() {
		_ = d.int() // its time
		d.skipMessage()
		n++
	}
	return n, d.err()
}

func (d *decoder) skipMessage() {
	for range 3 { // the role, the content, the call it answers
		_ = d.string()
	}
	for calls := d.int(); calls > 0 && !d.bad; calls-- {
		for range 4 { // the id, the type, the name, the arguments
			_ = d.string()
		}
		if d.form >= opaqueForm {
			_ = d.string() // why it is invalid
		}
		if d.int() == 1 {
			_, _ = d.string(), d.string()
		}
	}
	if d.form >= opaqueForm {
		_ = d.string() // what is opaque
	}
}

// Why a line of a transcript is out of the model's sight.
const (
	HiddenUndone  = "taken back"
	HiddenEarlier = "before /new or a summary"
)

// Line is one message of a history.
type Line struct {
	store.Entry
	Hidden string // why the model does not see it; "": it does
	row    int64
}

// Transcript returns the whole history of a session, oldest first, with what
// the model does not see any more. A summary stands where what is shown begins.
// ok is false if there is no such session.
func (r *Reader) Transcript(name string) (lines []Line, ok bool, err error) {
	err = r.c.atomically(beginRead, func() error {
		lines, ok, err = r.transcript(name)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("store: session %s: %w", name, err)
	}
	return lines, ok, nil
}

func (r *Reader) transcript(name string) (lines []Line, ok bool, err error) {
	var s session
	var start, skip int64
	var summary string
	for row, err := range r.c.rows("SELECT id, start, skip, summary FROM sessions WHERE name = ?", name) {
		if err != nil {
			return nil, false, err
		}
		s.id, start, skip, summary, ok = num(row[0]), num(row[1]), num(row[2]), text(row[3]), true
	}
	if !ok {
		return nil, false, nil
	}
	err = r.rowsOf(&s, func(id int64, _ time.Time, body []byte) error {
		entries, err := decodeEntries(name, body)
		for i, e := range entries {
			l := Line{Entry: e, row: max(id, -id)}
			switch {
			case id < 0:
				l.Hidden = HiddenUndone
			case id < start || id == start && int64(i) < skip:
				l.Hidden = HiddenEarlier
			}
			lines = append(lines, l)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return int(a.row - b.row) })
	if summary != "" {
		at := slices.IndexFunc(lines, func(l Line) bool { return l.Hidden == "" })
		if at < 0 {
			at = len(lines)
		}
		m := providers.Message{Role: providers.RoleUser, Content: summary}
		lines = slices.Insert(lines, at, Line{Entry: store.Entry{Session: name, Message: m, Summary: true}, row: start})
	}
	return lines, true, nil
}

// Unfinished says how much the daemon carries on at its next start.
type Unfinished struct{ Messages, Turns, Unsent, Reminders, Tasks int }

// Unfinished counts what is still to be done.
func (r *Reader) Unfinished() (u Unfinished, err error) {
	for _, c := range []struct {
		n     *int
		query string
	}{
		{&u.Messages, "SELECT count(*) FROM inbox WHERE done IS NULL"},
		{&u.Turns, "SELECT count(*) FROM turns WHERE ended IS NULL"},
		{&u.Unsent, "SELECT count(*) FROM outbox WHERE ended IS NULL"},
		{&u.Reminders, "SELECT count(*) FROM schedules"},
		{&u.Tasks, "SELECT count(*) FROM tasks WHERE stage < 2"},
	} {
		n, err := r.c.number(c.query)
		if err != nil {
			return u, fmt.Errorf("store: count what is to be done: %w", err)
		}
		*c.n = int(n)
	}
	return u, nil
}

// Fact returns the value of key, "" if there is none.
func (r *Reader) Fact(key string) (value string, err error) {
	for row, err := range r.c.rows("SELECT value FROM facts WHERE key = ?", key) {
		if err != nil {
			return "", fmt.Errorf("store: fact: %w", err)
		}
		value = text(row[0])
	}
	return value, nil
}
