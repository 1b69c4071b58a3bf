package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// numbered is a change that says its number in four places.
func numbered(who string, n, size int) store.Tx {
	id := fmt.Sprint(who, "-", n)
	return store.Tx{
		Admit:   []bus.InboundMessage{{Address: bus.Address{Channel: "c", ChatID: who}, ID: id}},
		Facts:   []store.Fact{{Key: "last/" + who, Value: fmt.Sprint(n)}},
		History: []store.Entry{padded(who, fmt.Sprint(n), size)},
		Send:    []store.Outbound{{Message: bus.OutboundMessage{Address: bus.Address{Channel: "c", ChatID: who}, Key: id}}},
	}
}

func padded(session, text string, size int) store.Entry {
	e := store.Entry{Session: session}
	e.Message.Content = text + strings.Repeat(" ", size)
	return e
}

// counted fails the test unless exactly n numbered changes of who are there,
// whole and in order.
func counted(t *testing.T, s *Store, who string, n int) {
	t.Helper()
	ctx := t.Context()
	entries, err := s.History(ctx, who, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if got := strings.TrimRight(e.Message.Content, " "); got != fmt.Sprint(i) {
			t.Fatalf("%s: entry %d is %s", who, i, got)
		}
	}
	waiting, err := s.Waiting(ctx, bus.Address{Channel: "c", ChatID: who}, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	unsent, err := s.Unsent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, r := range unsent {
		if r.Message.ChatID == who {
			if want := fmt.Sprint(who, "-", rows); r.Message.Key != want {
				t.Fatalf("%s: row %d is %s", who, rows, r.Message.Key)
			}
			rows++
		}
	}
	last, err := s.Fact(ctx, "last/"+who)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(n - 1); n > 0 && last != want || len(entries) != n || len(waiting) != n || rows != n {
		t.Fatalf("%s: the last is %q, and there are %d entries, %d messages and %d rows of %d", who, last, len(entries), len(waiting), rows, n)
	}
}
