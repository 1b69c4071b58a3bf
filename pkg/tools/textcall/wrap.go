package textcall

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Wrap returns a provider that calls tools by way of p, a model that cannot do so
// natively. It describes the tools in the system message, sends calls and
// results as text, and returns the calls that the model writes; what it is given
// and what it returns have the ordinary form, so a conversation can go on with
// another model. It is a providers.Streamer, and a providers.Checker if p is one.
//
// Thoughts are not part of the Content of a reply. A block that is no proper call
// is returned as a call that is Invalid, with the reason for the model to read,
// and so is one that is copied from what a person or a tool has written. A model
// that makes the same call in vain, one of these or of a tool that does not
// exist, 5 times in a row, will not stop by itself: the fifth time is an
// *providers.Error with ErrCircles. A reply that holds native calls nevertheless
// is returned as it is.
//
// Streaming tells text as soon as it is certain that it is none of a call, and
// thoughts as such. All of it together is the Content, but for the space at both
// ends; more is told only of a reply with native calls, and of one that turns out
// to have begun with thoughts by a </think> without its beginning.
func Wrap(p providers.LLMProvider) providers.LLMProvider {
	w := &wrapped{inner: p}
	if c, ok := p.(providers.Checker); ok {
		return struct {
			*wrapped
			providers.Checker
		}{w, c}
	}
	return w
}

type wrapped struct{ inner providers.LLMProvider }

// Chat implements providers.LLMProvider.
func (w *wrapped) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	return w.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements providers.Streamer.
func (w *wrapped) ChatStream(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	wire := toWire(messages, tools)
	if onDelta == nil {
		resp, err := w.inner.Chat(ctx, wire, nil, model, options)
		return reply(resp, err, messages, tools)
	}
	s := speaker{tell: onDelta}
	resp, err := providers.Stream(ctx, w.inner, wire, nil, model, options, s.hear)
	if err == nil && resp != nil {
		s.say(s.split.Close(wasCut(resp)))
	}
	return reply(resp, err, messages, tools)
}

// speaker tells of a reply what is for telling.
type speaker struct {
	split Splitter
	tell  func(providers.Delta)
	begun bool // a text has been told
}

func (s *speaker) hear(d providers.Delta) {
	if d.Reasoning != "" {
		s.tell(providers.Delta{Reasoning: d.Reasoning})
	}
	s.say(s.split.Write(d.Text))
}

func (s *speaker) say(text, thought string) {
	if !s.begun {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		s.begun = text != ""
	}
	if text != "" || thought != "" {
		s.tell(providers.Delta{Text: text, Reasoning: thought})
	}
}

// wasCut reports whether a reply is not whole.
func wasCut(resp *providers.LLMResponse) bool {
	return resp.FinishReason == providers.FinishLength || resp.FinishReason == providers.FinishContentFilter
}

// reply makes the ordinary form of a reply.
func reply(resp *providers.LLMResponse, err error, messages []providers.Message, tools []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if err != nil || resp == nil || len(resp.ToolCalls) > 0 {
		return resp, err
	}
	rest, blocks := split(resp.Content, wasCut(resp))
	if rest == resp.Content {
		return resp, nil
	}
	out := *resp
	out.Content = trim(rest)
	if len(blocks) == 0 {
		return &out, nil
	}
	if !wasCut(resp) {
		out.FinishReason = providers.FinishToolCalls
	}
	copied := copies(blocks, messages, tools)
	for i, b := range blocks {
		tc := toolCall(b)
		if copied[i] {
			tc.Invalid = textCopied
		}
		out.ToolCalls = append(out.ToolCalls, tc)
	}
	if Circles(out.ToolCalls, messages, tools) {
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

// Circles reports whether Wrap's provider, given messages and tools, ends with
// ErrCircles at a reply that makes these calls: they have been made in vain too
// often.
func Circles(calls []providers.ToolCall, messages []providers.Message, tools []providers.ToolDefinition) bool {
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
