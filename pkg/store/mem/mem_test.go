package mem

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return New() })
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(*testing.B) store.Store { return New() })
}

func TestWindowIsBounded(t *testing.T) {
	const size = 100
	w := newWindow[int](size)
	for n := range 10 * size {
		if !w.add("c", fmt.Sprint(n), n) {
			t.Fatalf("%d is known before it came", n)
		}
		if w.add("c", fmt.Sprint(n), -1) {
			t.Fatalf("%d is new again", n)
		}
		if held := len(w.young) + len(w.old); held > 2*size {
			t.Fatalf("%d values held", held)
		}
		for back := range min(n, size) {
			if v, ok := w.get("c", fmt.Sprint(n-back)); !ok || v != n-back {
				t.Fatalf("after %d the value of %d is %d, %v", n, n-back, v, ok)
			}
		}
	}
	if _, ok := w.get("c", "0"); ok {
		t.Fatal("the first value is still held")
	}
	if _, ok := w.get("", "c999"); ok {
		t.Fatal("the parts of a key run together")
	}
}

func TestTableGivesBack(t *testing.T) {
	var m table[int, int]
	for n := range 2 * floodSize {
		m.set(n, n)
	}
	for n := range 2 * floodSize {
		m.delete(n)
	}
	if m.m != nil {
		t.Fatal("the map of the flood is still held")
	}
	m.set(1, 2)
	if v, ok := m.get(1); !ok || v != 2 {
		t.Fatalf("got %d, %v", v, ok)
	}
}

