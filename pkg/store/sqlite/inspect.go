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

	"github.com/dragoman-chat/dragoman/pkg/bus"
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

// Message is a row of the inbox.
type Message struct {
	store.Inbound           // Message holds only its address and ids when Erased
	Erased        bool      // the text is not kept any more
	Turn          string    // the turn that took it; "": none, or it is not kept any more
	Done          time.Time // zero: open
}

// Sent is a row of the outbox.
type Sent struct {
	store.Outbound
	Ended   time.Time // when its receipt came; zero: it waits
	Receipt store.Receipt
}

// TurnRecord is all that is kept of a turn.
type TurnRecord struct {
	store.Turn
	Ended    time.Time // zero: it is open
	Messages []Message
	Sent     []Sent
	History  []Line // what it added to the history
}

const messageColumns = "SELECT i.seq, i.admitted, i.body, i.channel, i.chat, i.id, i.session, i.done, t.id FROM inbox i LEFT JOIN turns t ON t.n = i.turn "

func aMessage(row []driver.Value) (m Message, err error) {
	if row[2] != nil {
		m.Inbound, err = inbound(row)
	} else {
		m.Erased = true
		m.Seq, m.Admitted = num(row[0]), instant(num(row[1]))
		m.Message.Address = bus.Address{Channel: text(row[3]), ChatID: text(row[4])}
		m.Message.ID, m.Message.SessionKey = text(row[5]), text(row[6])
	}
	m.Turn = text(row[8])
	if row[7] != nil {
		m.Done = instant(num(row[7]))
	}
	return m, err
}

// FindMessages returns the messages of the inbox with that id: the ledger's own
// ("m:<chat>:<message>") or the platform's. channel and chat narrow the search,
// "" does not.
func (r *Reader) FindMessages(channel, chat, id string) ([]Message, error) {
	var found []int64
	for row, err := range r.c.rows("SELECT seq, channel, chat, id FROM inbox WHERE id IS NOT NULL ORDER BY seq") {
		if err != nil {
			return nil, fmt.Errorf("store: find a message: %w", err)
		}
		if channel != "" && channel != text(row[1]) {
			continue
		}
		if own := text(row[3]); own == id || isOf(own, text(row[2]), chat, id) {
			found = append(found, num(row[0]))
		}
	}
	var list []Message
	for _, seq := range found {
		m, err := collect(r.c, aMessage, messageColumns+"WHERE i.seq = ?", seq)
		if err != nil {
			return nil, fmt.Errorf("store: find a message: %w", err)
		}
		list = append(list, m...)
	}
	return list, nil
}

// isOf reports whether a row's id is made of a platform's message id, and of a
// chat if one is named: "m:<chat>:<message>", "e:<chat>:<message>:<date>", or
// another kind that ends in it. stored is the row's conversation, which may be
// a part of the chat.
func isOf(own, stored, chat, id string) bool {
	kind, rest, ok := strings.Cut(own, ":")
	if !ok {
		return false
	}
	if i := strings.LastIndexByte(rest, ':'); kind == "e" && i >= 0 {
		rest = rest[:i]
	}
	at, last := "", rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		at, last = rest[:i], rest[i+1:]
	}
	return last == id && (chat == "" || chat == stored || chat == at)
}

const sentColumns = "SELECT seq, key, turn, channel, chat, reply_to, text, created, session, ended, message_id, received, failed FROM outbox "

func aSent(row []driver.Value) (s Sent, err error) {
	s.Outbound = store.Outbound{
		Seq: num(row[0]), Turn: text(row[2]), Session: text(row[8]), Created: instant(num(row[7])),
		Message: bus.OutboundMessage{
			Address: bus.Address{Channel: text(row[3]), ChatID: text(row[4])},
			Key:     text(row[1]), ReplyTo: text(row[5]), Text: text(row[6]),
		},
	}
	if row[9] != nil {
		s.Ended = instant(num(row[9]))
		s.Receipt = store.Receipt{Key: s.Message.Key, Failed: text(row[12]), Result: bus.Receipt{MessageID: text(row[10]), Time: instant(num(row[11]))}}
	}
	return s, nil
}

