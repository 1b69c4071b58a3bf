// Package state keeps small durable facts for adapters and tools: a thin face
// over the store, with keys that cannot collide.
package state

import (
	"context"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// Facts is the part of a store that State needs.
type Facts interface {
	Apply(ctx context.Context, tx store.Tx) (store.Result, error)
	Fact(ctx context.Context, key string) (string, error)
}

// State is one owner's facts. The zero value is not usable; see New.
type State struct {
	facts  Facts
	prefix string
}

// New returns the facts of owner, for example "channel/telegram".
func New(facts Facts, owner string) *State { return &State{facts: facts, prefix: owner + "/"} }

// Key is the full key of a name, what a bus.Cursor needs.
func (s *State) Key(name string) string { return s.prefix + name }

// Get returns the value of name, "" if there is none.
func (s *State) Get(ctx context.Context, name string) (string, error) {
	return s.facts.Fact(ctx, s.Key(name))
}

// Set stores value under name and returns when it is durable; "" removes it.
func (s *State) Set(ctx context.Context, name, value string) error {
	_, err := s.facts.Apply(ctx, store.Tx{Facts: []store.Fact{{Key: s.Key(name), Value: value}}})
	return err
}
