// Package openai is a providers.LLMProvider for every service that speaks
// OpenAI's chat completions API: OpenAI itself, OpenRouter, Groq, DeepSeek,
// Ollama, vLLM, llama.cpp, LM Studio and others, by base URL.
package openai

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// DefaultBaseURL is where OpenAI is.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config configures a Provider. The zero value is OpenAI without a key.
//
// BaseURL excludes "/chat/completions" and usually ends in "/v1". APIKey is sent
// as a bearer token; local servers want none. AttemptTimeout bounds the whole
// answer in Chat, and the silence before and after each piece in ChatStream.
type Config = httpapi.Config

// Provider is the client of one service. Safe for concurrent use.
type Provider struct {
	api     *httpapi.Client
	client  *sdk.Client
	schemas httpapi.Schemas

	// What the server has refused, so that it is asked for it once only.
	noUsage, noStream atomic.Bool
}

// New returns a provider. It does no I/O; the error says which setting is
// wrong and never repeats a secret.
func New(cfg Config) (*Provider, error) {
	cfg.BaseURL = cmp.Or(cfg.BaseURL, DefaultBaseURL)
	api, err := httpapi.NewClient(cfg, "http://127.0.0.1:11434/v1")
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	api.BaseURL = strings.TrimSuffix(api.BaseURL, "/chat/completions")
	c := sdk.DefaultConfig(api.Key)
	c.BaseURL = api.BaseURL
	c.HTTPClient = httpapi.NewHTTP(&observer{next: api.Transport})
	return &Provider{api: api, client: sdk.NewClientWithConfig(c), schemas: httpapi.Schemas{Complete: object}}, nil
}

// Close releases the idle connections. Requests that are under way go on.
func (p *Provider) Close() { p.api.Close() }

// Chat implements providers.LLMProvider.
//
// It retries 408, 409, 425, 429, 5xx, timeouts and broken connections with
// growing, jittered pauses, and waits as long as the API's Retry-After asks
// for, up to Config.MaxRetryAfter. It gives up when the attempts or the budget
// are spent (sooner where another model or key is ready), or when ctx would end
// before the next attempt.
//
// Arguments of a tool call are decoded also when the model wrote them as a
// string within a string, or the server as an object; empty text and null mean
// no arguments. If they are no JSON object at all, the call is kept:
// ToolCall.Arguments is empty and ToolCall.Function.Arguments holds the text as
// the model wrote it, so whoever runs the call finds required arguments missing
// and can tell the model. When such a call is sent back as history its
// arguments are {}, because strict servers refuse anything else for ever.
func (p *Provider) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	return p.ask(ctx, messages, tools, model, options, nil)
}

// ChatStream implements providers.Streamer. A server that does not stream is
// asked for the whole answer, which is then one piece.
func (p *Provider) ChatStream(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	return p.ask(ctx, messages, tools, model, options, onDelta)
}

func (p *Provider) ask(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]any, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req, err := p.request(messages, tools, model, options)
	if err != nil {
		return nil, &providers.Error{Kind: providers.KindInvalidRequest, Message: err.Error()}
	}
	var reply *assembly
	err = p.api.Retry(ctx, func() *httpapi.Failure {
		reply = &assembly{onDelta: onDelta}
		failed := p.attempt(ctx, &req, reply)
		if failed == nil {
			return nil
		}
		failed.Retry = failed.Retry && !reply.told
		return &failed.Failure
	})
	if err != nil {
		return nil, err
	}
	return reply.reply(httpapi.Aliases(tools)), nil
}
