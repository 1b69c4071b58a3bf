package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The API's limits, in characters.
const (
	maxName = 64 // a function's name
	maxID   = 40 // a call's id
)

// alias returns the name under which the API knows a tool: the name itself
// where the API takes it, otherwise one made from it.
func alias(name string) string {
	if legal(name) {
		return name
	}
	return substitute(name, maxName, legalByte)
}

// wireID returns the id under which the API knows a call: the id itself where
// the API takes it, otherwise one made from it. Ids come from other providers,
// too, and a call and its result have the same one wherever they are met. Dots
// and colons stay: some models read the tool's name out of ids of their own.
func wireID(id string) string {
	ok := func(r rune) bool { return legalByte(r) || r == '.' || r == ':' }
	if len(id) <= maxID && strings.IndexFunc(id, func(r rune) bool { return !ok(r) }) < 0 {
		return id
	}
	return substitute(id, maxID, ok)
}

// substitute makes a text of at most most characters, all of them ok, of any
// text, and another one of another.
func substitute(s string, most int, ok func(rune) bool) string {
	sum := sha256.Sum256([]byte(s))
	safe := strings.Map(func(r rune) rune {
		if ok(r) {
			return r
		}
		return '_'
	}, s)
	return safe[:min(len(safe), most-9)] + "_" + hex.EncodeToString(sum[:4])
}

func legal(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, r := range name {
		if !legalByte(r) {
			return false
		}
	}
	return true
}

func legalByte(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// aliases leads from the aliases of tools back to their names; nil when none
// needs one.
func aliases(tools []providers.ToolDefinition) map[string]string {
	var names map[string]string
	for i := range tools {
		if name := tools[i].Function.Name; !legal(name) {
			if names == nil {
				names = make(map[string]string)
			}
			names[alias(name)] = name
		}
	}
	return names
}

// schemas keeps the JSON text of parameter schemas: tools hardly ever change
// and are sent with every request. The map is found by identity, which is
// sound because providers forbids changing a schema, and because holding it
// keeps its address from being used again.
type schemas struct {
	mu    sync.RWMutex // many chats ask at once; written once per tool
	known map[uintptr]schema
}

type schema struct {
	of   map[string]any
	text json.RawMessage
}

// maxSchemas bounds the memory; when it is full the texts are made anew.
const maxSchemas = 1024

func (s *schemas) convert(tools []providers.ToolDefinition) ([]sdk.Tool, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	byName := func(a, b providers.ToolDefinition) int { return strings.Compare(a.Function.Name, b.Function.Name) }
	if !slices.IsSortedFunc(tools, byName) { // the API's cache knows a list only in one order
		tools = slices.SortedStableFunc(slices.Values(tools), byName)
	}
	out := make([]sdk.Tool, len(tools))
	functions := make([]sdk.FunctionDefinition, len(tools))
	for i := range tools {
		f := &tools[i].Function
		text, err := s.text(f.Parameters)
		if err != nil {
			return nil, fmt.Errorf("the parameters of tool %q are not JSON: %w", f.Name, err)
		}
		functions[i] = sdk.FunctionDefinition{Name: alias(f.Name), Description: f.Description, Parameters: text}
		out[i] = sdk.Tool{Type: sdk.ToolTypeFunction, Function: &functions[i]}
	}
	return out, nil
}

func (s *schemas) text(params map[string]any) (json.RawMessage, error) {
	at := reflect.ValueOf(params).Pointer()
	s.mu.RLock()
	known, ok := s.known[at]
	s.mu.RUnlock()
	if ok {
		return known.text, nil
	}
	text, err := json.Marshal(object(params))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSchemas {
		s.known = make(map[uintptr]schema)
	}
	s.known[at] = schema{of: params, text: text}
	return text, nil
}

// object completes a schema with what the API insists on.
func object(params map[string]any) map[string]any {
	_, hasType := params["type"]
	_, hasProperties := params["properties"]
	if hasType && hasProperties {
		return params
	}
	full := maps.Clone(params)
	if full == nil {
		full = make(map[string]any, 2)
	}
	if !hasType {
		full["type"] = "object"
	}
	if !hasProperties {
		full["properties"] = map[string]any{}
	}
	return full
}
