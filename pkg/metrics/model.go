package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Model returns p, whose calls are taken down under name, a model's key in the
// configuration.
func (m *Metrics) Model(name string, p providers.LLMProvider) providers.LLMProvider {
	w := &model{m: m, name: name, next: p}
	if c, ok := p.(providers.Checker); ok {
		return struct {
			*model
			providers.Checker
		}{w, c}
	}
	return w
}

type model struct {
	m    *Metrics
	name string
	next providers.LLMProvider
}

func (w *model) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	return w.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements providers.Streamer.
func (w *model) ChatStream(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	began, outcome := time.Now(), "panic"
	defer func() { w.m.modelCalls.WithLabelValues(w.name, outcome).Observe(time.Since(began).Seconds()) }()
	resp, err := providers.Stream(ctx, w.next, messages, tools, model, options, onDelta)
	outcome = modelOutcome(ctx, err)
	if err == nil && resp != nil && resp.Usage != nil {
		w.spent(resp.Usage)
	}
	return resp, err
}

func (w *model) spent(u *providers.Usage) {
	for _, part := range [...]struct {
		kind string
		n    int
	}{
		{"prompt", u.PromptTokens},
		{"completion", u.CompletionTokens},
		{"cache_read", u.CacheReadTokens},
		{"cache_write", u.CacheWriteTokens},
		{"reasoning", u.ReasoningTokens},
	} {
		if part.n > 0 {
			w.m.tokens.WithLabelValues(w.name, part.kind).Add(float64(part.n))
		}
	}
}

// modelOutcome is ok, cancelled, a providers.ErrorKind, or error.
func modelOutcome(ctx context.Context, err error) string {
	kind := providers.KindOf(err)
	switch {
	case err == nil:
		return "ok"
	case errors.Is(ctx.Err(), context.Canceled):
		return "cancelled"
	case kind != "":
		return string(kind)
	case errors.Is(err, context.DeadlineExceeded):
		return string(providers.KindTimeout)
	}
	return "error"
}
