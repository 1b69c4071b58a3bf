package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeApp is a runner that does what a test says.
type fakeApp func(ctx context.Context) error

func (f fakeApp) Run(ctx context.Context) error { return f(ctx) }

// shell is a program under test and what it wrote.
type shell struct {
	program
	out, errOut bytes.Buffer
	sent        chan os.Signal
	exited      chan int
	cfg         *config.Config // what the app was made of
	log         *slog.Logger
	opts        appOptions
}

// newShell returns a program whose app runs as run says. Its environment holds
// a home folder and the given pairs.
func newShell(t *testing.T, run fakeApp, env ...string) *shell {
	t.Helper()
	t.Chdir(t.TempDir()) // no ./config.yaml
	vars := map[string]string{"HOME": t.TempDir()}
	for i := 0; i < len(env); i += 2 {
		vars[env[i]] = env[i+1]
	}
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	s := &shell{sent: make(chan os.Signal, 2), exited: make(chan int, 1)}
	s.program = program{
		in: strings.NewReader(""), out: &s.out, errOut: &s.errOut,
		env: func(name string) string { return vars[name] }, signals: s.sent,
		exit: func(code int) { s.exited <- code },
		newApp: func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
			s.cfg, s.log, s.opts = cfg, log, opts
			return run, nil
		},
	}
	return s
}

// file writes a configuration and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func ends(err error) fakeApp { return func(context.Context) error { return err } }

func TestExitCodesAndSentences(t *testing.T) {
	taken := fmt.Errorf("webchat: %w: 127.0.0.1:8080 is taken: %w", channels.ErrSetup, os.NewSyscallError("bind", syscall.EADDRINUSE))
	for _, tc := range []struct {
		name string
		args []string
		run  fakeApp
		code int
		want string // all of standard error but the log
	}{
		{"clean end", []string{"gateway"}, ends(nil), 0, ""},
		{"something else", []string{"gateway"}, ends(errors.New("disk full")), 1, "dragoman: disk full\n"},
		{"unknown command", []string{"gatway"}, nil, 2, "dragoman: unknown command \"gatway\": did you mean \"gateway\"?\ndragoman: see \"dragoman --help\"\n"},
		{"unknown command, no neighbour", []string{"paint"}, nil, 2, "dragoman: unknown command \"paint\"\ndragoman: see \"dragoman --help\"\n"},
		{"unknown subcommand", []string{"config", "chek"}, nil, 2, "dragoman: unknown command \"chek\": did you mean \"check\"?\ndragoman: see \"dragoman --help\"\n"},
		{"unknown flag", []string{"gateway", "--conf", "x"}, nil, 2, "dragoman: unknown flag: --conf\ndragoman: see \"dragoman --help\"\n"},
		{"argument too many", []string{"gateway", "now"}, nil, 2, "dragoman: unknown command \"now\" for \"dragoman gateway\"\ndragoman: see \"dragoman --help\"\n"},
		{"no such file", []string{"gateway", "--config", "none.yaml"}, nil, 78, "dragoman: config: there is no file none.yaml\n"},
		{"wrong token", []string{"gateway"}, ends(fmt.Errorf("telegram: %w: the token is refused", channels.ErrSetup)), 77, "dragoman: telegram: channel setup: the token is refused\n"},
		{"wrong key", []string{"gateway"}, ends(fmt.Errorf("main: %w", &providers.Error{Kind: providers.KindAuth, Status: 401, Message: "no"})), 77, "dragoman: main: model: auth (HTTP 401): no\n"},
		{"model away", []string{"gateway"}, ends(&providers.Error{Kind: providers.KindUnreachable, Message: "refused"}), 69, "dragoman: model: unreachable: refused\n"},
		{"port taken", []string{"gateway"}, ends(taken), 75, "dragoman: webchat: channel setup: 127.0.0.1:8080 is taken: bind: address already in use\n"},
		{"data folder taken", []string{"gateway"}, ends(sqlite.ErrInUse), 75, "dragoman: another process uses the data directory\n"},
		{"data folder read-only", []string{"gateway"}, ends(sqlite.ErrReadOnly), 77, "dragoman: this user may not write into the data directory\n"},
		{"ledger unusable", []string{"gateway"}, ends(sqlite.ErrUnusable), 78, "dragoman: the file is damaged, from a newer version, or no ledger\n"},
		{"several problems", []string{"gateway"}, ends(errors.Join(errors.New("one"), errors.New("two"))), 1, "dragoman: one\ndragoman: two\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShell(t, tc.run)
			if code := s.run(t.Context(), tc.args); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if got := said(s.errOut.String()); got != tc.want {
				t.Errorf("it says\n%swant\n%s", got, tc.want)
			}
		})
	}
}

