package metrics

import (
	"context"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type instant struct{ resp *providers.LLMResponse }

func (i instant) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return i.resp, nil
}

// BenchmarkRound is what one round of a turn pays for being measured: a request
// and a call of a tool.
func BenchmarkRound(b *testing.B) {
	m := New("")
	p := m.Model("main", instant{&providers.LLMResponse{Usage: &providers.Usage{PromptTokens: 100, CompletionTokens: 20}}})
	result := tools.NewToolResult("")
	h := m.Tool(func(context.Context, *tools.Invocation) *tools.ToolResult { return result })
	inv := &tools.Invocation{Call: tools.Call{Tool: "look"}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Chat(b.Context(), nil, nil, "", nil)
		h(b.Context(), inv)
	}
}

// BenchmarkTurn is what a turn pays beside, with an answer of one message.
func BenchmarkTurn(b *testing.B) {
	m := New("")
	b.ReportAllocs()
	for b.Loop() {
		m.Turn(gateway.TurnDone, time.Second)
		m.Send("telegram", gateway.SendOK, time.Second)
	}
}
