package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
)

// A page shows what is stored of its conversation and not answered yet, taken by
// a turn or not, behind what is, and nothing of another conversation.
func TestPageShowsWhatWaits(t *testing.T) {
	file, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, ledger := range map[string]store.Store{"memory": mem.New(), "file": file} {
		t.Run(name, func(t *testing.T) {
			a := &app{store: ledger}
			here, elsewhere := bus.Address{Channel: "webchat", ChatID: "a"}, bus.Address{Channel: "webchat", ChatID: "b"}
			apply := func(tx store.Tx) store.Result {
				t.Helper()
				res, err := ledger.Apply(t.Context(), tx)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			shows := func(want ...string) {
				t.Helper()
				lines, err := a.webHistory(t.Context(), here, 50)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, l := range lines {
					got = append(got, l.Role+" "+l.Text+" "+l.Waiting)
				}
				if !slices.Equal(got, want) {
					t.Errorf("shown: %q, want %q", got, want)
				}
			}
			asks := func(at bus.Address, n int) bus.InboundMessage {
				id := fmt.Sprint(n)
				return bus.InboundMessage{Address: at, ID: "m:" + id, MessageID: id, SessionKey: at.String(), Kind: bus.KindMessage, Text: "q" + id}
			}
			rows := apply(store.Tx{Admit: []bus.InboundMessage{asks(here, 1), asks(here, 2), asks(elsewhere, 3)}}).Admitted
			shows("user q1 1", "user q2 2")
			apply(store.Tx{Begin: &store.Turn{ID: "t", Address: here, Session: here.String(), Inbound: []int64{rows[0].Seq}}})
			shows("user q1 1", "user q2 2")
			said := func(role, text string) store.Entry {
				return store.Entry{Session: here.String(), Turn: "t", Message: providers.Message{Role: role, Content: text}}
			}
			apply(store.Tx{End: []string{"t"}, History: []store.Entry{said(providers.RoleUser, "q1"), said(providers.RoleAssistant, "a1")}})
			shows("user q1 ", "assistant a1 ", "user q2 2")
		})
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	}
}
