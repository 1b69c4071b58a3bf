package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
)

// ledger names what the daemon is measured with, for the report.
func (l *loadtest) ledger() string {
	if l.past == 0 {
		return l.store
	}
	return l.store + "+" + strconv.Itoa(l.past)
}

// fillPast writes a past for each Telegram chat into the ledger of a daemon
// that has not been started yet.
func (l *loadtest) fillPast(ctx context.Context, r *rig, data string) (err error) {
	if l.past == 0 || l.store == storeMemory {
		return nil
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("write a past: %w", err)
	}
	s, err := sqlite.Open(data, sqlite.Options{Durability: sqlite.Fast})
	if err != nil {
		return fmt.Errorf("write a past: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, id := range r.people {
		session := bus.Address{Channel: "telegram", ChatID: strconv.FormatInt(id, 10)}.String()
		for left := l.past; left > 0; left -= 1000 {
			if _, err := s.Apply(ctx, store.Tx{History: oldEntries(session, min(left, 1000))}); err != nil {
				return fmt.Errorf("write a past: %w", err)
			}
		}
	}
	return nil
}

// oldEntries are n messages, questions and answers in turn.
func oldEntries(session string, n int) []store.Entry {
	list := make([]store.Entry, n)
	for i := range list {
		m := providers.Message{Role: providers.RoleUser, Content: "Could you have another look at the files and tell me, please?"}
		if i%2 == 1 {
			m = providers.Message{Role: providers.RoleAssistant, Content: "Here you are: nothing new."}
		}
		list[i] = store.Entry{Session: session, Turn: "past" + strconv.Itoa(i/2), Message: m, Time: time.Now()}
	}
	return list
}
