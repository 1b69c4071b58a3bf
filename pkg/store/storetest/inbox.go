package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var inboxRules = []rule{
	{"a message comes back as it went in", admitKeepsAll},
	{"messages and cursor are one change", admitWithCursor},
	{"nothing of a refused change is there", refusedChangesNothing},
	{"a known id is a duplicate", duplicates},
	{"the same id on another channel is not", duplicatesByChannel},
	{"a message without id is never a duplicate", messageWithoutID},
	{"a done message is still known", duplicateAfterDone},
	{"seq ascends over all conversations", seqOverAll},
	{"waiting pages by after and limit", waitingPages},
	{"waiting shows one conversation", waitingOneLane},
	{"done takes a row out of waiting and its lane out of lanes", doneRows},
	{"done in the middle keeps the order of the rest", doneInTheMiddle},
	{"inbound answers in the order asked for", inboundOrder},
	{"a batch of thousands is one change", bigBatch},
	{"empty and odd texts survive", oddTexts},
	{"an empty change changes nothing", emptyChange},
	{"slices stay the caller's own", inboxAliasing},
}

func admitKeepsAll(s ledger) {
	m := message(chat(1), "a")
	before := time.Now().Add(-time.Second)
	rows := s.admit(m)
	s.equal("result", rows[0].Message, m)
	if at := rows[0].Admitted; at.Before(before) || at.After(time.Now().Add(time.Second)) {
		s.t.Fatalf("admitted at %v", at)
	}
	got := s.waiting(chat(1), 0, 10)
	s.equal("waiting message", got[0].Message, m)
	if d := got[0].Admitted.Sub(rows[0].Admitted).Abs(); d > time.Millisecond {
		s.t.Fatalf("admission time is off by %v", d)
	}
	s.equal("inbound message", s.inbound(rows[0].Seq)[0].Message, m)
}

func admitWithCursor(s ledger) {
	s.apply(store.Tx{
		Admit: []bus.InboundMessage{message(chat(1), "a")},
		Facts: []store.Fact{{Key: "channel/fake/offset", Value: "17"}},
	})
	s.equal("fact", s.fact("channel/fake/offset"), "17")
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"a"})
}

func refusedChangesNothing(s ledger) {
	rows := s.admit(message(chat(1), "a"))
	bad := []store.Tx{
		{Send: []store.Outbound{outbound(chat(1), "ok"), outbound(chat(1), "")}},
		{Begin: &store.Turn{Address: chat(1), Inbound: seqs(rows)}},
		{Schedules: []store.Schedule{schedule("ok", chat(1), day), schedule("", chat(1), day)}},
		{Tasks: []store.Task{task("ok", chat(1), store.TaskPending), task("", chat(1), store.TaskPending)}},
	}
	for _, tx := range bad {
		tx.Admit = []bus.InboundMessage{message(chat(1), "b")}
		tx.Facts = []store.Fact{{Key: "k", Value: "v"}}
		tx.History = []store.Entry{entry("s", "x")}
		tx.Done = seqs(rows)
		s.refuse(tx)
	}
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"a"})
	s.equal("fact", s.fact("k"), "")
	s.equal("history", s.history("s", 10), []store.Entry{})
	s.equal("unsent", s.unsent(), []store.Outbound{})
	s.equal("turns", s.openTurns(), []store.Turn{})
	s.equal("schedules", s.schedules(bus.Address{}), []store.Schedule{})
	s.equal("tasks", s.openTasks(), []store.Task{})
	s.admit(message(chat(1), "b")) // and its id is not known
}

func duplicates(s ledger) {
	s.admit(message(chat(1), "a"))
	res := s.apply(store.Tx{Admit: []bus.InboundMessage{
		message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "b"), message(chat(2), "a"),
	}})
	s.equal("admitted", ids(res.Admitted), []string{"b"})
	s.equal("duplicates", res.Duplicates, 3)
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"a", "b"})
	s.equal("elsewhere", ids(s.waiting(chat(2), 0, 10)), []string{})
}

