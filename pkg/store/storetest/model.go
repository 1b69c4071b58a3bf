package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var modelRules = []rule{
	{"random changes, seed 1", func(s ledger) { compare(s, 1) }},
	{"random changes, seed 2", func(s ledger) { compare(s, 2) }},
	{"random changes, seed 3", func(s ledger) { compare(s, 3) }},
}

// model does what package store says in the plainest way there is: lists, and
// a scan for everything.
type model struct {
	inbox     []modelRow
	turns     []store.Turn
	sessions  map[string]*modelSession
	outbox    []store.Outbound
	receipts  []store.Receipt
	facts     map[string]string
	schedules []store.Schedule
	tasks     []store.Task
	seq, out  int64 // the store's own numbers, learnt from its results
}

type modelRow struct {
	store.Inbound
	taken, done, erased bool // erased: deleted, or forgotten
}

func (m *model) apply(tx store.Tx) (want store.Result) {
	for _, msg := range tx.Admit {
		if slices.ContainsFunc(m.inbox, func(r modelRow) bool {
			return msg.ID != "" && r.Message.ID == msg.ID && r.Message.Channel == msg.Channel
		}) {
			want.Duplicates++
			continue
		}
		row := store.Inbound{Message: msg}
		m.inbox = append(m.inbox, modelRow{Inbound: row})
		want.Admitted = append(want.Admitted, row)
	}
	want.Amended = m.amend(tx.Amend)
	for _, f := range tx.Facts {
		m.facts[f.Key] = f.Value
	}
	m.mark(tx.Marks)
	m.applyTurn(tx)
	m.applyHistory(tx)
	for _, row := range tx.Send {
		if !slices.ContainsFunc(m.outbox, func(o store.Outbound) bool { return o.Message.Key == row.Message.Key }) {
			m.outbox = append(m.outbox, row)
			want.Queued = append(want.Queued, row)
		}
	}
	for _, r := range tx.Receipts {
		known := slices.ContainsFunc(m.outbox, func(o store.Outbound) bool { return o.Message.Key == r.Key })
		if _, over := m.receipt(r.Key); known && !over {
			m.receipts = append(m.receipts, r)
		}
	}
	m.finish(tx.Done)
	for _, id := range tx.End {
		for _, o := range m.turns {
			if o.ID == id {
				m.finish(o.Inbound)
			}
		}
		m.turns = slices.DeleteFunc(m.turns, func(o store.Turn) bool { return o.ID == id })
	}
	m.applyCalendar(tx)
	return want
}

func (m *model) amend(changes []store.Amend) (amended []store.Inbound) {
	for _, c := range changes {
		for i := range m.inbox {
			r := &m.inbox[i]
			if r.Message.ID != c.ID || r.Message.Channel != c.Channel || r.done {
				continue
			}
			if c.Deleted {
				r.done, r.erased = true, true
			} else {
				r.Message.Text, r.Message.Args = c.Text, c.Args
			}
			amended = append(amended, r.Inbound)
		}
	}
	return amended
}

func (m *model) mark(marks []store.Mark) {
	for _, mark := range marks {
		for i := range m.turns {
			if m.turns[i].ID == mark.Turn {
				m.turns[i].Mark = mark
			}
		}
	}
}

func (m *model) applyTurn(tx store.Tx) {
	if tx.Begin != nil {
		begin := *tx.Begin
		for i := range m.inbox {
			if slices.Contains(begin.Inbound, m.inbox[i].Seq) {
				m.inbox[i].taken = true
			}
		}
		if i := slices.IndexFunc(m.turns, func(o store.Turn) bool { return o.ID == begin.ID }); i >= 0 {
			m.turns[i].Inbound = slices.Concat(m.turns[i].Inbound, begin.Inbound)
		} else {
			m.turns = append(m.turns, begin)
		}
	}
	for _, step := range tx.Steps {
		for i := range m.turns {
			if m.turns[i].ID == step.Turn {
				m.turns[i].Steps = append(m.turns[i].Steps, step)
			}
		}
	}
}

func (m *model) applyCalendar(tx store.Tx) {
	for _, e := range tx.Schedules {
		m.schedules = slices.DeleteFunc(m.schedules, func(o store.Schedule) bool { return o.ID == e.ID })
		m.schedules = append(m.schedules, e)
	}
	m.schedules = slices.DeleteFunc(m.schedules, func(o store.Schedule) bool { return slices.Contains(tx.Unschedule, o.ID) })
	slices.SortFunc(m.schedules, func(a, b store.Schedule) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return slices.Compare([]string{a.ID}, []string{b.ID})
	})
	order := []store.TaskState{store.TaskPending, store.TaskDone, store.TaskDelivered}
	for _, tk := range tx.Tasks {
		i := slices.IndexFunc(m.tasks, func(o store.Task) bool { return o.ID == tk.ID })
		switch {
		case i < 0:
			m.tasks = append(m.tasks, tk)
		case slices.Index(order, tk.State) >= slices.Index(order, m.tasks[i].State):
			m.tasks[i] = tk
		}
	}
}

