package textcall_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

// What a round costs besides the model's own time: ten tools, forty messages,
// one call.
func BenchmarkWrap(b *testing.B) {
	var messages []providers.Message
	for range 20 {
		messages = append(messages, says(strings.Repeat("what is <this>? ", 20)), providers.Message{Role: providers.RoleAssistant, Content: strings.Repeat("that is that. ", 20)})
	}
	defs := add().ToProviderDefs()
	for len(defs) < 10 {
		defs = append(defs, defs[0])
	}
	p := textcall.Wrap(calling{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Chat(b.Context(), messages, defs, "m", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// calling is a model that always makes the same call.
type calling struct{}

func (calling) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Content: `<tool>{"tool_name":"add","arguments":{"a":1,"b":2}}</tool>`, FinishReason: providers.FinishStop}, nil
}

func BenchmarkSplitter(b *testing.B) {
	text := strings.Repeat("Some text, `code` and <b>more</b>.\n", 100) + multiply
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var s textcall.Splitter
		for i := 0; i < len(text); i += 4 {
			s.Write(text[i:min(i+4, len(text))])
		}
		s.Close(false)
	}
}
