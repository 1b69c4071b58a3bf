package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestDefinitionsFor(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&readFile{})
	r.Register(&fake{name: "any", params: map[string]interface{}{"properties": map[string]interface{}{}}})
	const schema = `{"type": "object", "properties": {"path": {"type": "string", "description": "Path to the file to read"}}, "required": ["path"]}`
	for provider, want := range map[string]string{
		"openai": `[{"type": "function", "function": {"name": "any", "description": "Fakes any for a test", "parameters": {"properties": {}}}}, ` + readFileDefinition + `]`,
		"ollama": `[{"type": "function", "function": {"name": "any", "description": "Fakes any for a test", "parameters": {"properties": {}}}}, ` + readFileDefinition + `]`,
		"anthropic": `[{"name": "any", "description": "Fakes any for a test", "input_schema": {"type": "object", "properties": {}}},
			{"name": "read_file", "description": "Read the contents of a file at the given path.", "input_schema": ` + schema + `}]`,
		"gemini": `[{"name": "any", "description": "Fakes any for a test", "parametersJsonSchema": {"type": "object", "properties": {}}},
			{"name": "read_file", "description": "Read the contents of a file at the given path.", "parametersJsonSchema": ` + schema + `}]`,
		"mcp": `[{"name": "any", "description": "Fakes any for a test", "inputSchema": {"type": "object", "properties": {}}},
			{"name": "read_file", "description": "Read the contents of a file at the given path.", "inputSchema": ` + schema + `}]`,
	} {
		t.Run(provider, func(t *testing.T) {
			defs, err := r.DefinitionsFor(provider)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, defs, want)
		})
	}
	if _, err := r.DefinitionsFor("OpenAI"); err == nil || !strings.Contains(err.Error(), `"OpenAI": use openai, anthropic, ollama`) {
		t.Errorf("an unknown provider gives %v", err)
	}
}

// The same tools make the same bytes, in whatever order they came.
func TestDefinitionsAreByteIdentical(t *testing.T) {
	first := map[string]string{}
	for i := range 100 {
		r := tools.NewToolRegistry()
		for n := range 20 {
			r.Register(plainRead(fmt.Sprintf("tool_%d", (n+i)%20)))
		}
		for _, provider := range []string{"openai", "anthropic", "ollama", "gemini", "mcp"} {
			defs, err := r.DefinitionsFor(provider)
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(defs)
			if err != nil {
				t.Fatal(err)
			}
			if first[provider] == "" {
				first[provider] = string(data)
			}
			if first[provider] != string(data) {
				t.Fatalf("%s, run %d: %s", provider, i, data)
			}
		}
	}
}