// FindSent returns the rows of the outbox that became the platform's message id.
// channel and chat narrow the search, "" does not.
func (r *Reader) FindSent(channel, chat, id string) ([]Sent, error) {
	list, err := collect(r.c, aSent, sentColumns+`WHERE message_id = ?1 AND ended IS NOT NULL AND failed = ''
		AND (?2 = '' OR channel = ?2) AND (?3 = '' OR chat = ?3) ORDER BY seq`, id, channel, chat)
	if err != nil {
		return nil, fmt.Errorf("store: find what was sent: %w", err)
	}
	return list, nil
}

// SentWithKeys returns the rows of the outbox whose key is one of keys, or one
// of them with "-1", "-2" and so on, as the later parts of a long message have.
func (r *Reader) SentWithKeys(keys ...string) ([]Sent, error) {
	var list []Sent
	for _, key := range keys {
		rows, err := collect(r.c, aSent, sentColumns+"WHERE key = ?1 OR key > ?1 || '-' AND key < ?1 || '.' ORDER BY seq", key)
		if err != nil {
			return nil, fmt.Errorf("store: find what was sent: %w", err)
		}
		list = append(list, rows...)
	}
	return list, nil
}

// Turn returns what is kept of a turn; ok is false if it is nothing.
func (r *Reader) Turn(id string) (t TurnRecord, ok bool, err error) {
	err = r.c.atomically(beginRead, func() error {
		t, ok, err = r.turn(id)
		return err
	})
	if err != nil {
		return TurnRecord{}, false, fmt.Errorf("store: turn %s: %w", id, err)
	}
	return t, ok, nil
}

func (r *Reader) turn(id string) (t TurnRecord, ok bool, err error) {
	var n int64
	const query = "SELECT n, id, channel, chat, session, started, inbound, strikes, found, alone, ended FROM turns WHERE id = ? ORDER BY n"
	for row, err := range r.c.rows(query, id) {
		if err != nil {
			return t, false, err
		}
		ok, n = true, num(row[0])
		t.Turn = store.Turn{
			ID: text(row[1]), Address: bus.Address{Channel: text(row[2]), ChatID: text(row[3])},
			Session: text(row[4]), Started: instant(num(row[5])),
		}
		if row[7] != nil {
			t.Mark = store.Mark{Turn: t.ID, Strikes: int(num(row[7])), Steps: int(num(row[8])), Alone: num(row[9]) != 0}
		}
		if row[10] != nil {
			t.Ended = instant(num(row[10]))
		}
		if t.Inbound, err = decodeSeqs(blob(row[6])); err != nil {
			return t, false, err
		}
	}
	if !ok {
		return t, false, nil
	}
	if t.Steps, err = r.steps(n, id); err != nil {
		return t, false, err
	}
	for _, seq := range t.Inbound {
		m, err := collect(r.c, aMessage, messageColumns+"WHERE i.seq = ?", seq)
		if err != nil {
			return t, false, err
		}
		t.Messages = append(t.Messages, m...)
	}
	if t.Sent, err = collect(r.c, aSent, sentColumns+"WHERE turn = ? ORDER BY seq", id); err != nil {
		return t, false, err
	}
	lines, _, err := r.transcript(t.Session)
	for _, l := range lines {
		if l.Turn == id && !l.Summary {
			t.History = append(t.History, l)
		}
	}
	return t, true, err
}

// steps returns the journal of turn n.
func (r *Reader) steps(n int64, id string) (list []store.Step, err error) {
	for row, err := range r.c.rows("SELECT body FROM steps WHERE id >= ? AND id < ? ORDER BY id", n<<stepBits, (n+1)<<stepBits) {
		if err != nil {
			return nil, err
		}
		steps, err := decodeSteps(id, blob(row[0]))
		if err != nil {
			return nil, err
		}
		list = append(list, steps...)
	}
	return list, nil
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
