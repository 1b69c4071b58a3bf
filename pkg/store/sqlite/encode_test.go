package sqlite

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

func FuzzRowsAreReadOrRefused(f *testing.F) {
	entries, err := encodeEntries(sampleEntries())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(entries)
	steps, err := encodeSteps([]store.Step{{Turn: "t", Round: 1, Kind: store.StepReply, Finish: "stop", Message: sampleEntries()[0].Message}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(steps)
	f.Add(encodeSeqs([]int64{1, math.MaxInt64, math.MinInt64}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		if list, err := decodeEntries("s", row); err == nil && len(list) > 0 {
			again, err := encodeEntries(list)
			if err != nil {
				t.Fatal(err)
			}
			same, err := decodeEntries("s", again)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(list, same); diff != "" {
				t.Fatal(diff)
			}
		}
		if list, err := decodeSteps("t", row); err == nil {
			if _, err := encodeSteps(list); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = decodeSeqs(row)
	})
}

func sampleEntries() []store.Entry {
	at := time.Date(2026, time.March, 14, 15, 9, 26, 535_897_000, time.UTC)
	call := providers.ToolCall{ID: "c", Type: "function", Name: "f", Arguments: map[string]any{"a": []any{1.5, nil, "x"}}}
	bare := providers.ToolCall{ID: "d", Name: "g", Function: &providers.FunctionCall{Name: "g", Arguments: "{"}}
	return []store.Entry{
		{Session: "s", Turn: "t", Time: at, Message: providers.Message{Role: "user", Content: "h\x00\xff日本"}},
		{Session: "s", Turn: "t", Message: providers.Message{Role: "assistant", ToolCalls: []providers.ToolCall{call, bare, {}}}},
		{Session: "s", Turn: "t", Time: at, Message: providers.Message{Role: "tool", ToolCallID: "c", Content: "result"}},
		{Session: "s", Turn: "t", Message: providers.Message{Role: "odd"}},
	}
}

func TestEntriesComeBack(t *testing.T) {
	want := sampleEntries()
	row, err := encodeEntries(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeEntries("s", row)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for n := range row[:len(row)-1] { // a row that was cut is never taken for a whole one
		if cut, err := decodeEntries("s", row[:n]); err == nil && len(cut) >= len(want) {
			t.Fatalf("%d of %d bytes are read as %d entries", n, len(row), len(cut))
		}
	}
}

func BenchmarkEncoding(b *testing.B) {
	entries := sampleEntries()
	row, err := encodeEntries(entries)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := encodeEntries(entries); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := decodeEntries("s", row); err != nil {
				b.Fatal(err)
			}
		}
	})
}
