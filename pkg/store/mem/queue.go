package mem

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// row is an inbox row that is not done.
type row struct {
	store.Inbound
	turn string // the open turn that took it, "" while it waits
}

// lane is a conversation with open rows.
type lane struct {
	waiting []*row // untaken, by Seq
	open    int    // waiting and taken
}

// inbox holds the open rows, by Seq and by conversation, so that a long
// backlog elsewhere or in the same conversation costs nothing.
type inbox struct {
	seq   int64
	known window[int64] // the Seq by channel and id
	rows  table[int64, *row]
	lanes table[bus.Address, *lane]
}

func newInbox() inbox { return inbox{known: newWindow[int64](knownIDs)} }

// admit makes rows of the messages that are not known. A message without an id
// cannot be recognised and is never a duplicate.
func (b *inbox) admit(messages []bus.InboundMessage) (admitted []store.Inbound, duplicates int) {
	if len(messages) == 0 {
		return nil, 0
	}
	now := time.Now()
	admitted = make([]store.Inbound, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		if m.ID != "" && !b.known.add(m.Channel, m.ID, b.seq+1) {
			duplicates++
			continue
		}
		b.seq++
		r := &row{Inbound: store.Inbound{Seq: b.seq, Admitted: now, Message: *m}}
		b.rows.set(r.Seq, r)
		l, ok := b.lanes.get(m.Address)
		if !ok {
			l = &lane{}
			b.lanes.set(m.Address, l)
		}
		l.waiting = append(l.waiting, r)
		l.open++
		admitted = append(admitted, r.Inbound)
	}
	return admitted, duplicates
}

// amend changes open rows, waiting or taken.
func (b *inbox) amend(changes []store.Amend) (amended []store.Inbound) {
	for _, c := range changes {
		seq, known := b.known.get(c.Channel, c.ID)
		r, open := b.rows.get(seq)
		if !known || !open {
			continue
		}
		if c.Deleted {
			b.done([]int64{seq})
		} else {
			r.Message.Text, r.Message.Args = c.Text, c.Args
		}
		amended = append(amended, r.Inbound)
	}
	return amended
}

// take gives waiting rows to a turn.
func (b *inbox) take(turn string, seqs []int64) {
	for _, seq := range seqs {
		r, ok := b.rows.get(seq)
		if !ok {
			continue
		}
		if r.turn == "" {
			l, _ := b.lanes.get(r.Message.Address)
			l.remove(seq)
		}
		r.turn = turn
	}
}

// done forgets rows.
func (b *inbox) done(seqs []int64) {
	for _, seq := range seqs {
		r, ok := b.rows.get(seq)
		if !ok {
			continue
		}
		b.rows.delete(seq)
		l, _ := b.lanes.get(r.Message.Address)
		if r.turn == "" {
			l.remove(seq)
		}
		if l.open--; l.open == 0 {
			b.lanes.delete(r.Message.Address)
		}
	}
}

