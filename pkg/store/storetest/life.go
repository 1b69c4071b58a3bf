package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var lifeRules = []rule{
	{"a context that has ended changes and reads nothing", endedContext},
	{"a new store is healthy", healthy},
	{"a failed post shows in health until a write succeeds", failedPost},
	{"after close every method says so", closedStore},
	{"close may be called again, and at once from many sides", closeAgain},
}

// calls runs every method that returns an error.
func calls(ctx context.Context, s store.Store) map[string]error {
	all := make(map[string]error)
	_, all["Apply"] = s.Apply(ctx, store.Tx{Facts: []store.Fact{{Key: "k", Value: "v"}}})
	_, all["Lanes"] = s.Lanes(ctx)
	_, all["Waiting"] = s.Waiting(ctx, chat(1), 0, 1)
	_, all["OpenTurns"] = s.OpenTurns(ctx)
	_, all["Inbound"] = s.Inbound(ctx, []int64{1})
	_, all["Unsent"] = s.Unsent(ctx)
	_, all["History"] = s.History(ctx, "s", 1)
	_, all["Fact"] = s.Fact(ctx, "k")
	_, _, all["ReceiptFor"] = s.ReceiptFor(ctx, "k")
	_, all["Schedules"] = s.Schedules(ctx, bus.Address{})
	_, _, all["Due"] = s.Due(ctx, day, 1)
	_, all["OpenTasks"] = s.OpenTasks(ctx)
	return all
}

func endedContext(s ledger) {
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	for name, err := range calls(ctx, s) {
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	s.equal("fact", s.fact("k"), "")
	if err := s.Health(); err != nil {
		s.t.Fatalf("somebody's ended context made the store unhealthy: %v", err)
	}
}

func healthy(s ledger) {
	if err := s.Health(); err != nil {
		s.t.Fatalf("health: %v", err)
	}
}

func failedPost(s ledger) {
	s.Post(store.Tx{Send: []store.Outbound{outbound(chat(1), "")}, Facts: []store.Fact{{Key: "k", Value: "v"}}})
	for start := time.Now(); s.Health() == nil; runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			s.t.Fatal("a post failed and the store is healthy")
		}
	}
	s.equal("fact", s.fact("k"), "")
	s.apply(store.Tx{Facts: []store.Fact{{Key: "k", Value: "w"}}})
	if err := s.Health(); err != nil {
		s.t.Fatalf("health after a write: %v", err)
	}
}

func closedStore(s ledger) {
	s.Post(store.Tx{History: []store.Entry{entry("s", "x")}})
	if err := s.Close(); err != nil {
		s.t.Fatalf("close: %v", err)
	}
	for name, err := range calls(s.t.Context(), s) {
		if !errors.Is(err, store.ErrClosed) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	s.Post(store.Tx{Facts: []store.Fact{{Key: "k", Value: "v"}}})
	if err := s.Health(); !errors.Is(err, store.ErrClosed) {
		s.t.Errorf("health: %v", err)
	}
}

func closeAgain(s ledger) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s.Post(store.Tx{Facts: []store.Fact{{Key: fmt.Sprint(i), Value: "v"}}})
			if err := s.Close(); err != nil {
				s.t.Errorf("close: %v", err)
			}
			if _, err := s.Fact(s.t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
				s.t.Errorf("fact: %v", err)
			}
		})
	}
	wg.Wait()
}

// durableRule is a rule about what a restart leaves.
var durableRules = []struct {
	name  string
	check func(s ledger, reopen func() ledger)
}{
	{"everything that is open comes back", reopenOpen},
	{"what is over stays over", reopenOver},
	{"edits, deletions and marks stay", reopenAmended},
	{"what was taken back, summed up or forgotten stays so", reopenRecalled},
	{"posted changes are written by close", reopenPosted},
	{"seq goes on ascending", reopenSeq},
}

func reopenOpen(s ledger, reopen func() ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1]), Steps: steps("t")})
	s.apply(store.Tx{
		Facts:     []store.Fact{{Key: "k", Value: "v"}},
		History:   []store.Entry{entry("s", "x"), {Session: "s", Time: day, Message: callMessage("c")}},
		Send:      []store.Outbound{outbound(chat(1), "key")},
		Schedules: []store.Schedule{schedule("id", chat(1), day)},
		Tasks:     []store.Task{task("id", chat(1), store.TaskDone)},
	})
	unsent := s.unsent()
	s = reopen()
	want := turn("t", chat(1), rows[:1])
	want.Steps = steps("t")
	s.equal("turns", s.openTurns(), []store.Turn{*want})
	s.equal("taken row", s.inbound(rows[0].Seq)[0].Message, message(chat(1), "a"))
	s.equal("waiting", ids(s.waiting(chat(1), 0, 9)), []string{"b"})
	s.equal("lanes", s.lanes(), []bus.Address{chat(1)})
	s.equal("fact", s.fact("k"), "v")
	s.equal("history", s.history("s", 9), []store.Entry{entry("s", "x"), {Session: "s", Time: day, Message: callMessage("c")}})
	s.equal("unsent", s.unsent(), unsent)
	s.equal("schedules", s.schedules(bus.Address{}), []store.Schedule{schedule("id", chat(1), day)})
	s.equal("tasks", s.openTasks(), []store.Task{task("id", chat(1), store.TaskDone)})
}

