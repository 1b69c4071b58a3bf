package mem

import (
	"cmp"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// record is an entry of history as it is kept: half the size of the entry,
// because history is what stays. The session is the key it is found by.
type record struct {
	role, content string
	tool          *toolPart // nil in most messages
	nanos         int64
}

// toolPart is what only messages about tool calls have.
type toolPart struct {
	calls  []providers.ToolCall
	callID string
}

func recordOf(e store.Entry) record {
	r := record{role: e.Message.Role, content: e.Message.Content, nanos: nanosOf(e.Time)}
	if e.Message.ToolCalls != nil || e.Message.ToolCallID != "" {
		r.tool = &toolPart{calls: e.Message.ToolCalls, callID: e.Message.ToolCallID}
	}
	return r
}

func (r record) entry(session string) store.Entry {
	m := providers.Message{Role: r.role, Content: r.content}
	if r.tool != nil {
		m.ToolCalls, m.ToolCallID = r.tool.calls, r.tool.callID
	}
	return store.Entry{Session: session, Message: m, Time: timeOf(r.nanos)}
}

// nanosOf keeps an instant in 8 bytes, 0 for the zero time.
func nanosOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

func (s *Store) appendHistory(entries []store.Entry) {
	for i := 0; i < len(entries); {
		// A turn's entries nearly always belong to one session: one look-up and
		// one growth for all of them.
		session, n := entries[i].Session, 1
		for i+n < len(entries) && entries[i+n].Session == session {
			n++
		}
		list := s.history[session]
		if list == nil {
			list = make([]record, 0, n) // many chats speak once: no room to spare for them
		}
		for _, e := range entries[i : i+n] {
			list = append(list, recordOf(e))
		}
		s.history[session] = list
		i += n
	}
}

func (s *Store) newest(session string, limit int) []store.Entry {
	list := s.history[session]
	list = list[max(0, len(list)-max(0, limit)):]
	entries := make([]store.Entry, len(list))
	for i, r := range list {
		entries[i] = r.entry(session)
	}
	return entries
}

// byDue is a list of schedules by due time, then id.
type byDue []*store.Schedule

func compareDue(a, b *store.Schedule) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}

func (l byDue) with(e *store.Schedule) byDue {
	i, _ := slices.BinarySearchFunc(l, e, compareDue)
	return slices.Insert(l, i, e)
}

func (l byDue) without(e *store.Schedule) byDue {
	i, ok := slices.BinarySearchFunc(l, e, compareDue)
	if !ok {
		return l
	}
	return slices.Delete(l, i, i+1)
}

func (l byDue) values() []store.Schedule {
	list := make([]store.Schedule, len(l))
	for i, e := range l {
		list[i] = *e
	}
	return list
}

// calendar holds the schedules in order, all together and by conversation.
type calendar struct {
	byID map[string]*store.Schedule
	all  byDue
	of   map[bus.Address]byDue
}

func newCalendar() calendar {
	return calendar{byID: make(map[string]*store.Schedule), of: make(map[bus.Address]byDue)}
}

func (c *calendar) add(schedules []store.Schedule) {
	for _, e := range schedules {
		c.drop(e.ID)
		c.byID[e.ID] = &e
		c.all = c.all.with(&e)
		c.of[e.Address] = c.of[e.Address].with(&e)
	}
}

func (c *calendar) remove(ids []string) {
	for _, id := range ids {
		c.drop(id)
	}
}

func (c *calendar) drop(id string) {
	e, ok := c.byID[id]
	if !ok {
		return
	}
	delete(c.byID, id)
	c.all = c.all.without(e)
	if rest := c.of[e.Address].without(e); len(rest) > 0 {
		c.of[e.Address] = rest
	} else {
		delete(c.of, e.Address)
	}
}

func (c *calendar) list(of bus.Address) []store.Schedule {
	if of.IsZero() {
		return c.all.values()
	}
	return c.of[of].values()
}

func (c *calendar) due(t time.Time, limit int) ([]store.Schedule, time.Time) {
	n := 0
	for n < len(c.all) && n < limit && !c.all[n].Due.After(t) {
		n++
	}
	var next time.Time
	if n < len(c.all) {
		next = c.all[n].Due
	}
	return c.all[:n].values(), next
}
