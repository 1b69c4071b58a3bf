package storetest

import (
	"fmt"
	"slices"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var undoRules = []rule{
	{"undo takes the newest turn back", undoTurn},
	{"undo again takes the one before", undoAgain},
	{"undo takes a turn that was written in parts", undoParts},
	{"undo takes no more than stands in a row", undoInterrupted},
	{"without turns undo takes a user's message and what follows", undoWithoutTurns},
	{"undo of nothing changes nothing", undoNothing},
	{"undo comes after the new entries of its change", undoInOrder},
	{"undo does not go behind a reset", undoReset},
	{"undo leaves other sessions alone", undoSessions},
	{"undo of a long turn, and one of many", undoLong},
}

// said is an entry of a turn: the user's if role is "u", otherwise the
// assistant's.
func said(turn, role, text string) store.Entry {
	e := entry("s", text)
	e.Turn = turn
	if role != "u" {
		e.Message.Role = providers.RoleAssistant
	}
	return e
}

// talk writes a turn of a question and an answer for each id.
func (l ledger) talk(turns ...string) {
	l.t.Helper()
	for _, id := range turns {
		l.apply(store.Tx{History: []store.Entry{said(id, "u", id+"?"), said(id, "a", id+"!")}})
	}
}

func (l ledger) undo(sessions ...string) {
	l.t.Helper()
	l.apply(store.Tx{Undo: sessions})
}

// shown fails the test when the session "s" does not show these texts, all of
// them and the newest of them in any number.
func (l ledger) shown(what string, want ...string) {
	l.t.Helper()
	all := l.history("s", len(want)+9)
	l.equal(what, texts(all), want)
	var summary []string
	if len(all) > 0 && all[0].Summary {
		summary, want = want[:1], want[1:]
	}
	for limit := 1; limit < len(want); limit++ {
		newest := slices.Concat(summary, want[len(want)-limit:])
		l.equal(fmt.Sprint(what, ", the newest ", limit), texts(l.history("s", limit)), newest)
	}
}

func undoTurn(s ledger) {
	s.talk("one", "two")
	s.undo("s")
	s.shown("after undo", "one?", "one!")
	s.talk("three")
	s.shown("with a new turn", "one?", "one!", "three?", "three!")
	s.equal("entries", s.history("s", 2), []store.Entry{said("three", "u", "three?"), said("three", "a", "three!")})
	s.undo("s")
	s.shown("after the second undo", "one?", "one!")
}

func undoAgain(s ledger) {
	s.talk("one", "two", "three", "four")
	s.undo("s", "s")
	s.shown("two less", "one?", "one!", "two?", "two!")
	s.undo("s")
	s.shown("three less", "one?", "one!")
	s.talk("two", "five") // an id may come back: it is another turn then
	s.undo("s")
	s.shown("without the fifth", "one?", "one!", "two?", "two!")
	s.undo("s", "s")
	s.shown("none")
}

func undoParts(s ledger) {
	s.talk("one")
	s.apply(store.Tx{History: []store.Entry{said("two", "u", "2?")}})
	s.apply(store.Tx{History: []store.Entry{said("two", "a", "2."), said("two", "u", "2.."), entry("other", "x")}})
	s.Post(store.Tx{History: []store.Entry{said("two", "a", "2!")}})
	s.undo("s")
	s.shown("after undo", "one?", "one!")
	s.apply(store.Tx{History: []store.Entry{
		said("three", "u", "3?"), said("three", "a", "3!"), said("four", "u", "4?"), said("four", "a", "4!"),
	}})
	s.undo("s")
	s.shown("of two in one change", "one?", "one!", "3?", "3!")
}

func undoInterrupted(s ledger) {
	s.apply(store.Tx{History: []store.Entry{said("one", "u", "1?")}})
	s.talk("two")
	s.apply(store.Tx{History: []store.Entry{said("one", "a", "1!")}})
	s.undo("s")
	s.shown("once", "1?", "two?", "two!")
	s.undo("s")
	s.shown("twice", "1?")
}

func undoWithoutTurns(s ledger) {
	s.talk("one")
	s.apply(store.Tx{History: []store.Entry{said("", "a", "welcome")}})
	s.apply(store.Tx{History: []store.Entry{said("", "u", "1?"), said("", "a", "1."), said("", "a", "1!"), said("", "u", "2?")}})
	s.apply(store.Tx{History: []store.Entry{said("", "a", "2!")}})
	s.apply(store.Tx{History: []store.Entry{said("", "u", "3?"), said("", "u", "4?")}})
	s.undo("s")
	s.shown("once", "one?", "one!", "welcome", "1?", "1.", "1!", "2?", "2!", "3?")
	s.undo("s", "s")
	s.shown("three times", "one?", "one!", "welcome", "1?", "1.", "1!")
	s.undo("s")
	s.shown("four times", "one?", "one!", "welcome")
	s.undo("s")
	s.shown("five times", "one?", "one!")
	s.undo("s")
	s.shown("six times")
}

func undoNothing(s ledger) {
	s.undo("s", "")
	s.talk("one")
	s.undo("nobody")
	s.shown("history", "one?", "one!")
	s.undo("s", "s", "s")
	s.shown("history")
	s.talk("two")
	s.shown("history", "two?", "two!")
}

func undoInOrder(s ledger) {
	s.talk("one")
	s.apply(store.Tx{History: []store.Entry{said("two", "u", "2?"), said("two", "a", "2!")}, Undo: []string{"s"}})
	s.shown("history", "one?", "one!")
}

func undoReset(s ledger) {
	s.talk("one", "two")
	s.apply(store.Tx{Reset: []string{"s"}})
	s.undo("s")
	s.shown("none")
	s.talk("three")
	s.undo("s", "s")
	s.shown("none again")
	s.talk("four")
	s.shown("a new one", "four?", "four!")
	s.apply(store.Tx{Undo: []string{"s"}, Reset: []string{"s"}})
	s.shown("both at once")
}

func undoSessions(s ledger) {
	s.talk("one", "two")
	other := said("two", "u", "of another")
	other.Session = "other"
	s.apply(store.Tx{History: []store.Entry{other}})
	s.undo("s")
	s.shown("the one", "one?", "one!")
	s.equal("the other", s.history("other", 9), []store.Entry{other})
	s.undo("other")
	s.equal("the other", len(s.history("other", 9)), 0)
	s.shown("the one", "one?", "one!")
}

func undoLong(s ledger) {
	s.talk("one")
	var long []store.Entry
	for i := range 500 {
		long = append(long, said("long", []string{"u", "a"}[i%2], fmt.Sprint(i)))
	}
	s.apply(store.Tx{History: long})
	s.undo("s")
	s.shown("without the long one", "one?", "one!")

	var many store.Tx
	for i := range 500 {
		many.History = append(many.History, said(fmt.Sprint(i/2), []string{"u", "a"}[i%2], fmt.Sprint(i)))
		many.Undo = append(many.Undo, "s")
	}
	many.Undo = many.Undo[:248]
	s.apply(many)
	s.shown("without most", "one?", "one!", "0", "1", "2", "3")
}

var summaryRules = []rule{
	{"a summary stands for what came before", summaryStands},
	{"a summary does not count against the limit", summaryLimit},
	{"a later summary replaces the earlier one", summaryReplaced},
	{"a summary may keep all, or nothing", summaryKeeps},
	{"a summary without text leaves out without a word", summaryEmpty},
	{"undo does not go behind a summary", summaryUndo},
	{"reset drops a summary", summaryReset},
	{"a summary comes after new entries and undo", summaryInOrder},
	{"a summary is of one session", summarySessions},
}

func (l ledger) sum(text string, keep int) {
	l.t.Helper()
	l.apply(store.Tx{Summaries: []store.Summary{{Session: "s", Text: text, Keep: keep}}})
}

func summaryStands(s ledger) {
	s.talk("one", "two", "three")
	s.sum("so far", 2)
	s.equal("history", s.history("s", 9), []store.Entry{
		{Session: "s", Summary: true, Message: providers.Message{Role: providers.RoleUser, Content: "so far"}},
		said("three", "u", "three?"), said("three", "a", "three!"),
	})
	s.talk("four")
	s.shown("with a new turn", "so far", "three?", "three!", "four?", "four!")
}

func summaryLimit(s ledger) {
	s.talk("one", "two", "three")
	s.sum("so far", 4)
	s.equal("newest", texts(s.history("s", 1)), []string{"so far", "three!"})
	s.equal("all", len(s.history("s", 4)), 5)
	s.equal("limit 0", len(s.history("s", 0)), 0)
	s.equal("limit below 0", len(s.history("s", -1)), 0)
}

func summaryReplaced(s ledger) {
	s.talk("one", "two", "three")
	s.sum("first", 3)
	s.sum("second", 2)
	s.shown("second", "second", "three?", "three!")
	s.sum("third", 9)
	s.shown("what an earlier one hid stays so", "third", "three?", "three!")
	s.talk("four")
	s.sum("fourth", 3)
	s.shown("fourth", "fourth", "three!", "four?", "four!")
}

func summaryKeeps(s ledger) {
	s.sum("of nothing", 3)
	s.shown("of nothing", "of nothing")
	s.talk("one", "two")
	s.sum("all", 9)
	s.shown("all", "all", "one?", "one!", "two?", "two!")
	s.sum("just all", 4)
	s.shown("just all", "just all", "one?", "one!", "two?", "two!")
	s.sum("none", 0)
	s.shown("none", "none")
	s.talk("three")
	s.sum("less than none", -2)
	s.shown("less than none", "less than none")
	s.talk("four")
	s.shown("a new turn", "less than none", "four?", "four!")
}

func summaryEmpty(s ledger) {
	s.sum("", 0)
	s.shown("of nothing")
	s.talk("one", "two")
	s.sum("", 3)
	s.shown("cut", "one!", "two?", "two!")
	s.undo("s", "s", "s")
	s.shown("undone")
	s.talk("three")
	s.sum("text", 1)
	s.sum("", 1)
	s.shown("replaced", "three!")
}

func summaryUndo(s ledger) {
	s.talk("one", "two", "three")
	s.sum("so far", 3) // cuts through the second turn
	s.undo("s")
	s.shown("once", "so far", "two!")
	s.undo("s")
	s.shown("twice", "so far")
	s.undo("s", "s")
	s.shown("more often", "so far")
	s.talk("four")
	s.shown("a new turn", "so far", "four?", "four!")
	s.undo("s")
	s.shown("and back", "so far")
}

func summaryReset(s ledger) {
	s.talk("one", "two")
	s.sum("so far", 2)
	s.apply(store.Tx{Reset: []string{"s"}})
	s.shown("after reset")
	s.talk("three")
	s.shown("a new turn", "three?", "three!")
}

func summaryInOrder(s ledger) {
	s.talk("one", "two")
	s.apply(store.Tx{
		History: []store.Entry{said("three", "u", "three?")}, Undo: []string{"s", "s"},
		Summaries: []store.Summary{{Session: "s", Text: "first", Keep: 2}, {Session: "s", Text: "second", Keep: 1}},
	})
	s.shown("history", "second", "one!")
	s.apply(store.Tx{Summaries: []store.Summary{{Session: "s", Text: "third"}}, Reset: []string{"s"}})
	s.shown("with a reset")
}

func summarySessions(s ledger) {
	s.talk("one", "two")
	s.apply(store.Tx{History: []store.Entry{entry("other", "x"), entry("other", "y")}})
	s.apply(store.Tx{Summaries: []store.Summary{{Session: "other", Text: "so far", Keep: 1}, {Session: "s", Text: "of s", Keep: 1}}})
	s.equal("other", texts(s.history("other", 9)), []string{"so far", "y"})
	s.shown("s", "of s", "two!")
}