func reopenOver(s ledger, reopen func() ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	receipt := store.Receipt{Key: "key", Result: bus.Receipt{MessageID: "9", Time: day}}
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1])})
	s.apply(store.Tx{
		End: []string{"t"}, Done: seqs(rows[1:]), Send: []store.Outbound{outbound(chat(1), "key")},
		Receipts: []store.Receipt{receipt}, History: []store.Entry{entry("s", "x")}, Reset: []string{"s"},
		Tasks: []store.Task{task("id", chat(1), store.TaskDelivered)},
	})
	s = reopen()
	s.equal("turns", len(s.openTurns()), 0)
	s.equal("lanes", len(s.lanes()), 0)
	s.equal("unsent", len(s.unsent()), 0)
	s.equal("history", len(s.history("s", 9)), 0)
	got, ok := s.receipt("key")
	s.equal("receipt", got, receipt)
	s.equal("known", ok, true)
	res := s.apply(store.Tx{
		Admit: []bus.InboundMessage{message(chat(1), "a"), message(chat(1), "b")},
		Send:  []store.Outbound{outbound(chat(1), "key")},
		Tasks: []store.Task{task("id", chat(1), store.TaskPending)},
	})
	s.equal("again", res, store.Result{Duplicates: 2})
	s.equal("tasks", len(s.openTasks()), 0)
}

func reopenAmended(s ledger, reopen func() ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"), message(chat(1), "d"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:2])})
	s.apply(store.Tx{
		Amend: []store.Amend{edit("a", "1"), deletion("b"), edit("c", "2"), deletion("d")},
		Marks: []store.Mark{{Turn: "t", Strikes: 1, Steps: 2, Alone: true}},
	})
	s = reopen()
	want := turn("t", chat(1), rows[:2])
	want.Mark = store.Mark{Turn: "t", Strikes: 1, Steps: 2, Alone: true}
	s.equal("turns", s.openTurns(), []store.Turn{*want})
	s.equal("taken", texted(s.inbound(seqs(rows[:2])...)), []string{"1"})
	s.equal("waiting", texted(s.waiting(chat(1), 0, 9)), []string{"2"})
	s.equal("again", s.apply(store.Tx{Amend: []store.Amend{edit("a", "3"), edit("b", "4")}}).Amended[0].Message.Text, "3")
	s.equal("taken", texted(s.inbound(seqs(rows[:2])...)), []string{"3"})
}

func reopenRecalled(s ledger, reopen func() ledger) {
	s.talk("one", "two", "three")
	s.sum("so far", 3)
	s.undo("s")
	forgotten := said("f", "u", "forgotten")
	forgotten.Session = "f"
	s.apply(store.Tx{History: []store.Entry{forgotten}})
	s.apply(store.Tx{Forget: []string{"f"}})
	s = reopen()
	s.shown("history", "so far", "two!")
	s.equal("forgotten", len(s.history("f", 9)), 0)
	s.talk("four")
	s.undo("s", "s", "s")
	s.shown("history", "so far")
	s = reopen()
	s.talk("five")
	s.apply(store.Tx{History: []store.Entry{forgotten}})
	s.shown("history", "so far", "five?", "five!")
	s.equal("anew", s.history("f", 9), []store.Entry{forgotten})
}

func reopenPosted(s ledger, reopen func() ledger) {
	for i := range 100 {
		s.Post(store.Tx{History: []store.Entry{{Session: "s", Message: providers.Message{Content: fmt.Sprint(i)}}}})
	}
	s = reopen()
	s.equal("entries", len(s.history("s", 1000)), 100)
	s.equal("last", texts(s.history("s", 2)), []string{"98", "99"})
}

func reopenSeq(s ledger, reopen func() ledger) {
	rows := s.admit(message(chat(1), "a"))
	queued := s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "k1")}, Done: seqs(rows)}).Queued
	s.apply(store.Tx{Receipts: []store.Receipt{{Key: "k1"}}})
	s = reopen()
	if next := s.admit(message(chat(1), "b")); next[0].Seq <= rows[0].Seq {
		s.t.Fatalf("inbox seq %d after %d", next[0].Seq, rows[0].Seq)
	}
	if next := s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "k2")}}).Queued; next[0].Seq <= queued[0].Seq {
		s.t.Fatalf("outbox seq %d after %d", next[0].Seq, queued[0].Seq)
	}
}
