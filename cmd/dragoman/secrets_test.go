package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/dragoman-chat/dragoman/pkg/metrics"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// The tests of this file are named in docs/cases.md.

// secrets are those of a configuration, in parts: nobody has a use for half of
// one either.
var secrets = []string{"123456789:", "AAF-telegram-token_0123456789", "discord.token-0123456789.abcdef", "sk-model+key/0123456789", "pass-word-0123456789"}

var secretConfig = fmt.Sprintf(`
models: {main: {provider: openai, base_url: "http://bot:%s@127.0.0.1:1/v1", api_key: %q, model: m}}
channels:
  telegram: {token: "%s%s"}
  discord: {token: %q}
`, secrets[4], secrets[3], secrets[0], secrets[1], secrets[2])

// hidesSecrets fails t if a text holds a secret, or holds nothing hidden though it
// should.
func hidesSecrets(t *testing.T, where, text string, some bool) {
	t.Helper()
	for _, s := range secrets {
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s)} {
			if strings.Contains(text, form) {
				t.Errorf("%s: %q is in\n%s", where, form, text)
			}
		}
	}
	if some && !strings.Contains(text, "***") {
		t.Errorf("%s: nothing is hidden in\n%s", where, text)
	}
}

// confession is a text with all the secrets in it, as somebody may paste it.
func confession() string {
	return "bot" + secrets[0] + secrets[1] + " and " + strings.Join(secrets[2:], " and ")
}

// Whatever is logged and however the program ends, standard error holds no token,
// key or password of the configuration: neither in an error nor in an address, in
// a panic nor in what people wrote.
func TestCaseTokensAreNotInTheLog(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			var s *shell
			s = newShell(t, func(context.Context) error {
				request := &url.Error{Op: "Post", URL: "https://api.telegram.org/bot" + secrets[0] + secrets[1] + "/getUpdates?key=" + url.QueryEscape(secrets[3]), Err: errors.New("timeout")}
				s.log.Debug("message", "text", confession())
				s.log.Warn("poll failed", "text", request.Error(), "err", fmt.Errorf("poll: %w", request), slog.Group("request", "header", http.Header{"Authorization": {"Bearer " + secrets[3], "Bot " + secrets[2]}}))
				logger.InfoCF("tool", confession(), map[string]interface{}{"args": map[string]any{"x": confession()}})
				func() {
					defer func() {
						s.log.Error("panic", "err", fmt.Sprint(recover()), "stack", string(debug.Stack()))
					}()
					panic(confession())
				}()
				return fmt.Errorf("it ends: %w: %s", request, confession())
			})
			fake := s.newApp
			s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
				opts.Check = true // the channels read their sections
				if _, err := newApp(cfg, log, opts); err != nil {
					return nil, err
				}
				return fake(cfg, log, opts)
			}
			path := file(t, fmt.Sprintf("data_dir: %s\nlog: {level: debug, format: %s}\n%s", t.TempDir(), format, secretConfig))
			if code := s.run(t.Context(), []string{"gateway", "--config", path}); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			hidesSecrets(t, "standard error", s.errOut.String(), true)
			hidesSecrets(t, "standard output", s.out.String(), false)
			if text := s.errOut.String(); !strings.Contains(text, "it ends") || !strings.Contains(text, "getUpdates") || !strings.Contains(text, "goroutine") {
				t.Errorf("what is to be logged is gone:\n%s", text)
			}
		})
	}
	t.Run("config check", func(t *testing.T) {
		s := newShell(t, nil)
		s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
			return newApp(cfg, log, opts)
		}
		path := file(t, fmt.Sprintf("data_dir: %s\n%s", t.TempDir(), secretConfig))
		if code := s.run(t.Context(), []string{"config", "check", "--config", path}); code != 0 {
			t.Errorf("exit code %d: %s", code, s.errOut.String())
		}
		hidesSecrets(t, "config check", s.out.String()+s.errOut.String(), false)
	})
}

