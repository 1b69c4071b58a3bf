package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// resultText is what the history holds of a result.
func resultText(result *ToolResult) string {
	if result.ForLLM == "" && result.Err != nil {
		return result.Err.Error()
	}
	return result.ForLLM
}

// tidyCalls returns the calls with a name and an id each, the ids unique within
// the reply, and with arguments that can be stored and sent.
func tidyCalls(calls []providers.ToolCall) []providers.ToolCall {
	if len(calls) == 0 {
		return nil
	}
	tidy := slices.Clone(calls)
	for i := range tidy {
		tc := &tidy[i]
		tidyArguments(tc)
		if tc.Name == "" && tc.Function != nil {
			tc.Name = tc.Function.Name
		}
		same := func(o providers.ToolCall) bool { return o.ID == tc.ID }
		if tc.ID == "" || slices.ContainsFunc(tidy[:i], same) {
			tc.ID = newCallID()
		}
	}
	return tidy
}

// tidyArguments reads the text of a call's arguments, unless the provider has,
// and makes it the JSON object that it means. Where it means none the call gets
// no arguments, and is marked with what to tell the model. Nothing else is kept:
// a broken text in a history would make every later request fail.
func tidyArguments(tc *providers.ToolCall) {
	if tc.Function == nil {
		return
	}
	text := tc.Function.Arguments
	if len(tc.Arguments) > 0 && strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text)) {
		return
	}
	object := "{}"
	switch {
	case tc.Invalid != "":
		tc.Arguments = map[string]interface{}{}
	case len(tc.Arguments) > 0:
		if data, err := json.Marshal(tc.Arguments); err == nil {
			object = string(data)
		}
	default:
		args, written, err := readArguments(text)
		switch {
		case err == nil:
			tc.Arguments, object = args, written
		case errors.Is(err, errCut):
			tc.Arguments, tc.Invalid = map[string]interface{}{}, textCut
		default:
			tc.Arguments, tc.Invalid = map[string]interface{}{}, fmt.Sprintf(textBadJSON, err)
		}
	}
	if object != text {
		tc.Function = &providers.FunctionCall{Name: tc.Function.Name, Arguments: object}
	}
}

// arguments returns a call's arguments, from their JSON text if need be. ok is
// false if the model wrote something that is no JSON object.
func arguments(tc providers.ToolCall) (args map[string]interface{}, ok bool) {
	if len(tc.Arguments) > 0 || tc.Function == nil || strings.TrimSpace(tc.Function.Arguments) == "" {
		return tc.Arguments, true
	}
	if err := json.Unmarshal([]byte(tc.Function.Arguments), &args); err != nil {
		return nil, false
	}
	if tc.Arguments != nil {
		args = tc.Arguments
	}
	return args, true
}

// unanswered returns the calls at the end of a conversation that have no result
// yet.
func unanswered(messages []providers.Message) []providers.ToolCall {
	i := len(messages) - 1
	for i >= 0 && messages[i].Role == providers.RoleTool {
		i--
	}
	if i < 0 || messages[i].Role != providers.RoleAssistant {
		return nil
	}
	answers := messages[i+1:]
	var open []providers.ToolCall
	for _, tc := range messages[i].ToolCalls {
		answered := slices.ContainsFunc(answers, func(m providers.Message) bool { return m.ToolCallID == tc.ID })
		if !answered {
			open = append(open, tc)
		}
	}
	return open
}

// wireForm returns messages[i] as providers accept it. The history keeps what
// really happened; on the wire an empty result says that it is one, and
// arguments that are not JSON, which would make every later request fail, are
// left out.
func wireForm(messages []providers.Message, i int) providers.Message {
	m := messages[i]
	if m.Role == providers.RoleTool && m.Content == "" {
		m.Content = "(tool " + toolOf(messages[:i], m.ToolCallID) + " completed with no output)"
	}
	if slices.ContainsFunc(m.ToolCalls, unfit) {
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for j := range m.ToolCalls {
			m.ToolCalls[j] = fit(m.ToolCalls[j])
		}
	}
	return m
}

// unfit reports whether a provider would refuse the call in a history.
func unfit(tc providers.ToolCall) bool {
	return tc.Name == "" || badArguments(tc)
}

func badArguments(tc providers.ToolCall) bool {
	_, ok := arguments(tc)
	return !ok
}

func fit(tc providers.ToolCall) providers.ToolCall {
	if tc.Name == "" {
		tc.Name = "unnamed"
	}
	if badArguments(tc) {
		tc.Arguments = map[string]interface{}{}
	}
	tc.Function = nil // made anew from Name and Arguments
	return tc
}

// toolOf returns the name of the call with an id, the latest one.
func toolOf(messages []providers.Message, id string) string {
	for _, m := range slices.Backward(messages) {
		for _, tc := range m.ToolCalls {
			if tc.ID == id {
				return tc.Name
			}
		}
	}
	return "call"
}
