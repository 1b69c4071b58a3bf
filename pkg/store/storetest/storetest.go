// Package storetest is the kit every implementation of store.Store passes: one
// subtest for each rule of package store, random transactions against a naive
// model, and concurrent use for the race detector.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// Option adds to what Run checks.
type Option func(*kit)

// WithReopen lets Run check that a ledger survives. reopen closes s the way a
// restart would and opens what it stored again. A store that keeps nothing has
// no such thing; the subtests that need it are then skipped by name.
func WithReopen(reopen func(t *testing.T, s store.Store) store.Store) Option {
	return func(k *kit) { k.reopen = reopen }
}

// kit is one run of the kit over one implementation.
type kit struct {
	open   func(t *testing.T) store.Store
	reopen func(t *testing.T, s store.Store) store.Store
}

// Run checks an implementation. open returns an empty store of its own for each
// subtest; Run closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store, options ...Option) {
	t.Helper()
	k := &kit{open: open}
	for _, o := range options {
		o(k)
	}
	for _, group := range []struct {
		name  string
		rules []rule
	}{
		{"inbox", inboxRules},
		{"amend", amendRules},
		{"turns", turnRules},
		{"outbox", outboxRules},
		{"memory", memoryRules},
		{"undo", undoRules},
		{"summary", summaryRules},
		{"forget", forgetRules},
		{"calendar", calendarRules},
		{"life", lifeRules},
		{"concurrent", concurrentRules},
		{"model", modelRules},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, r := range group.rules {
				t.Run(r.name, func(t *testing.T) { r.check(k.fresh(t)) })
			}
		})
	}
	t.Run("durable", func(t *testing.T) {
		for _, r := range durableRules {
			t.Run(r.name, func(t *testing.T) {
				if k.reopen == nil {
					t.Skip("the store keeps nothing over a restart")
				}
				latest := k.fresh(t)
				r.check(latest, func() ledger {
					latest = ledger{Store: k.reopen(t, latest.Store), t: t}
					t.Cleanup(latest.shut)
					return latest
				})
			})
		}
	})
}

// rule is one promise of package store.
type rule struct {
	name  string
	check func(s ledger)
}

// ledger is a store whose errors end the test.
type ledger struct {
	store.Store
	t *testing.T
}

func (k *kit) fresh(t *testing.T) ledger {
	t.Helper()
	s := ledger{Store: k.open(t), t: t}
	t.Cleanup(s.shut)
	return s
}

func (l ledger) shut() {
	if err := l.Close(); err != nil {
		l.t.Errorf("close: %v", err)
	}
}

func (l ledger) apply(tx store.Tx) store.Result {
	l.t.Helper()
	res, err := l.Apply(l.t.Context(), tx)
	if err != nil {
		l.t.Fatalf("apply: %v", err)
	}
	return res
}

// refuse applies what has to fail.
func (l ledger) refuse(tx store.Tx) {
	l.t.Helper()
	if _, err := l.Apply(l.t.Context(), tx); err == nil {
		l.t.Fatal("apply took what it has to refuse")
	}
}

func (l ledger) admit(messages ...bus.InboundMessage) []store.Inbound {
	l.t.Helper()
	res := l.apply(store.Tx{Admit: messages})
	if len(res.Admitted) != len(messages) {
		l.t.Fatalf("admitted %d of %d messages", len(res.Admitted), len(messages))
	}
	return res.Admitted
}

func (l ledger) lanes() []bus.Address     { return read(l, "lanes", l.Lanes) }
func (l ledger) openTurns() []store.Turn  { return read(l, "open turns", l.OpenTurns) }
func (l ledger) unsent() []store.Outbound { return read(l, "unsent", l.Unsent) }
func (l ledger) openTasks() []store.Task  { return read(l, "open tasks", l.OpenTasks) }

func read[T any](l ledger, what string, f func(context.Context) ([]T, error)) []T {
	l.t.Helper()
	list, err := f(l.t.Context())
	if err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	return list
}

func (l ledger) waiting(lane bus.Address, after int64, limit int) []store.Inbound {
	l.t.Helper()
	rows, err := l.Waiting(l.t.Context(), lane, after, limit)
	if err != nil {
		l.t.Fatalf("waiting: %v", err)
	}
	return rows
}

func (l ledger) inbound(seqs ...int64) []store.Inbound {
	l.t.Helper()
	rows, err := l.Inbound(l.t.Context(), seqs)
	if err != nil {
		l.t.Fatalf("inbound: %v", err)
	}
	return rows
}

func (l ledger) history(session string, limit int) []store.Entry {
	l.t.Helper()
	entries, err := l.History(l.t.Context(), session, limit)
	if err != nil {
		l.t.Fatalf("history: %v", err)
	}
	return entries
}

func (l ledger) fact(key string) string {
	l.t.Helper()
	v, err := l.Fact(l.t.Context(), key)
	if err != nil {
		l.t.Fatalf("fact: %v", err)
	}
	return v
}

