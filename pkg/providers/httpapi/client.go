package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

// Defaults of Config.
const (
	DefaultMaxAttempts    = 4
	DefaultAttemptTimeout = 2 * time.Minute
	DefaultRetryBudget    = 3 * time.Minute
	DefaultMaxRetryAfter  = time.Minute
)

// Config configures the client of one service. An adapter says what its zero
// value is.
type Config struct {
	// BaseURL is where the API lives.
	BaseURL string
	// APIKey goes along with every request; empty sends none.
	APIKey config.Secret

	// Model is what Check asks the service about; empty asks about none.
	// Requests name their own.
	Model string

	// MaxAttempts bounds how often one request is sent, the first time
	// included. 0 means DefaultMaxAttempts.
	MaxAttempts int
	// AttemptTimeout bounds one attempt: the silence before an answer in pieces
	// begins, and after each piece of it; of any other, the whole answer. A service
	// that only says that it is still there has three times as long. 0 means
	// DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// RetryBudget bounds all attempts together: no new one begins later than
	// this after the first. 0 means DefaultRetryBudget.
	RetryBudget time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for; when the
	// API asks for more, Chat fails at once with what it asked for. 0 means
	// DefaultMaxRetryAfter.
	MaxRetryAfter time.Duration

	// Transport carries the requests; nil means one of the client's own,
	// which keeps connections alive and honours HTTPS_PROXY.
	Transport http.RoundTripper
	// Logger hears of retries; nil discards.
	Logger *slog.Logger
}

// Client is what all requests to one service share. Safe for concurrent use.
type Client struct {
	Config // without gaps; BaseURL does not end in a slash

	Key string // APIKey without the space around it
}

// NewClient returns a client. It does no I/O; the error says what is wrong with
// BaseURL and does not hold it, since it may carry a password. example is an
// address as it should be.
func NewClient(cfg Config, example string) (*Client, error) {
	u, err := url.Parse(strings.TrimSpace(cfg.BaseURL))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("base_url is not an address: write it in full, for example " + example)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("base_url must not have a query or a fragment")
	}
	cfg.BaseURL = strings.TrimRight(u.String(), "/")
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
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{Config: cfg, Key: strings.TrimSpace(string(cfg.APIKey))}, nil
}

// Close releases the idle connections. Requests that are under way go on.
func (c *Client) Close() {
	if t, ok := c.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
