package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// change is a Tx as it is written: checked, encoded, and independent of the
// caller's slices. It is made in the caller's goroutine, so that encoding runs
// on every core.
type change struct {
	admit      []inboxRow
	amend      []store.Amend
	facts      []store.Fact
	marks      []store.Mark
	begin      *store.Turn
	steps      []stepRow
	history    []historyRow
	undo       []string
	summaries  []store.Summary
	reset      []string
	forget     []string
	belongings belongings // of the sessions to forget
	send       []store.Outbound
	receipts   []store.Receipt
	done       []int64
	end        []string
	schedules  []scheduleRow
	unschedule []string
	tasks      []taskRow
}

type inboxRow struct {
	channel, id, chat, session string
	body                       []byte
}

type stepRow struct {
	turn string
	body []byte
}

type historyRow struct {
	entries []store.Entry // of one session
	body    []byte
}

type scheduleRow struct {
	id   string
	of   bus.Address
	due  int64
	body []byte
}

type taskRow struct {
	id      string
	stage   int64
	started int64
	body    []byte
}

// size is how many rows c touches, near enough.
func (c *change) size() int {
	return len(c.admit) + len(c.amend) + len(c.facts) + len(c.marks) + len(c.steps) + len(c.history) +
		len(c.undo) + len(c.summaries) + len(c.reset) + len(c.forget) + len(c.send) + len(c.receipts) +
		len(c.done) + len(c.end) + len(c.schedules) + len(c.unschedule) + len(c.tasks)
}

func (c *change) empty() bool { return c.begin == nil && c.size() == 0 }

// encode makes a change of tx, or says why tx is refused.
func encode(tx *store.Tx) (*change, error) {
	c := &change{
		amend: slices.Clone(tx.Amend), facts: slices.Clone(tx.Facts), marks: slices.Clone(tx.Marks),
		undo: slices.Clone(tx.Undo), summaries: slices.Clone(tx.Summaries), reset: slices.Clone(tx.Reset), forget: slices.Clone(tx.Forget),
		send: slices.Clone(tx.Send), receipts: slices.Clone(tx.Receipts), done: slices.Clone(tx.Done), end: slices.Clone(tx.End),
		unschedule: slices.Clone(tx.Unschedule),
	}
	for i := range tx.Admit {
		m := &tx.Admit[i]
		body, err := json.Marshal(m) //nolint:gosec // a session key is no secret
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		c.admit = append(c.admit, inboxRow{m.Channel, m.ID, m.ChatID, m.SessionKey, body})
	}
	if tx.Begin != nil {
		if tx.Begin.ID == "" {
			return nil, errors.New("a turn without an id")
		}
		begin := *tx.Begin
		begin.Inbound = slices.Clone(begin.Inbound)
		c.begin = &begin
	}
	for i := range tx.Send {
		if tx.Send[i].Message.Key == "" {
			return nil, errors.New("an outbox row without a key")
		}
	}
	return c, errors.Join(c.encodeSteps(tx.Steps), c.encodeHistory(slices.Clone(tx.History)), c.encodeCalendar(tx))
}

// encodeSteps makes one row of what follows one another in one turn.
func (c *change) encodeSteps(steps []store.Step) error {
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n].Turn == steps[0].Turn {
			n++
		}
		body, err := encodeSteps(steps[:n])
		if err != nil {
			return err
		}
		c.steps = append(c.steps, stepRow{steps[0].Turn, body})
		steps = steps[n:]
	}
	return nil
}

// mostEntries bounds how much is read for the sake of one entry.
const mostEntries = 32

// encodeHistory makes one row of what Undo takes back together, nearly always
// the whole of a turn. So Undo never divides a row.
func (c *change) encodeHistory(entries []store.Entry) error {
	for len(entries) > 0 {
		n := 1
		for n < min(len(entries), mostEntries) && together(&entries[0], &entries[n]) {
			n++
		}
		body, err := encodeEntries(entries[:n])
		if err != nil {
			return err
		}
		c.history = append(c.history, historyRow{entries[:n:n], body})
		entries = entries[n:]
	}
	return nil
}

// together reports whether Undo takes next whenever it takes first, which
// stands before it.
func together(first, next *store.Entry) bool {
	return next.Session == first.Session && next.Turn == first.Turn &&
		(next.Turn != "" || next.Message.Role != providers.RoleUser)
}

func (c *change) encodeCalendar(tx *store.Tx) error {
	for i := range tx.Schedules {
		s := &tx.Schedules[i]
		if s.ID == "" {
			return errors.New("a schedule without an id")
		}
		body, err := json.Marshal((*scheduleBody)(s)) //nolint:gosec // a session key is no secret
		if err != nil {
			return fmt.Errorf("schedule %s: %w", s.ID, err)
		}
		c.schedules = append(c.schedules, scheduleRow{s.ID, s.Address, micros(s.Due), body})
	}
	for i := range tx.Tasks {
		t := &tx.Tasks[i]
		if t.ID == "" {
			return errors.New("a task without an id")
		}
		row := taskRow{id: t.ID, stage: stage(t.State), started: micros(t.Started)}
		if row.stage < delivered {
			var err error
			if row.body, err = json.Marshal((*taskBody)(t)); err != nil { //nolint:gosec // a session key is no secret
				return fmt.Errorf("task %s: %w", t.ID, err)
			}
		}
		c.tasks = append(c.tasks, row)
	}
	return nil
}

// The stages of a task, in order.
const (
	pending int64 = iota
	done
	delivered
)

func stage(s store.TaskState) int64 {
	switch s {
	case store.TaskDelivered:
		return delivered
	case store.TaskDone:
		return done
	case store.TaskPending:
	}
	return pending
}

// scheduleBody and taskBody are the JSON forms of store.Schedule and
// store.Task. Their fields are the same, so that one which is added there has
// to be named here too.
type scheduleBody struct {
	ID         string      `json:"id"`
	Address    bus.Address `json:"address"`
	Parent     bus.Address `json:"parent,omitzero"`
	SessionKey string      `json:"session_key,omitempty"`
	Principal  string      `json:"principal,omitempty"`
	Sender     bus.Sender  `json:"sender,omitzero"`
	Group      bool        `json:"group,omitempty"`
	Hops       int         `json:"hops,omitempty"`
	Due        time.Time   `json:"due"`
	Text       string      `json:"text,omitempty"`
	Created    time.Time   `json:"created"`
}

type taskBody struct {
	ID         string            `json:"id"`
	Tool       string            `json:"tool,omitempty"`
	Label      string            `json:"label,omitempty"`
	Address    bus.Address       `json:"address"`
	Parent     bus.Address       `json:"parent,omitzero"`
	SessionKey string            `json:"session_key,omitempty"`
	Principal  string            `json:"principal,omitempty"`
	Sender     bus.Sender        `json:"sender,omitzero"`
	Group      bool              `json:"group,omitempty"`
	ReplyTo    string            `json:"reply_to,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Hops       int               `json:"hops,omitempty"`
	State      store.TaskState   `json:"state"`
	Result     *bus.FollowUp     `json:"result,omitempty"`
	Started    time.Time         `json:"started"`
}
