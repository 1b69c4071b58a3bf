package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// BenchmarkLarge opens a ledger of 100,000 conversations and 10 million
// messages, and reads from it and writes to it. It makes the file first, which
// takes minutes, so it has to be asked for:
//
//	DRAGOMAN_LARGE=100000 go test -run '^$' -bench Large -timeout 1h ./pkg/store/sqlite
func BenchmarkLarge(b *testing.B) {
	sessions, _ := strconv.Atoi(os.Getenv("DRAGOMAN_LARGE"))
	if sessions == 0 {
		b.Skip("DRAGOMAN_LARGE does not say how many conversations")
	}
	dir := b.TempDir()
	began := time.Now()
	makeLarge(b, dir, sessions)
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("made in %v: %d conversations of %d messages, %.1f MB", time.Since(began).Round(time.Second), sessions, perSession, float64(info.Size())/1e6)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s := fresh(b, dir, Options{})
			b.StopTimer()
			shut(b, s)
			b.StartTimer()
		}
	})
	s := fresh(b, dir, Options{})
	defer shut(b, s)
	for _, c := range []struct{ name, session string }{{"10", "short"}, {"10000", "long"}, {"100/any", ""}} {
		b.Run("history/"+c.name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				session := c.session
				if session == "" {
					n = (n + 7919) % sessions
					session = largeSession(n)
				}
				if entries, err := s.History(b.Context(), session, 10); err != nil || len(entries) != 10 {
					b.Fatal(len(entries), err)
				}
			}
		})
	}
	b.Run("turn", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n = (n + 7919) % sessions
			largeTurn(b, s, n)
		}
	})
}

const perSession = 100

func largeSession(n int) string { return fmt.Sprint("telegram:", 100_000_000+n) }

func largeEntries(session, turn string) []store.Entry {
	list := make([]store.Entry, 0, 4)
	for i := range 4 {
		list = append(list, store.Entry{
			Session: session, Turn: turn, Time: time.Now(),
			Message: providers.Message{Role: []string{providers.RoleUser, providers.RoleAssistant}[i%2], Content: "The quick brown fox jumps over the lazy dog, and then does so again."},
		})
	}
	return list
}

// makeLarge writes histories the way they grow: all conversations side by side.
func makeLarge(b *testing.B, dir string, sessions int) {
	b.Helper()
	s := fresh(b, dir, Options{Durability: Fast})
	defer shut(b, s)
	for turn := range perSession / 4 {
		for n := 0; n < sessions; n += 500 {
			var tx store.Tx
			for i := n; i < min(n+500, sessions); i++ {
				tx.History = append(tx.History, largeEntries(largeSession(i), fmt.Sprint("turn-", turn, "-", i))...)
			}
			s.Post(tx)
		}
	}
	for i := range 2500 {
		s.Post(store.Tx{History: largeEntries("long", fmt.Sprint("long-", i))})
	}
	for i := range 3 {
		apply(b, s, store.Tx{History: largeEntries("short", fmt.Sprint("short-", i))[:4-i/2*2]})
	}
	if err := s.Health(); err != nil {
		b.Fatal(err)
	}
}

func largeTurn(b *testing.B, s *Store, n int) {
	b.Helper()
	lane, id := bus.Address{Channel: "telegram", ChatID: fmt.Sprint(n)}, fmt.Sprint(n, "-", time.Now().UnixNano())
	rows := apply(b, s, store.Tx{Admit: []bus.InboundMessage{{Address: lane, ID: id}}}).Admitted
	s.Post(store.Tx{Begin: &store.Turn{ID: id, Address: lane, Session: largeSession(n), Inbound: []int64{rows[0].Seq}}})
	apply(b, s, store.Tx{
		History: largeEntries(largeSession(n), id), End: []string{id},
		Send: []store.Outbound{{Turn: id, Message: bus.OutboundMessage{Address: lane, Key: bus.Key(id)}}},
	})
	s.Post(store.Tx{Receipts: []store.Receipt{{Key: bus.Key(id)}}})
}
