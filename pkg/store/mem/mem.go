// Package mem is the ledger in memory: every rule of package store but
// durability. It is what runs with `store: {driver: memory}` and in tests.
//
// What is over leaves nothing behind: a done message, an ended turn and a
// delivered task are forgotten at once; the ids of messages and the outcomes of
// sent rows are remembered in windows of a fixed size (see knownIDs and what
// follows it). What stays is history, for ever or for a time (see NewKeeping),
// facts, and what is still to be done.
//
// Values are handed over, not copied in depth: the maps, slices and pointers
// inside a message or a task are shared between the store and everybody who
// read it, so nobody changes them after Apply. The slices the store itself
// makes or is given (rows, steps, the rows of a turn) are copied both ways.
package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// How much is remembered of what is over. Each window holds between this many
// and twice as many, whatever the load: about 2 MB and 4 MB at most.
const (
	knownIDs      = 1 << 14 // inbound ids, to recognise a message delivered twice or amended
	knownOutcomes = 1 << 14 // outbox keys with their outcome
	knownTasks    = 1 << 12 // tasks that were delivered
)

// Store is a ledger in memory. All methods are safe for concurrent use.
//
// One mutex guards it all, although the house prefers owners: a Tx changes the
// inbox, the history and the outbox at once and nothing may see half of it, no
// section under the lock waits for anything, and the longest ordinary one takes
// a few microseconds, less than handing the work to an owning goroutine.
type Store struct {
	mu     sync.Mutex
	closed bool
	failed error // of the last Post, until a write succeeds

	inbox    inbox
	turns    turns
	history  history
	ageing   ageing
	outbox   outbox
	facts    map[string]string
	calendar calendar
	tasks    tasks
}

var _ store.Store = (*Store)(nil)

// New returns an empty ledger that keeps history for ever.
func New() *Store { return NewKeeping(0) }

// NewKeeping returns an empty ledger that drops what was said longer ago than
// history, as soon as something else happens; 0 or less keeps it for ever. A
// summary, and what an open turn has said, stays.
func NewKeeping(history time.Duration) *Store {
	return &Store{
		ageing:   ageing{keep: history},
		inbox:    newInbox(),
		outbox:   newOutbox(),
		history:  make(map[string][]record),
		facts:    make(map[string]string),
		calendar: newCalendar(),
		tasks:    newTasks(),
	}
}

// Apply implements store.Writer.
func (s *Store) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, fmt.Errorf("store: apply: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(&tx)
}

// Post implements store.Writer. It never blocks for longer than Apply.
func (s *Store) Post(tx store.Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.apply(&tx); err != nil && !s.closed {
		s.failed = err
	}
}

// apply first refuses what is refused and then changes without failing, which
// is what makes a Tx atomic here.
func (s *Store) apply(tx *store.Tx) (store.Result, error) {
	if s.closed {
		return store.Result{}, store.ErrClosed
	}
	if err := check(tx); err != nil {
		return store.Result{}, fmt.Errorf("store: apply: %w", err)
	}
	s.failed = nil

	var res store.Result
	res.Admitted, res.Duplicates = s.inbox.admit(tx.Admit)
	res.Amended = s.inbox.amend(tx.Amend)
	for _, f := range tx.Facts {
		if f.Value == "" {
			delete(s.facts, f.Key)
		} else {
			s.facts[f.Key] = f.Value
		}
	}
	s.turns.mark(tx.Marks)
	if tx.Begin != nil {
		s.inbox.take(tx.Begin.ID, s.turns.begin(*tx.Begin))
	}
	s.turns.record(tx.Steps)
	s.remember(tx)
	res.Queued = s.outbox.send(tx.Send)
	s.outbox.receive(tx.Receipts)
	s.inbox.done(tx.Done)
	for _, id := range tx.End {
		s.inbox.done(s.turns.end(id))
	}
	s.calendar.add(tx.Schedules)
	s.calendar.remove(tx.Unschedule)
	s.tasks.put(tx.Tasks)
	return res, nil
}

// remember applies what changes the history. To forget a session is no more than
// to reset it here: of what is over nothing else has a text.
func (s *Store) remember(tx *store.Tx) {
	s.history.add(tx.History)
	if s.ageing.keep > 0 {
		s.age(tx.History, time.Now())
	}
	for _, session := range tx.Undo {
		s.history.undo(session)
	}
	for _, sum := range tx.Summaries {
		s.history.summarize(sum)
	}
	for _, session := range tx.Reset {
		delete(s.history, session)
	}
	for _, session := range tx.Forget {
		delete(s.history, session)
	}
}

