package sqlite

import (
	"slices"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

const (
	tailsSize = 8 << 20       // bytes all tails take, near enough
	tailSize  = tailsSize / 8 // bytes one may take
)

// tails keeps the ends of the histories that were read last: a turn reads what
// the turn before it wrote, and to read it from the file again costs as much as
// half of what a turn writes. The writer brings them up to date once what it
// wrote is committed, so that they say what the file says.
type tails struct {
	mu   sync.Mutex // taken by whoever reads a history, and by the writer
	m    map[string]*tail
	size int
}

// tail is the end of one history.
type tail struct {
	entries []store.Entry // oldest first; a summary, if there is one, before them
	summary bool
	whole   bool // nothing is shown before entries
	limit   int  // it was read with; 0: it is being read
	size    int
}

// find returns what History is to return, if it is known. Otherwise the caller
// reads it and hands it, together with t, to fill.
func (ts *tails) find(session string, limit int) (entries []store.Entry, t *tail) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t = ts.m[session]; t != nil && t.limit > 0 {
		head, said := t.split()
		if t.whole || len(said) >= limit {
			return slices.Concat(head, said[max(0, len(said)-limit):]), nil
		}
	}
	ts.drop(session)
	if ts.m == nil {
		ts.m = make(map[string]*tail)
	}
	t = &tail{}
	ts.m[session] = t
	return nil, t
}

// split parts the summary from what was said.
func (t *tail) split() (head, said []store.Entry) {
	if t.summary {
		return t.entries[:1], t.entries[1:]
	}
	return nil, t.entries
}

// fill notes what was read with a limit, unless the history has changed since
// find, or is too large.
func (ts *tails) fill(session string, t *tail, limit int, entries []store.Entry) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.m[session] != t {
		return
	}
	t.entries, t.limit = slices.Clone(entries), limit
	t.summary = len(entries) > 0 && entries[0].Summary
	_, said := t.split()
	t.whole = len(said) < limit
	ts.resize(session, t, len(session)+sizeOf(entries))
}

// add notes what was said in a history that is known.
func (ts *tails) add(entries []store.Entry) {
	session := entries[0].Session
	t := ts.m[session]
	if t == nil {
		return
	}
	if t.limit == 0 { // whoever reads it may have read too early
		ts.drop(session)
		return
	}
	size := t.size + sizeOf(entries)
	t.entries = append(t.entries, entries...)
	if head, said := t.split(); len(said) > 2*t.limit {
		t.entries, t.whole = slices.Concat(head, said[len(said)-t.limit:]), false
		size = len(session) + sizeOf(t.entries)
	}
	ts.resize(session, t, size)
}

// resize notes how large a tail is now, and drops what is too much: this one if
// it is too large, or any other.
func (ts *tails) resize(session string, t *tail, size int) {
	ts.size += size - t.size
	if t.size = size; size > tailSize {
		ts.drop(session)
	}
	for other := range ts.m { // in no order
		if ts.size <= tailsSize {
			return
		}
		if other != session {
			ts.drop(other)
		}
	}
}

func (ts *tails) drop(session string) {
	if t := ts.m[session]; t != nil {
		ts.size -= t.size
		delete(ts.m, session)
	}
}

// update follows changes that are committed, in their order.
func (ts *tails) update(jobs []*job) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, j := range jobs {
		c := j.change
		for _, r := range c.history {
			ts.add(r.entries)
		}
		for _, s := range c.summaries {
			ts.drop(s.Session)
		}
		for _, names := range [][]string{c.undo, c.reset, c.forget} {
			for _, name := range names {
				ts.drop(name)
			}
		}
	}
}

// clear forgets all tails.
func (ts *tails) clear() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.m, ts.size = nil, 0
}

// sizeOf is how much memory entries take, near enough.
func sizeOf(entries []store.Entry) int {
	const tail, entry, call = 200, 150, 400
	n := tail
	for i := range entries {
		m := &entries[i].Message
		n += entry + len(m.Content) + len(m.Opaque)
		for k := range m.ToolCalls {
			n += call
			if f := m.ToolCalls[k].Function; f != nil {
				n += len(f.Arguments)
			}
		}
	}
	return n
}