// said is what stands on standard error beside the log.
func said(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "time=") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func TestSectionMistakesAreConfigurationMistakes(t *testing.T) {
	s := newShell(t, nil)
	s.newApp = func(cfg *config.Config, _ *slog.Logger, _ appOptions) (runner, error) {
		return nil, errors.Join(cfg.Channels["telegram"].Decode(&struct {
			Token config.Secret `yaml:"token"`
		}{}))
	}
	code := s.run(t.Context(), []string{"gateway", "-c", file(t, "channels:\n  telegram:\n    tokn: x\n")})
	want := "dragoman: config.yaml:3: unknown key \"tokn\" in channels.telegram: did you mean \"token\"?\n"
	if code != exitConfig || s.errOut.String() != want {
		t.Errorf("exit code %d, and it says %q, want %q", code, s.errOut.String(), want)
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	for _, args := range [][]string{{}, {"config"}, {"--help"}, {"gateway", "--help"}} {
		s := newShell(t, nil)
		if code := s.run(t.Context(), args); code != 0 || s.errOut.Len() > 0 || !strings.Contains(s.out.String(), "Usage:") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, s.out.String(), s.errOut.String())
		}
	}
}

func TestFirstSignalEndsGracefully(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := newShell(t, nil)
		s.sent <- sig
		var cause error
		s.newApp = func(*config.Config, *slog.Logger, appOptions) (runner, error) {
			return fakeApp(func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil
			}), nil
		}
		if code := s.run(t.Context(), []string{"gateway"}); code != 0 {
			t.Errorf("%s: exit code %d", sig, code)
		}
		if cause == nil || cause.Error() != "signal: "+sig.String() {
			t.Errorf("%s: the cause is %v", sig, cause)
		}
		if log := s.errOut.String(); !strings.Contains(log, "msg=stopped") {
			t.Errorf("%s: the log is %q", sig, log)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := newShell(t, nil)
	s.newApp = func(*config.Config, *slog.Logger, appOptions) (runner, error) {
		return fakeApp(func(ctx context.Context) error {
			<-ctx.Done()
			s.sent <- os.Interrupt
			if code := <-s.exited; code != exitKilled {
				t.Errorf("exit code %d, want %d", code, exitKilled)
			}
			return nil
		}), nil
	}
	s.sent <- os.Interrupt
	s.run(t.Context(), []string{"gateway"})
}

func TestGatewayLogHidesSecrets(t *testing.T) {
	const token, key = "123456:AAtokenAAtoken", "sk-keykeykey"
	s := newShell(t, nil, "TELEGRAM_BOT_TOKEN", token, "OPENAI_API_KEY", key)
	s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
		var section struct {
			Token config.Secret `yaml:"token"`
		}
		if err := cfg.Channels["telegram"].Decode(&section); err != nil {
			t.Error(err)
		}
		if opts.Version == "" {
			t.Error("the app is told no version")
		}
		return fakeApp(func(context.Context) error {
			log.Error("post https://api/bot" + token + "/getMe")
			slog.Default().Error("with " + key)
			return errors.New("get https://api/bot" + token + "/getMe")
		}), nil
	}
	if code := s.run(t.Context(), []string{"gateway"}); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	got := s.errOut.String()
	if strings.Contains(got, "AAtoken") || strings.Contains(got, "keykey") || strings.Count(got, "***") != 3 {
		t.Errorf("standard error holds\n%s", got)
	}
}

