package openai_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
)

// canned answers every request with the same text.
type canned struct{ body []byte }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c.body)), Request: r}, nil
}

// BenchmarkChat is one model call of a turn: seven tools, a short history.
func BenchmarkChat(b *testing.B) {
	p, err := openai.New(openai.Config{BaseURL: "http://fake/v1", Transport: canned{[]byte(`{"id":"x","object":"chat.completion","created":1,"model":"m",
		"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a\"}"}}]},"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`)}})
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
		if _, err := p.Chat(b.Context(), messages, tools, "m", options); err != nil {
			b.Fatal(err)
		}
	}
}
