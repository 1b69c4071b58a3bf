package providerstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The request's wire form. Pointers and raw messages tell "absent" from
// "empty", which the API treats differently.
type (
	wireMessage struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		Name       string          `json:"name"`
		ToolCalls  *[]wireCall     `json:"tool_calls"`
		ToolCallID string          `json:"tool_call_id"`
	}
	wireCall struct {
		ID       string        `json:"id"`
		Type     string        `json:"type"`
		Function *wireFunction `json:"function"`
	}
	wireFunction struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	}
	wireTool struct {
		Type     string `json:"type"`
		Function *struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
)

// known lists the request fields the API has. Anything else is refused, as the
// API does, with the exception of fields that compatible servers added.
func known(field string) bool {
	switch field {
	case "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens",
		"temperature", "top_p", "n", "stop", "stream", "stream_options", "presence_penalty", "frequency_penalty",
		"seed", "user", "logit_bias", "logprobs", "top_logprobs", "response_format", "reasoning_effort", "verbosity",
		"service_tier", "store", "metadata", "prediction", "safety_identifier", "prompt_cache_key", "modalities",
		"functions", "function_call", "chat_template_kwargs":
		return true
	}
	return false
}

// parse reads a request and refuses what the API refuses.
func (s *Server) parse(body []byte) (Request, *apiError) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return Request{}, badRequest("We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly.)", "", "")
	}
	req := Request{Body: body, Options: make(map[string]any)}
	for name, raw := range fields {
		if !known(name) {
			return req, badRequest("Unrecognized request argument supplied: "+name, "", "unknown_parameter")
		}
		if name == "model" || name == "messages" || name == "tools" {
			continue
		}
		var v any
		_ = json.Unmarshal(raw, &v) // a part of valid JSON is valid
		req.Options[name] = v
	}
	req.Stream = req.Options["stream"] == true
	if err := json.Unmarshal(orEmpty(fields["model"]), &req.Model); err != nil || req.Model == "" {
		return req, badRequest("you must provide a model parameter", "model", "")
	}
	if e := parseMessages(fields["messages"], &req); e != nil {
		return req, e
	}
	if raw, ok := fields["tools"]; ok {
		var e *apiError
		if req.Tools, e = s.tools.parse(raw); e != nil {
			return req, e
		}
	}
	return req, checkOptions(&req)
}

func orEmpty(raw json.RawMessage) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

func parseMessages(raw json.RawMessage, req *Request) *apiError {
	var wire []wireMessage
	if raw == nil {
		return badRequest("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return badRequest("Invalid type for 'messages': "+err.Error(), "messages", "invalid_type")
	}
	if len(wire) == 0 {
		return badRequest("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.", "messages", "empty_array")
	}
	req.Messages = make([]providers.Message, len(wire))
	for i := range wire {
		m, e := parseMessage(i, &wire[i])
		if e != nil {
			return e
		}
		req.Messages[i] = m
	}
	return checkPairs(req.Messages)
}

func parseMessage(i int, w *wireMessage) (providers.Message, *apiError) {
	m := providers.Message{Role: w.Role, ToolCallID: w.ToolCallID}
	switch w.Role {
	case providers.RoleSystem, "developer", providers.RoleUser, providers.RoleAssistant, providers.RoleTool:
	default:
		return m, badRequest(fmt.Sprintf("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", w.Role),
			fmt.Sprintf("messages[%d].role", i), "invalid_value")
	}
	if w.ToolCalls != nil {
		if w.Role != providers.RoleAssistant {
			return m, badRequest("'tool_calls' is only allowed in messages with role 'assistant'.", fmt.Sprintf("messages[%d].tool_calls", i), "invalid_value")
		}
		calls, e := parseCalls(i, *w.ToolCalls)
		if e != nil {
			return m, e
		}
		m.ToolCalls = calls
	}
	content, ok := contentText(w.Content)
	if !ok && len(m.ToolCalls) == 0 {
		return m, badRequest("Invalid value for 'content': expected a string, got null.", fmt.Sprintf("messages[%d].content", i), "invalid_type")
	}
	m.Content = content
	if w.Role == providers.RoleTool && w.ToolCallID == "" {
		return m, badRequest(fmt.Sprintf("Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id' (messages[%d]).", i), "messages", "missing_required_parameter")
	}
	return m, nil
}

// contentText reads a string or a list of text parts. ok is false for neither.
func contentText(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", false
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), true
}

