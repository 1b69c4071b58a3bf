package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// What is read at every turn (history) or written several times a turn (steps)
// has a compact form of its own: a byte for the form's version, then its parts
// one after the other. JSON of the same took five times as long to read. The
// rest is JSON.
//
// Rows are written in the newest form of their kind and read in any.
const (
	form       = 1 // the first
	timedForm  = 2 // steps tell when they were, how long they took and what they cost
	opaqueForm = 3 // messages keep what is opaque and why a call is invalid, costs their parts
)

var errForm = errors.New("a row of the ledger is damaged")

type encoder []byte

func (e *encoder) int(n int64) { *e = binary.AppendVarint(*e, n) }

func (e *encoder) string(s string) {
	e.int(int64(len(s)))
	*e = append(*e, s...)
}

func (e *encoder) message(m *providers.Message) error {
	e.string(m.Role)
	e.string(m.Content)
	e.string(m.ToolCallID)
	e.int(int64(len(m.ToolCalls)))
	for i := range m.ToolCalls {
		if err := e.call(&m.ToolCalls[i]); err != nil {
			return err
		}
	}
	e.string(string(m.Opaque))
	return nil
}

func (e *encoder) usage(u *providers.Usage) {
	for _, n := range []int{u.PromptTokens, u.CompletionTokens, u.TotalTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens} {
		e.int(int64(n))
	}
	if u.Estimated {
		e.int(1)
	} else {
		e.int(0)
	}
}

func (e *encoder) call(c *providers.ToolCall) error {
	e.string(c.ID)
	e.string(c.Type)
	e.string(c.Name)
	var args []byte
	if c.Arguments != nil {
		var err error
		if args, err = json.Marshal(c.Arguments); err != nil {
			return fmt.Errorf("the arguments of %s: %w", c.Name, err)
		}
	}
	e.string(string(args))
	e.string(c.Invalid)
	if c.Function == nil {
		e.int(0)
		return nil
	}
	e.int(1)
	e.string(c.Function.Name)
	e.string(c.Function.Arguments)
	return nil
}

// decoder reads what encoder wrote. The strings it returns share the memory of
// the row. After bad is set everything it returns is empty.
type decoder struct {
	form byte
	rest string
	bad  bool
}

// decode checks the form of a row.
func decode(body []byte) *decoder {
	d := &decoder{rest: string(body)}
	if len(body) == 0 || body[0] < form || body[0] > opaqueForm {
		d.fail()
		return d
	}
	d.form, d.rest = body[0], d.rest[1:]
	return d
}

func (d *decoder) fail() { d.rest, d.bad = "", true }

func (d *decoder) more() bool { return d.rest != "" }

func (d *decoder) err() error {
	if d.bad {
		return errForm
	}
	return nil
}

func (d *decoder) int() int64 {
	var u uint64
	for i := range min(len(d.rest), binary.MaxVarintLen64) {
		b := d.rest[i]
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			d.rest = d.rest[i+1:]
			return int64(u>>1) ^ -int64(u&1) // zigzag, the reverse of AppendVarint
		}
	}
	d.fail()
	return 0
}

func (d *decoder) string() string {
	n := d.int()
	if n < 0 || n > int64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) message() (m providers.Message) {
	m.Role, m.Content, m.ToolCallID = role(d.string()), d.string(), d.string()
	n := d.int()
	if n < 0 || n > int64(len(d.rest)) {
		d.fail()
		return m
	}
	for range n {
		m.ToolCalls = append(m.ToolCalls, d.call())
	}
	if d.form >= opaqueForm {
		if raw := d.string(); raw != "" {
			m.Opaque = json.RawMessage(raw)
		}
	}
	return m
}

func (d *decoder) usage() (u providers.Usage) {
	parts := []*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.ReasoningTokens}
	if d.form < opaqueForm {
		parts = parts[:3]
	}
	for _, n := range parts {
		*n = int(d.int())
	}
	u.Estimated = d.form >= opaqueForm && d.int() == 1
	return u
}

// role avoids holding a whole row for the sake of its role.
func role(s string) string {
	for _, known := range []string{providers.RoleUser, providers.RoleAssistant, providers.RoleTool} {
		if s == known {
			return known
		}
	}
	return s
}

func (d *decoder) call() (c providers.ToolCall) {
	c.ID, c.Type, c.Name = d.string(), d.string(), d.string()
	if args := d.string(); args != "" && json.Unmarshal([]byte(args), &c.Arguments) != nil {
		d.fail()
	}
	if d.form >= opaqueForm {
		c.Invalid = d.string()
	}
	if d.int() == 1 {
		c.Function = &providers.FunctionCall{Name: d.string(), Arguments: d.string()}
	}
	return c
}

// encodeEntries writes entries of one turn.
func encodeEntries(entries []store.Entry) ([]byte, error) {
	e := encoder{opaqueForm}
	e.string(entries[0].Turn)
	for i := range entries {
		e.int(micros(entries[i].Time))
		if err := e.message(&entries[i].Message); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func decodeEntries(session string, body []byte) (entries []store.Entry, err error) {
	d := decode(body)
	turn := d.string()
	for d.more() {
		at := d.int()
		entries = append(entries, store.Entry{Session: session, Turn: turn, Time: instant(at), Message: d.message()})
	}
	return entries, d.err()
}

func encodeSteps(steps []store.Step) ([]byte, error) {
	e := encoder{opaqueForm}
	for i := range steps {
		s := &steps[i]
		e.string(string(s.Kind))
		e.int(int64(s.Round))
		e.string(s.Finish)
		e.string(s.CallID)
		e.string(s.Tool)
		if err := e.message(&s.Message); err != nil {
			return nil, err
		}
		if s.Time.IsZero() {
			e.int(0)
		} else {
			e.int(micros(s.Time))
		}
		e.int(int64(s.Took))
		e.usage(&s.Usage)
		e.string(s.Request)
	}
	return e, nil
}

func decodeSteps(turn string, body []byte) (steps []store.Step, err error) {
	d := decode(body)
	for d.more() {
		s := store.Step{Turn: turn, Kind: store.StepKind(d.string()), Round: int(d.int())}
		s.Finish, s.CallID, s.Tool, s.Message = d.string(), d.string(), d.string(), d.message()
		if d.form >= timedForm {
			if us := d.int(); us != 0 {
				s.Time = instant(us)
			}
			s.Took = time.Duration(d.int())
			s.Usage = d.usage()
			s.Request = d.string()
		}
		steps = append(steps, s)
	}
	return steps, d.err()
}

// encodeSeqs writes the rows of a turn; decodeSeqs is the reverse.
func encodeSeqs(seqs []int64) []byte {
	e := encoder{form}
	for _, n := range seqs {
		e.int(n)
	}
	return e
}

func decodeSeqs(body []byte) (seqs []int64, err error) {
	d := decode(body)
	for d.more() {
		seqs = append(seqs, d.int())
	}
	return seqs, d.err()
}

func micros(t time.Time) int64 { return t.UnixMicro() }

// instant is the reverse of micros, for the zero time too.
func instant(us int64) time.Time { return time.UnixMicro(us) }