// age drops what was said too long ago, now that entries were said.
func (s *Store) age(entries []store.Entry, now time.Time) {
	s.ageing.note(entries, now)
	open := func(turn string) bool {
		_, ok := s.turns.open.get(turn)
		return ok
	}
	for {
		old, ok := s.ageing.next(now)
		if !ok {
			return
		}
		s.history.cut(old, open)
	}
}

// check refuses rows that could never be referred to again.
func check(tx *store.Tx) error {
	if tx.Begin != nil && tx.Begin.ID == "" {
		return errors.New("a turn without an id")
	}
	for i := range tx.Send {
		if tx.Send[i].Message.Key == "" {
			return errors.New("an outbox row without a key")
		}
	}
	for i := range tx.Schedules {
		if tx.Schedules[i].ID == "" {
			return errors.New("a schedule without an id")
		}
	}
	for i := range tx.Tasks {
		if tx.Tasks[i].ID == "" {
			return errors.New("a task without an id")
		}
	}
	return nil
}

// Health implements store.Writer.
func (s *Store) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	return s.failed
}

// Close implements store.Writer. What the ledger held is gone.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.inbox, s.turns, s.history, s.outbox = inbox{}, turns{}, nil, outbox{}
	s.facts, s.calendar, s.tasks, s.ageing = nil, calendar{}, tasks{}, ageing{}
	return nil
}

// read runs f under the lock unless the store is closed or ctx has ended.
func (s *Store) read(ctx context.Context, what string, f func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	f()
	return nil
}

// Lanes implements store.Queue.
func (s *Store) Lanes(ctx context.Context) (lanes []bus.Address, err error) {
	err = s.read(ctx, "lanes", func() { lanes = s.inbox.addresses() })
	return lanes, err
}

// Waiting implements store.Queue.
func (s *Store) Waiting(ctx context.Context, lane bus.Address, after int64, limit int) (rows []store.Inbound, err error) {
	err = s.read(ctx, "waiting", func() { rows = s.inbox.waiting(lane, after, limit) })
	return rows, err
}

// OpenTurns implements store.Queue.
func (s *Store) OpenTurns(ctx context.Context) (open []store.Turn, err error) {
	err = s.read(ctx, "open turns", func() { open = s.turns.list() })
	return open, err
}

// Inbound implements store.Queue. Done rows are not kept.
func (s *Store) Inbound(ctx context.Context, seqs []int64) (rows []store.Inbound, err error) {
	err = s.read(ctx, "inbound", func() { rows = s.inbox.get(seqs) })
	return rows, err
}

// Unsent implements store.Queue.
func (s *Store) Unsent(ctx context.Context) (rows []store.Outbound, err error) {
	err = s.read(ctx, "unsent", func() { rows = s.outbox.unsent() })
	return rows, err
}

// History implements store.Memory.
func (s *Store) History(ctx context.Context, session string, limit int) (entries []store.Entry, err error) {
	err = s.read(ctx, "history", func() { entries = s.history.newest(session, limit) })
	return entries, err
}

// Fact implements store.Memory.
func (s *Store) Fact(ctx context.Context, key string) (value string, err error) {
	err = s.read(ctx, "fact", func() { value = s.facts[key] })
	return value, err
}

// ReceiptFor implements store.Memory. An outcome is known for as long as its
// key is.
func (s *Store) ReceiptFor(ctx context.Context, key string) (r store.Receipt, ok bool, err error) {
	err = s.read(ctx, "receipt", func() { r, ok = s.outbox.receipt(key) })
	return r, ok, err
}

// Schedules implements store.Calendar.
func (s *Store) Schedules(ctx context.Context, of bus.Address) (list []store.Schedule, err error) {
	err = s.read(ctx, "schedules", func() { list = s.calendar.list(of) })
	return list, err
}

// Due implements store.Calendar.
func (s *Store) Due(ctx context.Context, t time.Time, limit int) (due []store.Schedule, next time.Time, err error) {
	err = s.read(ctx, "due", func() { due, next = s.calendar.due(t, limit) })
	return due, next, err
}

// OpenTasks implements store.Calendar.
func (s *Store) OpenTasks(ctx context.Context) (tasks []store.Task, err error) {
	err = s.read(ctx, "open tasks", func() { tasks = s.tasks.list() })
	return tasks, err
}
