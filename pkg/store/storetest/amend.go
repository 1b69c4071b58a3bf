package storetest

import (
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var amendRules = []rule{
	{"an edit reaches a waiting message", amendWaiting},
	{"an edit reaches a message that a turn has taken", amendTaken},
	{"a deleted message waits no longer", amendDeletes},
	{"a deleted message leaves its turn open", amendDeletesTaken},
	{"a deleted message is still known", amendDeletedKnown},
	{"what is done or unknown is not changed", amendNothing},
	{"the same id on another channel is not reached", amendByChannel},
	{"a message without id is not reached", amendWithoutID},
	{"changes of one message come in order", amendInOrder},
	{"an edit reaches what its own change admits", amendAdmitted},
	{"an edit comes before the rest of its change", amendFirst},
	{"slices stay the caller's own", amendAliasing},
}

func edit(id, text string) store.Amend {
	return store.Amend{Channel: "fake", ID: id, Text: text, Args: "args of " + text}
}

func deletion(id string) store.Amend {
	return store.Amend{Channel: "fake", ID: id, Deleted: true}
}

// edited is row as edit leaves it.
func edited(row store.Inbound, text string) store.Inbound {
	row.Message.Text, row.Message.Args = text, "args of "+text
	return row
}

func amendWaiting(s ledger) {
	s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(2), "c"))
	rows := s.waiting(chat(1), 0, 9)
	want := edited(rows[0], "new")
	s.equal("amended", s.apply(store.Tx{Amend: []store.Amend{edit("a", "new")}}), store.Result{Amended: []store.Inbound{want}})
	s.equal("waiting", s.waiting(chat(1), 0, 9), []store.Inbound{want, rows[1]})
	s.equal("inbound", s.inbound(rows[0].Seq), []store.Inbound{want})
	want = edited(want, "")
	s.equal("to nothing", s.apply(store.Tx{Amend: []store.Amend{edit("a", "")}}).Amended, []store.Inbound{want})
	s.equal("waiting", s.waiting(chat(1), 0, 1), []store.Inbound{want})
	s.equal("elsewhere", s.waiting(chat(2), 0, 9)[0].Message, message(chat(2), "c"))
}

func amendTaken(s ledger) {
	s.admit(message(chat(1), "a"), message(chat(1), "b"))
	rows := s.waiting(chat(1), 0, 9)
	s.apply(store.Tx{Begin: turn("t", chat(1), rows)})
	want := edited(rows[1], "new")
	s.equal("amended", s.apply(store.Tx{Amend: []store.Amend{edit("b", "new")}}).Amended, []store.Inbound{want})
	s.equal("turns", s.openTurns(), []store.Turn{*turn("t", chat(1), rows)})
	s.equal("rows", s.inbound(seqs(rows)...), []store.Inbound{rows[0], want})
	s.equal("waiting", len(s.waiting(chat(1), 0, 9)), 0)
}

func amendDeletes(s ledger) {
	s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(2), "c"))
	rows := s.waiting(chat(1), 0, 9)
	s.equal("amended", s.apply(store.Tx{Amend: []store.Amend{deletion("a")}}).Amended, rows[:1])
	s.equal("waiting", s.waiting(chat(1), 0, 9), rows[1:])
	s.equal("inbound", s.inbound(seqs(rows)...), rows[1:])
	s.apply(store.Tx{Amend: []store.Amend{deletion("b")}})
	s.equal("lanes", s.lanes(), []bus.Address{chat(2)})
}

func amendDeletesTaken(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows), Steps: steps("t")})
	s.apply(store.Tx{Amend: []store.Amend{deletion("a")}})
	want := turn("t", chat(1), rows)
	want.Steps = steps("t")
	s.equal("turns", s.openTurns(), []store.Turn{*want})
	s.equal("rows", ids(s.inbound(seqs(rows)...)), []string{"b"})
	s.equal("lanes", s.lanes(), []bus.Address{chat(1)})
	s.apply(store.Tx{Amend: []store.Amend{deletion("b")}})
	s.equal("turns", s.openTurns(), []store.Turn{*want})
	s.equal("rows", len(s.inbound(seqs(rows)...)), 0)
	s.equal("lanes", len(s.lanes()), 0)
	s.apply(store.Tx{End: []string{"t"}})
	s.equal("turns", len(s.openTurns()), 0)
}

