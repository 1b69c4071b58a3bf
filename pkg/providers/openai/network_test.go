package openai_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func dial(t *testing.T, cfg openai.Config) *openai.Provider {
	t.Helper()
	p, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// chunked makes the server end its answers the way a connection is lost by
// clients that do not read to the end: in pieces, of unknown length.
func chunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		_, _ = w.Write([]byte("\n\n"))
	})
}

func TestConnectionsAreReused(t *testing.T) {
	fake := providerstest.NewServer(providerstest.ServerConfig{})
	var dialled atomic.Int32
	web := httptest.NewUnstartedServer(chunked(fake))
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dialled.Add(1)
		}
	}
	web.Start()
	defer web.Close()
	p := dial(t, openai.Config{BaseURL: web.URL + "/v1"})
	ask := func() {
		if _, err := p.Chat(t.Context(), hello(), nil, "m", nil); err != nil {
			t.Errorf("Chat: %v", err)
		}
	}
	for range 20 {
		ask()
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("20 calls one after another dialled %d times, want once", n)
	}
	const many = 32
	for range 5 {
		var wg sync.WaitGroup
		for range many {
			wg.Go(ask)
		}
		wg.Wait()
	}
	// A dial that is overtaken by a connection that became free is not lost.
	if n := dialled.Load(); n > 2*many {
		t.Errorf("%d calls at once, five times over, dialled %d times", many, n)
	}
}

func TestFailuresOfTheNetwork(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	tlsServer := httptest.NewUnstartedServer(providerstest.NewServer(providerstest.ServerConfig{}))
	tlsServer.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	redirect := httptest.NewServer(http.RedirectHandler("https://elsewhere.example/v1/chat/completions", http.StatusMovedPermanently))
	defer redirect.Close()
	cases := map[string]struct {
		base  string
		want  providers.ErrorKind
		words string
	}{
		"nobody listens":    {"http://user:s3cret-pw@" + closed.Addr().String() + "/v1", providers.KindUnreachable, "refused"},
		"unknown authority": {tlsServer.URL + "/v1", providers.KindUnreachable, "certificate"},
		"not TLS":           {strings.Replace(redirect.URL, "http:", "https:", 1) + "/v1", providers.KindUnreachable, "HTTP"},
		"redirect":          {redirect.URL + "/v1", providers.KindUnreachable, "https://elsewhere.example"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := failed(t, dial(t, openai.Config{BaseURL: c.base, MaxAttempts: 1}))
			if e.Kind != c.want || !strings.Contains(e.Message, c.words) || strings.Contains(e.Error(), "s3cret-pw") {
				t.Errorf("got %v, want %s with %q", e, c.want, c.words)
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		piece := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat("x", 1<<20))
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
			piece = piece[len(piece)-1<<20:]
		}
	}))
	defer endless.Close()
	e := failed(t, dial(t, openai.Config{BaseURL: endless.URL, MaxAttempts: 1}))
	if e.Kind != providers.KindInvalidRequest || !strings.Contains(e.Message, "8 MiB") {
		t.Errorf("an endless answer gave %v", e)
	}
}