func duplicatesByChannel(s ledger) {
	other := bus.Address{Channel: "other", ChatID: chat(1).ChatID}
	rows := s.admit(message(chat(1), "a"), message(other, "a"))
	s.equal("admitted", len(rows), 2)
}

func messageWithoutID(s ledger) {
	rows := s.admit(message(chat(1), ""), message(chat(1), ""))
	s.equal("waiting", seqs(s.waiting(chat(1), 0, 10)), seqs(rows))
}

func duplicateAfterDone(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	s.apply(store.Tx{Done: seqs(rows[:1])})
	s.apply(store.Tx{Begin: &store.Turn{ID: "t", Address: chat(1), Inbound: seqs(rows[1:])}})
	s.apply(store.Tx{End: []string{"t"}})
	res := s.apply(store.Tx{Admit: []bus.InboundMessage{message(chat(1), "a"), message(chat(1), "b")}})
	s.equal("admitted", len(res.Admitted), 0)
	s.equal("duplicates", res.Duplicates, 2)
}

func seqOverAll(s ledger) {
	var last int64
	for i := range 20 {
		for _, r := range s.admit(message(chat(i%3), fmt.Sprint("a", i)), message(chat(i%5), fmt.Sprint("b", i))) {
			if r.Seq <= last {
				s.t.Fatalf("seq %d after %d", r.Seq, last)
			}
			last = r.Seq
		}
	}
}

func waitingPages(s ledger) {
	var all []store.Inbound
	for i := range 25 {
		all = append(all, s.admit(message(chat(1), fmt.Sprint(i)))...)
		s.admit(message(chat(2), fmt.Sprint("other ", i)))
	}
	var got []int64
	for after := int64(0); ; {
		page := s.waiting(chat(1), after, 10)
		if len(page) == 0 {
			break
		}
		got = append(got, seqs(page)...)
		after = page[len(page)-1].Seq
	}
	s.equal("pages", got, seqs(all))
	s.equal("last", seqs(s.waiting(chat(1), all[23].Seq, 10)), seqs(all[24:]))
	s.equal("past the end", len(s.waiting(chat(1), all[24].Seq, 10)), 0)
	s.equal("limit 0", len(s.waiting(chat(1), 0, 0)), 0)
	s.equal("limit below 0", len(s.waiting(chat(1), 0, -1)), 0)
}

func waitingOneLane(s ledger) {
	topic := bus.Address{Channel: "fake", ChatID: chat(1).ChatID + "/42"}
	other := bus.Address{Channel: "other", ChatID: chat(1).ChatID}
	s.admit(message(chat(1), "a"), message(topic, "b"), message(other, "c"))
	s.equal("chat", ids(s.waiting(chat(1), 0, 10)), []string{"a"})
	s.equal("topic", ids(s.waiting(topic, 0, 10)), []string{"b"})
	s.equal("other channel", ids(s.waiting(other, 0, 10)), []string{"c"})
	s.equal("unknown", len(s.waiting(chat(9), 0, 10)), 0)
	s.equal("lanes", sorted(s.lanes()), sorted([]bus.Address{chat(1), topic, other}))
}

func doneRows(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(2), "c"))
	s.apply(store.Tx{Done: []int64{rows[0].Seq}})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"b"})
	s.apply(store.Tx{Done: []int64{rows[1].Seq, rows[1].Seq, rows[0].Seq, 1 << 40}})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{})
	s.equal("lanes", s.lanes(), []bus.Address{chat(2)})
}

func doneInTheMiddle(s ledger) {
	var rows []store.Inbound
	for i := range 10 {
		rows = append(rows, s.admit(message(chat(1), fmt.Sprint(i)))...)
	}
	s.apply(store.Tx{Done: []int64{rows[4].Seq, rows[9].Seq, rows[0].Seq}})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 99)), []string{"1", "2", "3", "5", "6", "7", "8"})
	s.equal("after a done row", ids(s.waiting(chat(1), rows[4].Seq, 2)), []string{"5", "6"})
}

