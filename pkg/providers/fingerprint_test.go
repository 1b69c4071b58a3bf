package providers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

func conversation(n int) []providers.Message {
	list := []providers.Message{{Role: providers.RoleSystem, Content: "You help."}}
	for i := 1; i < n; i++ {
		switch i % 3 {
		case 1:
			list = append(list, providers.Message{Role: providers.RoleUser, Content: fmt.Sprint("question ", i, strings.Repeat("x", 100))})
		case 2:
			list = append(list, providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{
				{ID: fmt.Sprint("c", i), Type: "function", Function: &providers.FunctionCall{Name: "f", Arguments: `{"a":1}`}, Name: "f", Arguments: map[string]any{"a": 1.0}},
			}})
		default:
			list = append(list, providers.Message{Role: providers.RoleTool, Content: "result", ToolCallID: fmt.Sprint("c", i-1)})
		}
	}
	return list
}

var oneTool = []providers.ToolDefinition{{Type: "function", Function: providers.ToolFunctionDefinition{
	Name: "f", Parameters: map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "number"}, "b": 1}},
}}}

func TestDeviationSaysWhere(t *testing.T) {
	tools := providers.ToolsDigest(oneTool)
	options := map[string]any{"temperature": 0.5, "top_p": 1}
	recorded := providers.Fingerprint(conversation(40), tools, "m", options)
	for _, tc := range []struct {
		name   string
		change func(m []providers.Message) []providers.Message
		tools  string
		model  string
		want   string
	}{
		{name: "nothing", want: ""},
		{name: "the system message", change: func(m []providers.Message) []providers.Message { m[0].Content += "!"; return m }, want: "message 1 of 40 differs"},
		{name: "the last", change: func(m []providers.Message) []providers.Message { m[39].Content += "!"; return m }, want: "message 40 of 40 differs"},
		{name: "the last but one", change: func(m []providers.Message) []providers.Message { m[38].ToolCalls[0].ID += "!"; return m }, want: "message 39 of 40 differs"},
		{name: "an argument", change: func(m []providers.Message) []providers.Message {
			m[38].ToolCalls[0].Function = &providers.FunctionCall{Name: "f", Arguments: `{"a": 1}`}
			return m
		}, want: "message 39 of 40 differs"},
		{name: "an opaque part", change: func(m []providers.Message) []providers.Message {
			m[38].Opaque = json.RawMessage(`{"p":[]}`)
			return m
		}, want: "message 39 of 40 differs"},
		{name: "one in the middle", change: func(m []providers.Message) []providers.Message { m[20].ToolCalls = nil; return m }, want: "the first difference is in messages 9 to 24 of 40"},
		{name: "the end is missing", change: func(m []providers.Message) []providers.Message { return m[:39] }, want: "the first 39 messages are alike, then 1 more were sent"},
		{name: "the middle is missing", change: func(m []providers.Message) []providers.Message { return append(m[:10], m[12:]...) }, want: "the first difference is in messages 9 to 24 of 40"},
		{name: "one too many", change: func(m []providers.Message) []providers.Message { return append(m, m[1]) }, want: "the first 40 messages are alike, then come 1 more"},
		{name: "none at all", change: func([]providers.Message) []providers.Message { return nil }, want: "the first 0 messages are alike, then 40 more were sent"},
		{name: "the model", model: "other", want: "the model's name or options differ"},
		{name: "tools", tools: "-", want: "the tools differ"},
		{name: "tools and the last", tools: "-", change: func(m []providers.Message) []providers.Message { m[39].Content = ""; return m }, want: "the tools differ; message 40 of 40 differs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			messages, with, model := conversation(40), tools, "m"
			if tc.change != nil {
				messages = tc.change(messages)
			}
			if tc.tools != "" {
				with = tc.tools
			}
			if tc.model != "" {
				model = tc.model
			}
			if got := providers.Deviation(recorded, messages, with, model, options); got != tc.want {
				t.Errorf("Deviation says %q, want %q", got, tc.want)
			}
		})
	}
	if got := providers.Deviation(recorded, conversation(40), tools, "m", map[string]any{"top_p": 1}); got != "the model's name or options differ" {
		t.Errorf("other options: %q", got)
	}
}

func TestDeviationFromNonsense(t *testing.T) {
	for text, want := range map[string]string{
		"":                "the fingerprint has a form that this program does not know",
		"9 1 a b c":       "the fingerprint has a form that this program does not know",
		"1 x a b":         "the fingerprint is damaged",
		"1 -1 a b":        "the fingerprint is damaged",
		"1 3 a b c":       "the fingerprint is damaged",
		"1 9999999999999": "the fingerprint has a form that this program does not know",
	} {
		if got := providers.Deviation(text, conversation(3), "-", "m", nil); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Every message counts, at every length.
func TestFingerprintCoversAll(t *testing.T) {
	for n := range 20 {
		whole := providers.Fingerprint(conversation(n), "-", "m", nil)
		if got := providers.Deviation(whole, conversation(n), "-", "m", nil); got != "" {
			t.Errorf("%d messages differ from themselves: %s", n, got)
		}
		for i := range n {
			m := conversation(n)
			m[i].Content += " "
			if got := providers.Deviation(whole, m, "-", "m", nil); !strings.Contains(got, "differ") {
				t.Errorf("a change of message %d of %d is not seen: %q", i+1, n, got)
			}
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	for _, n := range []int{4, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			messages, tools := conversation(n), providers.ToolsDigest(oneTool)
			b.ReportAllocs()
			for b.Loop() {
				providers.Fingerprint(messages, tools, "m", nil)
			}
		})
	}
}
