package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The rules of the two APIs, each written on its own from what the API refuses.

// openAIRules returns what OpenAI's chat completions would refuse.
func openAIRules(messages []providers.Message) error {
	open := map[string]bool{} // calls of the last assistant's message without a result
	begun := false
	for i, m := range messages {
		if m.Role != providers.RoleTool && len(open) > 0 {
			return fmt.Errorf("%d: an assistant message with 'tool_calls' must be followed by tool messages, %d are missing", i, len(open))
		}
		if m.Role != providers.RoleAssistant && len(m.ToolCalls) > 0 || m.Role != providers.RoleTool && m.ToolCallID != "" {
			return fmt.Errorf("%d: a %s message with fields of others", i, m.Role)
		}
		switch m.Role {
		case providers.RoleSystem:
			if begun { // OpenAI bears it, the chat templates of many open models do not
				return fmt.Errorf("%d: system message must be at the beginning", i)
			}
		case providers.RoleUser:
			begun = true
		case providers.RoleAssistant:
			for _, tc := range m.ToolCalls {
				if tc.ID == "" || callName(&tc) == "" || open[tc.ID] {
					return fmt.Errorf("%d: a call without an id or a name of its own: %+v", i, tc)
				}
				if args := map[string]any(nil); tc.Function != nil && tc.Function.Arguments != "" && json.Unmarshal([]byte(tc.Function.Arguments), &args) != nil {
					return fmt.Errorf("%d: arguments that are no JSON object: %q", i, tc.Function.Arguments)
				}
				open[tc.ID] = true
			}
		case providers.RoleTool:
			if !open[m.ToolCallID] {
				return fmt.Errorf("%d: messages with role 'tool' must be a response to a preceding message with 'tool_calls'", i)
			}
			delete(open, m.ToolCallID)
		default:
			return fmt.Errorf("%d: role %q", i, m.Role)
		}
		if blank(m.Content) && (m.Content != "" || len(m.ToolCalls) == 0) {
			return fmt.Errorf("%d: no content", i)
		}
		if !begun && m.Role != providers.RoleSystem {
			return fmt.Errorf("%d: a %s message before any of the user", i, m.Role)
		}
	}
	if len(open) > 0 {
		return errors.New("the last calls have no results")
	}
	return nil
}

// requestRules returns what one of the two APIs would refuse as a request, which
// besides ends in something to answer.
func requestRules(messages []providers.Message) error {
	if n := len(messages); n == 0 || messages[n-1].Role == providers.RoleAssistant || messages[n-1].Role == providers.RoleSystem {
		return errors.New("there is nothing to answer")
	}
	return errors.Join(openAIRules(messages), anthropicRules(messages))
}

type block struct{ kind, id, text string }

type anthropicMessage struct {
	role   string
	blocks []block
}

// anthropicForm is what an adapter for Anthropic's API makes of messages:
// system messages apart, results in the user's messages, neighbours of one role
// merged.
func anthropicForm(messages []providers.Message) (form []anthropicMessage) {
	for _, m := range messages {
		role, blocks := m.Role, []block(nil)
		switch m.Role {
		case providers.RoleSystem:
			continue
		case providers.RoleTool:
			role, blocks = providers.RoleUser, []block{{kind: "tool_result", id: m.ToolCallID, text: m.Content}}
		default:
			if m.Content != "" {
				blocks = append(blocks, block{kind: "text", text: m.Content})
			}
			for _, tc := range m.ToolCalls {
				blocks = append(blocks, block{kind: "tool_use", id: tc.ID, text: callName(&tc)})
			}
		}
		if n := len(form); n > 0 && form[n-1].role == role {
			form[n-1].blocks = append(form[n-1].blocks, blocks...)
		} else {
			form = append(form, anthropicMessage{role, blocks})
		}
	}
	return form
}

// anthropicRules returns what Anthropic's messages API would refuse.
func anthropicRules(messages []providers.Message) error {
	form := anthropicForm(messages)
	ids := map[string]bool{}
	var uses []string // of the message before
	for i, m := range form {
		if want := []string{providers.RoleUser, providers.RoleAssistant}[i%2]; m.role != want {
			return fmt.Errorf("%d: role %s, want %s", i, m.role, want)
		}
		if len(m.blocks) == 0 {
			return fmt.Errorf("%d: all messages must have non-empty content", i)
		}
		var results, next []string
		for k, b := range m.blocks {
			switch b.kind {
			case "text":
				if strings.TrimSpace(b.text) == "" {
					return fmt.Errorf("%d: text content blocks must contain non-whitespace text", i)
				}
			case "tool_use":
				if ids[b.id] || b.id == "" || b.text == "" {
					return fmt.Errorf("%d: tool_use ids must be unique, names given: %+v", i, b)
				}
				ids[b.id] = true
				next = append(next, b.id)
			case "tool_result":
				if k != len(results) {
					return fmt.Errorf("%d: tool_result blocks come first", i)
				}
				if strings.TrimSpace(b.text) == "" {
					return fmt.Errorf("%d: text content blocks must contain non-whitespace text", i)
				}
				results = append(results, b.id)
			}
		}
		if err := sameIDs(uses, results); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
		uses = next
	}
	if len(uses) > 0 {
		return errors.New("tool_use at the end without tool_result")
	}
	return nil
}

func sameIDs(uses, results []string) error {
	left := map[string]bool{}
	for _, id := range uses {
		left[id] = true
	}
	for _, id := range results {
		if !left[id] {
			return fmt.Errorf("unexpected tool_use_id %q in tool_result", id)
		}
		delete(left, id)
	}
	if len(left) > 0 {
		return fmt.Errorf("tool_use ids without tool_result blocks: %v", left)
	}
	return nil
}
