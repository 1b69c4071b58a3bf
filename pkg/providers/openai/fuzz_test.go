package openai

import (
	"bufio"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// FuzzStream: whatever a server writes, it is read without a panic, in the same
// way with what was learnt from the events before as without, and what was told
// is what the reply says.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a"}}]}|{"choices":[{"index":0,"delta":{"content":"b\\n"}}]}|{"choices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}|[DONE]`,
		`{"choices":[{"delta":{"content":"a"}}],"obfuscation":"x"}|{"choices":[{"delta":{"content":"b"}}],"obfuscation":"yz"}|{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}|{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}|[DONE]`,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"index":-1}]}}]}`,
		`{"choices":[{"delta":{"role":"assistant","content":"assistant"}}]}|{"choices":[{"delta":{"role":"x","content":"assistant"}}]}`,
		`{"choices":[{"delta":{"content":"<th"}}]}|{"choices":[{"delta":{"content":"ink>hm</think> a"}}]}`,
		`{"choices":[{"delta":{"content":","}}]}|{"choices":[{"delta":{"content":"],"}}]}`,
		`{"choices":[{"delta":{"refusal":"no"}}]}|{"error":{"message":"x"}}|: comment|event: x`,
		`{"choices":[{"message":{"content":[{"text":"a"}],"tool_calls":[{}]},"finish_reason":7}],"usage":{"prompt_tokens":-1}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		body := "data: " + strings.ReplaceAll(script, "|", "\n\ndata: ") + "\n\n"
		var told string
		a := assembly{onDelta: func(d providers.Delta) { told += d.Text }}
		err := a.stream(bufio.NewReaderSize(strings.NewReader(body), 16), func() {})
		var slow assembly
		slowErr := slowly(&slow, body)
		if (err == nil) != (slowErr == nil) || err != nil && err.Error() != slowErr.Error() {
			t.Fatalf("%v, but %v when each event is decoded", err, slowErr)
		}
		got, want := a.reply(nil), slow.reply(nil)
		for _, r := range []*providers.LLMResponse{got, want} {
			for i := range r.ToolCalls { // some are made up
				r.ToolCalls[i].ID = ""
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v, but %+v when each event is decoded", got, want)
		}
		if !strings.HasPrefix(told, got.Content) { // a refusal may follow
			t.Fatalf("told %q of %q", told, got.Content)
		}
		for _, c := range got.ToolCalls {
			if c.Arguments == nil || c.Function == nil {
				t.Fatalf("a call without arguments: %+v", c)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// slowly reads a stream without what is learnt on the way.
func slowly(a *assembly, body string) error {
	r := bufio.NewReader(strings.NewReader(body))
	for {
		line, err := readLine(r)
		data, ok := dataOf(line)
		if string(data) == "[DONE]" {
			return nil
		}
		if ok {
			a.frame = frame{}
			if eventErr := a.event(data); eventErr != nil && err != nil {
				return errCutOff
			} else if eventErr != nil {
				return eventErr
			}
		}
		switch {
		case err == nil:
		case a.finish != "":
			return nil
		case a.any:
			return errCutOff
		default:
			return err
		}
	}
}
