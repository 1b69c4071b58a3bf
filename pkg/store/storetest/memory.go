package storetest

import (
	"fmt"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var memoryRules = []rule{
	{"an entry comes back as it went in", historyKeepsAll},
	{"history returns the newest, oldest first", historyNewest},
	{"sessions are apart", historySessions},
	{"reset starts a history anew", historyReset},
	{"reset and new entries in one change", historyResetInOrder},
	{"a fact is replaced and removed", facts},
	{"facts are applied in order", factsInOrder},
	{"slices stay the caller's own", historyAliasing},
}

func historyKeepsAll(s ledger) {
	want := []store.Entry{
		entry("s", "hi"),
		{Session: "s", Time: day, Message: callMessage("c")},
		{Session: "s", Time: day, Message: providers.Message{Role: providers.RoleTool, Content: "x", ToolCallID: "c"}},
		{Session: "s"},
		{Session: "s", Turn: "t", Time: day, Message: providers.Message{Role: providers.RoleUser}},
		{Session: "s", Turn: "t 2", Message: callMessage("d")},
		entry("s", "bye"),
	}
	s.apply(store.Tx{History: want})
	got := s.history("s", 10)
	s.equal("entries", got, want)
	s.equal("zero time", got[3].Time.IsZero(), true)
}

func historyNewest(s ledger) {
	for i := range 12 {
		s.apply(store.Tx{History: []store.Entry{entry("s", fmt.Sprint(2*i)), entry("s", fmt.Sprint(2*i+1))}})
	}
	s.equal("three", texts(s.history("s", 3)), []string{"21", "22", "23"})
	s.equal("more than there are", len(s.history("s", 100)), 24)
	s.equal("limit 0", len(s.history("s", 0)), 0)
	s.equal("limit below 0", len(s.history("s", -1)), 0)
	s.equal("unknown", len(s.history("nobody", 10)), 0)
}

func historySessions(s ledger) {
	s.apply(store.Tx{History: []store.Entry{entry("a", "1"), entry("b", "2"), entry("a", "3"), entry("", "4")}})
	s.equal("a", s.history("a", 10), []store.Entry{entry("a", "1"), entry("a", "3")})
	s.equal("b", s.history("b", 10), []store.Entry{entry("b", "2")})
	s.equal("empty name", s.history("", 10), []store.Entry{entry("", "4")})
}

func historyReset(s ledger) {
	s.apply(store.Tx{History: []store.Entry{entry("a", "1"), entry("b", "2")}})
	s.apply(store.Tx{Reset: []string{"a", "nobody"}})
	s.equal("a", len(s.history("a", 10)), 0)
	s.equal("b", texts(s.history("b", 10)), []string{"2"})
	s.apply(store.Tx{History: []store.Entry{entry("a", "3")}})
	s.equal("a again", texts(s.history("a", 10)), []string{"3"})
	s.apply(store.Tx{Reset: []string{"a"}})
	s.apply(store.Tx{Reset: []string{"a"}})
	s.equal("a a third time", len(s.history("a", 10)), 0)
}

func historyResetInOrder(s ledger) {
	s.apply(store.Tx{History: []store.Entry{entry("a", "/new")}, Reset: []string{"a"}})
	s.equal("a", len(s.history("a", 10)), 0)
}

func facts(s ledger) {
	s.equal("unknown", s.fact("k"), "")
	s.apply(store.Tx{Facts: []store.Fact{{Key: "k", Value: "1"}, {Key: "other", Value: "x"}}})
	s.equal("set", s.fact("k"), "1")
	s.apply(store.Tx{Facts: []store.Fact{{Key: "k", Value: "2"}}})
	s.equal("replaced", s.fact("k"), "2")
	s.apply(store.Tx{Facts: []store.Fact{{Key: "k"}, {Key: "never"}}})
	s.equal("removed", s.fact("k"), "")
	s.equal("the other", s.fact("other"), "x")
}

func factsInOrder(s ledger) {
	s.apply(store.Tx{Facts: []store.Fact{{Key: "k", Value: "1"}, {Key: "k"}, {Key: "k", Value: "3"}}})
	s.equal("fact", s.fact("k"), "3")
}

func historyAliasing(s ledger) {
	given := []store.Entry{entry("s", "1"), entry("s", "2")}
	s.apply(store.Tx{History: given})
	given[0].Message.Content = "changed"
	got := s.history("s", 2)
	got[1].Message.Content = "changed"
	_ = append(got[:1], entry("s", "changed"))
	s.equal("entries", texts(s.history("s", 2)), []string{"1", "2"})
}
