package gateway

import (
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
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
