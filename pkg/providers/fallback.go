package providers

import (
	"context"
	"log/slog"
)

// Model is one configured model: a provider, the API's name for the model, and
// the options every request to it carries.
type Model struct {
	Name     string // its key in the configuration
	Provider LLMProvider
	Model    string
	Options  map[string]interface{}
}

// Chain returns a provider that asks the models in order until one answers.
// Only failures that another model may not have lead on to the next one; a
// request that is refused as invalid or too long is not repeated elsewhere.
// The model and the options of each request are the chain's own.
func Chain(log *slog.Logger, models ...Model) LLMProvider {
	return &chain{models: models, log: log}
}

type chain struct {
	models []Model
	log    *slog.Logger
}

func (c *chain) Chat(ctx context.Context, messages []Message, tools []ToolDefinition, _ string, _ map[string]interface{}) (*LLMResponse, error) {
	var err error
	for i, m := range c.models {
		var resp *LLMResponse
		resp, err = m.Provider.Chat(ctx, messages, tools, m.Model, m.Options)
		if err == nil || ctx.Err() != nil || !worthAnother(KindOf(err)) {
			return resp, err
		}
		if i+1 < len(c.models) {
			c.log.Warn("model failed, trying the next", "model", m.Name, "next", c.models[i+1].Name, "err", err)
		}
	}
	return nil, err
}

func worthAnother(k ErrorKind) bool {
	switch k {
	case KindRateLimit, KindOverloaded, KindAuth, KindBilling, KindTimeout, KindUnreachable:
		return true
	case KindContextOverflow, KindInvalidRequest:
		return false
	}
	return false
}
