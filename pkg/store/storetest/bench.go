package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// Benchmark measures an implementation the way the gateway uses it. open
// returns an empty store; Benchmark closes it.
func Benchmark(b *testing.B, open func(b *testing.B) store.Store) {
	b.Helper()
	for _, c := range []struct {
		name string
		run  func(l bench)
	}{
		{"turn", bench.turns},
		{"turn/parallel", bench.turnsInParallel},
		{"history/10", func(l bench) { l.history(10) }},
		{"history/10000", func(l bench) { l.history(10000) }},
		{"history/10000/undone", func(l bench) { l.recalled(store.Tx{Undo: slices.Repeat([]string{"s"}, 4000)}) }},
		{"history/10000/summed", func(l bench) { l.recalled(store.Tx{Summaries: []store.Summary{{Session: "s", Text: "so far"}}}) }},
		{"waiting/10", func(l bench) { l.waiting(10) }},
		{"waiting/10000", func(l bench) { l.waiting(10000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := open(b)
			b.ReportAllocs()
			c.run(bench{b, s})
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// bench is one benchmark over one store.
type bench struct {
	b *testing.B
	s store.Store
}

// turn is everything the ledger does for one message answered with one tool
// call.
func (l bench) turn(lane bus.Address, session, id string) {
	b, s := l.b, l.s
	ctx := b.Context()
	apply := func(tx store.Tx) store.Result {
		res, err := s.Apply(ctx, tx)
		if err != nil {
			b.Error(err)
		}
		return res
	}
	rows := apply(store.Tx{Admit: []bus.InboundMessage{{
		Address: lane, ID: id, Kind: bus.KindMessage, Text: "hello", Sender: bus.Sender{ID: "7"},
	}}}).Admitted
	if _, err := s.History(ctx, session, 20); err != nil {
		b.Error(err)
	}
	apply(store.Tx{Begin: &store.Turn{ID: id, Address: lane, Session: session, Inbound: seqs(rows)}})
	call := providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{{ID: "c", Name: "list_dir"}}}
	result := providers.Message{Role: providers.RoleTool, ToolCallID: "c", Content: "a.txt"}
	apply(store.Tx{Steps: []store.Step{
		{Turn: id, Round: 1, Kind: store.StepReply, Message: call},
		{Turn: id, Round: 1, Kind: store.StepBegin, CallID: "c", Tool: "list_dir"},
	}})
	s.Post(store.Tx{Steps: []store.Step{{Turn: id, Round: 1, Kind: store.StepEnd, CallID: "c", Tool: "list_dir", Message: result}}})
	answer := providers.Message{Role: providers.RoleAssistant, Content: "hello to you"}
	apply(store.Tx{
		End: []string{id},
		History: []store.Entry{
			{Session: session, Turn: id, Message: providers.Message{Role: providers.RoleUser, Content: "hello"}},
			{Session: session, Turn: id, Message: call},
			{Session: session, Turn: id, Message: result},
			{Session: session, Turn: id, Message: answer},
		},
		Send: []store.Outbound{{Turn: id, Message: bus.OutboundMessage{Address: lane, Key: id, Text: answer.Content}}},
	})
	s.Post(store.Tx{Receipts: []store.Receipt{{Key: id, Result: bus.Receipt{MessageID: "1"}}}})
}

func (l bench) turns() {
	n := 0
	for l.b.Loop() {
		l.turn(chat(n%1000), fmt.Sprint("s", n%1000), fmt.Sprint(n))
		n++
	}
}

func (l bench) turnsInParallel() {
	workers := make(chan int, 1)
	workers <- 0
	l.b.SetParallelism(64)
	l.b.RunParallel(func(pb *testing.PB) {
		who := <-workers
		workers <- who + 1
		for n := 0; pb.Next(); n++ {
			l.turn(chat(who), fmt.Sprint("s", who), fmt.Sprint(who, "-", n))
		}
	})
}

func (l bench) history(size int) {
	b, s := l.b, l.s
	var tx store.Tx
	for i := range size {
		tx.History = append(tx.History, entry("s", fmt.Sprint(i)))
	}
	if _, err := s.Apply(b.Context(), tx); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.History(b.Context(), "s", 10); err != nil {
			b.Fatal(err)
		}
	}
}

// recalled reads a history of which much is out of sight.
func (l bench) recalled(tx store.Tx) {
	b, s := l.b, l.s
	for i := range 10000 {
		tx.History = append(tx.History, said(fmt.Sprint(i/2), "a", fmt.Sprint(i)))
	}
	for _, tx := range []store.Tx{tx, {History: []store.Entry{entry("s", "1"), entry("s", "2"), entry("s", "3"), entry("s", "4")}}} {
		if _, err := s.Apply(b.Context(), tx); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.History(b.Context(), "s", 10); err != nil {
			b.Fatal(err)
		}
	}
}

func (l bench) waiting(size int) {
	b, s := l.b, l.s
	var tx store.Tx
	for i := range size {
		tx.Admit = append(tx.Admit, message(chat(1), fmt.Sprint(i)))
	}
	res, err := s.Apply(b.Context(), tx)
	if err != nil {
		b.Fatal(err)
	}
	middle := res.Admitted[size/2].Seq
	for b.Loop() {
		if _, err := s.Waiting(b.Context(), chat(1), middle, 5); err != nil {
			b.Fatal(err)
		}
	}
}
