package sqlite

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// What was forgotten is in none of the files any more.
func TestForgottenIsOverwritten(t *testing.T) {
	const secret = "the-word-nobody-may-know"
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	rows := apply(t, s, store.Tx{Admit: []bus.InboundMessage{{ID: "a", Text: secret, SessionKey: "s"}, {ID: "b", Text: "x"}}}).Admitted
	apply(t, s, store.Tx{
		Begin:   &store.Turn{ID: "t", Session: "s", Inbound: []int64{rows[0].Seq}},
		Steps:   []store.Step{{Turn: "t", Kind: store.StepReply, Tool: secret}},
		History: []store.Entry{padded("s", secret, 9000), padded("s", secret, 10), padded("other", "x", 10)},
		Undo:    []string{"s"}, Summaries: []store.Summary{{Session: "s", Text: secret, Keep: 1}},
		Send: []store.Outbound{
			{Turn: "t", Message: bus.OutboundMessage{Key: "k", Text: secret}},
			{Session: "s", Message: bus.OutboundMessage{Key: "l", Text: secret}},
		},
		Receipts: []store.Receipt{{Key: "k"}, {Key: "l"}},
	})
	apply(t, s, store.Tx{End: []string{"t"}})
	shut(t, s)
	if !found(t, dir, secret) {
		t.Fatal("it was never there")
	}
	s = fresh(t, dir, Options{})
	apply(t, s, store.Tx{Forget: []string{"s"}})
	if found(t, dir, secret) {
		t.Error("it is still there")
	}
	shut(t, s)
	s = fresh(t, dir, Options{})
	if entries, err := s.History(t.Context(), "other", 9); len(entries) != 1 || err != nil {
		t.Errorf("the others: %v, %v", entries, err)
	}
	shut(t, s)
}

func found(t *testing.T, dir, word string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(content, []byte(word)); i >= 0 {
			t.Logf("%s at %d of %d: %q", f, i, len(content), content[max(0, i-60):i+50])
			return true
		}
	}
	return false
}
