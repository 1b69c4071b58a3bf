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
		{Session: "s", Turn: "t", Message: providers.Message{Role: "assistant", ToolCalls: []providers.ToolCall{call, bare, {Invalid: "no"}}, Opaque: []byte(`{"p":1}`)}},
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

// Rows that earlier programs wrote.
func TestOldRowsAreRead(t *testing.T) {
	at := time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)
	m := providers.Message{Role: "assistant", Content: "I look.", ToolCalls: []providers.ToolCall{{
		ID: "c", Type: "function", Name: "f", Arguments: map[string]any{"a": true}, Function: &providers.FunctionCall{Name: "f", Arguments: `{"a":true}`},
	}}}
	const message = "\x12assistant\x0eI look.\x00\x02\x02c\x10function\x02f\x14{\"a\":true}\x02\x02f\x14{\"a\":true}"
	const when = "\x80\xd6\xb2\xf1\xab\xbf\xa6\x06"
	entries, err := decodeEntries("s", []byte("\x01\x02t"+when+message))
	if diff := cmp.Diff([]store.Entry{{Session: "s", Turn: "t", Time: at, Message: m}}, entries); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if n, err := countEntries([]byte("\x01\x02t" + when + message)); n != 1 || err != nil {
		t.Error(n, err)
	}
	step := store.Step{Turn: "t", Kind: store.StepReply, Round: 1, Finish: "tool_calls", Message: m}
	steps, err := decodeSteps("t", []byte("\x01\nreply\x02\x14tool_calls\x00\x00"+message))
	if diff := cmp.Diff([]store.Step{step}, steps); diff != "" || err != nil {
		t.Error(err, diff)
	}
	step.Time, step.Took, step.Request = at, time.Second, "r"
	step.Usage = providers.Usage{PromptTokens: 7, CompletionTokens: 2, TotalTokens: 9}
	steps, err = decodeSteps("t", []byte("\x02\nreply\x02\x14tool_calls\x00\x00"+message+when+"\x80\xa8\xd6\xb9\a\x0e\x04\x12\x02r"))
	if diff := cmp.Diff([]store.Step{step}, steps); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := decodeSteps("t", []byte("\x04")); err == nil {
		t.Error("a row of a later program was read")
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
