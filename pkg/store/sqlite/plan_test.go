package sqlite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// everything uses each statement of the package at least once.
func everything(t *testing.T, s *Store) {
	t.Helper()
	ctx, lane := t.Context(), bus.Address{Channel: "c", ChatID: "1"}
	rows := apply(t, s, store.Tx{Admit: []bus.InboundMessage{{Address: lane, ID: "a"}, {Address: lane, ID: "b"}}}).Admitted
	said := func(turn, role string) store.Entry {
		return store.Entry{Session: "s", Turn: turn, Message: providers.Message{Role: role, Content: "x"}}
	}
	apply(t, s, store.Tx{
		Amend:   []store.Amend{{Channel: "c", ID: "a", Text: "new"}, {Channel: "c", ID: "b", Deleted: true}},
		Facts:   []store.Fact{{Key: "k", Value: "v"}, {Key: "k"}},
		Begin:   &store.Turn{ID: "t", Address: lane, Inbound: []int64{rows[0].Seq}},
		Steps:   []store.Step{{Turn: "t", Kind: store.StepReply}},
		History: []store.Entry{said("1", "user"), said("2", "user"), said("3", "user")}, Undo: []string{"s"},
		Summaries: []store.Summary{{Session: "s", Text: "so far", Keep: 1}},
		Reset:     []string{"r"}, Forget: []string{"f"},
		Send:      []store.Outbound{{Message: bus.OutboundMessage{Address: lane, Key: "key"}}},
		Schedules: []store.Schedule{{ID: "id", Address: lane}}, Unschedule: []string{"none"},
		Tasks: []store.Task{{ID: "id"}},
	})
	apply(t, s, store.Tx{Marks: []store.Mark{{Turn: "t"}}, Begin: &store.Turn{ID: "t"}})
	for what, err := range map[string]error{
		"lanes":        failed(s.Lanes(ctx)),
		"waiting":      failed(s.Waiting(ctx, lane, 0, 1)),
		"open turns":   failed(s.OpenTurns(ctx)),
		"inbound":      failed(s.Inbound(ctx, []int64{1})),
		"unsent":       failed(s.Unsent(ctx)),
		"history":      failed(s.History(ctx, "s", 1)),
		"fact":         failed(s.Fact(ctx, "k")),
		"schedules":    failed(s.Schedules(ctx, bus.Address{})),
		"schedules of": failed(s.Schedules(ctx, lane)),
		"open tasks":   failed(s.OpenTasks(ctx)),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if _, _, err := s.ReceiptFor(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Due(ctx, time.Now(), 1); err != nil {
		t.Fatal(err)
	}
	apply(t, s, store.Tx{Receipts: []store.Receipt{{Key: "key"}}, End: []string{"t"}, Reset: []string{"s"}, Forget: []string{"s"}})
}

func failed[T any](_ T, err error) error { return err }

// No statement reads more than it has to: through an index or by key, in the
// order wanted. What may read a whole table says why here.
func TestStatementsUseIndexes(t *testing.T) {
	allowed := map[string]string{
		"SCAN inbox USING INDEX inbox_open":        "open rows only",
		"SCAN turns USING INDEX turns_open":        "open rows only",
		"SCAN outbox USING INDEX outbox_open":      "open rows only",
		"SCAN tasks USING INDEX tasks_open":        "open rows only",
		"SCAN schedules USING INDEX schedules_due": "all that there are, in order",
	}
	s := fresh(t, t.TempDir(), Options{})
	everything(t, s)
	close(s.closing) // the writer ends, and its connection is ours
	<-s.writer.ended
	conns := []*conn{s.writer.ledger.c}
	for range cap(s.readers) {
		if c := <-s.readers; c != nil {
			conns = append(conns, c)
		}
		s.readers <- nil
	}
	if err := s.writer.ledger.load(); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = s.writer.sweep.step(s.writer.ledger, time.Now().Add(99*dayLong)); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for _, c := range conns {
		for _, query := range slices.Collect(maps.Keys(c.stmts)) {
			if strings.HasPrefix(query, "PRAGMA") || strings.Contains(query, "sqlite_schema") {
				continue
			}
			plan := planOf(t, c, query)
			for _, line := range plan {
				bad := strings.HasPrefix(line, "SCAN") || strings.Contains(line, "TEMP B-TREE") || strings.Contains(line, "AUTOMATIC")
				if bad && allowed[line] == "" {
					t.Errorf("%s\n%s", query, strings.Join(plan, "\n"))
				}
			}
			seen++
		}
	}
	if seen < 50 {
		t.Errorf("only %d statements were seen", seen)
	}
	for _, c := range conns[1:] {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
	s.closing = make(chan struct{})
	shut(t, s)
}

func planOf(t *testing.T, c *conn, query string) (plan []string) {
	t.Helper()
	args := make([]any, 12)
	for i := range args {
		args[i] = int64(1)
	}
	for row, err := range c.rows("EXPLAIN QUERY PLAN "+query, args...) {
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", query, err))
		}
		plan = append(plan, text(row[3]))
	}
	return plan
}
