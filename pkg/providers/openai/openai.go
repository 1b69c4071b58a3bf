// Package openai is a providers.LLMProvider for every service that speaks
// OpenAI's chat completions API: OpenAI itself, OpenRouter, Groq, DeepSeek,
// Ollama, vLLM, llama.cpp, LM Studio and others, by base URL.
package openai

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// Defaults of Config.
const (
	DefaultBaseURL        = "https://api.openai.com/v1"
	DefaultMaxAttempts    = 4
	DefaultAttemptTimeout = 2 * time.Minute
	DefaultRetryBudget    = 3 * time.Minute
	DefaultMaxRetryAfter  = time.Minute
)

// Config configures a Provider. The zero value is OpenAI without a key.
type Config struct {
	// BaseURL is where the API lives, "/chat/completions" excluded; it usually
	// ends in "/v1". Empty means DefaultBaseURL.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none, which is what local
	// servers want.
	APIKey config.Secret

	// Model is what Check looks for in the service's list of models; empty
	// looks for none. Requests name their own.
	Model string

	// MaxAttempts bounds how often one request is sent, the first time
	// included. 0 means DefaultMaxAttempts.
	MaxAttempts int
	// AttemptTimeout bounds one attempt, the whole answer included; of an
	// answer in pieces, the silence before the first and after each. 0 means
	// DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// RetryBudget bounds all attempts together: no new one begins later than
	// this after the first. 0 means DefaultRetryBudget.
	RetryBudget time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for; when the
	// API asks for more, Chat fails at once with what it asked for. 0 means
	// DefaultMaxRetryAfter.
	MaxRetryAfter time.Duration

	// Transport carries the requests; nil means one of the provider's own,
	// which keeps connections alive and honours HTTPS_PROXY.
	Transport http.RoundTripper
	// Logger hears of retries; nil discards.
	Logger *slog.Logger
}

// Provider is the client of one service. Safe for concurrent use.
type Provider struct {
	cfg       Config
	key       string
	client    *sdk.Client
	transport http.RoundTripper
	schemas   httpapi.Schemas

	// What the server has refused, so that it is asked for it once only.
	noUsage, noStream atomic.Bool
}

// New returns a provider. It does no I/O; the error says which setting is
// wrong and never repeats a secret.
func New(cfg Config) (*Provider, error) {
	setDefaults(&cfg)
	base, err := baseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	next := cfg.Transport
	if next == nil {
		next = httpapi.NewTransport()
	}
	p := &Provider{cfg: cfg, key: strings.TrimSpace(string(cfg.APIKey)), transport: next, schemas: httpapi.Schemas{Complete: object}}
	c := sdk.DefaultConfig(p.key)
	c.BaseURL = base
	c.HTTPClient = &http.Client{
		Transport: &observer{next: next},
		// A redirected POST would lose its body or its key; say where to go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.client = sdk.NewClientWithConfig(c)
	return p, nil
}

func setDefaults(cfg *Config) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.MaxAttempts <= 0 {
		cfg.MaxAttempts = DefaultMaxAttempts
	}
	if cfg.AttemptTimeout <= 0 {
		cfg.AttemptTimeout = DefaultAttemptTimeout
	}
	if cfg.RetryBudget <= 0 {
		cfg.RetryBudget = DefaultRetryBudget
	}
	if cfg.MaxRetryAfter <= 0 {
		cfg.MaxRetryAfter = DefaultMaxRetryAfter
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
}

// baseURL checks the address. Its error does not hold it, since it may carry a
// password.
func baseURL(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("openai: base_url is not an address: write it in full, for example http://127.0.0.1:11434/v1")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("openai: base_url must not have a query or a fragment")
	}
	return strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/chat/completions"), nil
}

// Close releases the idle connections. Requests that are under way go on.
func (p *Provider) Close() {
	if c, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

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
	attempts, budget := providers.Patience(ctx, p.cfg.MaxAttempts, p.cfg.RetryBudget)
	start := time.Now()
	pauses := backoff.ExponentialBackOff{InitialInterval: 500 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 20 * time.Second}
	for attempt := 1; ; attempt++ {
		reply := &assembly{onDelta: onDelta}
		failed := p.attempt(ctx, &req, reply)
		if failed == nil {
			return reply.reply(httpapi.Aliases(tools)), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if failed.Kind == providers.KindRateLimit && providers.HasSpareKey(ctx) {
			return nil, failed.Error
		}
		if !failed.retry || reply.told || attempt >= attempts || failed.RetryAfter > p.cfg.MaxRetryAfter {
			return nil, failed.Error
		}
		pause := max(pauses.NextBackOff(), jitter(failed.RetryAfter))
		if !fits(ctx, start.Add(budget), pause) {
			return nil, failed.Error
		}
		p.cfg.Logger.WarnContext(ctx, "model call failed, trying again",
			slog.Int("attempt", attempt), slog.Duration("pause", pause), slog.String("err", failed.Error.Error()))
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// jitter spreads callers that were all told to come back at the same time.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + rand.N(d/10+1) //nolint:gosec // spreads load, guards nothing
}

// fits reports whether an attempt after the pause begins by a time, and before
// the end of ctx.
func fits(ctx context.Context, by time.Time, pause time.Duration) bool {
	next := time.Now().Add(pause)
	end, ok := ctx.Deadline()
	return !next.After(by) && (!ok || next.Before(end))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
