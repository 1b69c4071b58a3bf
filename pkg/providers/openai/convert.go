package openai

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// request builds the API's request. Nothing of the caller's is changed.
func (p *Provider) request(messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]any) (sdk.ChatCompletionRequest, error) {
	req := sdk.ChatCompletionRequest{Model: model, Messages: convertMessages(messages)}
	defs, err := p.schemas.convert(tools)
	if err != nil {
		return req, err
	}
	req.Tools = defs
	return req, setOptions(&req, options)
}

// convertMessages turns messages into the API's. The API refuses a message
// without text, so an empty one is given some.
func convertMessages(messages []providers.Message) []sdk.ChatCompletionMessage {
	out := make([]sdk.ChatCompletionMessage, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		w := sdk.ChatCompletionMessage{Role: m.Role, Content: m.Content, ToolCallID: wireID(m.ToolCallID)}
		if len(m.ToolCalls) > 0 {
			w.ToolCalls = convertCalls(m.ToolCalls)
		}
		if m.Content == "" && len(m.ToolCalls) == 0 {
			switch m.Role {
			case providers.RoleSystem:
				continue
			case providers.RoleTool:
				w.Content = "(no output)"
			default:
				w.Content = "(no text)"
			}
		}
		out = append(out, w)
	}
	return out
}

func convertCalls(calls []providers.ToolCall) []sdk.ToolCall {
	out := make([]sdk.ToolCall, len(calls))
	for i := range calls {
		c := &calls[i]
		name := c.Name
		if name == "" && c.Function != nil {
			name = c.Function.Name
		}
		out[i] = sdk.ToolCall{ID: wireID(c.ID), Type: sdk.ToolTypeFunction, Function: sdk.FunctionCall{Name: alias(name), Arguments: wireArguments(c)}}
	}
	return out
}

// wireArguments returns the arguments of a call in a history as the text of a
// JSON object, whatever the model wrote at the time.
func wireArguments(c *providers.ToolCall) string {
	if c.Function != nil {
		if isObject(c.Function.Arguments) {
			return c.Function.Arguments
		}
		if c.Function.Arguments != "" && len(c.Arguments) == 0 {
			return "{}"
		}
	}
	if len(c.Arguments) == 0 {
		return "{}"
	}
	text, err := json.Marshal(c.Arguments)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text))
}

// readCalls makes calls of drafts. names leads from aliases back to tools.
func readCalls(calls []*draft, names map[string]string) []providers.ToolCall {
	out := make([]providers.ToolCall, len(calls))
	for i := range calls {
		c := calls[i]
		name := c.name
		if original, ok := names[name]; ok {
			name = original
		}
		args, text := decodeArguments(c.arguments.String())
		out[i] = providers.ToolCall{
			ID: callID(c.id, out[:i]), Type: "function", Name: name, Arguments: args,
			Function: &providers.FunctionCall{Name: name, Arguments: text},
		}
	}
	return out
}

// callID returns id, or a fresh one where a server sent none or the same twice:
// with either, the results could not be told apart.
func callID(id string, before []providers.ToolCall) string {
	fresh := id == ""
	for i := range before {
		fresh = fresh || before[i].ID == id
	}
	if fresh {
		return "call_" + rand.Text()[:20]
	}
	return id
}

// decodeArguments reads the arguments of a call: a JSON object, one written as
// a string, or nothing. It returns them with their text; if they cannot be
// read, no arguments and the text as it was.
func decodeArguments(text string) (args map[string]any, wire string) {
	wire = text
	for range 3 { // as deep as models were seen to wrap it
		trimmed := strings.TrimSpace(wire)
		if trimmed == "" || trimmed == "null" {
			return map[string]any{}, "{}"
		}
		if json.Unmarshal([]byte(trimmed), &args) == nil {
			return args, trimmed
		}
		if json.Unmarshal([]byte(trimmed), &wire) != nil {
			break
		}
	}
	return map[string]any{}, text
}
