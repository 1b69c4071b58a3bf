package anthropic

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// What the API is told where there is nothing to tell it.
const (
	textNoText   = "(no text)"
	textNoOutput = "(no output)"
	textNoResult = "No result is known: the call was interrupted."
	textEarlier  = "(What was said before is left out.)"
	textGoOn     = "(Go on.)"
)

// body builds the API's request as JSON, the same for the same input. Nothing
// of the caller's is changed. Without thoughts, opaque parts are left out.
func (p *Provider) body(messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]any, thoughts bool) ([]byte, error) {
	req := sdk.MessageNewParams{Model: model}
	w := writer{thoughts: thoughts}
	for i := range messages {
		w.message(messages, i)
	}
	w.end()
	req.System, req.Messages = w.system, w.out
	var err error
	if req.Tools, err = p.convertTools(tools); err != nil {
		return nil, err
	}
	if err := setOptions(&req, options); err != nil {
		return nil, err
	}
	if len(tools) == 0 && len(w.names) > 0 {
		forbidTools(&req, w.names)
	}
	markCache(&req)
	raw, err := req.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return append(bytes.TrimSuffix(raw, []byte("}")), `,"stream":true}`...), nil
}

// writer writes a conversation the way the API wants it: it begins and ends with
// the user, roles take turns, and the results of a message's calls are what the
// next message begins with.
type writer struct {
	thoughts bool
	system   []sdk.TextBlockParam
	out      []sdk.MessageParam
	ids      map[string]bool // of the calls so far: the API wants each once
	names    map[string]bool // of the tools that were called
}

func (w *writer) message(messages []providers.Message, i int) {
	switch m := &messages[i]; m.Role {
	case providers.RoleSystem:
		if !blank(m.Content) {
			w.system = append(w.system, sdk.TextBlockParam{Text: m.Content})
		}
	case providers.RoleAssistant:
		w.assistant(m, messages[i+1:])
	case providers.RoleTool: // written with its call; one without a call is left out
	default:
		text := m.Content
		if blank(text) {
			text = textNoText
		}
		w.add(sdk.MessageParamRoleUser, sdk.NewTextBlock(text))
	}
}

// assistant writes a reply, and the results of its calls, which are among the
// messages behind it.
func (w *writer) assistant(m *providers.Message, behind []providers.Message) {
	ids := w.freshIDs(m.ToolCalls)
	w.add(sdk.MessageParamRoleAssistant, w.reply(m, ids)...)
	if len(ids) == 0 {
		return
	}
	next := 0
	for next < len(behind) && behind[next].Role != providers.RoleAssistant {
		next++
	}
	results, used := make([]sdk.ContentBlockParamUnion, len(ids)), make([]bool, next)
	for k := range m.ToolCalls {
		results[k] = resultOf(m.ToolCalls[k].ID, ids[k], behind[:next], used)
	}
	w.add(sdk.MessageParamRoleUser, results...)
}

// resultOf returns the first result of a call that is not used yet.
func resultOf(call, id string, behind []providers.Message, used []bool) sdk.ContentBlockParamUnion {
	for i := range behind {
		m := &behind[i]
		if m.Role != providers.RoleTool || used[i] || m.ToolCallID != call {
			continue
		}
		used[i] = true
		text := m.Content
		if blank(text) {
			text = textNoOutput
		}
		return toolResult(id, text)
	}
	b := toolResult(id, textNoResult)
	b.OfToolResult.IsError = sdk.Bool(true)
	return b
}

func toolResult(id, text string) sdk.ContentBlockParamUnion {
	return sdk.ContentBlockParamUnion{OfToolResult: &sdk.ToolResultBlockParam{
		ToolUseID: id, Content: []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: text}}},
	}}
}

// freshIDs returns the ids of calls as the API takes them, the same each time
// as long as the messages before are the same.
func (w *writer) freshIDs(calls []providers.ToolCall) []string {
	if len(calls) == 0 {
		return nil
	}
	if w.ids == nil {
		w.ids, w.names = make(map[string]bool), make(map[string]bool)
	}
	ids := make([]string, len(calls))
	for k := range calls {
		base := "call"
		if calls[k].ID != "" {
			base = httpapi.Alias(calls[k].ID)
		}
		id := base
		for n := 2; w.ids[id]; n++ {
			id = base + "_" + strconv.Itoa(n)
		}
		w.ids[id], w.names[httpapi.Alias(httpapi.CallName(&calls[k]))] = true, true
		ids[k] = id
	}
	return ids
}

