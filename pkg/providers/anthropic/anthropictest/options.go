package anthropictest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

func (c *checker) tools() (out []providers.ToolDefinition) {
	seen := make(map[string]bool)
	for i, t := range c.wire.Tools {
		at := fmt.Sprintf("tools.%d", i)
		c.mark(at, t.Cache)
		switch {
		case !namePattern.MatchString(t.Name):
			c.refuse("%s.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", at)
		case seen[t.Name]:
			c.refuse("tools: Tool names must be unique.")
		case t.Schema == nil:
			c.refuse("%s.custom.input_schema: Field required", at)
		case t.Schema["type"] != "object":
			c.refuse("%s.custom.input_schema.type: Input should be 'object'", at)
		}
		seen[t.Name] = true
		out = append(out, providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: t.Schema,
		}})
	}
	if c.called && len(out) == 0 {
		c.refuse("Requests which include `tool_use` or `tool_result` blocks must define tools")
	}
	return out
}

var newest = regexp.MustCompile(`claude-[a-z]+-(5|4-7|4-8)`)

// generation tells what a model of this name takes: by a budget, as it likes,
// or as it likes and without sampling options.
func generation(model string) int {
	switch {
	case newest.MatchString(model):
		return 3
	case strings.Contains(model, "-4-6"):
		return 2
	}
	return 1
}

func (c *checker) options() {
	w := c.wire
	switch {
	case w.Model == "":
		c.refuse("model: Field required")
	case w.MaxTokens == nil:
		c.refuse("max_tokens: Field required")
	case *w.MaxTokens < 1:
		c.refuse("max_tokens: Input should be greater than or equal to 1")
	case !w.Stream:
		c.refuse("stream: this fake only streams")
	}
	c.sampling()
	c.thinkingOptions()
	for i, s := range w.Stop {
		if strings.TrimSpace(s) == "" {
			c.refuse("stop_sequences.%d: each stop sequence must contain non-whitespace", i)
		}
	}
	if w.ToolChoice == nil {
		return
	}
	forced := w.ToolChoice.Type == "any" || w.ToolChoice.Type == "tool"
	switch {
	case len(w.Tools) == 0:
		c.refuse("tool_choice: may only be specified while providing tools")
	case !forced && w.ToolChoice.Type != "auto" && w.ToolChoice.Type != "none":
		c.refuse("tool_choice.type: unknown")
	case forced && c.thinking:
		c.refuse("Thinking may not be enabled when tool_choice forces tool use.")
	}
}

func (c *checker) sampling() {
	w := c.wire
	set := w.Temperature != nil || w.TopP != nil || w.TopK != nil
	switch {
	case set && generation(w.Model) == 3:
		c.refuse("`temperature` is deprecated for this model.")
	case set && c.thinking:
		c.refuse("`temperature` may only be set to 1 when thinking is enabled.")
	case w.Temperature != nil && w.TopP != nil:
		c.refuse("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
	case w.Temperature != nil && (*w.Temperature < 0 || *w.Temperature > 1):
		c.refuse("temperature: range: 0..1")
	}
}

func (c *checker) thinkingOptions() {
	w, g := c.wire, generation(c.wire.Model)
	if w.Output != nil && w.Output.Effort != "" && g == 1 {
		c.refuse("This model does not support the effort parameter.")
	}
	if w.Thinking == nil {
		return
	}
	switch t := w.Thinking; t.Type {
	case "enabled":
		switch {
		case g == 3:
			c.refuse(`"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`)
		case t.Budget < 1024:
			c.refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
		case w.MaxTokens != nil && t.Budget >= *w.MaxTokens:
			c.refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
		}
	case "adaptive":
		if g == 1 {
			c.refuse("adaptive thinking is not supported on this model")
		}
	case "disabled":
		if g == 3 {
			c.refuse(`"thinking.type.disabled" is not supported for this model.`)
		}
	default:
		c.refuse("thinking: Input tag '%s' does not match any of the expected tags", t.Type)
	}
}
