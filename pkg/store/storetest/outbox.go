package storetest

import (
	"fmt"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var outboxRules = []rule{
	{"a row comes back as it went in", sendKeepsAll},
	{"a known key is sent once", sendOnce},
	{"a key is known after its receipt", sendAfterReceipt},
	{"unsent keeps the order of sending", unsentOrder},
	{"a receipt ends its row", receiptEnds},
	{"a row that was given up has its reason", receiptFailed},
	{"the first receipt counts", receiptFirst},
	{"a receipt without a row says nothing", receiptOfNothing},
	{"a row and its receipt in one change", sendAndReceipt},
	{"slices stay the caller's own", outboxAliasing},
}

func sendKeepsAll(s ledger) {
	row := outbound(chat(1), "k")
	queued := s.apply(store.Tx{Send: []store.Outbound{row}}).Queued
	row.Seq = queued[0].Seq
	s.equal("queued", queued, []store.Outbound{row})
	s.equal("unsent", s.unsent(), []store.Outbound{row})
	if row.Seq <= 0 {
		s.t.Fatalf("seq %d", row.Seq)
	}
	_, ok := s.receipt("k")
	s.equal("receipt", ok, false)
}

func sendOnce(s ledger) {
	s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}})
	other := outbound(chat(2), "a")
	other.Message.Text = "not this one"
	queued := s.apply(store.Tx{Send: []store.Outbound{other, outbound(chat(1), "b"), outbound(chat(1), "b")}}).Queued
	s.equal("queued", keys(queued), []string{"b"})
	s.equal("unsent", keys(s.unsent()), []string{"a", "b"})
	s.equal("text", s.unsent()[0].Message.Text, "text of a")
}

func sendAfterReceipt(s ledger) {
	s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}})
	s.apply(store.Tx{Receipts: []store.Receipt{{Key: "a", Result: bus.Receipt{MessageID: "1", Time: day}}}})
	s.equal("queued", len(s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}}).Queued), 0)
	s.equal("unsent", len(s.unsent()), 0)
}

func unsentOrder(s ledger) {
	var want []string
	var last int64
	for i := range 30 {
		a, b := fmt.Sprint("z", 30-i), fmt.Sprint("a", i)
		for _, q := range s.apply(store.Tx{Send: []store.Outbound{outbound(chat(i%3), a), outbound(chat(1), b)}}).Queued {
			if q.Seq <= last {
				s.t.Fatalf("seq %d after %d", q.Seq, last)
			}
			last = q.Seq
		}
		if i%4 == 0 {
			s.apply(store.Tx{Receipts: []store.Receipt{{Key: a}}})
		} else {
			want = append(want, a)
		}
		want = append(want, b)
	}
	s.equal("unsent", keys(s.unsent()), want)
}

func receiptEnds(s ledger) {
	s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a"), outbound(chat(1), "b")}})
	want := store.Receipt{Key: "a", Result: bus.Receipt{MessageID: "77", Time: day}}
	s.Post(store.Tx{Receipts: []store.Receipt{want}})
	s.apply(store.Tx{})
	s.equal("unsent", keys(s.unsent()), []string{"b"})
	got, ok := s.receipt("a")
	s.equal("ok", ok, true)
	s.equal("receipt", got, want)
	_, ok = s.receipt("b")
	s.equal("of the other", ok, false)
}

func receiptFailed(s ledger) {
	s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}})
	s.apply(store.Tx{Receipts: []store.Receipt{{Key: "a", Failed: "blocked by the user"}}})
	got, ok := s.receipt("a")
	s.equal("ok", ok, true)
	s.equal("receipt", got, store.Receipt{Key: "a", Failed: "blocked by the user"})
	s.equal("zero time", got.Result.Time.IsZero(), true)
	s.equal("unsent", len(s.unsent()), 0)
}

func receiptFirst(s ledger) {
	s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}})
	first := store.Receipt{Key: "a", Result: bus.Receipt{MessageID: "1", Time: day}}
	s.apply(store.Tx{Receipts: []store.Receipt{first, {Key: "a", Failed: "no"}}})
	s.apply(store.Tx{Receipts: []store.Receipt{{Key: "a", Failed: "no"}}})
	got, _ := s.receipt("a")
	s.equal("receipt", got, first)
}

func receiptOfNothing(s ledger) {
	s.apply(store.Tx{Receipts: []store.Receipt{{Key: "a", Failed: "no"}, {}}})
	_, ok := s.receipt("a")
	s.equal("known", ok, false)
	s.equal("queued", len(s.apply(store.Tx{Send: []store.Outbound{outbound(chat(1), "a")}}).Queued), 1)
}

func sendAndReceipt(s ledger) {
	s.apply(store.Tx{
		Send:     []store.Outbound{outbound(chat(1), "a")},
		Receipts: []store.Receipt{{Key: "a", Result: bus.Receipt{MessageID: "1"}}},
	})
	s.equal("unsent", len(s.unsent()), 0)
	_, ok := s.receipt("a")
	s.equal("known", ok, true)
}

func outboxAliasing(s ledger) {
	rows := []store.Outbound{outbound(chat(1), "a"), outbound(chat(1), "b")}
	queued := s.apply(store.Tx{Send: rows}).Queued
	rows[0].Message.Text, queued[1].Message.Text = "changed", "changed"
	s.unsent()[0].Message.Text = "changed"
	for _, r := range s.unsent() {
		s.equal("text", r.Message.Text, "text of "+r.Message.Key)
	}
	s.equal("given rows have no seq", rows[1].Seq, int64(0))
}
