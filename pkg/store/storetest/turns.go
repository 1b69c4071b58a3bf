package storetest

import (
	"encoding/json"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var turnRules = []rule{
	{"begin takes its rows out of waiting", beginTakes},
	{"a taken row keeps its lane", takenKeepsLane},
	{"a turn that is open takes more rows", beginAgain},
	{"steps come back in the order written", stepsInOrder},
	{"replies come back with their opaque part", opaqueComesBack},
	{"open turns come in the order they began", openTurnsInOrder},
	{"end finishes the turn and its rows", endTurn},
	{"begin and end in one change leave nothing open", beginAndEnd},
	{"done works on a taken row", doneTaken},
	{"steps of a turn that is not open change nothing", stepsOfNothing},
	{"a mark comes back with its turn", markTurn},
	{"a mark goes with its turn", markEnds},
	{"a mark of a turn that is not open changes nothing", markOfNothing},
	{"end of an unknown turn changes nothing", endOfNothing},
	{"slices stay the caller's own", turnAliasing},
}

func turn(id string, of bus.Address, rows []store.Inbound) *store.Turn {
	return &store.Turn{ID: id, Address: of, Session: of.String(), Inbound: seqs(rows), Started: day}
}

func steps(id string) []store.Step {
	return []store.Step{
		{
			Turn: id, Round: 1, Kind: store.StepReply, Finish: "tool_calls", Message: callMessage("c1"),
			Time: day, Took: time.Second, Usage: providers.Usage{PromptTokens: 7, CompletionTokens: 2, TotalTokens: 9}, Request: "1 2 a b c d",
		},
		{Turn: id, Round: 1, Kind: store.StepBegin, CallID: "c1", Tool: "list_dir"},
		{Turn: id, Round: 1, Kind: store.StepEnd, CallID: "c1", Tool: "list_dir", Message: providers.Message{
			Role: providers.RoleTool, Content: "a.txt", ToolCallID: "c1",
		}, Time: day.Add(time.Second), Took: time.Millisecond},
		{Turn: id, Round: 2, Kind: store.StepReply, Finish: "stop", Message: providers.Message{Role: providers.RoleAssistant, Content: "done"}},
	}
}

func beginTakes(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"))
	s.apply(store.Tx{Begin: turn("t", chat(1), []store.Inbound{rows[0], rows[2]})})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"b"})
	s.equal("open", s.openTurns(), []store.Turn{*turn("t", chat(1), []store.Inbound{rows[0], rows[2]})})
	s.equal("rows", ids(s.inbound(s.openTurns()[0].Inbound...)), []string{"a", "c"})
}

func takenKeepsLane(s ledger) {
	rows := s.admit(message(chat(1), "a"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows)})
	s.equal("waiting", len(s.waiting(chat(1), 0, 10)), 0)
	s.equal("lanes", s.lanes(), []bus.Address{chat(1)})
}

func beginAgain(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"), message(chat(1), "c"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1]), Steps: steps("t")[:1]})
	s.apply(store.Tx{Begin: &store.Turn{ID: "t", Address: chat(2), Inbound: seqs(rows[1:2])}})
	want := turn("t", chat(1), rows[:2])
	want.Steps = steps("t")[:1]
	s.equal("open", s.openTurns(), []store.Turn{*want})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"c"})
	s.apply(store.Tx{End: []string{"t"}, Done: seqs(rows[2:])})
	s.equal("lanes", len(s.lanes()), 0)
}

func stepsInOrder(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(2), "b"))
	one, two := steps("one"), steps("two")
	s.apply(store.Tx{Begin: turn("one", chat(1), rows[:1]), Steps: one[:1]})
	s.apply(store.Tx{Begin: turn("two", chat(2), rows[1:])})
	s.apply(store.Tx{Steps: []store.Step{one[1], two[0], two[1]}})
	s.Post(store.Tx{Steps: one[2:3]})
	s.apply(store.Tx{Steps: append(two[2:], one[3])})
	open := s.openTurns()
	s.equal("steps of one", open[0].Steps, one)
	s.equal("steps of two", open[1].Steps, two)
}

// opaqueComesBack: byte for byte, since a provider may have signed it.
func opaqueComesBack(s ledger) {
	reply := providers.Message{
		Role: providers.RoleAssistant, Content: "let me see",
		Opaque: json.RawMessage(`{"p": [{"type":"thinking","thinking":"<hm> & \u00e9","signature":"s=="}], "n": 12345678901234567890}`),
	}
	rejected := callMessage("c1")
	rejected.ToolCalls[0].Invalid, rejected.Opaque = "It could not be read.", json.RawMessage(`{"p":[]}`)
	list := []store.Step{
		{Turn: "t", Round: 1, Kind: store.StepReply, Message: reply, Usage: providers.Usage{
			PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120, CacheReadTokens: 60, CacheWriteTokens: 30, ReasoningTokens: 15, Estimated: true,
		}},
		{Turn: "t", Round: 2, Kind: store.StepReply, Message: rejected},
	}
	s.apply(store.Tx{Begin: turn("t", chat(1), s.admit(message(chat(1), "a"))), Steps: list})
	s.equal("steps", s.openTurns()[0].Steps, list)
	past := []store.Entry{entry("s", "?"), {Session: "s", Turn: "t", Time: day, Message: reply}, {Session: "s", Turn: "t", Time: day, Message: rejected}}
	s.apply(store.Tx{History: past, End: []string{"t"}})
	s.equal("history", s.history("s", 10), past)
}

