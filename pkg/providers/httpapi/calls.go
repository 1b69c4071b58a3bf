package httpapi

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// CallName returns the name of a call's tool, wherever in the call it stands.
func CallName(c *providers.ToolCall) string {
	if c.Name == "" && c.Function != nil {
		return c.Function.Name
	}
	return c.Name
}

// WireArguments returns the arguments of a call in a history as the text of a
// JSON object, whatever the model wrote at the time.
func WireArguments(c *providers.ToolCall) string {
	if c.Function != nil {
		if isObject(c.Function.Arguments) {
			return c.Function.Arguments
		}
		if c.Function.Arguments != "" && len(c.Arguments) == 0 {
			return "{}"
		}
	}
	if len(c.Arguments) == 0 {
		return "{}"
	}
	text, err := json.Marshal(c.Arguments)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text))
}

// CallID returns id, or a fresh one with this prefix where a service sent none,
// or one that a call before has: with either, the results could not be told
// apart.
func CallID(prefix, id string, before []providers.ToolCall) string {
	fresh := id == ""
	for i := range before {
		fresh = fresh || before[i].ID == id
	}
	if fresh {
		return prefix + rand.Text()[:20]
	}
	return id
}

// DecodeArguments reads the arguments of a call: a JSON object, one written as
// a string, or nothing. It returns them with their text; if they cannot be
// read, no arguments and the text as it was.
func DecodeArguments(text string) (args map[string]any, wire string) {
	wire = text
	for range 3 { // as deep as models were seen to wrap it
		trimmed := strings.TrimSpace(wire)
		if trimmed == "" || trimmed == "null" {
			return map[string]any{}, "{}"
		}
		if json.Unmarshal([]byte(trimmed), &args) == nil {
			return args, trimmed
		}
		if json.Unmarshal([]byte(trimmed), &wire) != nil {
			break
		}
	}
	return map[string]any{}, text
}