func TestCancelledOnTheWire(t *testing.T) {
	fake := providerstest.NewServer(providerstest.ServerConfig{Reply: func(providerstest.Request) providerstest.Response {
		return providerstest.Response{Hang: true}
	}})
	arrived := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		fake.ServeHTTP(w, r)
	}))
	defer web.Close()
	defer fake.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := dial(t, openai.Config{BaseURL: web.URL}).Chat(ctx, hello(), nil, "m", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestKeyOnTheWire(t *testing.T) {
	var auth []string
	s := providerstest.NewServer(providerstest.ServerConfig{Reply: func(r providerstest.Request) providerstest.Response {
		auth = append(auth, r.Header.Get("Authorization"))
		return providerstest.Text("ok")
	}})
	for _, key := range []config.Secret{"", "sk-1", " sk-2\n"} {
		p := dial(t, openai.Config{BaseURL: "http://fake/v1", APIKey: key, Transport: s.Transport()})
		if _, err := p.Chat(t.Context(), hello(), nil, "m", nil); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(auth, "|") != "|Bearer sk-1|Bearer sk-2" {
		t.Errorf("the keys arrived as %q", auth)
	}
}

func TestCheck(t *testing.T) {
	web := httptest.NewServer(providerstest.NewServer(providerstest.ServerConfig{Key: providerstest.Secret, Models: []string{"m"}}))
	if err := dial(t, openai.Config{BaseURL: web.URL + "/v1", APIKey: providerstest.Secret}).Check(t.Context()); err != nil {
		t.Errorf("the right key: %v", err)
	}
	for model, missing := range map[string]bool{"m": false, "m:free": false, "n": true} {
		err := dial(t, openai.Config{BaseURL: web.URL + "/v1", APIKey: providerstest.Secret, Model: model}).Check(t.Context())
		if (providers.KindOf(err) == providers.KindInvalidRequest) != missing || err != nil && !missing {
			t.Errorf("the model %s: %v", model, err)
		}
	}
	err := dial(t, openai.Config{BaseURL: web.URL + "/v1", APIKey: "sk-wrong-key"}).Check(t.Context())
	if providers.KindOf(err) != providers.KindAuth || strings.Contains(err.Error(), "sk-wrong-key") {
		t.Errorf("a wrong key: %v", err)
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   providers.ErrorKind
	}{
		"bad gateway":     {http.StatusBadGateway, "<html>bad gateway</html>", providers.KindOverloaded},
		"gateway timeout": {http.StatusGatewayTimeout, "", providers.KindTimeout},
		"a page":          {http.StatusOK, "<html>It works!</html>", providers.KindUnreachable},
		"nothing":         {http.StatusOK, "", providers.KindUnreachable},
		"elsewhere":       {http.StatusFound, "", providers.KindUnreachable},
		"own list":        {http.StatusOK, `[{"id":"m"}]`, ""},
		"no right":        {http.StatusForbidden, `{}`, ""},
		"busy":            {http.StatusTooManyRequests, `{}`, ""},
	} {
		odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		if err := dial(t, openai.Config{BaseURL: odd.URL + "/v1", Model: "m"}).Check(t.Context()); providers.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		odd.Close()
	}
	web.Close()
	if err := dial(t, openai.Config{BaseURL: web.URL + "/v1"}).Check(t.Context()); providers.KindOf(err) != providers.KindUnreachable {
		t.Errorf("nobody there: %v", err)
	}
}

// The environment is read once in a process, so the proxy is tried in one of
// its own.
func TestProxyFromTheEnvironment(t *testing.T) {
	if os.Getenv("DRAGOMAN_TEST_PROXY_CHILD") != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		resp, err := dial(t, openai.Config{BaseURL: "http://model.invalid/v1", MaxAttempts: 1}).Chat(ctx, hello(), nil, "m", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("answer: " + resp.Content)
		return
	}
	var asked atomic.Value
	fake := providerstest.NewServer(providerstest.ServerConfig{Reply: func(providerstest.Request) providerstest.Response {
		return providerstest.Text("through the proxy")
	}})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.RequestURI)
		fake.ServeHTTP(w, r)
	}))
	defer web.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyFromTheEnvironment$", "-test.v")
	cmd.Env = append(os.Environ(), "DRAGOMAN_TEST_PROXY_CHILD=1", "HTTP_PROXY="+web.URL, "http_proxy="+web.URL, "NO_PROXY=", "no_proxy=")
	out, _ := cmd.CombinedOutput() // a failing child says why in its output
	if !strings.Contains(string(out), "answer: through the proxy") || asked.Load() != "http://model.invalid/v1/chat/completions" {
		t.Errorf("the proxy was asked for %v\n%s", asked.Load(), out)
	}
}