func parseCalls(i int, wire []wireCall) ([]providers.ToolCall, *apiError) {
	param := fmt.Sprintf("messages[%d].tool_calls", i)
	if len(wire) == 0 {
		return nil, badRequest("Invalid '"+param+"': empty array. Expected an array with minimum length 1, but got an empty array instead.", param, "empty_array")
	}
	calls := make([]providers.ToolCall, len(wire))
	seen := make(map[string]bool, len(wire))
	for j, c := range wire {
		switch {
		case c.ID == "":
			return nil, badRequest(fmt.Sprintf("Missing required parameter: '%s[%d].id'.", param, j), param, "missing_required_parameter")
		case len(c.ID) > 40:
			return nil, badRequest(fmt.Sprintf("Invalid '%s[%d].id': string too long. Expected a string with maximum length 40, but got a string with length %d instead.", param, j, len(c.ID)),
				fmt.Sprintf("%s[%d].id", param, j), "string_above_max_length")
		case seen[c.ID]:
			return nil, badRequest(fmt.Sprintf("Duplicate value for 'tool_call_id' of '%s'.", c.ID), param, "invalid_value")
		case c.Type != "function":
			return nil, badRequest(fmt.Sprintf("Missing required parameter: '%s[%d].type'.", param, j), param, "missing_required_parameter")
		case c.Function == nil || !validName(c.Function.Name):
			return nil, badName(fmt.Sprintf("%s[%d].function.name", param, j))
		case c.Function.Arguments == nil:
			return nil, badRequest(fmt.Sprintf("Missing required parameter: '%s[%d].function.arguments'.", param, j), param, "missing_required_parameter")
		}
		seen[c.ID] = true
		// OpenAI itself takes any text here; stricter servers behind the same
		// API answer 400 for ever once a history holds a broken one.
		var args map[string]any
		if err := json.Unmarshal([]byte(*c.Function.Arguments), &args); err != nil || args == nil {
			return nil, badRequest(fmt.Sprintf("'%s[%d].function.arguments' is not a JSON object.", param, j), param, "invalid_value")
		}
		calls[j] = providers.ToolCall{
			ID: c.ID, Type: c.Type, Name: c.Function.Name, Arguments: args,
			Function: &providers.FunctionCall{Name: c.Function.Name, Arguments: *c.Function.Arguments},
		}
	}
	return calls, nil
}

const orphan = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'." //nolint:misspell // the API's own spelling

// checkPairs refuses a tool message without its call, and a call without its
// tool message directly behind it.
func checkPairs(messages []providers.Message) *apiError {
	var open []string // ids of the last calls that have no answer yet
	for i, m := range messages {
		if m.Role == providers.RoleTool {
			at := indexOf(open, m.ToolCallID)
			if at < 0 {
				return badRequest(orphan, fmt.Sprintf("messages.[%d].role", i), "")
			}
			open = append(open[:at], open[at+1:]...)
			continue
		}
		if len(open) > 0 {
			return unanswered(open)
		}
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return unanswered(open)
	}
	return nil
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

func unanswered(ids []string) *apiError {
	return badRequest("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
		"The following tool_call_ids did not have response messages: "+strings.Join(ids, ", "), "messages", "")
}

// validName reports whether the API takes s as the name of a function.
func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func badName(param string) *apiError {
	return badRequest("Invalid '"+param+"': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' and has at most 64 characters.", param, "invalid_value")
}