// reply writes the blocks of a reply.
func (w *writer) reply(m *providers.Message, ids []string) (blocks []sdk.ContentBlockParamUnion) {
	all := w.kept(m)
	if !sameReply(all, m) { // it was changed since: what comes first has to stay first
		n := 0
		for n < len(all) && all[n].isThought() {
			n++
		}
		all = append(all[:n:n], keptBlock{Type: typeText, Text: m.Content})
		for range ids {
			all = append(all, keptBlock{Type: typeToolUse})
		}
	}
	k, end := 0, 0 // the API wants no thought to be the last
	for i := range all {
		b := &all[i]
		switch {
		case b.Type == typeToolUse:
			c := &m.ToolCalls[k]
			blocks = append(blocks, sdk.NewToolUseBlock(ids[k], json.RawMessage(httpapi.WireArguments(c)), httpapi.Alias(httpapi.CallName(c))))
			k++
		case b.Type != typeText:
			blocks = append(blocks, param.Override[sdk.ContentBlockParamUnion](b.raw))
		case !blank(b.Text):
			blocks = append(blocks, sdk.NewTextBlock(b.Text))
		default:
			continue
		}
		if !b.isThought() {
			end = len(blocks)
		}
	}
	return blocks[:end]
}

// keptBlock is one block of an opaque part.
type keptBlock struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Text string `json:"text"`
	raw  json.RawMessage
}

func (b *keptBlock) isThought() bool { return b.Type == typeThinking || b.Type == typeRedacted }

// kept returns the blocks of the opaque part of m, nil if there is none of ours.
func (w *writer) kept(m *providers.Message) []keptBlock {
	var raw kept
	if !w.thoughts || len(m.Opaque) == 0 || json.Unmarshal(m.Opaque, &raw) != nil {
		return nil
	}
	blocks := make([]keptBlock, len(raw.Anthropic))
	for i, r := range raw.Anthropic {
		if json.Unmarshal(r, &blocks[i]) != nil || blocks[i].Type == "" {
			return nil
		}
		blocks[i].raw = r
	}
	return blocks
}

// sameReply reports whether blocks are those of m as it is now.
func sameReply(blocks []keptBlock, m *providers.Message) bool {
	rest, k := m.Content, 0
	for _, b := range blocks {
		switch b.Type {
		case typeText:
			var ok bool
			if rest, ok = strings.CutPrefix(rest, b.Text); !ok {
				return false
			}
		case typeToolUse:
			if k == len(m.ToolCalls) || m.ToolCalls[k].ID != b.ID {
				return false
			}
			k++
		}
	}
	return len(blocks) > 0 && rest == "" && k == len(m.ToolCalls)
}

// add appends blocks to the last message if it has the role, otherwise they are
// a new one.
func (w *writer) add(role sdk.MessageParamRole, blocks ...sdk.ContentBlockParamUnion) {
	if len(blocks) == 0 {
		return
	}
	n := len(w.out)
	if n == 0 && role != sdk.MessageParamRoleUser {
		w.add(sdk.MessageParamRoleUser, sdk.NewTextBlock(textEarlier))
		n++
	}
	if n > 0 && w.out[n-1].Role == role {
		w.out[n-1].Content = append(w.out[n-1].Content, blocks...)
		return
	}
	w.out = append(w.out, sdk.MessageParam{Role: role, Content: blocks})
}

// end gives the model something to answer. A reply that the service broke off
// for a while it continues by itself.
func (w *writer) end() {
	if n := len(w.out); n > 0 && w.out[n-1].Role == sdk.MessageParamRoleAssistant {
		blocks := w.out[n-1].Content
		if last := &blocks[len(blocks)-1]; last.OfText != nil {
			w.add(sdk.MessageParamRoleUser, sdk.NewTextBlock(textGoOn))
		}
	}
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func hasOpaque(messages []providers.Message) bool {
	for i := range messages {
		if len(messages[i].Opaque) > 0 {
			return true
		}
	}
	return false
}