// What an operator prints from the ledger, to put it into a report, holds none of
// them either, though people, tools or platforms have written them.
func TestCaseTokensAreNotInWhatTheLedgerShows(t *testing.T) {
	c := newScene(t, secretConfig)
	m := bus.InboundMessage{Address: chat7, ID: "m:-100:1", MessageID: "1", SessionKey: chat7.String(), Kind: bus.KindMessage, Principal: "telegram:5", Text: confession()}
	res := c.put(store.Tx{Admit: []bus.InboundMessage{m}})
	c.put(store.Tx{Begin: &store.Turn{ID: "turn-1", Address: chat7, Session: chat7.String(), Inbound: []int64{res.Admitted[0].Seq}, Started: time.Now()}})
	call := providers.ToolCall{ID: "c1", Type: "function", Name: "look", Function: &providers.FunctionCall{Name: "look", Arguments: fmt.Sprintf(`{"x":%q}`, confession())}}
	c.put(store.Tx{Steps: []store.Step{
		{Turn: "turn-1", Round: 1, Kind: store.StepReply, Message: providers.Message{Role: providers.RoleAssistant, Content: confession(), ToolCalls: []providers.ToolCall{call}}, Time: time.Now()},
		{Turn: "turn-1", Round: 1, Kind: store.StepBegin, CallID: "c1", Tool: "look", Time: time.Now()},
		{Turn: "turn-1", Round: 1, Kind: store.StepEnd, CallID: "c1", Tool: "look", Message: providers.Message{Role: providers.RoleTool, ToolCallID: "c1", Content: confession()}, Time: time.Now()},
	}})
	entry := func(role string) store.Entry {
		return store.Entry{Session: chat7.String(), Turn: "turn-1", Message: spoken(role, confession()), Time: time.Now()}
	}
	sent := c.put(store.Tx{
		History: []store.Entry{entry(providers.RoleUser), entry(providers.RoleAssistant)}, End: []string{"turn-1"},
		Send: []store.Outbound{{Turn: "turn-1", Message: bus.OutboundMessage{Address: chat7, Key: "k1", Text: confession()}}},
	})
	if len(sent.Queued) != 1 {
		t.Fatal(sent)
	}
	c.put(store.Tx{Receipts: []store.Receipt{{Key: "k1", Failed: "telegram: sendMessage: " + confession()}}})
	for _, command := range [][]string{
		{"why", "turn-1"},
		{"sessions", "list"},
		{"sessions", "show", chat7.String()},
		{"sessions", "show", "--all", chat7.String()},
		{"sessions", "export", chat7.String()},
		{"sessions", "export", "--format", "text", chat7.String()},
		{"replay", "turn-1"},
	} {
		_, text := c.run(command...)
		shown := command[0] == "sessions" && command[1] != "list"
		hidesSecrets(t, strings.Join(command, " "), text, shown)
		if text == "" {
			t.Errorf("%q prints nothing", command)
		}
	}
}

// A model's address may hold a password, and its answer the key it was asked
// with: no error says either, nor what is counted and shown of it.
func TestCaseKeysAreNotInTheModelsErrors(t *testing.T) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s for %s","code":"invalid_api_key"}}`, r.Header.Get("Authorization"), r.URL)
	}))
	defer echo.Close()
	host := strings.TrimPrefix(echo.URL, "http://")
	for name, base := range map[string]string{"refused": host, "unreachable": "127.0.0.1:1", "no address": "no such host"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it would try again for a while
			defer cancel()
			text := fmt.Sprintf("data_dir: %q\nmodels: {main: {provider: openai, base_url: \"http://bot:%s@%s/v1\", api_key: %q, model: m}}\n", t.TempDir(), secrets[4], base, secrets[3])
			cfg, err := config.Load(file(t, text), func(string) string { return "" })
			if err != nil {
				hidesSecrets(t, "the mistake", err.Error(), false)
				return
			}
			a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler), metrics: metrics.New("")}
			model, err := a.model()
			if err == nil {
				_, err = model.Chat(ctx, []providers.Message{spoken(providers.RoleUser, "hi")}, nil, "m", nil)
			}
			for _, c := range a.closers {
				c()
			}
			if err == nil {
				t.Fatal("no error")
			}
			for ; err != nil; err = errors.Unwrap(err) {
				hidesSecrets(t, "the error", fmt.Sprintf("%v %+v %#v", err, err, err), false)
			}
			page := httptest.NewRecorder()
			a.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			hidesSecrets(t, "/metrics", page.Body.String(), false)
		})
	}
}
