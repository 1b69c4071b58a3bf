package mem

import (
	"cmp"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

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
