package providers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type provider func(ctx context.Context, model string) (*providers.LLMResponse, error)

func (f provider) Chat(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition, model string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	return f(ctx, model)
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		p := providers.Limit(provider(func(context.Context, string) (*providers.LLMResponse, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return &providers.LLMResponse{}, nil
		}), 2)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = p.Chat(t.Context(), nil, nil, "", nil) })
		}
		all.Wait()
		if most.Load() != 2 {
			t.Errorf("%d requests at once, want 2", most.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Chat(ctx, nil, nil, "", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a waiting request outlives its context: %v", err)
		}
	})
}

// Another model is asked only for what another model may not have.
func TestChain(t *testing.T) {
	fails := func(kind providers.ErrorKind) provider {
		return func(context.Context, string) (*providers.LLMResponse, error) {
			return nil, fmt.Errorf("wrapped: %w", &providers.Error{Kind: kind})
		}
	}
	works := provider(func(_ context.Context, model string) (*providers.LLMResponse, error) {
		return &providers.LLMResponse{Content: model}, nil
	})
	for kind, next := range map[providers.ErrorKind]bool{
		providers.KindRateLimit: true, providers.KindOverloaded: true, providers.KindAuth: true, providers.KindBilling: true,
		providers.KindTimeout: true, providers.KindUnreachable: true, providers.KindContextOverflow: false, providers.KindInvalidRequest: false,
	} {
		c := providers.Chain(slog.New(slog.DiscardHandler),
			providers.Model{Name: "a", Provider: fails(kind), Model: "model-a"}, providers.Model{Name: "b", Provider: works, Model: "model-b"})
		r, err := c.Chat(t.Context(), nil, nil, "ignored", nil)
		if (err == nil) != next || next && r.Content != "model-b" {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
		if !next && providers.KindOf(err) != kind {
			t.Errorf("%s: the error is %v", kind, err)
		}
	}
}
