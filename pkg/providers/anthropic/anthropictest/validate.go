package anthropictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// The request's wire form, with all the fields that may be there.
type (
	wireRequest struct {
		Model       string             `json:"model"`
		MaxTokens   *int               `json:"max_tokens"`
		System      []wireBlock        `json:"system"`
		Messages    []wireMessage      `json:"messages"`
		Tools       []wireTool         `json:"tools"`
		ToolChoice  *wireChoice        `json:"tool_choice"`
		Thinking    *wireThinking      `json:"thinking"`
		Output      *wireOutput        `json:"output_config"`
		Temperature *float64           `json:"temperature"`
		TopP        *float64           `json:"top_p"`
		TopK        *int               `json:"top_k"`
		Stop        []string           `json:"stop_sequences"`
		Stream      bool               `json:"stream"`
		Tier        string             `json:"service_tier"`
		Metadata    *map[string]string `json:"metadata"`
	}
	wireMessage struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	// wireBlock is a block of any type.
	wireBlock struct {
		Type      string          `json:"type"`
		Text      *string         `json:"text"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		IsError   bool            `json:"is_error"`
		Thinking  *string         `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		Cache     *wireCache      `json:"cache_control"`
	}
	wireCache struct {
		Type string `json:"type"`
		TTL  string `json:"ttl"`
	}
	wireTool struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Schema      map[string]any `json:"input_schema"`
		Cache       *wireCache     `json:"cache_control"`
	}
	wireChoice struct {
		Type            string `json:"type"`
		Name            string `json:"name"`
		DisableParallel bool   `json:"disable_parallel_tool_use"`
	}
	wireThinking struct {
		Type    string `json:"type"`
		Budget  int    `json:"budget_tokens"`
		Display string `json:"display"`
	}
	wireOutput struct {
		Effort string         `json:"effort"`
		Format map[string]any `json:"format"`
	}
)

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// parse reads a request and refuses what the API refuses.
func parse(body []byte) (providerstest.Request, *apiError) {
	req := providerstest.Request{Body: body, Options: make(map[string]any)}
	var wire wireRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&wire); err != nil {
		return req, badRequest(err.Error() + ": Extra inputs are not permitted, and types must fit")
	}
	_ = json.Unmarshal(body, &req.Options) // it was read before
	for _, name := range []string{"model", "messages", "system", "tools"} {
		delete(req.Options, name)
	}
	req.Model = wire.Model
	c := checker{wire: &wire, thinking: thinks(req.Options)}
	req.Messages = c.conversation()
	req.Tools = c.tools()
	c.options()
	c.cacheMarks()
	return req, c.err
}

// thinks reports whether a model is to think.
func thinks(options map[string]any) bool {
	t, ok := options["thinking"].(map[string]any)
	return ok && t["type"] != "disabled"
}

// checker keeps the first thing that is wrong.
type checker struct {
	wire     *wireRequest
	thinking bool
	marks    int
	called   bool // there are calls or results
	err      *apiError
}

func (c *checker) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = badRequest(fmt.Sprintf(format, args...))
	}
}

func (c *checker) mark(at string, mark *wireCache) {
	if mark == nil {
		return
	}
	if c.marks++; mark.Type != "ephemeral" {
		c.refuse("%s.cache_control.type: must be ephemeral", at)
	}
}

func (c *checker) cacheMarks() {
	if c.marks > 4 {
		c.refuse("A maximum of 4 blocks with cache_control may be provided. Found %d.", c.marks)
	}
}

// conversation reads the messages, each result and text of the user as one of
// its own.
func (c *checker) conversation() (out []providers.Message) {
	for i, b := range c.wire.System {
		at := fmt.Sprintf("system.%d", i)
		c.text(at, &b)
		if c.mark(at, b.Cache); b.Type == "text" && b.Text != nil {
			out = append(out, providers.Message{Role: providers.RoleSystem, Content: *b.Text})
		}
	}
	messages := c.wire.Messages
	if len(messages) == 0 {
		c.refuse("messages: at least one message is required")
		return nil
	}
	ids := make(map[string]bool)
	var open map[string]bool // calls of the message before
	for i, m := range messages {
		at := fmt.Sprintf("messages.%d", i)
		switch want := []string{"user", "assistant"}[i%2]; {
		case i == 0 && m.Role != want:
			c.refuse(`messages: first message must use the "user" role`)
		case m.Role != want:
			c.refuse("messages: roles must alternate between \"user\" and \"assistant\", but found multiple %q roles in a row", m.Role)
		}
		blocks := c.blocks(at, m.Content)
		if m.Role == "user" {
			out = append(out, c.user(at, blocks, open)...)
			open = nil
			continue
		}
		var reply providers.Message
		reply, open = c.assistant(at, blocks, ids)
		out = append(out, reply)
		if i == len(messages)-1 {
			c.refuse("This model does not support assistant message prefill. The conversation must end with a user message.")
		}
	}
	c.thoughtFirst(messages)
	return out
}