func (l ledger) receipt(key string) (store.Receipt, bool) {
	l.t.Helper()
	r, ok, err := l.ReceiptFor(l.t.Context(), key)
	if err != nil {
		l.t.Fatalf("receipt: %v", err)
	}
	return r, ok
}

func (l ledger) schedules(of bus.Address) []store.Schedule {
	l.t.Helper()
	list, err := l.Schedules(l.t.Context(), of)
	if err != nil {
		l.t.Fatalf("schedules: %v", err)
	}
	return list
}

func (l ledger) due(at time.Time, limit int) ([]store.Schedule, time.Time) {
	l.t.Helper()
	list, next, err := l.Due(l.t.Context(), at, limit)
	if err != nil {
		l.t.Fatalf("due: %v", err)
	}
	return list, next
}

// equal fails the test when got is not what was stored. A missing list and an
// empty one are the same, and so are two times of one instant.
func (l ledger) equal(what string, got, want any) {
	l.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		l.t.Fatalf("%s: -want +got\n%s", what, diff)
	}
}

// day is a moment every test agrees on.
var day = time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)

func chat(n int) bus.Address {
	return bus.Address{Channel: "fake", ChatID: fmt.Sprintf("chat-%d", n)}
}

// message returns a message with every field set that survives a store.
func message(lane bus.Address, id string) bus.InboundMessage {
	return bus.InboundMessage{
		Address: lane, Parent: bus.Address{Channel: lane.Channel, ChatID: "parent"},
		ID: id, MessageID: "platform " + id, Kind: bus.KindMessage, Time: day,
		Sender: bus.Sender{ID: "7", Username: "ada", Name: "Ada L.", Bot: true},
		Text:   "text of " + id, Command: "stop", Args: "now",
		Quoted: &bus.Quoted{Author: "Bob", Text: "quoted", Forwarded: true},
		Media:  []bus.Media{{Kind: "photo", ID: "f1", Name: "a.jpg", MIME: "image/jpeg", Size: 12}},
		Group:  true, Mentioned: true, ReplyToBot: true, ForOther: true,
		Metadata:  map[string]string{"user_id": "7", "is_group": "true"},
		Principal: "fake:7", SessionKey: lane.String(), Hops: 2,
		FollowUp: &bus.FollowUp{Task: "t", Label: "l", ForLLM: "m", ForUser: "u", IsError: true},
	}
}

func outbound(to bus.Address, key string) store.Outbound {
	return store.Outbound{
		Turn: "turn of " + key, Session: to.String(), Created: day,
		Message: bus.OutboundMessage{Address: to, Key: key, ReplyTo: "9", Text: "text of " + key},
	}
}

func entry(session, text string) store.Entry {
	return store.Entry{Session: session, Time: day, Message: providers.Message{Role: providers.RoleUser, Content: text}}
}

func callMessage(callID string) providers.Message {
	return providers.Message{
		Role: providers.RoleAssistant, Content: "let me look",
		ToolCalls: []providers.ToolCall{{
			ID: callID, Type: "function", Name: "list_dir",
			Function:  &providers.FunctionCall{Name: "list_dir", Arguments: `{"path":"."}`},
			Arguments: map[string]any{"path": ".", "deep": true, "depth": 2.5, "names": []any{"a", nil}},
		}},
	}
}

func schedule(id string, of bus.Address, due time.Time) store.Schedule {
	return store.Schedule{
		ID: id, Address: of, Parent: bus.Address{Channel: of.Channel, ChatID: "parent"},
		SessionKey: of.String(), Principal: "fake:7", Sender: bus.Sender{ID: "7", Name: "Ada"},
		Group: true, Hops: 1, Due: due, Text: "stretch", Created: day,
	}
}

func task(id string, of bus.Address, state store.TaskState) store.Task {
	t := store.Task{
		ID: id, Tool: "spawn", Label: "a report", Address: of,
		Parent:     bus.Address{Channel: of.Channel, ChatID: "parent"},
		SessionKey: of.String(), Principal: "fake:7", Sender: bus.Sender{ID: "7", Name: "Ada"},
		Group: true, ReplyTo: "9", Hops: 1, State: state, Started: day,
	}
	if state != store.TaskPending {
		t.Result = &bus.FollowUp{Task: id, Label: "a report", ForLLM: "it says 42", ForUser: "42"}
	}
	return t
}

func seqs(rows []store.Inbound) []int64 {
	list := make([]int64, len(rows))
	for i, r := range rows {
		list[i] = r.Seq
	}
	return list
}

func ids(rows []store.Inbound) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.Message.ID
	}
	return list
}

func keys(rows []store.Outbound) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.Message.Key
	}
	return list
}

func texts(entries []store.Entry) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Message.Content
	}
	return list
}

func scheduleIDs(list []store.Schedule) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.ID
	}
	return names
}

func taskIDs(list []store.Task) []string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.ID
	}
	return names
}
