package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

// The tests of this file are named in docs/cases.md.

// A platform that kept everything for a bot that was away tells of a message and
// of its change in one batch. The change counts.
func TestCaseChangedInTheSameBatch(t *testing.T) {
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		r := start(t, fakeModel(echo), on(open()))
		edited, deleted, both := r.ch.from("1", "a", "old"), r.ch.from("2", "a", "old"), r.ch.from("3", "a", "old")
		r.say(edited, amended(edited, bus.KindEdited, "newer"), amended(edited, bus.KindEdited, "new"))
		r.say(deleted, amended(deleted, bus.KindDeleted, ""))
		r.say(both, amended(both, bus.KindEdited, "new"), amended(both, bus.KindDeleted, ""), r.ch.from("3", "a", "next"))
		time.Sleep(time.Minute)
		r.wantTexts("1", "re: new")
		r.wantTexts("2")
		r.wantTexts("3", "re: next")
		if open := left(t, r.store); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}

// readSlowly is a ledger whose answer to what waits takes a second.
type readSlowly struct{ store.Store }

func (s readSlowly) Waiting(ctx context.Context, at bus.Address, after int64, limit int) ([]store.Inbound, error) {
	rows, err := s.Store.Waiting(ctx, at, after, limit)
	if limit == maxWaiting { // the start has a page of its own
		time.Sleep(time.Second)
	}
	return rows, err
}

// A change that comes while its message is being read back from the ledger
// counts too.
func TestChangedWhileItIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := keep{mem.New()}
		ch := newFakeChannel("fake")
		edited, deleted, left := ch.from("1", "a", "old"), ch.from("1", "b", "old"), ch.from("1", "c", "as it is")
		tx := store.Tx{Admit: []bus.InboundMessage{edited, deleted, left}}
		for i := range tx.Admit {
			tx.Admit[i].Principal, tx.Admit[i].SessionKey = tx.Admit[i].Sender.ID, "fake:1"
		}
		if _, err := ledger.Apply(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		r := start(t, fakeModel(echo), on(readSlowly{ledger}))
		time.Sleep(500 * time.Millisecond)
		r.say(amended(edited, bus.KindEdited, "new"), amended(deleted, bus.KindDeleted, ""))
		time.Sleep(time.Minute)
		r.wantTexts("1", "re: new", "re: as it is")
	})
}
