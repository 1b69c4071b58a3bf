package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

func lines(session string, texts ...string) []store.Entry {
	var list []store.Entry
	for _, text := range texts {
		list = append(list, store.Entry{Session: session, Turn: text, Message: providers.Message{Role: providers.RoleUser, Content: text}})
	}
	return list
}

func contents(entries []store.Entry) string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Message.Content)
	}
	return strings.Join(list, " ")
}

// A history that is in memory is what a reader would find in the file, whatever
// was done to it.
func TestTailsFollowTheFile(t *testing.T) {
	s := fresh(t, t.TempDir(), Options{})
	defer shut(t, s)
	n := 0
	said := func() store.Tx { n++; return store.Tx{History: lines("s", fmt.Sprint(n), fmt.Sprint(n, "b"))} }
	for i, tx := range []store.Tx{
		said(), said(),
		{Undo: []string{"s"}},
		said(),
		{Summaries: []store.Summary{{Session: "s", Text: "so far", Keep: 2}}},
		said(), said(), said(),
		{Undo: []string{"s"}},
		said(),
		{Reset: []string{"s"}},
		said(),
		{Forget: []string{"s"}},
		said(),
	} {
		if _, err := s.Apply(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{3, 2, 100, 3, 1} { // known and unknown, longer and shorter
			got, err := s.History(t.Context(), "s", limit)
			if err != nil {
				t.Fatal(err)
			}
			var want []store.Entry
			err = s.read(t.Context(), "history", func(c *conn) (err error) {
				want, err = history(c, "s", limit)
				return err
			})
			if err != nil || contents(got) != contents(want) {
				t.Fatalf("after change %d the newest %d are %q, in the file %q, %v", i, limit, contents(got), contents(want), err)
			}
		}
	}
}

// What was being read when it changed is not remembered: it may be either.
func TestTailsForgetWhatChangedWhileItWasRead(t *testing.T) {
	var ts tails
	_, mine := ts.find("s", 10)
	ts.update([]*job{{change: &change{history: []historyRow{{entries: lines("s", "2")}}}}})
	ts.fill("s", mine, 10, lines("s", "1"))
	if entries, unknown := ts.find("s", 10); unknown == nil {
		t.Errorf("%q is remembered", contents(entries))
	}
}

func TestTailsAreBounded(t *testing.T) {
	var ts tails
	put := func(session, text string) {
		_, mine := ts.find(session, 10)
		ts.fill(session, mine, 10, lines(session, text))
	}
	long := strings.Repeat("x", tailSize/2)
	for i := range 100 {
		put(fmt.Sprint(i), long)
	}
	if _, unknown := ts.find("99", 10); unknown != nil {
		t.Error("the newest is not remembered")
	}
	put("large", long+long)
	if _, unknown := ts.find("large", 10); unknown == nil {
		t.Error("one that is too large is remembered")
	}
	for i := range 200_000 { // with nothing in them
		_, mine := ts.find(fmt.Sprint("empty", i), 10)
		ts.fill(fmt.Sprint("empty", i), mine, 10, nil)
	}
	sum := 0
	for _, tail := range ts.m {
		sum += tail.size
	}
	if sum != ts.size || sum > tailsSize || len(ts.m) > 50_000 {
		t.Errorf("%d tails take %d bytes, %d by their count", len(ts.m), sum, ts.size)
	}
	for i := range 1000 { // one that grows is cut
		ts.update([]*job{{change: &change{history: []historyRow{{entries: lines("empty199999", fmt.Sprint(i))}}}}})
	}
	if entries, unknown := ts.find("empty199999", 10); unknown != nil || len(entries) != 10 || entries[9].Message.Content != "999" {
		t.Errorf("of a thousand lines %d are known, the newest of them %q", len(entries), contents(entries))
	}
	if n := len(ts.m["empty199999"].entries); n > 20 {
		t.Errorf("%d lines are kept", n)
	}
	ts.clear()
	if len(ts.m) != 0 || ts.size != 0 {
		t.Error("something is left")
	}
}

// Readers and the writer meet: what was said before a read began is in it.
func TestTailsUnderWayReadNothingOld(t *testing.T) {
	s := fresh(t, t.TempDir(), Options{Durability: Fast})
	defer shut(t, s)
	var all sync.WaitGroup
	for w := range 4 {
		name := fmt.Sprint("s", w%2) // two writers a session
		all.Go(func() {
			for i := range 100 {
				mine := fmt.Sprint(w, "-", i)
				if _, err := s.Apply(t.Context(), store.Tx{History: lines(name, mine)}); err != nil {
					t.Error(err)
				}
				got, err := s.History(t.Context(), name, 1000)
				if err != nil || !strings.Contains(" "+contents(got)+" ", " "+mine+" ") {
					t.Errorf("%s is not in the history, %v", mine, err)
				}
				if i%10 == w {
					s.tails.clear()
				}
			}
		})
	}
	all.Wait()
}

func TestKnownFactsFollowTheFile(t *testing.T) {
	s := fresh(t, t.TempDir(), Options{})
	defer shut(t, s)
	for _, value := range []string{"", "1", "2", "", "3"} {
		if _, err := s.Apply(t.Context(), store.Tx{Facts: []store.Fact{{Key: "k", Value: "not yet"}, {Key: "k", Value: value}}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := s.Fact(t.Context(), "k"); err != nil || got != value {
				t.Fatalf("the fact is %q, %v, want %q", got, err, value)
			}
		}
	}
	for i := range 3 * mostKnown {
		if _, err := s.Fact(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.facts.m); n > mostKnown {
		t.Errorf("%d facts are kept", n)
	}
	var k facts
	_, mine := k.find("k")
	k.update([]*job{{change: &change{facts: []store.Fact{{Key: "k", Value: "2"}}}}})
	k.fill(mine, "1")
	if value, unknown := k.find("k"); unknown == nil {
		t.Errorf("%q is remembered, which was read before it changed", value)
	}
}