// blocks reads a content: a text, or a list of blocks.
func (c *checker) blocks(at string, raw json.RawMessage) (list []wireBlock) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		list = []wireBlock{{Type: "text", Text: &text}}
	} else {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&list); err != nil {
			c.refuse("%s.content: %v", at, err)
		}
	}
	if len(list) == 0 {
		c.refuse("%s: all messages must have non-empty content except for the optional final assistant message", at)
	}
	return list
}

func (c *checker) text(at string, b *wireBlock) {
	switch {
	case b.Type != "text" || b.Text == nil:
		c.refuse("%s.text: Field required", at)
	case *b.Text == "":
		c.refuse("%s: text content blocks must be non-empty", at)
	case strings.TrimSpace(*b.Text) == "":
		c.refuse("%s: text content blocks must contain non-whitespace text", at)
	}
}

// user checks a message of the user; open are the calls it has to answer.
func (c *checker) user(at string, blocks []wireBlock, open map[string]bool) (out []providers.Message) {
	texts := false
	for j := range blocks {
		b, at := &blocks[j], fmt.Sprintf("%s.content.%d", at, j)
		c.mark(at, b.Cache)
		switch b.Type {
		case "text":
			c.text(at, b)
			texts = true
			if b.Text != nil {
				out = append(out, providers.Message{Role: providers.RoleUser, Content: *b.Text})
			}
		case "tool_result":
			if texts {
				c.refuse("%s: `tool_result` blocks must come first in the content", at)
			}
			out = append(out, c.result(at, b, open))
		default:
			c.refuse("%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, b.Type)
		}
	}
	for id := range open {
		c.refuse("%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", at, id)
	}
	return out
}

// result checks a result and takes its call out of open.
func (c *checker) result(at string, b *wireBlock, open map[string]bool) providers.Message {
	c.called = true
	if !open[b.ToolUseID] {
		c.refuse("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at, b.ToolUseID)
	}
	delete(open, b.ToolUseID)
	var content strings.Builder
	if len(b.Content) > 0 {
		for _, part := range c.blocks(at, b.Content) {
			c.text(at, &part)
			if part.Text != nil {
				content.WriteString(*part.Text)
			}
		}
	}
	return providers.Message{Role: providers.RoleTool, ToolCallID: b.ToolUseID, Content: content.String()}
}

// assistant checks a reply and returns its calls.
func (c *checker) assistant(at string, blocks []wireBlock, ids map[string]bool) (m providers.Message, open map[string]bool) {
	m.Role, open = providers.RoleAssistant, make(map[string]bool)
	for j := range blocks {
		b, at := &blocks[j], fmt.Sprintf("%s.content.%d", at, j)
		c.mark(at, b.Cache)
		switch b.Type {
		case "text":
			if c.text(at, b); b.Text != nil {
				m.Content += *b.Text
			}
		case "tool_use":
			c.call(at, b, ids)
			open[b.ID] = true
			call := providers.ToolCall{
				ID: b.ID, Type: "function", Name: b.Name,
				Function: &providers.FunctionCall{Name: b.Name, Arguments: string(b.Input)},
			}
			if json.Unmarshal(b.Input, &call.Arguments) != nil || call.Arguments == nil {
				c.refuse("%s.input: Input should be a valid dictionary", at)
			}
			m.ToolCalls = append(m.ToolCalls, call)
		case "thinking", "redacted_thinking":
			c.thought(at, b, j == len(blocks)-1)
		case "server_tool_use", "web_search_tool_result":
		default:
			c.refuse("%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, b.Type)
		}
	}
	return m, open
}

func (c *checker) call(at string, b *wireBlock, ids map[string]bool) {
	c.called = true
	switch {
	case b.ID == "" || strings.Trim(b.ID, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		c.refuse("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
	case ids[b.ID]:
		c.refuse("messages: `tool_use` ids must be unique")
	case !namePattern.MatchString(b.Name):
		c.refuse("%s.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", at)
	}
	ids[b.ID] = true
}

func (c *checker) thought(at string, b *wireBlock, last bool) {
	switch {
	case b.Cache != nil:
		c.refuse("%s.cache_control: Extra inputs are not permitted", at)
	case last:
		c.refuse("%s: The final block in an assistant message cannot be `thinking`.", at)
	case b.Type == "thinking" && (b.Thinking == nil || b.Signature != sign(*b.Thinking)):
		c.refuse("%s: Invalid `signature` in `thinking` block", at)
	case b.Type == "redacted_thinking" && !strings.HasPrefix(b.Data, "encrypted"):
		c.refuse("%s: Invalid `data` in `redacted_thinking` block", at)
	}
}

// thoughtFirst: a model that thinks by a budget goes on after calls only if it
// had thought about them.
func (c *checker) thoughtFirst(messages []wireMessage) {
	n := len(messages)
	if c.wire.Thinking == nil || c.wire.Thinking.Type != "enabled" || n < 2 || c.err != nil {
		return
	}
	results, calls := c.blocks("", messages[n-1].Content), c.blocks("", messages[n-2].Content)
	if results[0].Type == "tool_result" && !strings.Contains(calls[0].Type, "thinking") {
		c.refuse("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block", n-2, calls[0].Type)
	}
}
