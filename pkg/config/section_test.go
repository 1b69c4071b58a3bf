package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

type gate struct {
	AllowUsers []string `yaml:"allow_users"`
	Groups     string   `yaml:"groups"`
}

type adapter struct {
	gate    `yaml:",inline"`
	Token   Secret             `yaml:"token"`
	Rate    map[string]float64 `yaml:"rate"`
	Wait    time.Duration      `yaml:"wait"`
	On      bool               `yaml:"on"`
	Size    uint8              `yaml:"size"`
	Limit   *int               `yaml:"limit"`
	Addr    netip.Addr         `yaml:"addr"`
	Nested  struct{ Deep int } `yaml:"nested"`
	Ignored string             `yaml:"-"`
}

var adapterOpts = cmp.Options{cmp.AllowUnexported(adapter{}), cmpopts.EquateComparable(netip.Addr{})}

func TestSectionDecodesIntoTheReadersStruct(t *testing.T) {
	cfg := load(t, `
channels:
  work:
    type: telegram
    token: t0ken
    allow_users: [12345, "@ann"]
    groups: always
    rate: {global: 30, chat: 0.5}
    wait: 2s
    on: yes
    size: 200
    limit: 0
    addr: 127.0.0.1
    nested: {deep: 4}
`, vars())
	got := adapter{Wait: time.Hour, gate: gate{Groups: "mention"}}
	if err := cfg.Channels["work"].Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := adapter{
		gate: gate{[]string{"12345", "@ann"}, "always"}, Token: "t0ken",
		Rate: map[string]float64{"global": 30, "chat": 0.5}, Wait: 2 * time.Second, On: true, Size: 200, Limit: new(int),
		Addr: netip.MustParseAddr("127.0.0.1"), Nested: struct{ Deep int }{4},
	}
	if diff := cmp.Diff(want, got, adapterOpts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSectionKeepsDefaults(t *testing.T) {
	for _, text := range []string{"channels: {work: {}}\n", "channels:\n  work:\n", "channels: {work: {token: , wait: ~}}\n"} {
		got := adapter{Token: "default", Wait: time.Hour}
		if err := load(t, text, vars()).Channels["work"].Decode(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(adapter{Token: "default", Wait: time.Hour}, got, adapterOpts); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	var zero Section
	if err := zero.Decode(&adapter{}); err != nil {
		t.Errorf("the zero section: %v", err)
	}
}

func TestSectionMistakes(t *testing.T) {
	cfg := load(t, `
channels:
  work:
    type: telegram
    tokn: x
    groups: [a]
    on: maybe
    size: 300
    rate:
      global: NaN
    addr: nowhere
    nested: {dep: 1}
    limit: x
`, vars())
	err := cfg.Channels["work"].Decode(&adapter{})
	var mistake *Error
	if !errors.As(err, &mistake) {
		t.Fatalf("got %v, want an *Error", err)
	}
	want := []string{
		`config.yaml:5: unknown key "tokn" in channels.work: did you mean "token"?`,
		`config.yaml:6: channels.work.groups: expected text, found a list`,
		`config.yaml:7: channels.work.on: expected true or false, found "maybe"`,
		`config.yaml:8: channels.work.size: expected a whole number, 0 or more, found "300"`,
		`config.yaml:10: channels.work.rate.global: expected a number, found "NaN"`,
		`config.yaml:11: channels.work.addr: expected an IP address, found "nowhere"`,
		`config.yaml:12: unknown key "dep" in channels.work.nested: did you mean "deep"?`,
		`config.yaml:13: channels.work.limit: expected a whole number, found "x"`,
	}
	mistake.Problems[5] = `config.yaml:11: channels.work.addr: expected an IP address, found "nowhere"`
	if diff := cmp.Diff(want, mistake.Problems); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSectionErrorfPointsIntoTheFile(t *testing.T) {
	cfg := load(t, "channels:\n  work:\n    type: telegram\n    token: x\n", vars())
	s := cfg.Channels["work"]
	if err := s.Decode(&adapter{}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"token":  "config.yaml:4: channels.work.token: no",
		"groups": "config.yaml:3: channels.work.groups: no", // absent: the section's place
		"":       "config.yaml:3: channels.work: no",
	} {
		if got := s.Errorf(key, "no").Error(); got != want {
			t.Errorf("Errorf(%q) = %q, want %q", key, got, want)
		}
	}
}

type asking struct {
	Token  Secret  `yaml:"token" required:"what the portal shows"`
	Groups string  `yaml:"groups" enum:"mention,always,never"`
	Rate   float64 `yaml:"rate" minimum:"0"`
	Size   int     `yaml:"size" minimum:"1"`
}

func TestSectionTagsAskForMore(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"channels: {work: {token: x, groups: never, rate: 0, size: 1}}\n", nil},
		{"channels: {work: {token: x, groups: , rate: , size: }}\n", nil}, // left alone
		{"channels:\n  work:\n", []string{`config.yaml:2: channels.work.token: is missing: what the portal shows`}},
		{"channels:\n  work: {groups: always}\n", []string{`config.yaml:2: channels.work.token: is missing: what the portal shows`}},
		{"channels:\n  work:\n    groups: newer\n    token: \"\"\n    rate: -0.5\n    size: 0\n", []string{
			`config.yaml:3: channels.work.groups: expected mention or always or never, found "newer"`,
			`config.yaml:4: channels.work.token: is missing: what the portal shows`,
			`config.yaml:5: channels.work.rate: expected a value of at least 0, found "-0.5"`,
			`config.yaml:6: channels.work.size: expected a value of at least 1, found "0"`,
		}},
		{"channels: {work: {token: x, groups: [a]}}\n", []string{`config.yaml:1: channels.work.groups: expected text, found a list`}},
	} {
		err := load(t, tc.text, vars()).Channels["work"].Decode(&asking{})
		var got []string
		if mistake, ok := errors.AsType[*Error](err); ok {
			got = mistake.Problems
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.text, diff)
		}
	}
	cfg, err := FromEnv(vars("WEBCHAT_LISTEN", ":1"))
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Listen string `yaml:"listen"`
		Token  Secret `yaml:"token" required:"nobody said it"`
	}
	want := "environment variable WEBCHAT_LISTEN: channels.webchat.token: is missing: nobody said it"
	if err := cfg.Channels["webchat"].Decode(&page); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if cfg, err = LoadOnly("console", "", vars()); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Channels["console"].Decode(&asking{}); err == nil || err.Error() != "config: channels.console.token: is missing: what the portal shows" {
		t.Errorf("an empty section: %v", err)
	}
}

func TestSectionRefusesWhatItCannotFill(t *testing.T) {
	s, err := ParseSection("work", "token: x\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, into := range []any{nil, adapter{}, new(int), (*adapter)(nil)} {
		if err := s.Decode(into); err == nil {
			t.Errorf("Decode(%T) says nothing", into)
		}
	}
	var bad struct {
		F func() `yaml:"token"`
	}
	if err := s.Decode(&bad); err == nil {
		t.Error("a field of type func was filled")
	}
}

func TestParseSection(t *testing.T) {
	s, err := ParseSection("work", "type: telegram\ntoken: x\n")
	if err != nil {
		t.Fatal(err)
	}
	var got adapter
	if err := s.Decode(&got); err != nil || s.Name() != "work" || s.Type() != "telegram" || got.Token != "x" {
		t.Errorf("got %+v of type %q, %v", got, s.Type(), err)
	}
	if s, err := ParseSection("empty", ""); err != nil || s.Type() != "empty" {
		t.Errorf("empty text: %q, %v", s.Type(), err)
	}
	if _, err := ParseSection("bad", "a: [\n"); err == nil {
		t.Error("broken text is accepted")
	}
	if _, err := ParseSection("bad", "token: ${NOPE}\n"); err == nil {
		t.Error("a missing variable is accepted")
	}
}

func TestEnvironmentAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("discord-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := FromEnv(vars(
		"TELEGRAM_BOT_TOKEN", "1:a", "TELEGRAM_ALLOW_USERS", "12345, @ann", "TELEGRAM_GROUPS", "always",
		"DISCORD_BOT_TOKEN", "file:"+file,
		"OPENAI_API_KEY", "sk-x",
		"DRAGOMAN_DATA_DIR", "/data", "DRAGOMAN_OWNERS", "telegram:12345", "DRAGOMAN_TIMEZONE", "UTC",
		"DRAGOMAN_LOG_LEVEL", "debug", "DRAGOMAN_HEALTH_LISTEN", "127.0.0.1:8081", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318",
		"WEBCHAT_GROUPS", "never", "DISCORD_ALLOW", "x", // no variables of ours
	))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Channels) != 2 {
		t.Errorf("channels: %v, want telegram and discord", cfg.Channels)
	}
	var telegram, discord adapter
	if err := errors.Join(cfg.Channels["telegram"].Decode(&telegram), cfg.Channels["discord"].Decode(&discord)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(adapter{Token: "1:a", gate: gate{[]string{"12345", "@ann"}, "always"}}, telegram, adapterOpts); diff != "" {
		t.Errorf("telegram (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(adapter{Token: "discord-token"}, discord, adapterOpts); diff != "" {
		t.Errorf("discord (-want +got):\n%s", diff)
	}
	wantModel := Model{Provider: "openai", APIKey: "sk-x", Model: defaultModel, ContextTokens: 32_000, MaxConcurrent: 64, Timeout: 2 * time.Minute, ToolCalls: ToolCallsNative}
	if diff := cmp.Diff(map[string]Model{"main": wantModel}, cfg.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	if cfg.DataDir != "/data" || cfg.Owners[0] != "telegram:12345" || cfg.Timezone != "UTC" || cfg.Log.Level != "debug" || cfg.Health.Listen != "127.0.0.1:8081" || cfg.Telemetry.OTLPEndpoint != "http://otel:4318" {
		t.Errorf("the rest: %+v", cfg)
	}
}

func TestModelsFromTheEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env    []string
		answer string // the model that does
		want   []string
	}{
		"anthropic": {[]string{"ANTHROPIC_API_KEY", "sk-a"}, "claude", []string{"claude: anthropic " + defaultClaude}},
		"both": {
			[]string{"ANTHROPIC_API_KEY", "sk-a", "OPENAI_API_KEY", "sk-o", "ANTHROPIC_MODEL", "claude-x"},
			"main",
			[]string{"claude: anthropic claude-x", "main: openai " + defaultModel},
		},
		"another service": {[]string{"ANTHROPIC_BASE_URL", "http://127.0.0.1:1", "ANTHROPIC_MODEL", "m"}, "claude", []string{"claude: anthropic m"}},
		"only a model":    {[]string{"ANTHROPIC_MODEL", "m"}, "main", []string{"main: offline "}},
	} {
		cfg, err := FromEnv(vars(c.env...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for key, m := range cfg.Models {
			got = append(got, key+": "+m.Provider+" "+m.Model)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || cfg.Agent.Model != c.answer {
			t.Errorf("%s: models %q, and %s answers; want %q and %s", name, got, cfg.Agent.Model, c.want, c.answer)
		}
	}
}

func TestEnvironmentBesideAFile(t *testing.T) {
	env := vars("TELEGRAM_BOT_TOKEN", "1:a", "OPENAI_BASE_URL", "http://127.0.0.1:11434/v1", "OPENAI_MODEL", "qwen3",
		"DRAGOMAN_LOG_LEVEL", "debug", "DRAGOMAN_TIMEZONE", "UTC", "TELEGRAM_ALLOW_USERS", "1", "WEBCHAT_TOKEN", "w")
	cfg := load(t, "log: {format: json}\ntimezone: Asia/Tokyo\nchannels:\n  work: {type: telegram, token: \"${TELEGRAM_BOT_TOKEN}\"}\n", env)
	if len(cfg.Channels) != 1 || cfg.Channels["work"].Type() != "telegram" {
		t.Errorf("a file's channels are all there are; got %v", cfg.Channels)
	}
	if m := cfg.Models["main"]; m.BaseURL != "http://127.0.0.1:11434/v1" || m.Model != "qwen3" || m.Provider != "openai" {
		t.Errorf("models come from the environment when the file has none; got %+v", m)
	}
	if cfg.Log != (Log{"debug", "json"}) || cfg.Timezone != "Asia/Tokyo" {
		t.Errorf("the file wins, key by key; got %v, %s", cfg.Log, cfg.Timezone)
	}
	cfg = load(t, "channels:\n# nothing yet\n", env)
	if len(cfg.Channels) != 2 {
		t.Errorf("an empty block is no list of channels; got %v", cfg.Channels)
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	for _, tc := range []struct {
		env  func(string) string
		want string
	}{
		{vars("DRAGOMAN_TIMEZONE", "Mars"), `environment variable DRAGOMAN_TIMEZONE: timezone: there is no time zone "Mars": write a name such as Europe/Berlin, UTC or Local`},
		{vars("DRAGOMAN_OWNERS", "ann"), `environment variable DRAGOMAN_OWNERS: owners[0]: expected channel:id, for example telegram:12345, found "ann"`},
		{vars("DRAGOMAN_HEALTH_LISTEN", "on"), `environment variable DRAGOMAN_HEALTH_LISTEN: health.listen: expected host:port, for example 127.0.0.1:8081, found "on"`},
		{vars("OPENAI_BASE_URL", "http://localhost/v1"), `environment variable OPENAI_BASE_URL: models.main.model: is missing: say which one, by its name at the provider`},
		{vars("OPENAI_BASE_URL", "localhost", "OPENAI_MODEL", "m"), `environment variable OPENAI_BASE_URL: models.main.base_url: expected an address that begins with http:// or https://`},
		{vars("HOME", ""), `config: data_dir: "~/.dragoman" needs a home folder and HOME is not set: give a full path, here or in DRAGOMAN_DATA_DIR`},
	} {
		cfg, err := FromEnv(tc.env)
		if err == nil {
			err = cfg.Check(Names{Channels: []string{"webchat"}, Providers: []string{"openai"}, Stores: []string{"memory", "sqlite"}})
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

type strict struct {
	Wait int `yaml:"wait"`
	name string
}

func (s *strict) Validate(name string, wrong func(key, format string, args ...any)) {
	s.name = name
	if s.Wait > 9 {
		wrong("wait", "expected at most 9, found %d", s.Wait)
	}
}

func TestSectionAsksItsReader(t *testing.T) {
	var s strict
	if err := load(t, "channels:\n  work: {wait: 9}\n", vars()).Channels["work"].Decode(&s); err != nil || s.name != "work" {
		t.Errorf("%+v: %v", s, err)
	}
	want := "config.yaml:3: channels.work.wait: expected at most 9, found 10"
	if err := load(t, "channels:\n  work:\n    wait: 10\n", vars()).Channels["work"].Decode(&s); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
