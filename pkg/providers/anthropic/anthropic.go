// Package anthropic is a providers.LLMProvider for Anthropic's Messages API,
// and for services that speak it, by base URL.
package anthropic

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// Defaults of Config, and DefaultMaxTokens of a request without max_tokens,
// which the API insists on.
const (
	DefaultBaseURL        = "https://api.anthropic.com"
	DefaultMaxTokens      = 8192
	DefaultMaxAttempts    = 4
	DefaultAttemptTimeout = 2 * time.Minute
	DefaultRetryBudget    = 3 * time.Minute
	DefaultMaxRetryAfter  = time.Minute
)

// Config configures a Provider. The zero value is Anthropic without a key.
type Config struct {
	// BaseURL is where the API lives, "/v1/messages" excluded. Empty means
	// DefaultBaseURL.
	BaseURL string
	// APIKey is sent as X-Api-Key; empty sends none.
	APIKey config.Secret

	// Model is what Check asks the service about; empty asks for none. Requests
	// name their own.
	Model string

	// MaxAttempts bounds how often one request is sent, the first time
	// included. 0 means DefaultMaxAttempts.
	MaxAttempts int
	// AttemptTimeout bounds the silence of one attempt: the wait for the answer
	// to begin, and from then on for each event of it. A long answer may take
	// longer. 0 means DefaultAttemptTimeout.
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
	base      string
	client    sdk.Client
	transport http.RoundTripper
	schemas   httpapi.Schemas
}

// New returns a provider. It does no I/O; the error says which setting is
// wrong and never repeats a secret.
func New(cfg Config) (*Provider, error) {
	setDefaults(&cfg)
	base, err := baseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	p := &Provider{cfg: cfg, key: strings.TrimSpace(string(cfg.APIKey)), base: base, transport: cfg.Transport, schemas: httpapi.Schemas{Complete: object}}
	if p.transport == nil {
		p.transport = httpapi.NewTransport()
	}
	options := []option.RequestOption{
		option.WithBaseURL(base),
		option.WithHTTPClient(&http.Client{
			Transport: bounded{p.transport},
			// A redirected POST would lose its body or its key; say where to go.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		option.WithHeader("Accept", "text/event-stream"),
		option.WithMaxRetries(0), // ours know the budget and what was shown
	}
	if p.key != "" {
		options = append(options, option.WithAPIKey(p.key))
	}
	// Not sdk.NewClient, which looks for keys in the environment and in files.
	p.client = sdk.Client{Options: options}
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

// baseURL checks the address and takes off what people copy along with it. Its
// error does not hold it, since it may carry a password.
func baseURL(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("anthropic: base_url is not an address: write it in full, for example " + DefaultBaseURL)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("anthropic: base_url must not have a query or a fragment")
	}
	base := strings.TrimRight(u.String(), "/")
	return strings.TrimSuffix(strings.TrimSuffix(base, "/messages"), "/v1"), nil
}

// Close releases the idle connections. Requests that are under way go on.
func (p *Provider) Close() {
	if c, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Chat implements providers.LLMProvider. It is ChatStream without a listener:
// the answer is streamed all the same, so that a long one need not be done in a
// fixed time.
func (p *Provider) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	return p.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements providers.Streamer.
//
// It retries 408, 409, 425, 429, 5xx, silence and broken connections with
// growing, jittered pauses, and waits as long as the API's Retry-After asks
// for, up to Config.MaxRetryAfter. It gives up when the attempts or the budget
// are spent, when ctx would end before the next attempt, or when text was given
// to onDelta.
//
// What the API refuses in a history for ever is mended on the way, in the
// request only: calls without a result, results without a call, ids that are
// used twice or hold odd characters, empty texts, roles that do not take turns.
// Thoughts that the API signed go back to it in LLMResponse.Opaque; if it does
// not accept its signature any more, the request is sent again without them.
//
// Arguments of a tool call are decoded as package openai does it: if they are
// no JSON object, the call is kept, ToolCall.Arguments is empty and
// ToolCall.Function.Arguments holds the text as the model wrote it.
func (p *Provider) ChatStream(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := &listener{onDelta: onDelta}
	var failed *failure
	for _, thoughts := range []bool{true, false} {
		body, err := p.body(messages, tools, model, options, thoughts)
		if err != nil {
			return nil, &providers.Error{Kind: providers.KindInvalidRequest, Message: err.Error()}
		}
		var a *answer
		if a, failed, err = p.send(ctx, body, out); err != nil {
			return nil, err
		}
		if failed == nil {
			return a.response(httpapi.Aliases(tools)), nil
		}
		if !failed.thoughts || out.shown || !hasOpaque(messages) {
			break
		}
		p.cfg.Logger.WarnContext(ctx, "thoughts refused, sent without them", slog.String("err", failed.Error.Error()))
	}
	return nil, failed.Error
}

// listener hands pieces on and remembers whether one had text.
type listener struct {
	onDelta func(providers.Delta) // may be nil
	shown   bool
}

func (l *listener) tell(d providers.Delta) {
	if l.onDelta != nil && d != (providers.Delta{}) {
		l.shown = l.shown || d.Text != ""
		l.onDelta(d)
	}
}

// send sends the body until there is an answer or no more attempt is worth it.
// err is ctx's own.
func (p *Provider) send(ctx context.Context, body []byte, out *listener) (a *answer, failed *failure, err error) {
	attempts, budget := providers.Patience(ctx, p.cfg.MaxAttempts, p.cfg.RetryBudget)
	start := time.Now()
	pauses := backoff.ExponentialBackOff{InitialInterval: 500 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 20 * time.Second}
	for attempt := 1; ; attempt++ {
		if a, failed = p.attempt(ctx, body, out); failed == nil {
			return a, nil, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if failed.Kind == providers.KindRateLimit && providers.HasSpareKey(ctx) {
			return nil, failed, nil
		}
		if !failed.retry || out.shown || attempt >= attempts || failed.RetryAfter > p.cfg.MaxRetryAfter {
			return nil, failed, nil
		}
		pause := max(pauses.NextBackOff(), jitter(failed.RetryAfter))
		if !fits(ctx, start.Add(budget), pause) {
			return nil, failed, nil
		}
		p.cfg.Logger.WarnContext(ctx, "model call failed, trying again",
			slog.Int("attempt", attempt), slog.Duration("pause", pause), slog.String("err", failed.Error.Error()))
		if err := sleep(ctx, pause); err != nil {
			return nil, nil, err
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