func (m *model) finish(done []int64) {
	for i := range m.inbox {
		if slices.Contains(done, m.inbox[i].Seq) {
			m.inbox[i].done = true
		}
	}
}

func (m *model) receipt(key string) (store.Receipt, bool) {
	i := slices.IndexFunc(m.receipts, func(r store.Receipt) bool { return r.Key == key })
	if i < 0 {
		return store.Receipt{}, false
	}
	return m.receipts[i], true
}

// learn checks what the store made against what the model expects, and takes
// over the numbers and times the store chose.
func (m *model) learn(s ledger, got, want store.Result) {
	s.t.Helper()
	s.equal("duplicates", got.Duplicates, want.Duplicates)
	s.equal("admitted", ids(got.Admitted), ids(want.Admitted))
	s.equal("queued", keys(got.Queued), keys(want.Queued))
	s.equal("amended", texted(got.Amended), texted(want.Amended))
	for i, r := range got.Admitted {
		if r.Seq <= m.seq {
			s.t.Fatalf("inbox seq %d after %d", r.Seq, m.seq)
		}
		m.seq = r.Seq
		m.inbox[len(m.inbox)-len(got.Admitted)+i].Seq = r.Seq
	}
	for i, r := range got.Amended {
		at := slices.IndexFunc(m.inbox, func(o modelRow) bool { return o.Message.ID == want.Amended[i].Message.ID })
		s.equal("seq of an amended row", r.Seq, m.inbox[at].Seq)
	}
	for i, r := range got.Queued {
		if r.Seq <= m.out {
			s.t.Fatalf("outbox seq %d after %d", r.Seq, m.out)
		}
		m.out = r.Seq
		m.outbox[len(m.outbox)-len(got.Queued)+i].Seq = r.Seq
	}
}

const (
	modelLanes    = 4
	modelNames    = 12 // few, so that they meet often
	modelSessions = 5
)

// compare applies random changes to the store and to the model, and looks at
// everything after each of them.
func compare(s ledger, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &model{facts: make(map[string]string), sessions: make(map[string]*modelSession)}
	for n := range 100 {
		tx := m.random(rnd, n)
		got, want := s.apply(tx), m.apply(tx)
		m.learn(s, got, want)
		m.check(s, rnd)
		if s.t.Failed() {
			s.t.Fatalf("after change %d: %+v", n, tx)
		}
	}
}

// random makes a change. A row is given to one turn only: which of two turns
// would have it is not part of the contract.
func (m *model) random(rnd *rand.Rand, n int) store.Tx {
	some := func(most int, f func()) {
		for range rnd.IntN(most + 1) {
			f()
		}
	}
	name := func() string { return fmt.Sprint("n", rnd.IntN(modelNames)) }
	lane := func() bus.Address { return chat(rnd.IntN(modelLanes)) }
	soon := func() time.Time { return day.Add(time.Duration(rnd.IntN(6)) * time.Minute) }
	var tx store.Tx
	some(3, func() { tx.Admit = append(tx.Admit, message(lane(), fmt.Sprint("m", rnd.IntN(n+5)))) })
	some(2, func() {
		tx.Facts = append(tx.Facts, store.Fact{Key: name(), Value: []string{"", "1", "2"}[rnd.IntN(3)]})
	})
	some(2, func() {
		id := fmt.Sprint("m", rnd.IntN(n+5))
		tx.Amend = append(tx.Amend, []store.Amend{edit(id, fmt.Sprint(n)), edit(id, ""), deletion(id)}[rnd.IntN(3)])
	})
	some(1, func() {
		tx.Marks = append(tx.Marks, store.Mark{Turn: name(), Strikes: rnd.IntN(3), Steps: n, Alone: rnd.IntN(2) == 0})
	})
	if rnd.IntN(3) == 0 {
		begin := turn(name(), lane(), nil)
		for _, r := range m.inbox {
			if r.Message.Address == begin.Address && !r.taken && !r.done && rnd.IntN(2) == 0 {
				begin.Inbound = append(begin.Inbound, r.Seq)
			}
		}
		tx.Begin = begin
	}
	some(2, func() { tx.Steps = append(tx.Steps, steps(name())[rnd.IntN(4)]) })
	randomHistory(rnd, n, &tx)
	some(3, func() { tx.Send = append(tx.Send, outbound(lane(), fmt.Sprint("k", rnd.IntN(n+5)))) })
	some(3, func() {
		tx.Receipts = append(tx.Receipts, store.Receipt{Key: fmt.Sprint("k", rnd.IntN(n+5)), Failed: []string{"", "no"}[rnd.IntN(2)]})
	})
	if m.seq > 0 {
		some(1, func() { tx.Done = append(tx.Done, 1+rnd.Int64N(m.seq)) })
	}
	if rnd.IntN(4) == 0 {
		tx.End = []string{name()}
	}
	some(2, func() { tx.Schedules = append(tx.Schedules, schedule(name(), lane(), soon())) })
	some(1, func() { tx.Unschedule = append(tx.Unschedule, name()) })
	some(2, func() {
		state := []store.TaskState{store.TaskPending, store.TaskDone, store.TaskDelivered}[rnd.IntN(3)]
		tx.Tasks = append(tx.Tasks, task(fmt.Sprint("t", rnd.IntN(n+3)), lane(), state))
	})
	return tx
}

