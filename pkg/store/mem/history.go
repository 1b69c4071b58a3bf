package mem

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// history holds what is shown of each session. What Undo, Reset or a Summary
// takes out of sight is gone.
type history map[string][]record

// record is an entry of history as it is kept: half the size of the entry,
// because history is what stays. The session is the key it is found by.
type record struct {
	role, content, turn string
	tool                *toolPart // nil in most messages
	nanos               int64
}

// toolPart is what only messages about tool calls have, and replies with an
// opaque part, which are rarer still.
type toolPart struct {
	calls  []providers.ToolCall
	callID string
	opaque json.RawMessage
}

// summary marks the record that is one. Only the first of a session can be.
var summary = &toolPart{}

func recordOf(e store.Entry) record {
	r := record{role: e.Message.Role, content: e.Message.Content, turn: e.Turn, nanos: nanosOf(e.Time)}
	if e.Message.ToolCalls != nil || e.Message.ToolCallID != "" || e.Message.Opaque != nil {
		r.tool = &toolPart{calls: e.Message.ToolCalls, callID: e.Message.ToolCallID, opaque: e.Message.Opaque}
	}
	return r
}

func (r record) entry(session string) store.Entry {
	m := providers.Message{Role: r.role, Content: r.content}
	if r.tool != nil {
		m.ToolCalls, m.ToolCallID, m.Opaque = r.tool.calls, r.tool.callID, r.tool.opaque
	}
	return store.Entry{Session: session, Turn: r.turn, Message: m, Time: timeOf(r.nanos), Summary: r.tool == summary}
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

func (h history) add(entries []store.Entry) {
	for i := 0; i < len(entries); {
		// A turn's entries nearly always belong to one session: one look-up and
		// one growth for all of them.
		session, n := entries[i].Session, 1
		for i+n < len(entries) && entries[i+n].Session == session {
			n++
		}
		list := h[session]
		if list == nil {
			list = make([]record, 0, n) // many chats speak once: no room to spare for them
		}
		for _, e := range entries[i : i+n] {
			list = append(list, recordOf(e))
		}
		h[session] = list
		i += n
	}
}

// parts returns the summary of a session, as a list of one or none, and its
// entries.
func (h history) parts(session string) (summed, entries []record) {
	list, n := h[session], 0
	if len(list) > 0 && list[0].tool == summary {
		n = 1
	}
	return list[:n], list[n:]
}

func (h history) newest(session string, limit int) []store.Entry {
	if limit <= 0 {
		return nil
	}
	summed, list := h.parts(session)
	list = list[max(0, len(list)-limit):]
	entries := make([]store.Entry, 0, len(summed)+len(list))
	for _, r := range summed {
		entries = append(entries, r.entry(session))
	}
	for _, r := range list {
		entries = append(entries, r.entry(session))
	}
	return entries
}

// undo drops the newest entries that have one turn, or the newest message of a
// user and what follows it where they have none.
func (h history) undo(session string) {
	summed, list := h.parts(session)
	if len(list) == 0 {
		return
	}
	from := len(list) - 1
	turn := list[from].turn
	for from > 0 && list[from-1].turn == turn && (turn != "" || list[from].role != providers.RoleUser) {
		from--
	}
	clear(list[from:]) // the array lives on behind the slice
	if left := len(summed) + from; left > 0 {
		h[session] = h[session][:left]
	} else {
		delete(h, session)
	}
}

// summarize puts a summary in the place of all entries but the newest.
func (h history) summarize(s store.Summary) {
	_, entries := h.parts(s.Session)
	keep := min(max(0, s.Keep), len(entries))
	list := make([]record, 0, keep+1)
	if s.Text != "" {
		list = append(list, record{role: providers.RoleUser, content: s.Text, tool: summary})
	}
	list = append(list, entries[len(entries)-keep:]...)
	if len(list) > 0 {
		h[s.Session] = list
	} else {
		delete(h, s.Session)
	}
}

// ageing notes when something was said in which session, in that order, so that
// the oldest can go. Where history is kept for ever it is empty.
type ageing struct {
	keep  time.Duration // 0 or less is for ever
	queue []spoken
}

type spoken struct {
	session string
	nanos   int64
}

func (a *ageing) note(entries []store.Entry, now time.Time) {
	for i := range entries {
		if i == 0 || entries[i].Session != entries[i-1].Session {
			a.queue = append(a.queue, spoken{entries[i].Session, now.UnixNano()})
		}
	}
}

// next takes out the first note that is too old.
func (a *ageing) next(now time.Time) (old spoken, ok bool) {
	if len(a.queue) == 0 || a.queue[0].nanos >= now.Add(-a.keep).UnixNano() {
		return spoken{}, false
	}
	old = a.queue[0]
	a.queue[0] = spoken{} // the array lives on behind the slice
	a.queue = a.queue[1:]
	return old, true
}

// cut removes what was said in a session up to a moment, the oldest first, until
// it comes to what has to stay. A summary stays.
func (h history) cut(old spoken, stays func(turn string) bool) {
	list := h[old.session]
	summed, entries := h.parts(old.session)
	n := 0
	for n < len(entries) && entries[n].nanos <= old.nanos && !stays(entries[n].turn) {
		n++
	}
	if n == len(list) {
		delete(h, old.session)
		return
	}
	copy(list[n:], slices.Clone(summed))
	clear(list[:n])
	h[old.session] = list[n:]
}