func TestChatUsesOnlyTheConsole(t *testing.T) {
	s := newShell(t, func(context.Context) error { return nil })
	path := file(t, "channels: {telegram: {token: \"${NOT_SET}\"}}\nhealth: {listen: \":1\"}\nlog: {level: debug}\n")
	if code := s.run(t.Context(), []string{"chat", "--config", path}); code != 0 {
		t.Fatalf("exit code %d: %s", code, s.errOut.String())
	}
	if len(s.cfg.Channels) != 1 || s.cfg.Channels["console"].Type() != "console" || s.cfg.Health.Listen != "" {
		t.Errorf("channels %v, health on %q", s.cfg.Channels, s.cfg.Health.Listen)
	}
	if s.opts.In != s.in || s.opts.Out != io.Writer(&s.out) {
		t.Error("the console does not get the terminal")
	}
	if s.log.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("the log disturbs the conversation")
	}
	s.run(t.Context(), []string{"chat", "--config", path, "-v"})
	if !s.log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("-v does not show the log")
	}
}

func TestConfigCheckShowsWhatWouldRun(t *testing.T) {
	s := newShell(t, func(context.Context) error { t.Error("it was run"); return nil })
	path := file(t, `
owners: ["telegram:1", "work:2"]
data_dir: /data
timezone: UTC
models:
  main: {provider: openai, base_url: "https://user:pass@api.example/v1?key=sk-query", api_key: sk-secret, model: m1, fallback: [local]}
  local: {provider: offline}
channels:
  telegram: {token: "1:secret"}
  work: {type: telegram, token: "2:secret"}
`)
	if code := s.run(t.Context(), []string{"config", "check", path}); code != 0 {
		t.Fatalf("exit code %d: %s", code, s.errOut.String())
	}
	want := `configuration     ` + path + `
data folder       /data
time zone         UTC
owners            telegram:1, work:2
asks              main
model local       offline, a stand-in that is no language model
model main        openai m1 at https://api.example/v1, then local
channel telegram  telegram
channel work      telegram
store             sqlite (full)
workspace         per_conversation
log               info as text
health endpoint   off
`
	if got := s.out.String(); got != want {
		t.Errorf("it shows\n%swant\n%s", got, want)
	}
	if code := s.run(t.Context(), []string{"config", "check", path, "--config", path}); code != exitUsage {
		t.Errorf("two files: exit code %d", code)
	}
}

func TestConfigCheckWithoutAFile(t *testing.T) {
	s := newShell(t, nil)
	if code := s.run(t.Context(), []string{"config", "check"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, s.errOut.String())
	}
	for _, line := range []string{"environment and defaults", "model main       offline", "channel webchat  webchat", "nobody in the configuration"} {
		if !strings.Contains(s.out.String(), line) {
			t.Errorf("%q is not in\n%s", line, s.out.String())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		s := newShell(t, nil)
		if code := s.run(t.Context(), []string{arg}); code != 0 || !strings.HasPrefix(s.out.String(), "dragoman ") || !strings.Contains(s.out.String(), "(go") {
			t.Errorf("%s: exit code %d, %q", arg, code, s.out.String())
		}
	}
}

func TestHealth(t *testing.T) {
	ready := true
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz" && ready:
			fmt.Fprintln(w, "ok")
		case r.URL.Path == "/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "telegram: no poll yet")
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	defer daemon.Close()
	addr := daemon.Listener.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string) {
		s := newShell(t, nil, "DRAGOMAN_HEALTH_LISTEN", addr, "HTTP_PROXY", "http://127.0.0.1:1")
		return s.run(t.Context(), append([]string{"health"}, args...)), s.errOut.String()
	}
	if code, text := ask(); code != 0 || text != "" {
		t.Errorf("ready: %d, %q", code, text)
	}
	if code, text := ask("--config", file(t, "health: {listen: \"0.0.0.0:"+port+"\"}\n")); code != 0 {
		t.Errorf("a daemon that listens everywhere: %d, %q", code, text)
	}
	ready = false
	if code, text := ask(); code != 1 || text != "dragoman: health: not ready (HTTP 503): telegram: no poll yet\n" {
		t.Errorf("not ready: %d, %q", code, text)
	}
	if code, text := ask("--live"); code != 0 {
		t.Errorf("alive: %d, %q", code, text)
	}
	daemon.Close()
	if code, text := ask("--listen", addr); code != 1 || !strings.HasPrefix(text, "dragoman: health: nothing answers at "+addr+": ") {
		t.Errorf("gone: %d, %q", code, text)
	}
	if code, text := ask("--listen", "8081"); code != exitUsage {
		t.Errorf("no address: %d, %q", code, text)
	}
	s := newShell(t, nil)
	code := s.run(t.Context(), []string{"health", "--config", file(t, "log: {}\nhealth: {listen: \"\"}\n")})
	if text := s.errOut.String(); code != exitConfig || !strings.Contains(text, "config.yaml:2: health.listen: the endpoint is off") {
		t.Errorf("off: %d, %q", code, text)
	}
}

