package tools

import (
	"fmt"
	"maps"
)

// DefinitionsFor describes all tools, sorted by name, in the form of an API:
// "openai" and "ollama" (the form of ToolToSchema), "anthropic", "gemini" (one
// entry of functionDeclarations each) and "mcp". Another name is an error. The
// schemas are shared: read them only.
func (r *ToolRegistry) DefinitionsFor(provider string) ([]map[string]interface{}, error) {
	var schemaKey string
	switch provider {
	case "openai", "ollama":
		return r.GetDefinitions(), nil
	case "anthropic":
		schemaKey = "input_schema"
	case "gemini":
		schemaKey = "parametersJsonSchema" // "parameters" knows but a part of JSON Schema
	case "mcp":
		schemaKey = "inputSchema"
	default:
		return nil, fmt.Errorf("tools: no definitions for provider %q: use openai, anthropic, ollama, gemini or mcp", provider)
	}
	t := r.table()
	defs := make([]map[string]interface{}, len(t.sorted))
	for i, e := range t.sorted {
		f := e.def.Function
		defs[i] = map[string]interface{}{"name": f.Name, "description": f.Description, schemaKey: objectSchema(f.Parameters)}
	}
	return defs, nil
}

// objectSchema says that a schema is one of an object, which these APIs insist
// on and the author of a tool may have left out.
func objectSchema(params map[string]interface{}) map[string]interface{} {
	if _, ok := params["type"]; ok {
		return params
	}
	params = maps.Clone(params)
	params["type"] = "object"
	return params
}
