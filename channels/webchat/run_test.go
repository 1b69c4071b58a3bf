package webchat

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

var quiet = slog.New(slog.DiscardHandler)

// run runs c until the test ends or stop is called, and waits until it listens.
func run(t *testing.T, c *Channel, in bus.Inbox) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, in) }()
	gone := false
	stop = func() {
		cancel()
		if gone {
			return
		}
		gone = true
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
	t.Cleanup(stop)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.Health() != nil {
		select {
		case err := <-ended:
			gone = true
			t.Fatalf("Run = %v", err)
		case <-tick.C:
		}
	}
	return stop
}

// serve runs a page on a network in memory. dial reaches it.
func serve(t *testing.T, cfg Config, in bus.Inbox, opts ...Option) (c *Channel, w *wire) {
	t.Helper()
	w = &wire{}
	c = New("web", cfg, nil, quiet, opts...)
	c.listen = w.listen
	run(t, c, in)
	return c, w
}

func (c *Channel) mustSend(t *testing.T, chat, text string) bus.Receipt {
	t.Helper()
	r, err := c.Send(t.Context(), bus.OutboundMessage{Address: bus.Address{Channel: c.name, ChatID: chat}, Key: bus.Key(text), Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each mistake of the operator is one sentence that says what to do.
func TestSetup(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"a taken port":             {Config{Listen: taken.Addr().String()}, "is taken by another program: stop that one, or choose another port"},
		"no port":                  {Config{Listen: "localhost"}, "is not an address: write host:port"},
		"everywhere, no token":     {Config{Listen: ":0"}, "set token"},
		"all of IPv4, no token":    {Config{Listen: "0.0.0.0:0"}, "set token"},
		"not this machine":         {Config{Listen: "203.0.113.7:8080", Token: "sixteen-letters!"}, "choose another address"},
		"no such host":             {Config{Listen: "no-such-host.invalid:8080"}, "choose another address"},
		"behind a proxy, no token": {Config{Listen: "127.0.0.1:0", AllowedHosts: []string{"chat.example.org"}}, "chat.example.org: set token"},
	} {
		t.Run(name, func(t *testing.T) {
			c := New("web", tc.cfg, nil, quiet)
			err := c.Run(t.Context(), &memory{})
			if !errors.Is(err, channels.ErrSetup) || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "channels.web.") {
				t.Errorf("Run = %v, want a setup error with %q", err, tc.want)
			}
			if c.Health() == nil {
				t.Error("healthy")
			}
		})
	}
}

func TestListensWithToken(t *testing.T) {
	c := New("web", Config{Listen: "0.0.0.0:0", Token: "a long enough token"}, nil, quiet)
	run(t, c, &memory{})
	_, port, err := net.SplitHostPort(c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, "http://127.0.0.1:"+port, nil)
	if code, text := b.status(http.MethodGet, "/", nil, nil); code != http.StatusOK || !strings.Contains(text, "<title>Dragoman</title>") {
		t.Errorf("GET / = %d %s", code, text)
	}
	if code, _ := b.status(http.MethodPost, "/api/session", nil, nil); code != http.StatusUnauthorized {
		t.Errorf("a session without the token: %d", code)
	}
}

func TestDefaultConfig(t *testing.T) {
	if got := New("web", Config{}, nil, quiet).cfg.Listen; got != "127.0.0.1:8080" || DefaultConfig().Listen != got {
		t.Errorf("listens on %q by default", got)
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("web", Config{}, nil, quiet)
		c.listen = (&wire{}).listen
		if c.Health() == nil {
			t.Error("healthy before Run")
		}
		if _, err := c.Send(t.Context(), bus.OutboundMessage{Address: bus.Address{ChatID: chatIDOf(newKey())}}); !errors.Is(err, channels.ErrNotReady) {
			t.Errorf("Send before Run = %v", err)
		}
		for range 2 { // the gateway may run it again
			stop := run(t, c, &memory{})
			if err := c.Health(); err != nil || c.Addr() == "" {
				t.Errorf("Health = %v, Addr = %q", err, c.Addr())
			}
			stop()
			if c.Health() == nil || c.Addr() != "" {
				t.Error("healthy after Run")
			}
		}
	})
}

// A broken listener ends Run with an error, so that the gateway starts it anew.
func TestListenerBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c := New("web", Config{}, nil, quiet)
		c.listen = w.listen
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context(), &memory{}) }()
		synctest.Wait()
		if err := w.cur.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || errors.Is(err, channels.ErrSetup) {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") })
		_, w := serve(t, Config{Token: "a long enough token"}, &memory{}, WithHandler("GET /healthz", well))
		b := newBrowser(t, origin, w.dial)
		if code, text := b.status(http.MethodGet, "/healthz", nil, nil); code != http.StatusOK || text != "well" {
			t.Errorf("GET /healthz = %d %s", code, text)
		}
		for _, path := range []string{"/nothing", "/page/app.js", "/..%2f..%2fetc/passwd"} {
			if code, _ := b.status(http.MethodGet, path, nil, nil); code != http.StatusNotFound {
				t.Errorf("GET %s = %d", path, code)
			}
		}
	})
}

// Every answer forbids what the page does not need, and files are asked for
// again only when they have changed.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := serve(t, Config{}, &memory{})
		b := newBrowser(t, origin, w.dial)
		for _, path := range []string{"/", "/app.js", "/style.css", "/favicon.svg", "/nothing", "/api/events"} {
			resp, err := b.do(t.Context(), http.MethodGet, path, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			csp := resp.Header.Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
				t.Errorf("%s: Content-Security-Policy %q", path, csp)
			}
			if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("%s: headers %v", path, resp.Header)
			}
			if etag := resp.Header.Get("Etag"); etag != "" {
				if code, _ := b.status(http.MethodGet, path, nil, map[string]string{"If-None-Match": etag}); code != http.StatusNotModified {
					t.Errorf("%s again: %d", path, code)
				}
			}
		}
	})
}

// The page itself keeps what the policy forbids out: styles and scripts in the
// markup, and anything from elsewhere.
func TestPageIsSelfContained(t *testing.T) {
	for _, name := range []string{"index.html", "app.js", "style.css"} {
		b, err := page.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"//cdn", "https://", " style=", " onclick=", "@import", "eval("} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s contains %q", name, bad)
			}
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := serve(t, Config{}, &memory{})
		var open []net.Conn
		defer func() {
			for _, c := range open {
				_ = c.Close()
			}
		}()
		for range maxConns {
			c, err := w.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		synctest.Wait()
		one, err := w.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Read(make([]byte, 1)); err == nil {
			t.Error("one connection too many is served")
		}
		time.Sleep(2 * headerTimeout) // those that ask for nothing are closed
		b := newBrowser(t, origin, w.dial)
		if code, _ := b.status(http.MethodGet, "/", nil, nil); code != http.StatusOK {
			t.Errorf("GET / = %d once there is room again", code)
		}
	})
}

// Config as an operator writes it must not show its token.
func TestConfigHidesToken(t *testing.T) {
	var log strings.Builder
	c := Config{Listen: "127.0.0.1:0", Token: config.Secret("very secret words")}
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c)
	if strings.Contains(log.String(), "very secret") {
		t.Errorf("the log says %s", log.String())
	}
}
