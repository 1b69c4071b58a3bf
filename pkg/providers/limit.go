package providers

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Limit returns p with at most n requests under way at once; the others wait
// in the order they came. n of 0 or less means no limit.
func Limit(p LLMProvider, n int) LLMProvider {
	if n <= 0 {
		return p
	}
	return &limited{next: p, slots: semaphore.NewWeighted(int64(n))}
}

type limited struct {
	next  LLMProvider
	slots *semaphore.Weighted // FIFO
}

func (l *limited) Chat(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}) (*LLMResponse, error) {
	return l.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements Streamer.
func (l *limited) ChatStream(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}, onDelta func(Delta)) (*LLMResponse, error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer l.slots.Release(1)
	return Stream(ctx, l.next, messages, tools, model, options, onDelta)
}
