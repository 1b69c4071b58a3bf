package textcall

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Prompt describes tools, and how to call them, to a model that cannot do so
// natively. The same tools always make the same text; none make none.
func Prompt(tools []providers.ToolDefinition) string {
	if len(tools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(promptHead)
	for i := range tools {
		f := &tools[i].Function
		b.WriteString("\n\n## " + harmless(f.Name) + "\n" + harmless(f.Description) + "\nArguments, as a JSON Schema: " + harmless(compact(f.Parameters)))
	}
	return b.String()
}

const promptHead = `# Tools

You can call tools. To call one, write a block of exactly this form, with the tool's name and its arguments, and not in a code fence:

<tool>
{"server_name": "local", "tool_name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}
</tool>

The arguments are one JSON object that fits the tool's schema. Several blocks are several calls, which are run in their order. After your last block write nothing more: the results come with the next message, as "Tool 'NAME' result: ...". Never write a result yourself. A reply without a block is your final answer.

These are the tools:`

// harmless changes the tags that begin and end a call, so that text which holds
// them can be repeated by the model without calling anything.
func harmless(text string) string {
	if !strings.Contains(text, "<tool") && !strings.Contains(text, "</tool") {
		return text
	}
	return taming.Replace(text)
}

var taming = strings.NewReplacer(
	"<tool>", "&lt;tool>", "</tool>", "&lt;/tool>",
	"<tool_call>", "&lt;tool_call>", "</tool_call>", "&lt;/tool_call>",
)

// toWire returns the conversation as a model without native calls reads it: the
// tools in front of the system's words, calls as text, results as words of the
// user. Messages of the user that come together are made one, since many models
// take only turns.
func toWire(messages []providers.Message, tools []providers.ToolDefinition) []providers.Message {
	wire := make([]providers.Message, 0, len(messages)+1)
	if prompt := Prompt(tools); prompt != "" {
		wire = append(wire, providers.Message{Role: providers.RoleSystem, Content: prompt})
	}
	names := make(map[string]string) // of the calls, by their ids; the latest counts
	for i := range messages {
		m := &messages[i]
		out := providers.Message{Role: m.Role, Content: m.Content}
		switch m.Role {
		case providers.RoleAssistant:
			out.Content = assistantText(m)
			for j := range m.ToolCalls {
				names[m.ToolCalls[j].ID] = m.ToolCalls[j].Name
			}
		case providers.RoleTool:
			out.Role = providers.RoleUser
			out.Content = "Tool '" + names[m.ToolCallID] + "' result: " + harmless(m.Content)
		case providers.RoleUser:
			out.Content = harmless(m.Content)
		}
		last := len(wire) - 1
		if last >= 0 && wire[last].Role == out.Role && (out.Role == providers.RoleUser || last == 0) {
			wire[last].Content += "\n\n" + out.Content
			continue
		}
		wire = append(wire, out)
	}
	return wire
}

// unread stands where a reply had nothing but calls that could not be read; what
// they were is in their answers.
const unread = "(a tool call that could not be read)"

// assistantText is a reply with its calls written out.
func assistantText(m *providers.Message) string {
	parts := make([]string, 0, len(m.ToolCalls)+1)
	if text := harmless(m.Content); text != "" {
		parts = append(parts, text)
	}
	for i := range m.ToolCalls {
		if c := &m.ToolCalls[i]; c.Invalid == "" {
			name := compact(c.Name)
			parts = append(parts, "<tool>\n"+`{"server_name": "local", "tool_name": `+name+`, "arguments": `+argumentsOf(c)+"}\n</tool>")
		}
	}
	if len(parts) == 0 && len(m.ToolCalls) > 0 {
		return unread
	}
	return strings.Join(parts, "\n\n")
}

// argumentsOf returns the arguments of a call as the model wrote them, if that
// is known.
func argumentsOf(c *providers.ToolCall) string {
	if c.Function != nil && json.Valid([]byte(c.Function.Arguments)) {
		return c.Function.Arguments
	}
	if len(c.Arguments) == 0 {
		return "{}"
	}
	return compact(c.Arguments)
}

// compact is the JSON of v on one line, its keys sorted.
func compact(v interface{}) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return "{}"
	}
	return trim(b.String())
}
