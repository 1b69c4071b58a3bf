// Package providers is the contract between the tool loop and a language
// model: messages, tool definitions, the LLMProvider interface and its typed
// errors. Implementations live in sub-packages, one SDK each, and pass the kit
// in providerstest.
package providers

import "context"

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
)

// LLMResponse is a model's reply.
type LLMResponse struct {
	Content      string     `json:"content"`
	ToolCalls    []ToolCall `json:"tool_calls,omitempty"`
	FinishReason string     `json:"finish_reason"`
	Usage        *Usage     `json:"usage,omitempty"` // nil when the API does not tell
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
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
