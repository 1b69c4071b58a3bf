package textcall

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Wrap returns a provider that calls tools by way of p, a model that cannot do so
// natively. It describes the tools in the system message, sends calls and
// results as text, and returns the calls that the model writes; what it is given
// and what it returns have the ordinary form, so a conversation can go on with
// another model.
//
// A block that is no proper call is returned as a call that is Invalid, with the
// reason for the model to read. A model that makes the same call in vain, one of
// these or of a tool that does not exist, 5 times in a row, will not stop by
// itself: the fifth time is an *providers.Error with ErrCircles. A reply that holds native calls
// nevertheless is returned as it is.
func Wrap(p providers.LLMProvider) providers.LLMProvider { return &wrapped{inner: p} }

type wrapped struct{ inner providers.LLMProvider }

// Chat implements providers.LLMProvider.
func (w *wrapped) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	resp, err := w.inner.Chat(ctx, toWire(messages, tools), nil, model, options)
	if err != nil || resp == nil || len(resp.ToolCalls) > 0 {
		return resp, err
	}
	var s Splitter
	rest := s.Write(resp.Content) + s.Close(wasCut(resp))
	return reply(resp, rest, s.Blocks(), messages, tools)
}

// wasCut reports whether a reply is not whole.
func wasCut(resp *providers.LLMResponse) bool {
	return resp.FinishReason == providers.FinishLength || resp.FinishReason == providers.FinishContentFilter
}

// reply makes the ordinary form of a reply.
func reply(resp *providers.LLMResponse, rest string, blocks []Block, messages []providers.Message, tools []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if len(blocks) == 0 {
		return resp, nil
	}
	out := *resp
	out.Content = trim(rest)
	if !wasCut(resp) {
		out.FinishReason = providers.FinishToolCalls
	}
	for _, b := range blocks {
		out.ToolCalls = append(out.ToolCalls, toolCall(b))
	}
	if circles(out.ToolCalls, messages, tools) {
		return nil, &providers.Error{
			Kind:    providers.KindInvalidRequest,
			Err:     providers.ErrCircles,
			Message: fmt.Sprintf("the model wrote the same tool call, which cannot be run, %d times in a row: %s", mostInVain, out.ToolCalls[0].Name),
		}
	}
	return &out, nil
}

// unnamed is the name of a call whose name could not be read.
const unnamed = "unreadable_call"

func toolCall(b Block) providers.ToolCall {
	tc := providers.ToolCall{
		ID:        "call_" + strconv.FormatUint(rand.Uint64(), 36), //nolint:gosec // it identifies, it protects nothing
		Type:      "function",
		Name:      b.Call.ToolName,
		Arguments: map[string]interface{}{},
	}
	if tc.Name == "" {
		tc.Name = unnamed
	}
	written := "{}"
	if b.Err != nil {
		tc.Invalid = "Your tool call could not be read, and nothing was run: " + b.Err.Error() + ". Write it again in the form that you were shown."
	} else if err := json.Unmarshal(b.Call.Arguments, &tc.Arguments); err != nil {
		tc.Invalid = "The arguments could not be read, and nothing was run: " + err.Error() + "."
	} else {
		written = string(b.Call.Arguments)
	}
	tc.Function = &providers.FunctionCall{Name: tc.Name, Arguments: written}
	return tc
}

// mostInVain is how often the model may make the same call in vain.
const mostInVain = 5

// circles reports whether a reply repeats what cannot be run once too often.
func circles(calls []providers.ToolCall, messages []providers.Message, tools []providers.ToolDefinition) bool {
	for i := range calls {
		known := func(d providers.ToolDefinition) bool { return d.Function.Name == calls[i].Name }
		if calls[i].Invalid == "" && slices.ContainsFunc(tools, known) {
			return false
		}
	}
	same := func(a, b providers.ToolCall) bool {
		return a.Name == b.Name && a.Invalid == b.Invalid && argumentsOf(&a) == argumentsOf(&b)
	}
	n := 1
	for _, m := range slices.Backward(messages) {
		if m.Role == providers.RoleTool {
			continue
		}
		if m.Role != providers.RoleAssistant || !slices.EqualFunc(m.ToolCalls, calls, same) {
			break
		}
		n++
	}
	return n >= mostInVain
}
