package openai_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
)

// canned answers every request with the same text, event by event.
type canned struct {
	kind string
	body []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.kind}}, Body: &byEvent{rest: c.body}, Request: r}, nil
}

// byEvent reads as a network does: one event at a time.
type byEvent struct{ rest []byte }

func (b *byEvent) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	event := b.rest
	if i := bytes.Index(event, []byte("\n\n")); i >= 0 {
		event = event[:i+2]
	}
	n := copy(p, event)
	b.rest = b.rest[n:]
	return n, nil
}

func (*byEvent) Close() error { return nil }

// BenchmarkChat is one model call of a turn: seven tools, a short history, and a
// tool called.
func BenchmarkChat(b *testing.B) {
	benchmark(b, nil, canned{"application/json", []byte(`{"id":"x","object":"chat.completion","created":1,"model":"m",
		"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a\"}"}}]},"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`)})
}

// BenchmarkText is the same with 200 words for an answer, as a whole and in 50
// pieces; without a network it is what the provider itself costs.
func BenchmarkText(b *testing.B) {
	piece := strings.Repeat("word ", 4)
	whole := `{"id":"chatcmpl-x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat(piece, 50) + `"},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":100,"completion_tokens":200,"total_tokens":300}}`
	event := func(choices, rest string) string {
		return `data: {"id":"chatcmpl-BxYz0123456789abcdefghij","object":"chat.completion.chunk","created":1700000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":"fp_0123456789","choices":[` + choices + `]` + rest + "}\n\n"
	}
	stream := event(`{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}`, "") +
		strings.Repeat(event(`{"index":0,"delta":{"content":"`+piece+`"},"logprobs":null,"finish_reason":null}`, `,"obfuscation":"ab12cd34"`), 50) +
		event(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`, "") +
		event("", `,"usage":{"prompt_tokens":100,"completion_tokens":200,"total_tokens":300,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`) + "data: [DONE]\n\n"
	b.Run("whole", func(b *testing.B) { benchmark(b, nil, canned{"application/json", []byte(whole)}) })
	b.Run("pieces", func(b *testing.B) {
		benchmark(b, func(providers.Delta) {}, canned{"text/event-stream", []byte(stream)})
	})
}

func benchmark(b *testing.B, onDelta func(providers.Delta), answer canned) {
	b.Helper()
	p, err := openai.New(openai.Config{BaseURL: "http://fake/v1", Transport: answer})
	if err != nil {
		b.Fatal(err)
	}
	var tools []providers.ToolDefinition
	for _, name := range []string{"list_dir", "message", "read_file", "remind", "spawn", "write_file", "web"} {
		tools = append(tools, providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
			Name: name, Description: "Does what its name says, with a description of about the usual length, so that the figures mean something to somebody.",
			Parameters: map[string]any{
				"type": "object",
				"properties": map[string]any{
					"path":       map[string]any{"type": "string", "description": "Where the file is, relative to the workspace of the conversation."},
					"start_line": map[string]any{"type": "integer", "minimum": 1, "description": "The first line wanted, counted from 1."},
					"end_line":   map[string]any{"type": "integer", "minimum": 1, "description": "The last line wanted, included."},
				},
				"required": []string{"path"},
			},
		}})
	}
	var messages []providers.Message
	for range 5 {
		messages = append(messages,
			providers.Message{Role: providers.RoleUser, Content: "What is in the file a, and why is it there at all?"},
			providers.Message{Role: providers.RoleAssistant, Content: "It holds a greeting. Somebody wrote it there to be read by you."})
	}
	options := map[string]any{"max_tokens": 1000}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := providers.Stream(b.Context(), p, messages, tools, "m", options, onDelta); err != nil {
			b.Fatal(err)
		}
	}
}