// chatOnce runs one turn from admission to receipt.
func chatOnce(t *testing.T, s *Store, n int) {
	t.Helper()
	lane := bus.Address{Channel: "telegram", ChatID: fmt.Sprint(n)}
	id := fmt.Sprint("m:", n)
	apply := func(tx store.Tx) store.Result {
		res, err := s.Apply(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := apply(store.Tx{Admit: []bus.InboundMessage{{Address: lane, ID: id, Text: "hi"}}})
	apply(store.Tx{Begin: &store.Turn{ID: id, Address: lane, Inbound: []int64{res.Admitted[0].Seq}}})
	apply(store.Tx{
		End: []string{id},
		History: []store.Entry{
			{Session: lane.String(), Turn: id, Message: providers.Message{Role: providers.RoleUser, Content: "hi"}},
			{Session: lane.String(), Turn: id, Message: providers.Message{Role: providers.RoleAssistant, Content: "hello"}},
		},
		Send: []store.Outbound{{Message: bus.OutboundMessage{Address: lane, Key: id, Text: "hello"}}},
	})
	s.Post(store.Tx{Receipts: []store.Receipt{{Key: id, Result: bus.Receipt{MessageID: fmt.Sprint(n)}}}})
}

// A hundred thousand chats that have each spoken once leave their history and
// windows of a fixed size.
func TestManyChatsLeaveTheirHistory(t *testing.T) {
	s := New()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const chats = 100_000
	for n := range chats {
		chatOnce(t, s, n)
	}
	if len(s.inbox.rows.m)+len(s.inbox.lanes.m)+len(s.turns.open.m)+len(s.outbox.open.m) != 0 {
		t.Fatal("something of a finished turn is still held")
	}
	if held := len(s.inbox.known.young) + len(s.inbox.known.old); held > 2*knownIDs {
		t.Fatalf("%d ids held", held)
	}
	if held := len(s.outbox.outcomes.young) + len(s.outbox.outcomes.old); held > 2*knownOutcomes {
		t.Fatalf("%d outcomes held", held)
	}
	all := heap() - before
	perChat := float64(all) / chats
	s.history = nil
	windows := heap() - before
	t.Logf("%.0f bytes a chat, all in all; %.1f MB without history", perChat, float64(windows)/1e6)
	if windows > 10e6 {
		t.Errorf("%d bytes are held besides history", windows)
	}
	runtime.KeepAlive(s)
}

// The first of a long backlog is taken over and over while more comes in: the
// slice behind it must not grow with all that ever waited.
func TestBacklogDoesNotGrowWithTime(t *testing.T) {
	s := New()
	lane := bus.Address{Channel: "c", ChatID: "1"}
	for n := range 50_000 {
		res, err := s.Apply(t.Context(), store.Tx{Admit: []bus.InboundMessage{{Address: lane, ID: fmt.Sprint(n)}}})
		if err != nil {
			t.Fatal(err)
		}
		if n >= 10 {
			s.Post(store.Tx{Done: []int64{res.Admitted[0].Seq - 10}})
		}
	}
	l, _ := s.inbox.lanes.get(lane)
	if len(l.waiting) != 10 || cap(l.waiting) > 1000 {
		t.Fatalf("%d rows wait in room for %d", len(l.waiting), cap(l.waiting))
	}
}

// said adds an entry to a history as a turn that ends does.
func said(t *testing.T, s *Store, session, turn string) {
	t.Helper()
	tx := store.Tx{History: []store.Entry{
		{Session: session, Turn: turn, Time: time.Now(), Message: providers.Message{Role: providers.RoleUser}},
		{Session: session, Turn: turn, Time: time.Now(), Message: providers.Message{Role: providers.RoleAssistant}},
	}}
	if _, err := s.Apply(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
}

// turnsIn lists the turns of what a history shows; a summary has none.
func turnsIn(t *testing.T, s *Store, session string) (list []string) {
	t.Helper()
	s.Post(store.Tx{}) // something happens
	entries, err := s.History(t.Context(), session, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Turn)
	}
	return list
}

// What was said goes with time, whole turns of it and the oldest first; a
// summary and what an open turn has said stay.
func TestHistoryGoesWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewKeeping(time.Hour)
		said(t, s, "plain", "1")
		said(t, s, "summed", "1")
		s.Post(store.Tx{Summaries: []store.Summary{{Session: "summed", Text: "so far", Keep: 1}}})
		said(t, s, "undone", "1")
		s.Post(store.Tx{Undo: []string{"undone"}})
		s.Post(store.Tx{Begin: &store.Turn{ID: "open"}})
		said(t, s, "open", "1")
		said(t, s, "open", "open")
		time.Sleep(30 * time.Minute)
		for _, session := range []string{"plain", "summed", "undone", "open"} {
			said(t, s, session, "2")
		}
		for _, c := range []struct {
			wait time.Duration
			want map[string][]string
		}{
			{30 * time.Minute, map[string][]string{"plain": {"1", "1", "2", "2"}, "summed": {"", "1", "2", "2"}, "undone": {"2", "2"}, "open": {"1", "1", "open", "open", "2", "2"}}},
			{time.Minute, map[string][]string{"plain": {"2", "2"}, "summed": {"", "2", "2"}, "undone": {"2", "2"}, "open": {"open", "open", "2", "2"}}},
			{30 * time.Minute, map[string][]string{"plain": nil, "summed": {""}, "undone": nil, "open": {"open", "open", "2", "2"}}},
		} {
			time.Sleep(c.wait)
			for session, want := range c.want {
				if got := turnsIn(t, s, session); !slices.Equal(got, want) {
					t.Errorf("%s holds %q, not %q", session, got, want)
				}
			}
		}
		if len(s.history) != 2 {
			t.Errorf("%d sessions are held", len(s.history))
		}
	})
}

// A conversation that never stops, and is kept for a time, stays the same size.
func TestHistoryThatIsKeptForATimeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewKeeping(time.Minute)
		for n := range 10_000 {
			said(t, s, "s", fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if list := s.history["s"]; len(list) > 124 || cap(list) > 1000 || cap(s.ageing.queue) > 1000 {
			t.Errorf("%d records in room for %d, %d notes in room for %d", len(list), cap(list), len(s.ageing.queue), cap(s.ageing.queue))
		}
	})
}
