package sqlite

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

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
