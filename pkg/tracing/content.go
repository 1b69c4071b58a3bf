package tracing

import (
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// message is how the conventions write a message.
type message struct {
	Role         string `json:"role"`
	Parts        []part `json:"parts"`
	FinishReason string `json:"finish_reason,omitempty"` // of replies
}

type part struct {
	Type      string `json:"type"` // text, tool_call or tool_call_response
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments any    `json:"arguments,omitempty"`
	Result    string `json:"result,omitempty"`
}

func messageOf(role, content, callID string, calls []providers.ToolCall) message {
	m := message{Role: role, Parts: []part{}}
	switch {
	case callID != "":
		m.Parts = append(m.Parts, part{Type: "tool_call_response", ID: callID, Result: content})
	case content != "":
		m.Parts = append(m.Parts, part{Type: "text", Content: content})
	}
	for _, c := range calls {
		m.Parts = append(m.Parts, part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return m
}

// asked notes what a model is sent.
func (t *Tracer) asked(span trace.Span, messages []providers.Message) {
	var system []part
	list := make([]message, 0, len(messages))
	for _, m := range messages {
		if m.Role == providers.RoleSystem {
			system = append(system, part{Type: "text", Content: m.Content})
			continue
		}
		list = append(list, messageOf(m.Role, m.Content, m.ToolCallID, m.ToolCalls))
	}
	if system != nil {
		t.note(span, systemText, system)
	}
	t.note(span, inputMessages, list)
}

// answered notes what a model has said.
func (t *Tracer) answered(span trace.Span, r *providers.LLMResponse) {
	m := messageOf(providers.RoleAssistant, r.Content, "", r.ToolCalls)
	m.FinishReason = r.FinishReason
	t.note(span, outputMessages, []message{m})
}

// note writes a value as JSON, without secrets.
func (t *Tracer) note(span trace.Span, key attribute.Key, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // arguments came from JSON
	}
	span.SetAttributes(key.String(t.hide(string(text))))
}
