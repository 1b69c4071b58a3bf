package openai

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

const maxID = 40 // characters of a call's id

// wireID returns the id under which the API knows a call: the id itself where
// the API takes it, otherwise one made from it. Ids come from other providers,
// too, and a call and its result have the same one wherever they are met. Dots
// and colons stay: some models read the tool's name out of ids of their own.
func wireID(id string) string {
	ok := func(r rune) bool { return httpapi.LegalInName(r) || r == '.' || r == ':' }
	if len(id) <= maxID && strings.IndexFunc(id, func(r rune) bool { return !ok(r) }) < 0 {
		return id
	}
	return httpapi.Substitute(id, maxID, ok)
}

// convertTools returns the definitions as the API wants them.
func (p *Provider) convertTools(tools []providers.ToolDefinition) ([]sdk.Tool, error) {
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
		text, err := p.schemas.Text(f.Parameters)
		if err != nil {
			return nil, fmt.Errorf("the parameters of tool %q are not JSON: %w", f.Name, err)
		}
		functions[i] = sdk.FunctionDefinition{Name: httpapi.Alias(f.Name), Description: f.Description, Parameters: text}
		out[i] = sdk.Tool{Type: sdk.ToolTypeFunction, Function: &functions[i]}
	}
	return out, nil
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
