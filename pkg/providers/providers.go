// Package providers is the contract between the tool loop and a language
// model: messages, tool definitions, the LLMProvider interface and its typed
// errors. Implementations live in sub-packages, one SDK each, and pass the kit
// in providerstest.
package providers

import (
	"context"
	"encoding/json"
)

// LLMProvider is a language model behind some API.
type LLMProvider interface {
	// Chat sends the conversation and returns the model's whole reply.
	//
	// messages are oldest first and are not changed. tools may be empty. model
	// is the API's name for the model. options are API parameters by their
	// OpenAI names ("max_tokens", "temperature", "top_p", "stop", ...); nil is
	// fine and an unknown one is ignored. Chat blocks until the reply is
	// complete or ctx ends, retries what is worth retrying by itself, and is
	// safe for concurrent use. A failure is an *Error, or ctx's own error.
	Chat(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}) (*LLMResponse, error)
}

// Streamer is a provider that tells a reply while it is being made.
type Streamer interface {
	// ChatStream is Chat. Until it returns it calls onDelta with each piece of
	// the reply, in order and on the calling goroutine; onDelta must not block
	// for long and is not nil. What it returns is the whole reply, as from Chat,
	// and only that decides what happens next: pieces are for showing. Once
	// onDelta has been given a text, the request is not sent again; a failure
	// then is final, here and in a Chain.
	ChatStream(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}, onDelta func(Delta)) (*LLMResponse, error)
}

// Delta is a piece of a reply.
type Delta struct {
	Text      string // more of LLMResponse.Content
	Reasoning string // more of the model's thoughts, which are not for the person
}

// Stream asks p as a Streamer if it is one and onDelta is not nil. Otherwise it
// asks as ever, and the whole text is one piece.
func Stream(ctx context.Context, p LLMProvider, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}, onDelta func(Delta)) (*LLMResponse, error) {
	if s, ok := p.(Streamer); ok && onDelta != nil {
		return s.ChatStream(ctx, messages, tools, model, options, onDelta)
	}
	resp, err := p.Chat(ctx, messages, tools, model, options)
	if err == nil && resp != nil && resp.Content != "" && onDelta != nil {
		onDelta(Delta{Text: resp.Content})
	}
	return resp, err
}

// Message roles.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one entry of a conversation.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // assistant messages only
	ToolCallID string     `json:"tool_call_id,omitempty"` // tool messages only: the call it answers

	// Opaque is LLMResponse.Opaque of the reply that an assistant message was.
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// ToolCall is one call the model asks for. Name and Arguments are what the loop
// uses; Function is the wire form, with the arguments as the JSON text the
// model wrote. A provider fills in both.
type ToolCall struct {
	ID        string                 `json:"id"`
	Type      string                 `json:"type,omitempty"` // "function"
	Function  *FunctionCall          `json:"function,omitempty"`
	Name      string                 `json:"name,omitempty"`
	Arguments map[string]interface{} `json:"arguments,omitempty"`

	// Invalid says, to the model, why a call could not be read; such a call is
	// answered with it and not run. Providers set it, "" for a good call.
	Invalid string `json:"invalid,omitempty"`
}

// FunctionCall is the wire form of a call.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // a JSON object as text
}

// Finish reasons. Others are passed on as the API gave them.
const (
	FinishStop          = "stop"
	FinishToolCalls     = "tool_calls"
	FinishLength        = "length"
	FinishContentFilter = "content_filter"
	FinishRefusal       = "refusal" // the model declines; its calls are not run
	FinishPause         = "pause"   // the service stopped on the way and goes on when asked again
)

// LLMResponse is a model's reply.
type LLMResponse struct {
	Content      string     `json:"content"`
	ToolCalls    []ToolCall `json:"tool_calls,omitempty"`
	FinishReason string     `json:"finish_reason"`
	Usage        *Usage     `json:"usage,omitempty"` // nil when the API does not tell

	// Opaque is what the API wants to see again with this reply, such as signed
	// thoughts: a JSON object with one key, the name of the provider that made
	// it. Nobody else looks into it, and other providers leave it out.
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`

	// Parts of the above, 0 where the API does not tell.
	CacheReadTokens  int `json:"cache_read_tokens,omitempty"`  // of PromptTokens, read from the API's cache
	CacheWriteTokens int `json:"cache_write_tokens,omitempty"` // of PromptTokens, put into it
	ReasoningTokens  int `json:"reasoning_tokens,omitempty"`   // of CompletionTokens, thoughts

	Estimated bool `json:"estimated,omitempty"` // counted by us, because the API did not tell
}

// Add adds what another request cost.
func (u *Usage) Add(v Usage) {
	u.PromptTokens += v.PromptTokens
	u.CompletionTokens += v.CompletionTokens
	u.TotalTokens += v.TotalTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.Estimated = u.Estimated || v.Estimated
}

// ToolDefinition describes one tool to the model.
type ToolDefinition struct {
	Type     string                 `json:"type"` // "function"
	Function ToolFunctionDefinition `json:"function"`
}

// ToolFunctionDefinition is the body of a ToolDefinition. Parameters is a JSON
// Schema object and is shared between requests: never change it.
type ToolFunctionDefinition struct {
	Name        string                 `json:"name"`
	Description string                 `json:"description"`
	Parameters  map[string]interface{} `json:"parameters"`
}

// Checker is a provider that can be asked whether it works.
type Checker interface {
	// Check returns nil if the service answers and takes the key, otherwise an
	// *Error. It costs nothing at the API, tries once, and blocks until there
	// is an answer or ctx ends.
	Check(ctx context.Context) error
}
