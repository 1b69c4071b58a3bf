package telegram

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

func TestConvertEdit(t *testing.T) {
	m := &message{MessageID: 5, Date: 100, EditDate: 160, Chat: chat{ID: 7, Type: "private"}, From: &user{ID: 7, FirstName: "Ann"}, Text: "new"}
	got, ok := convertEdit(m, "telegram", user{ID: 1})
	if !ok {
		t.Fatal("an edit is dropped")
	}
	original, _ := convert(m, "telegram", user{ID: 1})
	want := original
	want.Kind, want.Amends, want.ID = bus.KindEdited, original.ID, "e:7:5:160"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := convertEdit(nil, "telegram", user{ID: 1}); ok {
		t.Error("nothing is taken for an edit")
	}
}
