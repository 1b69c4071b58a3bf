package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// The types of blocks this package knows by name; others are handed back as
// they came.
const (
	typeText     = "text"
	typeToolUse  = "tool_use"
	typeThinking = "thinking"
	typeRedacted = "redacted_thinking"
)

// response turns the answer into a reply. names leads from aliases back to
// tools.
func (a *answer) response(names map[string]string) *providers.LLMResponse {
	out := &providers.LLMResponse{FinishReason: finish(a.stop)}
	var content strings.Builder
	opaque := false
	for _, b := range a.blocks {
		switch b.Type {
		case typeText:
			content.WriteString(b.text.String())
		case typeToolUse:
			out.ToolCalls = append(out.ToolCalls, b.call(names, out.ToolCalls))
		default:
			opaque = true
		}
	}
	if out.Content = content.String(); out.Content == "" && out.FinishReason == providers.FinishRefusal {
		out.Content = a.explanation
	}
	if opaque {
		out.Opaque = a.opaque(out.ToolCalls)
	}
	if u := a.usage; u != (usage{}) {
		in := u.InputTokens + u.CacheCreation + u.CacheRead
		out.Usage = &providers.Usage{
			PromptTokens: in, CompletionTokens: u.OutputTokens, TotalTokens: in + u.OutputTokens,
			CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheCreation, ReasoningTokens: u.Details.ThinkingTokens,
		}
	}
	return out
}

func finish(stop string) string {
	switch stop {
	case "end_turn", "stop_sequence":
		return providers.FinishStop
	case "tool_use":
		return providers.FinishToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return providers.FinishLength
	case "refusal":
		return providers.FinishRefusal
	case "pause_turn":
		return providers.FinishPause
	}
	return stop
}

func (b *block) call(names map[string]string, before []providers.ToolCall) providers.ToolCall {
	name := b.Name
	if original, ok := names[name]; ok {
		name = original
	}
	text := b.input.String()
	if text == "" {
		text = string(b.Input)
	}
	args, text := httpapi.DecodeArguments(text)
	return providers.ToolCall{
		ID: httpapi.CallID("toolu_", b.ID, before), Type: "function", Name: name, Arguments: args,
		Function: &providers.FunctionCall{Name: name, Arguments: text},
	}
}

// kept is LLMResponse.Opaque: all blocks of a reply in their order. Of a call
// only the id is there, its place; the rest is in the message.
type kept struct {
	Anthropic []json.RawMessage `json:"anthropic"`
}

func (a *answer) opaque(calls []providers.ToolCall) json.RawMessage {
	var out kept
	for _, b := range a.blocks {
		fields := map[string]any{"type": b.Type}
		switch b.Type {
		case typeToolUse:
			fields["id"], calls = calls[0].ID, calls[1:]
		case typeText:
			fields["text"] = b.text.String()
		default:
			b.finish(fields)
		}
		out.Anthropic = append(out.Anthropic, plainJSON(fields))
	}
	return plainJSON(out)
}

// finish fills fields with the block as it would have come in one piece.
func (b *block) finish(fields map[string]any) {
	var start map[string]json.RawMessage
	_ = json.Unmarshal(b.start, &start) // take has read it before
	for name, v := range start {
		fields[name] = v
	}
	for name, v := range map[string]string{"thinking": b.thinking.String(), "signature": b.signature.String()} {
		if v != "" {
			fields[name] = v
		}
	}
	if input := b.input.String(); json.Valid([]byte(input)) {
		fields["input"] = json.RawMessage(input)
	}
}

// plainJSON is json.Marshal that leaves <, > and & as they are.
func plainJSON(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil // texts and valid JSON always marshal
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
