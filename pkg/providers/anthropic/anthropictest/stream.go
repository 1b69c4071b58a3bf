package anthropictest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// Thought is what a model that was told to think thinks first, unless its script
// has thoughts of its own.
const Thought = "Hm, <let> me think & see."

// sign makes the signature of a thought; only the API knows how.
func sign(thought string) string {
	sum := sha256.Sum256([]byte("the API's secret" + thought))
	return hex.EncodeToString(sum[:12])
}

// Events is the body of a stream of events, each given as its JSON; their names
// are their types. With the header Header it can be the Body of a Response.
func Events(list ...string) string {
	var b strings.Builder
	for _, data := range list {
		_, rest, _ := strings.Cut(data, `"type":"`)
		name, _, _ := strings.Cut(rest, `"`)
		b.WriteString("event: " + name + "\ndata: " + data + "\n\n")
	}
	return b.String()
}

// Header returns the header of a stream of events.
func Header() http.Header { return http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}} }

// Stream returns an answer that is the given events.
func Stream(events ...string) providerstest.Response {
	return providerstest.Response{Status: http.StatusOK, Header: Header(), Body: Events(events...)}
}

func (s *Server) writeStream(w http.ResponseWriter, r *http.Request, req providerstest.Request, resp providerstest.Response) {
	list := events(req, resp)
	half := len(list) / 2
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for i, e := range list {
		text := Events(e)
		if i == half && (resp.Cut || resp.Park) {
			_, _ = io.WriteString(w, text[:len(text)/2])
			_ = http.NewResponseController(w).Flush()
			if resp.Park {
				s.wait(r, math.MaxInt64)
			}
			panic(http.ErrAbortHandler)
		}
		if resp.Pause > 0 && !s.wait(r, resp.Pause) {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, text) // the caller may be gone
		_ = http.NewResponseController(w).Flush()
	}
}

// events is an answer in pieces of a few bytes.
func events(req providerstest.Request, resp providerstest.Response) []string {
	u := resp.Usage
	if u == nil {
		u = &providers.Usage{PromptTokens: len(req.Body)/4 + 1, CompletionTokens: len(resp.Content)/4 + 1}
	}
	usage := map[string]any{
		"input_tokens":                u.PromptTokens - u.CacheReadTokens - u.CacheWriteTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens, "cache_read_input_tokens": u.CacheReadTokens,
		"output_tokens": 1,
	}
	list := []string{
		event("message_start", "message", map[string]any{
			"id": "msg_" + strconv.Itoa(req.N), "type": "message", "role": "assistant", "model": req.Model,
			"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage,
		}),
		event("ping"),
	}
	index := 0
	add := func(block map[string]any, deltas ...map[string]any) {
		list = append(list, event("content_block_start", "index", index, "content_block", block))
		for _, d := range deltas {
			list = append(list, event("content_block_delta", "index", index, "delta", d))
		}
		list = append(list, event("content_block_stop", "index", index))
		index++
	}
	if resp.Reasoning == "" && thinks(req.Options) {
		resp.Reasoning = Thought
	}
	if t := resp.Reasoning; t != "" {
		add(map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			append(deltas("thinking_delta", "thinking", t), map[string]any{"type": "signature_delta", "signature": sign(t)})...)
	}
	if resp.Content != "" {
		add(map[string]any{"type": "text", "text": ""}, deltas("text_delta", "text", resp.Content)...)
	}
	for i, c := range resp.ToolCalls {
		if c.ID == "" {
			c.ID = "toolu_" + strconv.Itoa(req.N) + "_" + strconv.Itoa(i+1)
		}
		add(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}},
			append([]map[string]any{{"type": "input_json_delta", "partial_json": ""}}, deltas("input_json_delta", "partial_json", c.Arguments)...)...)
	}
	final := map[string]any{"output_tokens": u.CompletionTokens}
	if u.ReasoningTokens > 0 {
		final["output_tokens_details"] = map[string]any{"thinking_tokens": u.ReasoningTokens}
	}
	delta := map[string]any{"stop_reason": stopReason(resp), "stop_sequence": nil, "stop_details": nil}
	if resp.Refusal != "" {
		delta["stop_reason"] = "refusal"
		delta["stop_details"] = map[string]any{"type": "refusal", "category": nil, "explanation": resp.Refusal}
	}
	return append(list, event("message_delta", "delta", delta, "usage", final), event("message_stop"))
}

// event writes an event's type first, and then its fields.
func event(typ string, fields ...any) string {
	var b strings.Builder
	b.WriteString(`{"type":"` + typ + `"`)
	for i := 0; i < len(fields); i += 2 {
		b.WriteString("," + string(mustJSON(fields[i])) + ":" + string(mustJSON(fields[i+1])))
	}
	return b.String() + "}"
}

// deltas cuts a text into pieces.
func deltas(typ, field, text string) (list []map[string]any) {
	for len(text) > 0 {
		n := min(7, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		list = append(list, map[string]any{"type": typ, field: text[:n]})
		text = text[n:]
	}
	return list
}

// stopReason is the API's word for a finish reason; what is none is written as
// it stands.
func stopReason(resp providerstest.Response) string {
	switch reason := resp.FinishReason; reason {
	case providers.FinishLength:
		return "max_tokens"
	case providers.FinishPause:
		return "pause_turn"
	case providers.FinishStop:
		return "end_turn"
	case providers.FinishToolCalls:
		return "tool_use"
	case "":
		if len(resp.ToolCalls) > 0 {
			return "tool_use"
		}
		return "end_turn"
	default:
		return reason
	}
}