// remove takes seq out of the waiting rows. Nearly always it is the first.
func (l *lane) remove(seq int64) {
	i := l.after(seq - 1)
	if i == 0 {
		l.waiting[0] = nil // the array lives on behind the slice
		l.waiting = l.waiting[1:]
		return
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
}

// after is the index of the first waiting row with a Seq above seq.
func (l *lane) after(seq int64) int {
	return sort.Search(len(l.waiting), func(i int) bool { return l.waiting[i].Seq > seq })
}

func (b *inbox) addresses() []bus.Address {
	list := make([]bus.Address, 0, len(b.lanes.m))
	for a := range b.lanes.m {
		list = append(list, a)
	}
	return list
}

func (b *inbox) waiting(of bus.Address, after int64, limit int) []store.Inbound {
	l, ok := b.lanes.get(of)
	if !ok || limit <= 0 {
		return nil
	}
	rows := l.waiting[l.after(after):]
	rows = rows[:min(limit, len(rows))]
	list := make([]store.Inbound, len(rows))
	for i, r := range rows {
		list[i] = r.Inbound
	}
	return list
}

func (b *inbox) get(seqs []int64) []store.Inbound {
	list := make([]store.Inbound, 0, len(seqs))
	for _, seq := range seqs {
		if r, ok := b.rows.get(seq); ok {
			list = append(list, r.Inbound)
		}
	}
	return list
}

// turns holds the open turns.
type turns struct {
	n    int64
	open table[string, *openTurn]
}

type openTurn struct {
	store.Turn
	n int64 // order of beginning
}

// begin opens a turn and returns the rows it takes. A turn that is open already
// takes more rows.
func (t *turns) begin(turn store.Turn) []int64 {
	rows := turn.Inbound
	if o, ok := t.open.get(turn.ID); ok {
		o.Inbound = append(o.Inbound, rows...)
		return rows
	}
	t.n++
	turn.Inbound = slices.Clone(rows)
	turn.Steps, turn.Mark = nil, store.Mark{}
	t.open.set(turn.ID, &openTurn{Turn: turn, n: t.n})
	return rows
}

// mark notes something about open turns.
func (t *turns) mark(marks []store.Mark) {
	for _, m := range marks {
		if o, ok := t.open.get(m.Turn); ok {
			o.Mark = m
		}
	}
}

// record writes steps down; those of a turn that is not open are of no use.
func (t *turns) record(steps []store.Step) {
	for i := range steps {
		if o, ok := t.open.get(steps[i].Turn); ok {
			o.Steps = append(o.Steps, steps[i])
		}
	}
}

// end forgets a turn and returns its rows.
func (t *turns) end(id string) []int64 {
	o, ok := t.open.get(id)
	if !ok {
		return nil
	}
	t.open.delete(id)
	return o.Inbound
}

// list returns the open turns in the order they began.
func (t *turns) list() []store.Turn {
	open := make([]*openTurn, 0, len(t.open.m))
	for _, o := range t.open.m {
		open = append(open, o)
	}
	slices.SortFunc(open, func(a, b *openTurn) int { return cmp.Compare(a.n, b.n) })
	list := make([]store.Turn, len(open))
	for i, o := range open {
		list[i] = o.Turn
		list[i].Inbound = slices.Clone(o.Inbound)
		list[i].Steps = slices.Clone(o.Steps)
	}
	return list
}

// outcome is a receipt without its key.
type outcome struct {
	messageID string
	failed    string
	nanos     int64
}

// outbox holds the rows without a receipt, and the outcomes of the newest with
// one. A key is known while its row is in either.
type outbox struct {
	seq      int64
	open     table[string, store.Outbound]
	outcomes window[outcome]
}

func newOutbox() outbox { return outbox{outcomes: newWindow[outcome](knownOutcomes)} }

func (b *outbox) send(rows []store.Outbound) (queued []store.Outbound) {
	for _, r := range rows {
		key := r.Message.Key
		if _, open := b.open.get(key); open {
			continue
		}
		if _, over := b.outcomes.get("", key); over {
			continue
		}
		b.seq++
		r.Seq = b.seq
		b.open.set(key, r)
		queued = append(queued, r)
	}
	return queued
}

// receive ends rows. The first receipt of a row is the one that counts, and one
// without a row says nothing.
func (b *outbox) receive(receipts []store.Receipt) {
	for _, r := range receipts {
		if _, ok := b.open.get(r.Key); !ok {
			continue
		}
		b.open.delete(r.Key)
		b.outcomes.add("", r.Key, outcome{
			messageID: r.Result.MessageID, failed: r.Failed, nanos: nanosOf(r.Result.Time),
		})
	}
}

func (b *outbox) receipt(key string) (store.Receipt, bool) {
	o, ok := b.outcomes.get("", key)
	if !ok {
		return store.Receipt{}, false
	}
	return store.Receipt{
		Key: key, Failed: o.failed,
		Result: bus.Receipt{MessageID: o.messageID, Time: timeOf(o.nanos)},
	}, true
}

func (b *outbox) unsent() []store.Outbound {
	list := make([]store.Outbound, 0, len(b.open.m))
	for _, r := range b.open.m {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b store.Outbound) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// tasks holds the tasks that are not delivered, and remembers the newest that
// were so that a late row does not bring one back.
type tasks struct {
	open      table[string, store.Task]
	delivered window[struct{}]
}

func newTasks() tasks { return tasks{delivered: newWindow[struct{}](knownTasks)} }

func (t *tasks) put(list []store.Task) {
	for _, task := range list {
		if _, over := t.delivered.get("", task.ID); over {
			continue
		}
		switch known, _ := t.open.get(task.ID); {
		case task.State == store.TaskDelivered:
			t.open.delete(task.ID)
			t.delivered.add("", task.ID, struct{}{})
		case known.State == store.TaskDone && task.State == store.TaskPending:
		default:
			t.open.set(task.ID, task)
		}
	}
}

func (t *tasks) list() []store.Task {
	list := make([]store.Task, 0, len(t.open.m))
	for _, task := range t.open.m {
		list = append(list, task)
	}
	slices.SortFunc(list, func(a, b store.Task) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	return list
}