func inboundOrder(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(2), "b"), message(chat(1), "c"))
	got := s.inbound(rows[2].Seq, 1<<40, rows[0].Seq, rows[1].Seq)
	s.equal("order", ids(got), []string{"c", "a", "b"})
	s.equal("none", len(s.inbound()), 0)
}

func bigBatch(s ledger) {
	const n = 5000
	var tx store.Tx
	for i := range n {
		tx.Admit = append(tx.Admit, message(chat(i%7), fmt.Sprint(i)))
		tx.Send = append(tx.Send, outbound(chat(i%7), fmt.Sprint("k", i)))
		tx.History = append(tx.History, entry("s", fmt.Sprint(i)))
	}
	res := s.apply(tx)
	s.equal("admitted", len(res.Admitted), n)
	s.equal("queued", len(res.Queued), n)
	s.equal("lanes", len(s.lanes()), 7)
	s.equal("waiting", len(s.waiting(chat(0), 0, n)), n/7+1)
	s.equal("unsent", len(s.unsent()), n)
	s.equal("history", texts(s.history("s", 2)), []string{"4998", "4999"})
	s.equal("again", s.apply(store.Tx{Admit: tx.Admit}).Duplicates, n)
}

// odd are texts a store or a wire format may stumble over.
var odd = []string{
	"", " ", "\x00", "a\x00b", "naïve", "日本語", "👩‍👩‍👧‍👦", "مرحبا", "'; DROP TABLE inbox; --",
	`"quoted" \ back`, "a\r\nb\tc", "%s %d {{.}}", "\u2028\u2029\ufeff", "🏳️‍🌈/42:7",
}

func oddTexts(s ledger) {
	for i, text := range odd {
		lane := bus.Address{Channel: "fake" + text, ChatID: "x" + text}
		m := message(lane, fmt.Sprint(i, text))
		m.Text, m.Sender.Name, m.Metadata = text, text, map[string]string{"k" + text: text}
		e := entry("session"+text, text)
		row := outbound(lane, fmt.Sprint("key", i))
		row.Message.Text = text
		s.apply(store.Tx{
			Admit: []bus.InboundMessage{m}, History: []store.Entry{e}, Send: []store.Outbound{row},
			Facts: []store.Fact{{Key: "fact" + text, Value: "v" + text}},
		})
		s.equal("message", s.waiting(lane, 0, 9)[0].Message, m)
		s.equal("entry", s.history("session"+text, 9), []store.Entry{e})
		s.equal("fact", s.fact("fact"+text), "v"+text)
		s.equal("row", s.unsent()[i].Message, row.Message)
	}
	var zero bus.InboundMessage
	zero.ID = "zero"
	s.admit(zero)
	s.equal("zero message", s.waiting(bus.Address{}, 0, 9)[0].Message, zero)
}

func emptyChange(s ledger) {
	s.equal("result", s.apply(store.Tx{}), store.Result{})
	s.equal("lanes", len(s.lanes()), 0)
}

func inboxAliasing(s ledger) {
	batch := []bus.InboundMessage{message(chat(1), "a"), message(chat(1), "b")}
	res := s.admit(batch...)
	batch[0].Text, res[1].Message.Text = "changed", "changed"
	rows := s.waiting(chat(1), 0, 10)
	rows[0].Message.Text, rows[1].Seq = "changed", 99
	for _, r := range s.waiting(chat(1), 0, 10) {
		s.equal("text", r.Message.Text, "text of "+r.Message.ID)
	}
	s.equal("seqs", seqs(s.inbound(seqs(res)...)), seqs(res))
}

func sorted(lanes []bus.Address) []bus.Address {
	slices.SortFunc(lanes, func(a, b bus.Address) int {
		return slices.Compare([]string{a.Channel, a.ChatID}, []string{b.Channel, b.ChatID})
	})
	return lanes
}