func openTurnsInOrder(s ledger) {
	for i, id := range []string{"z", "a", "m", "b"} {
		tr := turn(id, chat(i), s.admit(message(chat(i), id)))
		tr.Started = day.Add(-time.Duration(i) * time.Hour) // the clock is no order
		s.apply(store.Tx{Begin: tr})
	}
	s.apply(store.Tx{End: []string{"a"}})
	var got []string
	for _, o := range s.openTurns() {
		got = append(got, o.ID)
	}
	s.equal("order", got, []string{"z", "m", "b"})
}

func endTurn(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows[:1]), Steps: steps("t")})
	s.apply(store.Tx{
		End:     []string{"t"},
		History: []store.Entry{entry("s", "answer")},
		Send:    []store.Outbound{outbound(chat(1), "k")},
	})
	s.equal("open", len(s.openTurns()), 0)
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"b"})
	s.equal("history", texts(s.history("s", 10)), []string{"answer"})
	s.equal("unsent", keys(s.unsent()), []string{"k"})
	s.apply(store.Tx{Done: seqs(rows[1:])})
	s.equal("lanes", len(s.lanes()), 0)
	for _, r := range s.inbound(seqs(rows)...) { // done rows may be kept
		s.equal("kept row", r.Message, message(chat(1), r.Message.ID))
	}
}

func beginAndEnd(s ledger) {
	rows := s.admit(message(chat(1), "a"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows), Steps: steps("t"), End: []string{"t"}})
	s.equal("open", len(s.openTurns()), 0)
	s.equal("lanes", len(s.lanes()), 0)
}

func doneTaken(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows)})
	s.apply(store.Tx{Done: seqs(rows[:1])})
	s.equal("lanes", s.lanes(), []bus.Address{chat(1)})
	s.equal("open", len(s.openTurns()), 1)
	s.apply(store.Tx{End: []string{"t"}})
	s.equal("lanes", len(s.lanes()), 0)
}

func stepsOfNothing(s ledger) {
	s.apply(store.Tx{Steps: steps("t")})
	rows := s.admit(message(chat(1), "a"))
	s.apply(store.Tx{Begin: turn("t", chat(1), rows), End: []string{"t"}})
	s.apply(store.Tx{Steps: steps("t")})
	s.equal("open", len(s.openTurns()), 0)
}

func markTurn(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(2), "b"))
	one, two := turn("one", chat(1), rows[:1]), turn("two", chat(2), rows[1:])
	given := *one
	given.Mark, given.Steps = store.Mark{Turn: "one", Strikes: 9}, steps("one") // not what they are for
	s.apply(store.Tx{Begin: &given})
	s.apply(store.Tx{Begin: two})
	s.equal("before", s.openTurns(), []store.Turn{*one, *two})
	one.Mark = store.Mark{Turn: "one", Strikes: 1, Steps: 3, Alone: true}
	s.apply(store.Tx{Marks: []store.Mark{one.Mark}})
	s.equal("one", s.openTurns(), []store.Turn{*one, *two})
	one.Mark, two.Mark = store.Mark{Turn: "one", Steps: 4}, store.Mark{Turn: "two", Strikes: 2}
	s.Post(store.Tx{Marks: []store.Mark{two.Mark, {Turn: "one", Strikes: 7}, one.Mark}})
	s.apply(store.Tx{Begin: &store.Turn{ID: "one"}})
	s.equal("both", s.openTurns(), []store.Turn{*one, *two})
}

func markEnds(s ledger) {
	mark := store.Mark{Turn: "t", Strikes: 1}
	s.apply(store.Tx{Begin: turn("t", chat(1), nil)})
	s.apply(store.Tx{Marks: []store.Mark{mark}, End: []string{"t"}})
	s.apply(store.Tx{Marks: []store.Mark{mark}})
	s.equal("ended", len(s.openTurns()), 0)
	s.apply(store.Tx{Begin: turn("t", chat(1), nil)})
	s.equal("begun anew", s.openTurns(), []store.Turn{*turn("t", chat(1), nil)})
}

func markOfNothing(s ledger) {
	s.apply(store.Tx{Marks: []store.Mark{{Turn: "never", Strikes: 1}, {Strikes: 1}}})
	s.apply(store.Tx{Marks: []store.Mark{{Turn: "t", Strikes: 1}}, Begin: turn("t", chat(1), nil)}) // in this order
	s.equal("open", s.openTurns(), []store.Turn{*turn("t", chat(1), nil)})
}

func endOfNothing(s ledger) {
	s.admit(message(chat(1), "a"))
	s.apply(store.Tx{End: []string{"never", ""}})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 10)), []string{"a"})
}

func turnAliasing(s ledger) {
	rows := s.admit(message(chat(1), "a"), message(chat(1), "b"))
	begin, written := turn("t", chat(1), rows), steps("t")
	s.apply(store.Tx{Begin: begin, Steps: written[:2]})
	begin.Inbound[0], written[0].Tool = 99, "changed"
	open := s.openTurns()
	open[0].Inbound[1], open[0].Steps[1].Tool = 99, "changed"
	_ = append(open[0].Steps, written[3])
	s.apply(store.Tx{Steps: written[2:3]})
	want := turn("t", chat(1), rows)
	want.Steps = steps("t")[:3]
	s.equal("open", s.openTurns(), []store.Turn{*want})
}
