// Package webchat is the channel of a web page: a browser writes through HTTP
// and reads the answers as Server-Sent Events.
//
// Every browser has one conversation. Its key is a random value in a cookie
// that scripts cannot read; the chat id is a hash of that key, so it may stand
// in logs and in addresses without opening the conversation to whoever reads
// them. The page's wall is the loopback interface or, beyond it, a token.
//
// Goroutines: Run's own, the HTTP server's, and none besides. A conversation
// costs memory only while somebody has it open or for a short while after its
// last message; what was said before comes from the history.
package webchat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// Config is the channel's section of the configuration.
type Config struct {
	// Listen is the address of the page, host:port. Beyond loopback it needs a
	// token.
	Listen string `yaml:"listen"`
	// Token opens the page. Empty: whoever reaches the address may write.
	Token config.Secret `yaml:"token"`
	// AllowedHosts are more names the page is reached by, for example behind a
	// reverse proxy. Each is a host, or a host with a port.
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// DefaultConfig returns the section as it is when nothing is configured.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8080"} }

// Validate implements config.Validator.
func (c *Config) Validate(_ string, wrong func(key, format string, args ...any)) {
	if key, why := c.mistake(); key != "" {
		wrong(key, "%s", why)
	}
}

// Line is one message of a conversation's past.
type Line struct {
	Role string // providers.RoleUser or providers.RoleAssistant; others are not shown
	Text string
	Time time.Time

	// Waiting is the page's id of a message that is stored and not answered
	// yet, "" for what is in the history. Such lines come last.
	Waiting string
}

// HistoryFunc returns the newest limit lines of a conversation, oldest first.
// It is called from the server's goroutines.
type HistoryFunc func(ctx context.Context, address bus.Address, limit int) ([]Line, error)

// Option changes a Channel while it is made.
type Option func(*Channel)

// WithHistory tells where earlier messages come from. Without it the page
// shows what is still in memory.
func WithHistory(history HistoryFunc) Option {
	return func(c *Channel) { c.history = history }
}

// WithHandler mounts one more handler, for example "GET /healthz". It is not
// behind the token: it has to be fit for whoever reaches the address.
func WithHandler(pattern string, h http.Handler) Option {
	return func(c *Channel) { c.extra = append(c.extra, mount{pattern, h}) }
}

type mount struct {
	pattern string
	handler http.Handler
}

// Bounds of the server.
const (
	maxConns       = 1024            // open connections; the one above is closed at once
	shutdownGrace  = 3 * time.Second // for requests under way when Run ends
	janitorPeriod  = time.Minute
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Channel is one web chat page. See New.
type Channel struct {
	name    string
	cfg     Config
	log     *slog.Logger
	history HistoryFunc
	extra   []mount
	hub     *hub
	render  markdown
	listen  func(ctx context.Context, network, address string) (net.Listener, error)

	addr atomic.Pointer[string] // where it listens, nil when it does not
}

// New returns the web chat called name in the configuration. It does no I/O.
// The page keeps no facts of its own: its cookies carry what it has to know.
func New(name string, cfg Config, _ *state.State, log *slog.Logger, opts ...Option) *Channel {
	if cfg.Listen == "" {
		cfg.Listen = DefaultConfig().Listen
	}
	c := &Channel{name: name, cfg: cfg, log: log.With("channel", name), hub: newHub()}
	c.listen = new(net.ListenConfig).Listen
	for _, o := range opts {
		o(c)
	}
	return c
}

// Name returns the instance's key in the configuration.
func (c *Channel) Name() string { return c.name }

// Addr returns where the page listens, "" while it does not. It tells the real
// port when the configuration says 0.
func (c *Channel) Addr() string {
	if a := c.addr.Load(); a != nil {
		return *a
	}
	return ""
}

// Health returns nil while the page is served.
func (c *Channel) Health() error {
	if c.Addr() == "" {
		return errors.New("the web chat does not listen")
	}
	return nil
}

// Run serves the page until ctx ends. A taken port, an address that cannot be
// used and a missing token are errors that wrap channels.ErrSetup.
func (c *Channel) Run(ctx context.Context, in bus.Inbox) error {
	ln, err := c.open(ctx)
	if err != nil {
		return err
	}
	var conns atomic.Int64
	var requests sync.WaitGroup
	handler := c.handler(in, newGuard(c.cfg, ln.Addr()))
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			defer requests.Done()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		ConnState:         limitConns(&conns, maxConns),
	}
	addr := ln.Addr().String()
	c.addr.Store(&addr)
	c.hub.reopen()
	c.log.Info("web chat listens", "url", pageURL(ln.Addr()))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()

	err = c.wait(ctx, served)
	c.addr.Store(nil)
	c.hub.closeStreams()
	c.stop(ctx, srv)
	requests.Wait()
	return err
}

// wait returns when ctx ends or the server fails, and clears away idle
// conversations meanwhile.
func (c *Channel) wait(ctx context.Context, served <-chan error) error {
	janitor := time.NewTicker(janitorPeriod)
	defer janitor.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("webchat: serve: %w", err)
		case now := <-janitor.C:
			c.hub.evictIdle(now)
		}
	}
}

// stop ends the server: kindly first, and after the grace for good.
func (c *Channel) stop(ctx context.Context, srv *http.Server) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		c.log.Warn("web chat stopped with requests under way", "err", err)
		_ = srv.Close() // the connections are cut; nothing is left to report
	}
}

// limitConns closes what is above the limit, so that idle connections cannot
// use up the process's file descriptors.
func limitConns(open *atomic.Int64, limit int64) func(net.Conn, http.ConnState) {
	return func(conn net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			if open.Add(1) > limit {
				_ = conn.Close() // the server hears of it from its next read
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
}

// Send puts a message into the conversation. It succeeds whether or not
// somebody watches: a page that opens later reads the message from the history.
// It never waits for a browser. The receipt's id is the message's sequence
// number, which only grows. While Run does not listen the error wraps
// channels.ErrNotReady: nobody could see the message, and what is not part of
// the history would be gone with the process. For a chat id that is none of
// ours it wraps channels.ErrPermanent.
func (c *Channel) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return bus.Receipt{}, fmt.Errorf("webchat: send: %w", err)
	}
	if c.Addr() == "" {
		return bus.Receipt{}, fmt.Errorf("webchat: send: the page is not served: %w", channels.ErrNotReady)
	}
	if !validChatID(m.ChatID) {
		return bus.Receipt{}, fmt.Errorf("webchat: send: no such conversation: %w", channels.ErrPermanent)
	}
	e := c.hub.add(m.ChatID, event{kind: kindMessage, role: providers.RoleAssistant, id: m.Key, text: m.Text})
	return bus.Receipt{MessageID: formatSeq(e.seq), Time: e.time}, nil
}

// Typing shows that an answer is on its way to those who watch.
func (c *Channel) Typing(_ context.Context, to bus.Address) error {
	if !validChatID(to.ChatID) {
		return fmt.Errorf("webchat: typing: no such conversation: %w", channels.ErrPermanent)
	}
	c.hub.typing(to.ChatID)
	return nil
}
