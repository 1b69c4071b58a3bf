package anthropic

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

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const maxName = 64 // characters of a tool's name that every service takes

// alias returns the name under which the API knows a tool, or the id of a call:
// the same text where the API takes it, otherwise one made from it.
func alias(name string) string {
	if legal(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	safe := strings.Map(func(r rune) rune {
		if legalByte(r) {
			return r
		}
		return '_'
	}, name)
	return safe[:min(len(safe), maxName-9)] + "_" + hex.EncodeToString(sum[:4])
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

// forbidTools is for a history with calls where no tool is offered: the API
// wants to know the tools all the same.
func forbidTools(req *sdk.MessageNewParams, names map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		req.Tools = append(req.Tools, sdk.ToolUnionParamOfTool(sdk.ToolInputSchemaParam{Type: "object"}, name))
	}
	req.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
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

func (s *schemas) convert(tools []providers.ToolDefinition) ([]sdk.ToolUnionParam, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	out := make([]sdk.ToolUnionParam, len(tools))
	for i := range tools {
		f := &tools[i].Function
		text, err := s.text(f.Parameters)
		if err != nil {
			return nil, fmt.Errorf("the parameters of tool %q are not JSON: %w", f.Name, err)
		}
		t := sdk.ToolParam{Name: alias(f.Name), InputSchema: param.Override[sdk.ToolInputSchemaParam](text)}
		if f.Description != "" {
			t.Description = sdk.String(f.Description)
		}
		out[i].OfTool = &t
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
	if params["type"] == "object" {
		return params
	}
	full := maps.Clone(params)
	if full == nil {
		full = make(map[string]any, 1)
	}
	full["type"] = "object"
	return full
}
