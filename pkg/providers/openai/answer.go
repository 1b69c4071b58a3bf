package openai

import (
	"bytes"
	"encoding/json"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// answer is what a server writes, whole or as one piece of a stream, as far as
// it is of use here. Servers take liberties with nearly every field, so what can
// be read is read; the SDK's own types fail on the first surprise.
type answer struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Message      *message `json:"message"` // of a whole answer
	Delta        *message `json:"delta"`   // of a piece
	FinishReason text     `json:"finish_reason"`
}

type message struct {
	Content          text   `json:"content"`
	Refusal          text   `json:"refusal"`
	ReasoningContent text   `json:"reasoning_content"`
	Reasoning        text   `json:"reasoning"` // the same by another name
	ToolCalls        []call `json:"tool_calls"`
}

type call struct {
	Index    *int `json:"index"`
	ID       text `json:"id"`
	Function struct {
		Name      text      `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CacheHitTokens   int `json:"prompt_cache_hit_tokens"` // DeepSeek
	Prompt           struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	Completion struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// read returns the usage, nil where the server does not tell it.
func (u *usage) read() *providers.Usage {
	if u == nil || u.PromptTokens == 0 && u.CompletionTokens == 0 && u.TotalTokens == 0 {
		return nil
	}
	return &providers.Usage{
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
		CacheReadTokens: max(u.Prompt.Cached, u.CacheHitTokens), CacheWriteTokens: u.Prompt.Written,
		ReasoningTokens: u.Completion.Reasoning,
	}
}

// arguments are those of a call: a string, or the JSON that stands where a string
// of it should. An empty list is what some servers make of an empty object.
type arguments string

// UnmarshalJSON implements json.Unmarshaler. It takes everything.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	if raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0 {
		*a = arguments(raw) // not the texts in it
		return nil
	}
	return (*text)(a).UnmarshalJSON(raw)
}

// text is a string, the texts of a list of parts, or whatever else stands there.
type text string

// UnmarshalJSON implements json.Unmarshaler. It takes everything.
func (t *text) UnmarshalJSON(raw []byte) error {
	switch {
	case raw[0] == '"':
		if inside := raw[1 : len(raw)-1]; asWritten(inside) {
			*t = text(inside)
			return nil
		}
		return json.Unmarshal(raw, (*string)(t))
	case bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] == '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &parts) == nil {
			for _, p := range parts {
				*t += text(p.Text)
			}
			return nil
		}
	}
	*t = text(raw)
	return nil
}
