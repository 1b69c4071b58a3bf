//go:build unix

package sqlite

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

// chats is how many conversations the benchmarks below keep going at once.
const chats = 200

// BenchmarkTurns is what the ledger costs a daemon under load: 200 chats, each
// with one turn after the other, as the gateway writes a turn with one tool
// round. It reports the processor time of a turn and the turns in a second.
func BenchmarkTurns(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"mem", func(*testing.B) store.Store { return mem.New() }},
		{"fast", func(b *testing.B) store.Store { b.Helper(); return fresh(b, b.TempDir(), Options{Durability: Fast}) }},
		{"full", func(b *testing.B) store.Store { b.Helper(); return fresh(b, b.TempDir(), Options{Durability: Full}) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := c.open(b)
			for n := range chats { // the histories that are read
				for range 10 {
					chatTurn(b, s, n, fmt.Sprint("warm-", n, "-", time.Now().UnixNano()))
				}
			}
			before := processorTime(b)
			b.ResetTimer()
			var wg sync.WaitGroup
			for n := range chats {
				wg.Go(func() {
					for i := n; i < b.N; i += chats {
						chatTurn(b, s, n, fmt.Sprint(n, "-", i))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/turn")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const words = "The quick brown fox jumps over the lazy dog, and then it does so once more for good measure. "

// chatTurn is a turn with one tool round from admission to receipt.
func chatTurn(b *testing.B, s store.Store, n int, id string) {
	b.Helper()
	ctx := context.Background()
	apply := func(tx store.Tx) store.Result {
		res, err := s.Apply(ctx, tx)
		if err != nil {
			b.Error(err)
		}
		return res
	}
	lane := bus.Address{Channel: "telegram", ChatID: fmt.Sprint(100_000_000 + n)}
	session := lane.String()
	rows := apply(store.Tx{
		Admit: []bus.InboundMessage{{
			Address: lane, ID: "m:" + id, MessageID: id, Kind: bus.KindMessage, Time: time.Now(), Text: words,
			Sender:    bus.Sender{ID: "7", Username: "ada", Name: "Ada"},
			Metadata:  map[string]string{"user_id": "7", "username": "ada", "message_id": id},
			Principal: "telegram:7", SessionKey: session,
		}},
		Facts: []store.Fact{{Key: "channel/telegram/cursor", Value: id}},
	}).Admitted
	s.Post(store.Tx{Begin: &store.Turn{ID: id, Address: lane, Session: session, Inbound: []int64{rows[0].Seq}, Started: time.Now()}})
	if _, err := s.History(ctx, session, 20); err != nil {
		b.Error(err)
	}
	call := providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{{
		ID: "call_" + id, Type: "function", Name: "list_dir", Arguments: map[string]any{"path": "."},
		Function: &providers.FunctionCall{Name: "list_dir", Arguments: `{"path":"."}`},
	}}}
	result := providers.Message{Role: providers.RoleTool, ToolCallID: "call_" + id, Content: words}
	answer := providers.Message{Role: providers.RoleAssistant, Content: words + words}
	s.Post(store.Tx{Steps: []store.Step{{Turn: id, Round: 1, Kind: store.StepReply, Message: call}}})
	apply(store.Tx{Steps: []store.Step{{Turn: id, Round: 1, Kind: store.StepBegin, CallID: "c", Tool: "list_dir"}}})
	s.Post(store.Tx{Steps: []store.Step{{Turn: id, Round: 1, Kind: store.StepEnd, CallID: "c", Tool: "list_dir", Message: result}}})
	s.Post(store.Tx{Steps: []store.Step{{Turn: id, Round: 2, Kind: store.StepReply, Message: answer}}})
	entries := make([]store.Entry, 0, 4)
	for _, m := range []providers.Message{{Role: providers.RoleUser, Content: words}, call, result, answer} {
		entries = append(entries, store.Entry{Session: session, Message: m, Time: time.Now()})
	}
	apply(store.Tx{
		End: []string{id}, History: entries,
		Send: []store.Outbound{{Turn: id, Created: time.Now(), Message: bus.OutboundMessage{
			Address: lane, Key: bus.Key(id), Text: answer.Content,
		}}},
	})
	s.Post(store.Tx{Receipts: []store.Receipt{{Key: bus.Key(id), Result: bus.Receipt{MessageID: id, Time: time.Now()}}}})
}