// check reads everything from both and compares.
func (m *model) check(s ledger, rnd *rand.Rand) {
	s.t.Helper()
	limit := rnd.IntN(6)
	m.checkLanes(s, rnd.Int64N(m.seq+1), limit)
	s.equal("turns", s.openTurns(), m.turns)
	m.checkOutbox(s)
	m.checkNames(s, limit)
	m.checkCalendar(s, day.Add(time.Duration(rnd.IntN(6))*time.Minute), limit)
}

func (m *model) checkLanes(s ledger, after int64, limit int) {
	s.t.Helper()
	var lanes []bus.Address
	for i := range modelLanes {
		lane := chat(i)
		var waiting []int64
		open := false
		for _, r := range m.inbox {
			if r.Message.Address != lane || r.done {
				continue
			}
			open = true
			if !r.taken && r.Seq > after && len(waiting) < limit {
				waiting = append(waiting, r.Seq)
			}
		}
		if open {
			lanes = append(lanes, lane)
		}
		s.equal("waiting", seqs(s.waiting(lane, after, limit)), waiting)
	}
	s.equal("lanes", sorted(s.lanes()), lanes)
	m.checkInbound(s)
}

func (m *model) checkInbound(s ledger) {
	s.t.Helper()
	for _, r := range m.inbox {
		switch got := s.inbound(r.Seq); {
		case r.erased:
			s.equal("erased row", len(got), 0)
		case !r.done || len(got) > 0: // done rows may be kept
			s.equal("row", got[0].Message, r.Message)
		}
	}
}

func (m *model) checkCalendar(s ledger, at time.Time, limit int) {
	s.t.Helper()
	s.equal("schedules", s.schedules(bus.Address{}), m.schedules)
	for i := range modelLanes {
		of := slices.DeleteFunc(slices.Clone(m.schedules), func(e store.Schedule) bool { return e.Address != chat(i) })
		s.equal("schedules of one", s.schedules(chat(i)), of)
	}
	due, next := s.due(at, limit)
	n := 0
	for n < len(m.schedules) && n < limit && !m.schedules[n].Due.After(at) {
		n++
	}
	s.equal("due", due, m.schedules[:n])
	var want time.Time
	if n < len(m.schedules) {
		want = m.schedules[n].Due
	}
	s.equal("next", next.Equal(want), true)

	var open []string
	for _, tk := range m.tasks {
		if tk.State != store.TaskDelivered {
			open = append(open, tk.ID)
		}
	}
	slices.Sort(open)
	s.equal("tasks", taskIDs(s.openTasks()), open)
}

func (m *model) checkOutbox(s ledger) {
	s.t.Helper()
	var unsent []store.Outbound
	for _, o := range m.outbox {
		want, over := m.receipt(o.Message.Key)
		got, ok := s.receipt(o.Message.Key)
		s.equal("receipt known", ok, over)
		s.equal("receipt", got, want)
		if !over {
			unsent = append(unsent, o)
		}
	}
	s.equal("unsent", s.unsent(), unsent)
}

func (m *model) checkNames(s ledger, limit int) {
	s.t.Helper()
	for i := range modelNames {
		name := fmt.Sprint("n", i)
		s.equal("newest history", s.history(name, limit), m.sessions[name].want(name, limit))
		s.equal("history", s.history(name, 1000), m.sessions[name].want(name, 1000))
		s.equal("fact", s.fact(name), m.facts[name])
	}
}