// TestMistakesThatOnlyTheWiredAppSees: an operator hears of them from
// "config check" already.
func TestMistakesThatOnlyTheWiredAppSees(t *testing.T) {
	for text, want := range map[string]string{
		"channels: {console: }\n":             `config.yaml:1: channels.console: the console is what "dragoman chat" uses: remove it here`,
		"channels: {webcha: }\n":              `config.yaml:1: channels.webcha: there is no channel type "webcha": did you mean "webchat"?`,
		"models: {main: {provider: opnai}}\n": `config.yaml:1: models.main.provider: there is no provider "opnai": did you mean "openai"?`,
		"channels:\n  telegram: {token: a}\n  work:\n    type: telegram\n    token: a\n":                                              `config.yaml:5: channels.work.token: channels.telegram has the same: each channel needs a bot of its own`,
		"channels: {webchat: {listen: \"8085\"}}\n":                                                                                   `config.yaml:1: channels.webchat.listen: "8085" is not an address: write host:port, for example 127.0.0.1:8080`,
		"channels: {webchat: {listen: \"127.0.0.1:70000\"}}\n":                                                                        `config.yaml:1: channels.webchat.listen: "127.0.0.1:70000" is not an address: write host:port, for example 127.0.0.1:8080`,
		"channels: {webchat: {listen: \"0.0.0.0:8080\"}}\n":                                                                           `config.yaml:1: channels.webchat.listen: 0.0.0.0:8080 can be reached from other machines: set token (at least 16 random characters), or listen on 127.0.0.1:8080`,
		"channels: {webchat: {allowed_hosts: [bot.example]}}\n":                                                                       `config.yaml:1: channels.webchat.allowed_hosts: the page is to be reached as bot.example: set token as well, at least 16 random characters`,
		"channels: {telegram: {token: a, api_base: \"localhost:1\"}}\n":                                                               `config.yaml:1: channels.telegram.api_base: expected an address such as https://api.telegram.org`,
		"channels: {telegram: {token: a, poll_timeout: 2m}}\n":                                                                        `config.yaml:1: channels.telegram.poll_timeout: expected a time from 1s to 50s, found 2m0s`,
		"channels: {telegram: {token: a, allow_users: [\"-5\"]}}\n":                                                                   `config.yaml:1: channels.telegram.allow_users: "-5" is nobody: write a user's id, a @username or "*"`,
		"channels: {telegram: {token: a, allow_users: [\"discord:5\"]}}\n":                                                            `config.yaml:1: channels.telegram.allow_users: "discord:5" is nobody: write a user's id, a @username or "*"`,
		"channels: {telegram: {token: a, allow_chats: [\"5\"]}}\n":                                                                    `config.yaml:1: channels.telegram.allow_chats: "5" is no group: write a group's id or "*"`,
		"channels: {discord: {token: a, allow_users: [\"@\"], api_base: \"discord\"}}\n":                                              "config.yaml:1: channels.discord.api_base: expected an address such as https://discord.com\n" + `config.yaml:1: channels.discord.allow_users: "@" is nobody: write a user's id, a @username or "*"`,
		"channels: {telegram: {token: a, allow_users: [\"telegram:5\", \"@ann\", \"*\"], allow_chats: [\"telegram:-5/7\", -1001]}}\n": "",
	} {
		s := newShell(t, nil)
		s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
			return newApp(cfg, log, opts)
		}
		code := s.run(t.Context(), []string{"config", "check", file(t, text)})
		got := strings.TrimSpace(strings.ReplaceAll(s.errOut.String(), "dragoman: ", ""))
		if got != want || code != exitConfig && want != "" || code != 0 && want == "" {
			t.Errorf("%s: exit code %d\ngot  %s\nwant %s", text, code, got, want)
		}
	}
}
