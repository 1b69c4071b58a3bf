package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

// client calls the Bot API through the SDK. The SDK knows no context and puts
// the token into its errors; both are put right here.
type client struct {
	http     *http.Client
	endpoint string // with %s for the token and %s for the method
	token    config.Secret

	ahead atomic.Int64 // nanoseconds by which Telegram's clock is ahead of ours
}

// now is the time by Telegram's clock, as far as an answer has told it. Ours may
// be wrong by years. A local Bot API server does not tell.
func (c *client) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func newClient(cfg Config, transport http.RoundTripper) *client {
	base := strings.ReplaceAll(strings.TrimSuffix(cfg.APIBase, "/"), "%", "%%")
	return &client{
		http:     &http.Client{Transport: transport},
		endpoint: base + "/bot%s/%s",
		token:    cfg.Token,
	}
}

// newTransport returns a transport for one long poll and many sends at once.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		MaxConnsPerHost:     256, // a connection takes more memory than a message that waits for one
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		// A connection that died while the machine slept is noticed.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// call is one request under way; it is the SDK's HTTP client.
type call struct {
	ctx   context.Context //nolint:containedctx // the SDK's interface takes none
	via   *client
	wrote atomic.Bool // the request may have reached the platform

	status int // of the answer; 0 if there was none
}

// Do sends req bound to the call's context.
func (c *call) Do(req *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { c.wrote.Store(true) },
	})
	resp, err := c.via.http.Do(req.WithContext(ctx)) //nolint:gosec // the address is the operator's
	if err != nil {
		return nil, err
	}
	c.status = resp.StatusCode
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.via.ahead.Store(int64(time.Until(at)))
	}
	return resp, nil
}

// callError is why a request failed, without the token.
type callError struct {
	method string
	err    error
	code   int  // the platform's error code; 0 if it gave no proper answer
	wrote  bool // the request may have been carried out
	retry  time.Duration
	moved  int64 // the supergroup the chat has become
}

func (e *callError) Error() string { return "telegram: " + e.method + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// request calls a method and decodes its result, if result is not nil. The
// error is a *callError.
func (c *client) request(ctx context.Context, method string, params tgbotapi.Params, result any) error {
	under := &call{ctx: ctx, via: c}
	bot := tgbotapi.BotAPI{Token: string(c.token), Client: under}
	bot.SetAPIEndpoint(c.endpoint)
	resp, err := bot.MakeRequest(method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(resp.Result, result)
	}
	if err == nil {
		return nil
	}
	failed := &callError{method: method, wrote: under.wrote.Load()}
	answer, ok := errors.AsType[*tgbotapi.Error](err)
	if ok && answer.Code != 0 {
		failed.code = answer.Code
		failed.retry = time.Duration(answer.RetryAfter) * time.Second
		failed.moved = answer.MigrateToChatID
		// A server that failed inside may have done it; a refusal has not.
		failed.wrote = answer.Code >= http.StatusInternalServerError
		failed.err = fmt.Errorf("%d %s", answer.Code, c.redact(answer.Message))
		return failed
	}
	if ok { // JSON that somebody between us and the platform wrote
		err = errors.New("not the Bot API's JSON")
	}
	if transport, ok := errors.AsType[*url.Error](err); ok {
		err = transport.Err // the URL around it holds the token
	}
	if under.status != 0 {
		err = fmt.Errorf("no proper answer, HTTP status %d: %w", under.status, err)
	}
	if text := err.Error(); strings.Contains(text, string(c.token)) && c.token != "" {
		err = errors.New(c.redact(text))
	}
	failed.err = err
	return failed
}

func (c *client) redact(s string) string {
	if c.token == "" {
		return s
	}
	return strings.ReplaceAll(s, string(c.token), c.token.String())
}

// outcome turns a request's error into the contract's errors for Send.
func outcome(err error) error {
	failed, ok := errors.AsType[*callError](err)
	if !ok {
		return err
	}
	switch {
	case failed.code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", err, &channels.RateLimitError{RetryAfter: max(failed.retry, time.Second)})
	case failed.code == http.StatusUnauthorized || failed.code == http.StatusNotFound:
		return fmt.Errorf("%w: %w", err, channels.ErrNotReady) // the token was revoked
	case failed.code >= http.StatusBadRequest && failed.code < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", err, channels.ErrPermanent)
	case failed.wrote:
		return fmt.Errorf("%w: %w", err, channels.ErrUnknownOutcome)
	}
	return err
}
