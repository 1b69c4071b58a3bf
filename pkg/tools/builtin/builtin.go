// Package builtin holds the tools the gateway comes with: message, spawn,
// remind, read_result and the file tools (read_file, write_file, edit_file,
// append_file, list_dir, search_files), one file each.
//
// Every tool reads tools.CallFrom(ctx) to learn for whom it works and keeps no
// state of a call, so one instance serves all conversations at once.
package builtin

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// text returns a string argument without surrounding space, "" if it is absent.
func text(args map[string]any, name string) string {
	s, _ := args[name].(string)
	return strings.TrimSpace(s)
}

// integer returns a whole-number argument, 0 if it is absent.
func integer(args map[string]any, name string) int {
	switch n := args[name].(type) {
	case float64:
		return int(n)
	case int:
		return n
	case int64:
		return int(n)
	case json.Number:
		i, err := n.Int64()
		if err == nil {
			return int(i)
		}
	}
	return 0
}

// key is the call's idempotency key. A call outside of a turn has no identity
// that would make it the same call twice, so it gets a fresh one.
func key(call tools.Call) string {
	if call.Turn == "" {
		return bus.Key(rand.Text())
	}
	return call.Key()
}

// here is the conversation a call belongs to, zero if it belongs to none.
func here(call tools.Call) bus.Address {
	if call.Channel == "" || call.ChatID == "" {
		return bus.Address{}
	}
	return bus.Address{Channel: call.Channel, ChatID: call.ChatID}
}

// property is one property of a parameter schema.
func property(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

// schema is a parameter schema.
func schema(properties map[string]any, required ...string) map[string]any {
	s := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}
