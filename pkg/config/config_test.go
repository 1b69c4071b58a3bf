package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vars is an environment.
func vars(pairs ...string) func(string) string {
	m := map[string]string{"HOME": "/home/ann"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// write puts text into a config.yaml of its own and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string, env func(string) string) *Config {
	t.Helper()
	cfg, err := Load(write(t, text), env)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return cfg
}

var ignoreDoc = cmp.Options{cmpopts.IgnoreUnexported(Config{}, Section{}), cmpopts.EquateEmpty()}

func TestNothingIsEnough(t *testing.T) {
	cfg, err := FromEnv(vars())
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.DataDir = filepath.FromSlash("/home/ann/.dragoman")
	want.Agent.Model = "main"
	want.Models = map[string]Model{"main": {Provider: "offline", ContextTokens: 32_000, MaxConcurrent: 64, Timeout: 2 * time.Minute, ToolCalls: ToolCallsNative}}
	want.Channels = map[string]Section{"webchat": {}}
	if diff := cmp.Diff(want, cfg, ignoreDoc); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if s := cfg.Channels["webchat"]; s.Name() != "webchat" || s.Type() != "webchat" {
		t.Errorf("the channel is %q of type %q", s.Name(), s.Type())
	}
	if cfg.Path() != "" {
		t.Errorf("Path() = %q without a file", cfg.Path())
	}
	for _, text := range []string{"", "# only a remark\n", "---\n", "models:\nchannels:\n"} {
		got := load(t, text, vars())
		if diff := cmp.Diff(want, got, ignoreDoc); diff != "" {
			t.Errorf("the file %q differs from nothing (-want +got):\n%s", text, diff)
		}
	}
}

func TestEveryOptionIsRead(t *testing.T) {
	cfg := load(t, `
data_dir: ~/bot
owners: ["telegram:1", 'discord:2']
timezone: Europe/Berlin
agent: {model: main, system_prompt: "Be ${TONE}.", max_iterations: 5, max_parallel_turns: 8, turn_timeout: 1m30s, turns_per_minute: 0, history_messages: 40}
models:
  main: {provider: openai, base_url: "https://api.example/v1", api_key: "${KEY}", api_keys: ["${KEY}", k-2], model: m1, max_concurrent: 3, fallback: [local], timeout: 10s, tool_calls: text,
         options: {temperature: 0.5, max_tokens: 100, stop: [a, b], nested: {deep: true}}}
  local: {provider: offline}
channels:
  work: {type: telegram, token: "${KEY}"}
  telegram: {}
  discord: {}
store: {driver: sqlite, durability: fast, retention: {journal: 24h, dedupe: 48h, history: 30d}}
tools: {workspace: shared, exec: {allow: [owner, "telegram:1"], commands: [git], network: true, timeout: 5s, memory_mb: 64, processes: 8, file_mb: 10}}
log: {level: debug, format: json}
health: {listen: ":9000"}
telemetry: {otlp_endpoint: "https://otel.example", sample: 0.25, content: true}
shutdown_grace: 3s
`, vars("TONE", "kind", "KEY", "k-123456"))
	want := &Config{
		DataDir: filepath.FromSlash("/home/ann/bot"), Owners: []string{"telegram:1", "discord:2"}, Timezone: "Europe/Berlin",
		Agent: Agent{"main", "Be kind.", 5, 8, 90 * time.Second, 0, 40},
		Models: map[string]Model{
			"main": {
				"openai", "https://api.example/v1", "k-123456",
				[]Secret{"k-123456", "k-2"},
				"m1", 32_000, 3,
				[]string{"local"},
				10 * time.Second, ToolCallsText,
				map[string]any{"temperature": 0.5, "max_tokens": 100, "stop": []any{"a", "b"}, "nested": map[string]any{"deep": true}},
			},
			"local": {Provider: "offline", ContextTokens: 32_000, MaxConcurrent: 64, Timeout: 2 * time.Minute, ToolCalls: ToolCallsNative},
		},
		Channels: map[string]Section{"work": {}, "telegram": {}, "discord": {}},
		Store:    Store{"sqlite", "fast", Retention{24 * time.Hour, 48 * time.Hour, 720 * time.Hour}}, Tools: Tools{WorkspaceShared, 2 * time.Minute, Exec{[]string{"owner", "telegram:1"}, []string{"git"}, true, 5 * time.Second, 64, 8, 10}}, Log: Log{"debug", "json"},
		Health: Health{":9000"}, Telemetry: Telemetry{"https://otel.example", 0.25, true}, ShutdownGrace: 3 * time.Second,
	}
	if diff := cmp.Diff(want, cfg, ignoreDoc); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w := cfg.Channels["work"]; w.Name() != "work" || w.Type() != "telegram" {
		t.Errorf("work is %q of type %q", w.Name(), w.Type())
	}
	if got := cfg.Location().String(); got != "Europe/Berlin" {
		t.Errorf("Location() = %s", got)
	}
}

// TestMistakes holds what an operator reads, to the letter.
func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string // the lines of the error
	}{
		{"unknown key with a neighbour", "agent:\n  modell: main\n", []string{`config.yaml:2: unknown key "modell" in agent: did you mean "model"?`}},
		{"unknown key at the top", "agnet:\n  model: main\n", []string{`config.yaml:1: unknown key "agnet": did you mean "agent"?`}},
		{"swapped letters", "shutdown_garce: 5s\n", []string{`config.yaml:1: unknown key "shutdown_garce": did you mean "shutdown_grace"?`}},
		{"capital letters", "Models: {}\n", []string{`config.yaml:1: unknown key "Models": did you mean "models"?`}},
		{"unknown key without a neighbour", "tools:\n  zzzzzz: 1\n", []string{`config.yaml:2: unknown key "zzzzzz" in tools: known here are workspace, timeout, exec`}},
		{"unknown key in a model", "models:\n  main:\n    provider: openai\n    apikey: x\n", []string{`config.yaml:4: unknown key "apikey" in models.main: did you mean "api_key"?`}},
		{"text for a number", "agent: {max_iterations: lots}\n", []string{`config.yaml:1: agent.max_iterations: expected a whole number, found "lots"`}},
		{"fraction for a number", "agent: {max_iterations: 2.5}\n", []string{`config.yaml:1: agent.max_iterations: expected a whole number, found "2.5"`}},
		{"list for a number", "agent: {max_iterations: [1]}\n", []string{`config.yaml:1: agent.max_iterations: expected a whole number, found a list`}},
		{"number without unit", "agent:\n\n  turn_timeout: 300\n", []string{`config.yaml:3: agent.turn_timeout: expected a time with its unit, such as 90s, 1h30m or 7d, found "300"`}},
		{"text for a block", "agent: main\n", []string{`config.yaml:1: agent: expected keys and values, found "main"`}},
		{"list for a block", "models: [a]\n", []string{`config.yaml:1: models: expected keys and values, found a list`}},
		{"list for a channel", "channels: {telegram: [a]}\n", []string{`config.yaml:1: channels.telegram: expected keys and values, found a list`}},
		{"block for text", "timezone: {a: b}\n", []string{`config.yaml:1: timezone: expected text, found keys and values`}},
		{"block for a list", "owners: {a: b}\n", []string{`config.yaml:1: owners: expected a list, found keys and values`}},
		{"hole in a list", "owners:\n  - telegram:1\n  -\n", []string{`config.yaml:3: owners[1]: expected a value, found nothing`}},
		{"list of blocks", "owners:\n  - telegram: 1\n", []string{`config.yaml:2: owners[0]: expected text, found keys and values`}},
		{"not a mapping at all", "- a\n- b\n", []string{`config.yaml:1: expected keys and values, found a list`}},
		{"only text", "hello\n", []string{`config.yaml:1: expected keys and values, found "hello"`}},
		{"key twice", "timezone: UTC\nlog: {}\ntimezone: Local\n", []string{`config.yaml:3: the key "timezone" stands twice, first in line 1`}},
		{"key that is a list", "? [a]\n: b\n", []string{`config.yaml:1: a key must be a word, found a list`}},
		{"two documents", "timezone: UTC\n---\ntimezone: UTC\n", []string{`config.yaml:2: only one document is read: remove the line "---" and what follows, or join them`}},
		{"tab", "agent:\n\tmodel: main\n", []string{`config.yaml:2: the line begins with a tab: indent with spaces`}},
		{"unclosed quote", "timezone: \"UTC\nlog: {}\n", []string{`config.yaml:3: found unexpected end of stream`}},
		{"braces without quotes", "log: {}\nagent: {model: ${M}}\n", []string{`config.yaml:2: a { or [ that begins here is not closed where expected; inside of them ${NAME} needs quotes, "${NAME}"`}},
		{"bad indent", "log: {}\nagent:\n    model: main\n  max_iterations: 3\n", []string{`config.yaml:4: this line, or one of the block that begins here, is indented wrongly or is no "key: value"`}},
		{"colon in a value", "agent:\n  system_prompt: note: be kind\n", []string{`config.yaml:2: mapping values are not allowed in this context`}},
		{"missing variable", "models:\n  main:\n    provider: openai\n    api_key: ${OPENAI_KEY}\n", []string{
			`config.yaml:4: models.main.api_key: the environment variable OPENAI_KEY is not set (if it may be empty, write ${OPENAI_KEY:-})`,
		}},
		{"missing variable for a number", "agent: {max_iterations: \"${N}\"}\n", []string{
			`config.yaml:1: agent.max_iterations: the environment variable N is not set (if it may be empty, write ${N:-})`,
		}},
		{"no variable name", "timezone: ${}\n", []string{`config.yaml:1: timezone: expected ${NAME} or ${NAME:-default}; for a plain "${" write "$${"`}},
		{"open brace", "timezone: \"${TZ\"\n", []string{`config.yaml:1: timezone: expected ${NAME} or ${NAME:-default}; for a plain "${" write "$${"`}},
		{"variable of the wrong kind is not shown", "agent: {max_iterations: \"${SECRET}\"}\n", []string{`config.yaml:1: agent.max_iterations: expected a whole number, found something else`}},
		{"merge of text", "log:\n  <<: text\n", []string{`config.yaml:2: "<<" takes a block of keys, or a list of them`}},

		{"owner without channel", "owners: [\"12345\"]\n", []string{`config.yaml:1: owners[0]: expected channel:id, for example telegram:12345, found "12345"`}},
		{"time zone", "timezone: Europe/Berln\n", []string{`config.yaml:1: timezone: there is no time zone "Europe/Berln": write a name such as Europe/Berlin, UTC or Local`}},
		{"time zone with a way out", "timezone: ../etc/passwd\n", []string{`config.yaml:1: timezone: there is no time zone "../etc/passwd": write a name such as Europe/Berlin, UTC or Local`}},
		{"iterations", "agent: {max_iterations: 0}\n", []string{`config.yaml:1: agent.max_iterations: expected a value from 1 to 1000, found 0`}},
		{"negative limit", "agent: {turns_per_minute: -1}\n", []string{`config.yaml:1: agent.turns_per_minute: expected a value from 0 to 100000, found -1`}},
		{"short timeout", "agent: {turn_timeout: 5ms}\n", []string{`config.yaml:1: agent.turn_timeout: expected a value from 1s to 24h0m0s, found 5ms`}},
		{"unknown model", "agent: {model: mian}\nmodels: {main: {provider: openai, model: m}}\n", []string{`config.yaml:1: agent.model: there is no model "mian": did you mean "main"?`}},
		{"which model", "models: {a: {provider: openai, model: m}, b: {provider: openai, model: m}}\n", []string{`config.yaml: agent.model: there is no model "main": there are a, b`}},
		{"unknown fallback", "models: {main: {provider: openai, model: m, fallback: [lcoal]}, local: {provider: openai, model: m}}\n", []string{
			`config.yaml:1: models.main.fallback[0]: there is no model "lcoal": did you mean "local"?`,
		}},
		{"own fallback", "models: {main: {provider: openai, model: m, fallback: [main]}}\n", []string{`config.yaml:1: models.main.fallback[0]: a model cannot stand in for itself`}},
		{"no provider", "models:\n  main:\n    model: gpt\n", []string{`config.yaml:3: models.main.provider: is missing: say who serves the model, for example openai`}},
		{"owner on no channel", "owners: [\"telegrm:1\"]\nchannels: {telegram: , work: }\n", []string{`config.yaml:1: owners[0]: there is no channel "telegrm": did you mean "telegram"?`}},
		{"owner on no channel at all", "owners: [\"telegram:1\"]\n", []string{`config.yaml:1: owners[0]: there is no channel "telegram": there is only webchat`}},
		{"owner by name", "owners: [\"webchat:@ann\", \"webchat:*\"]\n", []string{
			`config.yaml:1: owners[0]: an owner is named by a number, because names change hands: /id in the chat says which`,
			`config.yaml:1: owners[1]: an owner is named by a number, because names change hands: /id in the chat says which`,
		}},
		{"address without scheme", "models: {main: {provider: openai, model: m, base_url: \"localhost:11434\"}}\n", []string{`config.yaml:1: models.main.base_url: expected an address that begins with http:// or https://`}},
		{"channel name", "channels: {\"my bot\": {type: telegram}}\n", []string{`config.yaml:1: channels.my bot: a channel's name has only letters, digits, - and _`}},
		{"workspace", "tools: {workspace: common}\n", []string{`config.yaml:1: tools.workspace: expected per_conversation or shared, found "common"`}},
		{"exec for a name", "tools:\n  exec:\n    allow: [\"webchat:@ann\"]\n", []string{`config.yaml:3: tools.exec.allow[0]: who may run commands is named by a number, because names change hands: /id in the chat says which`}},
		{"exec for everybody", "tools: {exec: {allow: [\"*\"]}}\n", []string{`config.yaml:1: tools.exec.allow[0]: expected channel:id, for example telegram:12345, found "*"`}},
		{"exec of a path", "tools: {exec: {commands: [/bin/ls]}}\n", []string{`config.yaml:1: tools.exec.commands[0]: expected the plain name of a program, for example git, found "/bin/ls"`}},
		{"exec without end", "tools: {exec: {timeout: 0}}\n", []string{`config.yaml:1: tools.exec.timeout: expected a value from 1s to 1h0m0s, found 0s`}},
		{"retention without a unit", "store: {retention: {journal: 7}}\n", []string{`config.yaml:1: store.retention.journal: expected a time with its unit, such as 90s, 1h30m or 7d, found "7"`}},
		{"retention too short", "store: {retention: {journal: 1h, history: -1h}}\n", []string{`config.yaml:1: store.retention.history: expected a time of at least 1s, or 0 for ever, found -1h0m0s`}},
		{"retention of ids", "store:\n  retention:\n    journal: 0\n", []string{`config.yaml:3: store.retention.journal: 0 is for ever, and a message is kept no longer than its id: set dedupe to 0 as well, or give a time of at most 30d here`}},
		{"retention longer than ids", "store:\n  retention: {journal: 60d, dedupe: 30d}\n", []string{`config.yaml:2: store.retention.dedupe: a message is kept no longer than its id: give this as long as journal (60d) at least, or 0 for ever`}},
		{"days without sense", "store: {retention: {journal: 1.5d, dedupe: 99999999d}}\n", []string{
			`config.yaml:1: store.retention.journal: expected a time with its unit, such as 90s, 1h30m or 7d, found "1.5d"`,
			`config.yaml:1: store.retention.dedupe: expected a time with its unit, such as 90s, 1h30m or 7d, found "99999999d"`,
		}},
		{"home of somebody", "data_dir: ~bob/bot\n", []string{`config.yaml:1: data_dir: "~bob/bot": only ~ alone stands for a home folder: give the full path, here or in DRAGOMAN_DATA_DIR`}},
		{"home as a shell has it", "data_dir: $HOME/bot\n", []string{`config.yaml:1: data_dir: "$HOME/bot" is taken as it stands: write ${HOME}, or the full path, here or in DRAGOMAN_DATA_DIR`}},
		{"tool calls", "models:\n  main: {provider: offline, tool_calls: xml}\n", []string{`config.yaml:2: models.main.tool_calls: expected native or text, found "xml"`}},
		{"durability", "store: {durability: none}\n", []string{`config.yaml:1: store.durability: expected full or fast, found "none"`}},
		{"level", "log: {level: loud}\n", []string{`config.yaml:1: log.level: expected debug or info or warn or error, found "loud"`}},
		{"format", "log: {format: xml}\n", []string{`config.yaml:1: log.format: expected text or json, found "xml"`}},
		{"listen", "health: {listen: \"8081\"}\n", []string{`config.yaml:1: health.listen: expected host:port, for example 127.0.0.1:8081, found "8081"`}},
		{"port", "health: {listen: \":99999\"}\n", []string{`config.yaml:1: health.listen: expected host:port, for example 127.0.0.1:8081, found ":99999"`}},
		{"collector", "telemetry: {otlp_endpoint: localhost:4317}\n", []string{`config.yaml:1: telemetry.otlp_endpoint: expected an address that begins with http:// or https://, for example http://127.0.0.1:4318`}},
		{"password to a collector", "telemetry: {otlp_endpoint: \"https://me:secret@host\"}\n", []string{`config.yaml:1: telemetry.otlp_endpoint: a name and a password in the address are not sent: set the variable OTEL_EXPORTER_OTLP_HEADERS instead`}},
		{"sample", "telemetry: {sample: 1.5}\n", []string{`config.yaml:1: telemetry.sample: expected a value from 0 to 1, found 1.5`}},
		{"sample of nothing", "telemetry: {sample: nan}\n", []string{`config.yaml:1: telemetry.sample: expected a number, found "nan"`}},
		{"grace", "shutdown_grace: -1s\n", []string{`config.yaml:1: shutdown_grace: expected a value from 0s to 10m0s, found -1s`}},
		{"data folder", "data_dir: \"\"\n", []string{`config.yaml:1: data_dir: must name a folder`}},
		{"secret file", "models:\n  main:\n    provider: openai\n    api_key: file:/nonexistent/key\n", []string{`config.yaml:4: models.main.api_key: there is no file /nonexistent/key`}},
		{"several at once, by line", "log: {level: 7, colour: red}\nagent:\n  max_iterations: x\nowners: {}\nmodels: {main: {api_key: \"${NO}\"}}\n", []string{
			`config.yaml:1: log.level: expected debug or info or warn or error, found "7"`,
			`config.yaml:1: unknown key "colour" in log: known here are level, format`,
			`config.yaml:3: agent.max_iterations: expected a whole number, found "x"`,
			`config.yaml:4: owners: expected a list, found keys and values`,
			`config.yaml:5: models.main.api_key: the environment variable NO is not set (if it may be empty, write ${NO:-})`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(write(t, tc.text), vars("SECRET", "hunter2hunter2"))
			var mistake *Error
			if !errors.As(err, &mistake) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if diff := cmp.Diff(tc.want, mistake.Problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.yaml")
	if err := os.WriteFile(huge, []byte(strings.Repeat("# padding\n", maxFile/10+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary.yaml")
	if err := os.WriteFile(binary, []byte("\x7fELF\x02\x01\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "none.yaml"), "config: there is no file " + filepath.Join(dir, "none.yaml")},
		{dir, "config: " + dir + " is a folder: name the file"},
		{binary, "config: " + binary + " is not a text file"},
		{huge, "config: " + huge + " is larger than 1048576 bytes: this is no configuration"},
	} {
		var mistake *Error
		if _, err := Load(tc.path, vars()); !errors.As(err, &mistake) || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

func TestSearchOrder(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the user's configuration folder lies elsewhere")
	}
	home, work := t.TempDir(), t.TempDir()
	t.Chdir(work)
	env := vars("HOME", home)
	zone := func(env func(string) string) (string, string) {
		t.Helper()
		cfg, err := Load("", env)
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Timezone, cfg.Path()
	}
	put := func(path, zone string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("timezone: "+zone+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if z, p := zone(env); z != "Local" || p != "" {
		t.Errorf("without a file: %s from %q", z, p)
	}
	inHome := filepath.Join(home, ".config", "dragoman", "config.yaml")
	put(inHome, "Asia/Tokyo")
	if z, p := zone(env); z != "Asia/Tokyo" || p != inHome {
		t.Errorf("with one in the home folder: %s from %q", z, p)
	}
	xdg := t.TempDir()
	put(filepath.Join(xdg, "dragoman", "config.yaml"), "Asia/Seoul")
	if z, _ := zone(vars("HOME", home, "XDG_CONFIG_HOME", xdg)); z != "Asia/Seoul" {
		t.Errorf("with XDG_CONFIG_HOME: %s", z)
	}
	put(filepath.Join(work, "config.yaml"), "Europe/Oslo")
	if z, p := zone(env); z != "Europe/Oslo" || p != "config.yaml" {
		t.Errorf("with ./config.yaml: %s from %q", z, p)
	}
}

func TestExpansion(t *testing.T) {
	env := vars("A", "one", "B", "two", "N", "7", "NULL", "null", "LIST", "telegram:1, telegram:2,", "MULTI", "a: b\nc: d #x")
	for _, tc := range []struct{ in, want string }{
		{"plain $A and $(A)", "plain $A and $(A)"},
		{"${A}", "one"},
		{"<${A}-${B}>", "<one-two>"},
		{"${C:-three}", "three"},
		{"${A:-three}", "one"},
		{"x${C:-}y", "xy"},
		{"$${A}", "${A}"},
		{"$$${A}", "$${A}"},
		{"${NULL}", "null"},
		{"${N}", "7"},
		{"${MULTI}", "a: b\nc: d #x"}, // a value is never read as YAML
	} {
		cfg := load(t, "# ${IGNORED} in a remark\nagent:\n  system_prompt: '"+tc.in+"'\n", env)
		if cfg.Agent.SystemPrompt != tc.want {
			t.Errorf("%s becomes %q, want %q", tc.in, cfg.Agent.SystemPrompt, tc.want)
		}
	}
	cfg := load(t, "agent: {max_iterations: \"${N}\", turns_per_minute: 7}\nowners: ${LIST}\nchannels: {telegram: }\nmodels:\n  main:\n    provider: offline\n    options:\n      a: ${N}\n      b: \"${N}\"\n", env)
	if cfg.Agent.MaxIterations != 7 || cfg.Agent.TurnsPerMinute != 7 {
		t.Errorf("numbers from the environment: %d, %d", cfg.Agent.MaxIterations, cfg.Agent.TurnsPerMinute)
	}
	if diff := cmp.Diff([]string{"telegram:1", "telegram:2"}, cfg.Owners); diff != "" {
		t.Errorf("a list from the environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"a": 7, "b": "7"}, cfg.Models["main"].Options); diff != "" {
		t.Errorf("options from the environment (-want +got):\n%s", diff)
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	cfg := load(t, `
models:
  main: &base
    provider: openai
    base_url: https://api.example/v1
    model: big
    timeout: 30s
  small:
    model: small
    <<: *base
  other: *base
agent: {model: main}
`, vars())
	if m := cfg.Models["small"]; m.Model != "small" || m.Timeout != 30*time.Second || m.Provider != "openai" {
		t.Errorf("the merged model is %+v", m)
	}
	if diff := cmp.Diff(cfg.Models["main"], cfg.Models["other"]); diff != "" {
		t.Errorf("the aliased model differs:\n%s", diff)
	}
}

func TestAliasBombIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	start := time.Now()
	for _, text := range []string{b.String(), "a: &a [*a]\n", "a: &a {b: *a}\n", "a: &a {<<: *a}\n", strings.Repeat("[", 5000)} {
		var mistake *Error
		if _, err := Load(write(t, text), vars()); !errors.As(err, &mistake) || len(mistake.Problems) != 1 {
			t.Errorf("%.30q: got %v, want an *Error of one line", text, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to refuse", took)
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("from-a-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty"), []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	text := `
agent: {model: a}
models:
  a: {provider: openai, model: m, api_key: "file:` + filepath.Join(dir, "key") + `"}
  b: {provider: openai, model: m, api_key: file:key}
  c: {provider: openai, model: m, api_key: "file:${WHERE}/key"}
  d: {provider: openai, model: m, api_key: "${KEY}", api_keys: [file:key, "from-a-list", "${KEY}", ""]}
  e: {provider: openai, model: m, base_url: "https://ann:pass-word@api.example/v1?x=y"}
channels:
  one: {token: channel-token}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, vars("WHERE", dir, "KEY", " from-env\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Secret{"a": "from-a-file", "b": "from-a-file", "c": "from-a-file", "d": "from-env"} {
		if got := cfg.Models[name].APIKey; got != want {
			t.Errorf("model %s has the key %q, want %q", name, string(got), string(want))
		}
	}
	if got := cfg.Models["d"].Keys(); !slices.Equal(got, []Secret{"from-env", "from-a-file", "from-a-list"}) {
		t.Errorf("%d keys of model d, want each once", len(got))
	}
	if got := cfg.Models["e"].Keys(); !slices.Equal(got, []Secret{""}) {
		t.Errorf("%d keys of a model without any, want an empty one", len(got))
	}
	var heard []string
	cfg.OnSecret(func(s string) { heard = append(heard, s) })
	var into struct {
		Token Secret `yaml:"token"`
	}
	if err := cfg.Channels["one"].Decode(&into); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"from-a-file", "from-env", "from-a-list", "pass-word", "channel-token"}, heard); diff != "" {
		t.Errorf("secrets told to the log (-want +got):\n%s", diff)
	}
	if got := cfg.Models["e"].Address(); got != "https://api.example/v1" {
		t.Errorf("the address is shown as %s", got)
	}
	if printed := fmt.Sprintf("%v %+v %#v", cfg.Models, cfg.Models, cfg.Models); strings.Contains(printed, "from-") {
		t.Errorf("a printed configuration shows a key: %s", printed)
	}
	if err := os.WriteFile(path, []byte("models: {a: {provider: openai, api_key: file:empty}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(path, vars())
	want := "config.yaml:1: models.a.api_key: the file " + filepath.Join(dir, "empty") + " holds no secret: it is empty, too large or not a plain file"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMistakesShowNoSecret(t *testing.T) {
	const secret = "123456:AAtoken"
	for _, text := range []string{
		"agent: {max_iterations: ${T}}\n",
		"agent: {turn_timeout: \"${T}\"}\n",
		"models: {main: {provider: openai, api_key: [\"" + secret + "\"]}}\n",
		"agent: [ ${T} ]\n",
		"agent: ${T}\n",
	} {
		_, err := Load(write(t, text), vars("T", secret))
		if err == nil || strings.Contains(err.Error(), "AAtoken") {
			t.Errorf("%s gives %v", text, err)
		}
	}
}

func TestNamesTheProgramKnows(t *testing.T) {
	known := Names{Channels: []string{"telegram", "webchat"}, Refused: map[string]string{"console": "is for the terminal"}, Providers: []string{"offline", "openai"}, Stores: []string{"memory", "sqlite"}}
	cfg := load(t, "models:\n  main: {provider: opnai}\nchannels:\n  telegrm: {}\n  work:\n    type: slack\n  term: {type: console}\nstore: {driver: postgres}\n", vars())
	err := cfg.Check(known)
	var mistake *Error
	if !errors.As(err, &mistake) {
		t.Fatalf("got %v, want an *Error", err)
	}
	want := []string{
		`config.yaml:2: models.main.provider: there is no provider "opnai": did you mean "openai"?`,
		`config.yaml:4: channels.telegrm: there is no channel type "telegrm": did you mean "telegram"?`,
		`config.yaml:6: channels.work.type: there is no channel type "slack": there are telegram, webchat`,
		`config.yaml:7: channels.term: is for the terminal`,
		`config.yaml:8: store.driver: there is no store driver "postgres": there are memory, sqlite`,
	}
	if diff := cmp.Diff(want, mistake.Problems); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err = load(t, "models:\n  main:\n    provider: openai\n", vars()).Check(known)
	if err == nil || err.Error() != "config.yaml:3: models.main.model: is missing: say which one, by its name at the provider" {
		t.Errorf("no model: %v", err)
	}
	if err := load(t, "", vars()).Check(known); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// What the channels of the file need does not matter where none of them runs.
func TestLoadOnlyOneChannel(t *testing.T) {
	path := write(t, "owners: [\"telegram:1\"]\nchannels: {telegram: {token: \"${NOT_SET}\"}}\nhealth: {listen: \":1\"}\n")
	cfg, err := LoadOnly("console", path, vars("DISCORD_BOT_TOKEN", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Channels) != 1 || cfg.Store.Driver != "memory" || cfg.Channels["console"].Type() != "console" || cfg.Health.Listen != "" {
		t.Errorf("got %v, health on %q", cfg.Channels, cfg.Health.Listen)
	}
}

func TestErrorfPointsAtTheValue(t *testing.T) {
	cfg := load(t, "agent:\n  model: main\n", vars())
	for path, want := range map[string]string{
		"agent.model": "config.yaml:2: agent.model: no",
		"data_dir":    "config.yaml: data_dir: no",
	} {
		if got := cfg.Errorf(path, "no").Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDataFolderThatIsAFile(t *testing.T) {
	file := write(t, "")
	for _, path := range []string{file, filepath.Join(file, "inside")} {
		_, err := FromEnv(vars("DRAGOMAN_DATA_DIR", path))
		if want := "environment variable DRAGOMAN_DATA_DIR: data_dir: " + path + " is a file, or lies in one: name a folder"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
