package providerstest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// toolLists remembers the lists of tools it has accepted: a busy caller sends
// the same one with every request, and checking it costs more than the rest.
type toolLists struct {
	mu    sync.Mutex // requests arrive on many goroutines
	known map[string][]providers.ToolDefinition
}

func (l *toolLists) parse(raw json.RawMessage) ([]providers.ToolDefinition, *apiError) {
	l.mu.Lock()
	defs, ok := l.known[string(raw)]
	l.mu.Unlock()
	if ok {
		return defs, nil
	}
	defs, e := parseTools(raw)
	if e != nil {
		return nil, e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= 64 {
		l.known = make(map[string][]providers.ToolDefinition)
	}
	l.known[string(raw)] = defs
	return defs, nil
}

func parseTools(raw json.RawMessage) ([]providers.ToolDefinition, *apiError) {
	var wire []wireTool
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, badRequest("Invalid type for 'tools': "+err.Error(), "tools", "invalid_type")
	}
	if len(wire) == 0 {
		return nil, badRequest("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.", "tools", "empty_array")
	}
	if len(wire) > 128 {
		return nil, badRequest("Invalid 'tools': array too long. Expected an array with maximum length 128.", "tools", "array_above_max_length")
	}
	defs := make([]providers.ToolDefinition, len(wire))
	seen := make(map[string]bool, len(wire))
	for i, t := range wire {
		param := fmt.Sprintf("tools[%d].function", i)
		if t.Type != "function" || t.Function == nil {
			return nil, badRequest("Missing required parameter: '"+param+"'.", param, "missing_required_parameter")
		}
		if !validName(t.Function.Name) {
			return nil, badName(param + ".name")
		}
		if seen[t.Function.Name] {
			return nil, badRequest("Tool names must be unique: "+t.Function.Name, param+".name", "invalid_value")
		}
		seen[t.Function.Name] = true
		params, e := parseParameters(t.Function.Name, param, t.Function.Parameters)
		if e != nil {
			return nil, e
		}
		defs[i] = providers.ToolDefinition{Type: t.Type, Function: providers.ToolFunctionDefinition{
			Name: t.Function.Name, Description: t.Function.Description, Parameters: params,
		}}
	}
	return defs, nil
}

func parseParameters(name, param string, raw json.RawMessage) (map[string]any, *apiError) {
	if raw == nil {
		return nil, nil
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil || schema == nil {
		return nil, badRequest("Invalid type for '"+param+".parameters': expected an object.", param+".parameters", "invalid_type")
	}
	if schema["type"] != "object" {
		return nil, badRequest(fmt.Sprintf("Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%v\"'.", name, schema["type"]),
			param+".parameters", "invalid_function_parameters")
	}
	if _, ok := schema["properties"].(map[string]any); !ok {
		return nil, badRequest(fmt.Sprintf("Invalid schema for function '%s': In context=(), object schema missing properties.", name),
			param+".parameters", "invalid_function_parameters")
	}
	if req, ok := schema["required"]; ok {
		if _, ok := req.([]any); !ok {
			return nil, badRequest(fmt.Sprintf("Invalid schema for function '%s': 'required' is not of type 'array'.", name), param+".parameters", "invalid_function_parameters")
		}
	}
	return schema, nil
}

// reasoning reports whether a model name belongs to the families that take
// max_completion_tokens and no sampling parameters.
func reasoning(model string) bool {
	for _, prefix := range []string{"o1", "o3", "o4", "gpt-5"} {
		if strings.HasPrefix(model, prefix) {
			return true
		}
	}
	return false
}

// checkOptions refuses values out of range, and what reasoning models do not
// take.
func checkOptions(req *Request) *apiError {
	o := req.Options
	if o["stream_options"] != nil && !req.Stream {
		return badRequest("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", "")
	}
	if len(req.Tools) == 0 {
		for _, name := range []string{"tool_choice", "parallel_tool_calls"} {
			if v, ok := o[name]; ok && v != nil {
				return badRequest(fmt.Sprintf("Invalid value for '%s': '%s' is only allowed when 'tools' are specified.", name, name), name, "")
			}
		}
	}
	if e := checkRanges(o); e != nil {
		return e
	}
	if !reasoning(req.Model) {
		return nil
	}
	if _, ok := o["max_tokens"]; ok {
		return badRequest("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "max_tokens", "unsupported_parameter")
	}
	if v, ok := o["temperature"]; ok && v != float64(1) {
		return badRequest(fmt.Sprintf("Unsupported value: 'temperature' does not support %v with this model. Only the default (1) value is supported.", v), "temperature", "unsupported_value")
	}
	for _, name := range []string{"top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "logit_bias"} {
		if _, ok := o[name]; ok {
			return badRequest("Unsupported parameter: '"+name+"' is not supported with this model.", name, "unsupported_parameter")
		}
	}
	return nil
}

func checkRanges(o map[string]any) *apiError {
	ranges := []struct {
		name     string
		min, max float64
	}{
		{"temperature", 0, 2},
		{"top_p", 0, 1},
		{"presence_penalty", -2, 2},
		{"frequency_penalty", -2, 2},
		{"max_tokens", 1, 1 << 31},
		{"max_completion_tokens", 1, 1 << 31},
		{"n", 1, 128},
	}
	for _, r := range ranges {
		v, ok := o[r.name]
		if !ok || v == nil {
			continue
		}
		f, ok := v.(float64)
		if !ok {
			return badRequest("Invalid type for '"+r.name+"': expected a decimal.", r.name, "invalid_type")
		}
		if f < r.min || f > r.max {
			return badRequest(fmt.Sprintf("Invalid '%s': expected a value between %v and %v, but got %v instead.", r.name, r.min, r.max, f), r.name, "invalid_value")
		}
	}
	if list, ok := o["stop"].([]any); ok && len(list) > 4 {
		return badRequest("Invalid 'stop': array too long. Expected an array with maximum length 4.", "stop", "array_above_max_length")
	}
	return nil
}
