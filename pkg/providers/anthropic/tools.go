package anthropic

import (
	"fmt"
	"maps"
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// forbidTools is for a history with calls where no tool is offered: the API
// wants to know the tools all the same.
func forbidTools(req *sdk.MessageNewParams, names map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		req.Tools = append(req.Tools, sdk.ToolUnionParamOfTool(sdk.ToolInputSchemaParam{Type: "object"}, name))
	}
	req.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
}

// convertTools returns the definitions as the API wants them.
func (p *Provider) convertTools(tools []providers.ToolDefinition) ([]sdk.ToolUnionParam, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	out := make([]sdk.ToolUnionParam, len(tools))
	for i := range tools {
		f := &tools[i].Function
		text, err := p.schemas.Text(f.Parameters)
		if err != nil {
			return nil, fmt.Errorf("the parameters of tool %q are not JSON: %w", f.Name, err)
		}
		t := sdk.ToolParam{Name: httpapi.Alias(f.Name), InputSchema: param.Override[sdk.ToolInputSchemaParam](text)}
		if f.Description != "" {
			t.Description = sdk.String(f.Description)
		}
		out[i].OfTool = &t
	}
	return out, nil
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
