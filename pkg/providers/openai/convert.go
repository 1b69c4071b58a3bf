package openai

import (
	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// request builds the API's request. Nothing of the caller's is changed.
func (p *Provider) request(messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]any) (sdk.ChatCompletionRequest, error) {
	req := sdk.ChatCompletionRequest{Model: model, Messages: convertMessages(messages)}
	defs, err := p.convertTools(tools)
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
		out[i] = sdk.ToolCall{ID: wireID(c.ID), Type: sdk.ToolTypeFunction, Function: sdk.FunctionCall{Name: httpapi.Alias(httpapi.CallName(c)), Arguments: httpapi.WireArguments(c)}}
	}
	return out
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
		args, text := httpapi.DecodeArguments(c.arguments.String())
		out[i] = providers.ToolCall{
			ID: httpapi.CallID("call_", c.id, out[:i]), Type: "function", Name: name, Arguments: args,
			Function: &providers.FunctionCall{Name: name, Arguments: text},
		}
	}
	return out
}
