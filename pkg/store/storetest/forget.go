package storetest

import (
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var forgetRules = []rule{
	{"forget erases a history with all that was out of sight", forgetHistory},
	{"forget erases the messages that are done", forgetInbound},
	{"forget leaves what recognises a repetition", forgetKnown},
	{"forget leaves what is open", forgetOpen},
	{"what was open when it was forgotten ends as usual", forgetThenEnd},
	{"forget leaves other sessions alone", forgetSessions},
	{"forget comes after the new history of its change", forgetInOrder},
}

// forgotten is the session of the messages, turns and rows of chat 1.
var forgotten = []string{chat(1).String()}

func forgetHistory(s ledger) {
	s.talk("one", "two")
	s.apply(store.Tx{Reset: []string{"s"}})
	s.talk("three", "four", "five")
	s.sum("so far", 4)
	s.undo("s")
	s.apply(store.Tx{Forget: []string{"s", "nobody"}})
	s.shown("forgotten")
	s.undo("s")
	s.apply(store.Tx{Forget: []string{"s"}})
	s.shown("again")
	s.talk("three", "six")
	s.shown("anew", "three?", "three!", "six?", "six!")
	s.undo("s")
	s.shown("taken back", "three?", "three!")
	s.sum("so far", 1)
	s.shown("summed up", "so far", "three!")
}

func forgetInbound(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"), message(chat(2), "d"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1]), Done: seqs(rows[1:2])})
	s.apply(store.Tx{End: []string{"t"}, Amend: []store.Amend{deletion("c")}})
	s.apply(store.Tx{Forget: forgotten})
	s.equal("rows", ids(s.inbound(seqs(rows)...)), []string{"d"})
	s.equal("lanes", s.lanes(), []bus.Address{chat(2)})
}

func forgetKnown(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	receipt := store.Receipt{Key: "key", Result: bus.Receipt{MessageID: "9", Time: day}}
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1]), Steps: steps("t"), Done: seqs(rows[1:])})
	s.apply(store.Tx{
		End: []string{"t"}, Send: []store.Outbound{outbound(chat(1), "key"), outbound(chat(1), "failed")},
		Receipts: []store.Receipt{receipt, {Key: "failed", Failed: "no"}},
		Tasks:    []store.Task{task("id", chat(1), store.TaskDelivered)},
	})
	s.apply(store.Tx{Forget: forgotten})
	s.apply(store.Tx{Forget: forgotten})
	res := s.apply(store.Tx{
		Admit: []bus.InboundMessage{message(chat(1), "a"), message(chat(1), "b")},
		Amend: []store.Amend{edit("a", "new"), deletion("b")},
		Send:  []store.Outbound{outbound(chat(1), "key"), outbound(chat(1), "failed")},
		Tasks: []store.Task{task("id", chat(1), store.TaskPending)},
	})
	s.equal("again", res, store.Result{Duplicates: 2})
	s.equal("rows", len(s.inbound(seqs(rows)...)), 0)
	s.equal("turns", len(s.openTurns()), 0)
	s.equal("unsent", len(s.unsent()), 0)
	s.equal("tasks", len(s.openTasks()), 0)
	for _, want := range []store.Receipt{receipt, {Key: "failed", Failed: "no"}} {
		got, ok := s.receipt(want.Key)
		s.equal("receipt", got, want)
		s.equal("known", ok, true)
	}
}

// openAll leaves something open of every kind, for chat 1.
func (l ledger) openAll() {
	l.t.Helper()
	rows := l.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"))
	l.apply(store.Tx{Begin: turn("t", chat(1), rows[:2]), Steps: steps("t")})
	l.apply(store.Tx{
		Marks: []store.Mark{{Turn: "t", Strikes: 1}}, Facts: []store.Fact{{Key: "k", Value: "v"}},
		Send:      []store.Outbound{outbound(chat(1), "key")},
		Schedules: []store.Schedule{schedule("id", chat(1), day)},
		Tasks:     []store.Task{task("pending", chat(1), store.TaskPending), task("result", chat(1), store.TaskDone)},
	})
}

func forgetOpen(s ledger) {
	s.openAll()
	turns, waiting, unsent, tasks := s.openTurns(), s.waiting(chat(1), 0, 9), s.unsent(), s.openTasks()
	s.apply(store.Tx{Forget: forgotten})
	s.equal("turns", s.openTurns(), turns)
	s.equal("turns", turns[0].Steps, steps("t"))
	s.equal("waiting", s.waiting(chat(1), 0, 9), waiting)
	s.equal("waiting", ids(waiting), []string{"c"})
	for _, r := range s.inbound(turns[0].Inbound...) {
		s.equal("taken", r.Message, message(chat(1), r.Message.ID))
	}
	s.equal("lanes", s.lanes(), []bus.Address{chat(1)})
	s.equal("unsent", s.unsent(), unsent)
	s.equal("unsent", keys(unsent), []string{"key"})
	s.equal("tasks", s.openTasks(), tasks)
	s.equal("tasks", len(tasks), 2)
	s.equal("schedules", s.schedules(chat(1)), []store.Schedule{schedule("id", chat(1), day)})
	s.equal("fact", s.fact("k"), "v")
}

func forgetThenEnd(s ledger) {
	s.openAll()
	s.apply(store.Tx{Forget: forgotten})
	rows := s.openTurns()[0].Inbound
	s.equal("edited", len(s.apply(store.Tx{Amend: []store.Amend{edit("a", "new")}}).Amended), 1)
	s.equal("rows", texted(s.inbound(rows...)), []string{"new", "text of b"})
	s.apply(store.Tx{
		Steps: steps("t")[:1], History: []store.Entry{entry(forgotten[0], "answer")},
		End: []string{"t"}, Receipts: []store.Receipt{{Key: "key"}}, Done: seqs(s.waiting(chat(1), 0, 9)),
	})
	s.equal("turns", len(s.openTurns()), 0)
	s.equal("lanes", len(s.lanes()), 0)
	s.equal("unsent", len(s.unsent()), 0)
	s.equal("history", texts(s.history(forgotten[0], 9)), []string{"answer"})
	s.apply(store.Tx{Forget: forgotten})
	s.equal("history", len(s.history(forgotten[0], 9)), 0)
	s.equal("rows", len(s.inbound(rows...)), 0)
}

func forgetSessions(s ledger) {
	s.talk("one", "two")
	s.sum("so far", 1)
	rows := s.admit(message(chat(2), "a"))
	s.apply(store.Tx{Begin: turn("t", chat(2), rows), Steps: steps("t"), Send: []store.Outbound{outbound(chat(2), "key")}})
	s.apply(store.Tx{End: []string{"t"}, Receipts: []store.Receipt{{Key: "key"}}})
	kept := s.inbound(seqs(rows)...) // done rows may be kept
	s.apply(store.Tx{Forget: forgotten})
	s.shown("history", "so far", "two!")
	s.equal("rows", s.inbound(seqs(rows)...), kept)
	_, ok := s.receipt("key")
	s.equal("receipt", ok, true)
}

func forgetInOrder(s ledger) {
	s.apply(store.Tx{
		History: []store.Entry{said("one", "u", "1?")}, Summaries: []store.Summary{{Session: "s", Text: "so far"}},
		Forget: []string{"s"},
	})
	s.shown("history")
	s.apply(store.Tx{Undo: []string{"s"}, Reset: []string{"s"}, Forget: []string{"s"}})
	s.shown("with the others")
}
