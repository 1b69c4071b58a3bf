package state_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, s *state.State, name string) string {
	t.Helper()
	v, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return v
}

func set(t *testing.T, s *state.State, name, value string) {
	t.Helper()
	if err := s.Set(t.Context(), name, value); err != nil {
		t.Fatalf("set %s: %v", name, err)
	}
}

func TestSetGetRemove(t *testing.T) {
	s := state.New(mem.New(), "channel/telegram")
	if v := get(t, s, "offset"); v != "" {
		t.Fatalf("an unknown name has the value %q", v)
	}
	set(t, s, "offset", "17")
	set(t, s, "offset", "18")
	if v := get(t, s, "offset"); v != "18" {
		t.Fatalf("got %q", v)
	}
	set(t, s, "offset", "")
	if v := get(t, s, "offset"); v != "" {
		t.Fatalf("a removed name has the value %q", v)
	}
}

func TestOwnersAreApart(t *testing.T) {
	facts := mem.New()
	a, b := state.New(facts, "channel/telegram"), state.New(facts, "channel/work")
	set(t, a, "offset", "1")
	set(t, b, "offset", "2")
	if va, vb := get(t, a, "offset"), get(t, b, "offset"); va != "1" || vb != "2" {
		t.Fatalf("got %q and %q", va, vb)
	}
}

// A cursor goes into the same change as the messages it stands for; Get has to
// find it there.
func TestKeyIsWhatACursorNeeds(t *testing.T) {
	facts := mem.New()
	s := state.New(facts, "channel/telegram")
	if _, err := facts.Apply(t.Context(), store.Tx{
		Admit: []bus.InboundMessage{{ID: "m:1:1"}},
		Facts: []store.Fact{{Key: s.Key("offset/99"), Value: "5"}},
	}); err != nil {
		t.Fatal(err)
	}
	if v := get(t, s, "offset/99"); v != "5" {
		t.Fatalf("got %q", v)
	}
}

func TestErrorsComeThrough(t *testing.T) {
	facts := mem.New()
	s := state.New(facts, "x")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Set(ended, "k", "v"); !errors.Is(err, context.Canceled) {
		t.Errorf("set with an ended context: %v", err)
	}
	if _, err := s.Get(ended, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("get with an ended context: %v", err)
	}
	if err := facts.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), "k", "v"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("set on a closed store: %v", err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get on a closed store: %v", err)
	}
}