func amendDeletedKnown(s ledger) {
	s.admit(message(chat(1), "a"))
	s.apply(store.Tx{Amend: []store.Amend{deletion("a")}})
	s.equal("again", s.apply(store.Tx{Admit: []bus.InboundMessage{message(chat(1), "a")}}), store.Result{Duplicates: 1})
}

func amendNothing(s ledger) {
	rows := s.admit(message(chat(1), "done"), message(chat(1), "ended"), message(chat(1), "deleted"), message(chat(1), "open"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[1:2])})
	s.apply(store.Tx{Done: seqs(rows[:1]), End: []string{"t"}, Amend: []store.Amend{deletion("deleted")}})
	for _, id := range []string{"done", "ended", "deleted", "never"} {
		res := s.apply(store.Tx{Amend: []store.Amend{edit(id, "new"), deletion(id)}})
		s.equal(id, res, store.Result{})
	}
	s.equal("waiting", ids(s.waiting(chat(1), 0, 9)), []string{"open"})
	for _, r := range s.inbound(seqs(rows)...) { // done rows may be kept
		s.equal("row", r.Message, message(chat(1), r.Message.ID))
	}
}

func amendByChannel(s ledger) {
	other := bus.Address{Channel: "other", ChatID: chat(1).ChatID}
	s.admit(message(chat(1), "a"), message(other, "a"))
	s.equal("amended", len(s.apply(store.Tx{Amend: []store.Amend{edit("a", "new")}}).Amended), 1)
	s.equal("here", s.waiting(chat(1), 0, 9)[0].Message.Text, "new")
	s.equal("there", s.waiting(other, 0, 9)[0].Message, message(other, "a"))
}

func amendWithoutID(s ledger) {
	s.admit(message(chat(1), ""))
	s.equal("result", s.apply(store.Tx{Amend: []store.Amend{edit("", "new"), deletion("")}}), store.Result{})
	s.equal("waiting", s.waiting(chat(1), 0, 9)[0].Message, message(chat(1), ""))
}

func amendInOrder(s ledger) {
	s.admit(message(chat(1), "a"), message(chat(1), "b"))
	rows := s.waiting(chat(1), 0, 9)
	res := s.apply(store.Tx{Amend: []store.Amend{
		edit("a", "1"), edit("b", "2"), edit("a", "3"), deletion("a"), edit("a", "4"), edit("b", "5"),
	}})
	s.equal("amended", res.Amended, []store.Inbound{
		edited(rows[0], "1"), edited(rows[1], "2"), edited(rows[0], "3"), edited(rows[0], "3"), edited(rows[1], "5"),
	})
	s.equal("waiting", s.waiting(chat(1), 0, 9), []store.Inbound{edited(rows[1], "5")})
}

func amendAdmitted(s ledger) {
	res := s.apply(store.Tx{
		Admit: []bus.InboundMessage{message(chat(1), "a"), message(chat(1), "b")},
		Amend: []store.Amend{edit("a", "new"), deletion("b")},
	})
	s.equal("admitted", texted(res.Admitted), []string{"text of a", "text of b"})
	s.equal("amended", texted(res.Amended), []string{"new", "text of b"})
	s.equal("waiting", texted(s.waiting(chat(1), 0, 9)), []string{"new"})
}

func texted(rows []store.Inbound) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.Message.Text
	}
	return list
}

func amendFirst(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"))
	res := s.apply(store.Tx{
		Amend: []store.Amend{edit("a", "1"), edit("b", "2"), edit("c", "3")},
		Begin: turn("t", chat(1), rows[:2]), Done: seqs(rows[2:]),
	})
	s.equal("amended", texted(res.Amended), []string{"1", "2", "3"})
	s.equal("rows", texted(s.inbound(seqs(rows[:2])...)), []string{"1", "2"})
	res = s.apply(store.Tx{Amend: []store.Amend{edit("a", "4"), deletion("b")}, End: []string{"t"}})
	s.equal("amended", texted(res.Amended), []string{"4", "2"})
	s.equal("lanes", len(s.lanes()), 0)
}

func amendAliasing(s ledger) {
	s.admit(message(chat(1), "a"))
	changes := []store.Amend{edit("a", "new")}
	res := s.apply(store.Tx{Amend: changes})
	changes[0].Text, res.Amended[0].Message.Text = "changed", "changed"
	s.equal("waiting", texted(s.waiting(chat(1), 0, 9)), []string{"new"})
}
