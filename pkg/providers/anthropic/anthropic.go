// Package anthropic is a providers.LLMProvider for Anthropic's Messages API,
// and for services that speak it, by base URL.
package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// DefaultBaseURL is where Anthropic is, and DefaultMaxTokens what a request
// without max_tokens gets, which the API insists on.
const (
	DefaultBaseURL   = "https://api.anthropic.com"
	DefaultMaxTokens = 8192
)

// Config configures a Provider. The zero value is Anthropic without a key.
//
// BaseURL excludes "/v1/messages". APIKey is sent as X-Api-Key. AttemptTimeout
// bounds the silence before the answer and after each event of it, in Chat as in
// ChatStream; a long answer may take longer.
type Config = httpapi.Config

// Provider is the client of one service. Safe for concurrent use.
type Provider struct {
	api     *httpapi.Client
	client  sdk.Client
	schemas httpapi.Schemas
}

// New returns a provider. It does no I/O; the error says which setting is
// wrong and never repeats a secret.
func New(cfg Config) (*Provider, error) {
	cfg.BaseURL = cmp.Or(cfg.BaseURL, DefaultBaseURL)
	api, err := httpapi.NewClient(cfg, DefaultBaseURL)
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	// What people copy along with the address.
	api.BaseURL = strings.TrimSuffix(strings.TrimSuffix(api.BaseURL, "/messages"), "/v1")
	options := []option.RequestOption{
		option.WithBaseURL(api.BaseURL),
		option.WithHTTPClient(httpapi.NewHTTP(bounded{api.Transport})),
		option.WithHeader("Accept", "text/event-stream"),
		option.WithMaxRetries(0), // ours know the budget and what was shown
	}
	if api.Key != "" {
		options = append(options, option.WithAPIKey(api.Key))
	}
	// Not sdk.NewClient, which looks for keys in the environment and in files.
	return &Provider{api: api, client: sdk.Client{Options: options}, schemas: httpapi.Schemas{Complete: object}}, nil
}

// Close releases the idle connections. Requests that are under way go on.
func (p *Provider) Close() { p.api.Close() }

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
	for thoughts := true; ; thoughts = false {
		body, err := p.body(messages, tools, model, options, thoughts)
		if err != nil {
			return nil, &providers.Error{Kind: providers.KindInvalidRequest, Message: err.Error()}
		}
		a, failed, err := p.send(ctx, body, out)
		if err == nil {
			return a.response(httpapi.Aliases(tools)), nil
		}
		if !thoughts || providers.KindOf(err) != providers.KindInvalidRequest || !failed.thoughts || out.shown || !hasOpaque(messages) {
			return nil, err
		}
		p.api.Logger.WarnContext(ctx, "thoughts refused, sent without them", slog.String("err", err.Error()))
	}
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
// err then is ctx's own or failed, the last attempt's.
func (p *Provider) send(ctx context.Context, body []byte, out *listener) (a *answer, failed *failure, err error) {
	err = p.api.Retry(ctx, func() *httpapi.Failure {
		if a, failed = p.attempt(ctx, body, out); failed == nil {
			return nil
		}
		failed.Retry = failed.Retry && !out.shown
		return &failed.Failure
	})
	return a, failed, err
}
