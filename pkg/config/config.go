// Package config reads the configuration: one YAML file, or environment
// variables alone, or nothing at all.
//
// It decodes strictly. A key nobody reads, a value of the wrong kind, a missing
// environment variable: each is an error with file, line and a sentence that
// says what to do, and all mistakes of a file are reported together. What only
// an adapter understands stays a Section, which the adapter decodes into a
// struct of its own by the same rules.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Config is everything the daemon can be told.
type Config struct {
	DataDir       string             `yaml:"data_dir"`
	Owners        []string           `yaml:"owners"`   // principals, "channel:user id"
	Timezone      string             `yaml:"timezone"` // an IANA name, or "Local"
	Agent         Agent              `yaml:"agent"`
	Models        map[string]Model   `yaml:"models"`
	Channels      map[string]Section `yaml:"channels"` // by instance name
	Store         Store              `yaml:"store"`
	Tools         Tools              `yaml:"tools"`
	Log           Log                `yaml:"log"`
	Health        Health             `yaml:"health"`
	Telemetry     Telemetry          `yaml:"telemetry"`
	ShutdownGrace time.Duration      `yaml:"shutdown_grace"` // how long running turns may take when stopping

	doc      *document
	location *time.Location
}

// Agent says how questions are answered.
type Agent struct {
	Model            string        `yaml:"model"`              // a key of models
	SystemPrompt     string        `yaml:"system_prompt"`      // "" is the built-in one
	MaxIterations    int           `yaml:"max_iterations"`     // most rounds with the model in one turn
	MaxParallelTurns int           `yaml:"max_parallel_turns"` // over all chats
	TurnTimeout      time.Duration `yaml:"turn_timeout"`
	TurnsPerMinute   int           `yaml:"turns_per_minute"` // per sender; 0 is no limit
	HistoryMessages  int           `yaml:"history_messages"` // most messages of a conversation the model sees
}

// Model is one language model.
type Model struct {
	Provider      string         `yaml:"provider"`
	BaseURL       string         `yaml:"base_url"` // "" is the provider's own
	APIKey        Secret         `yaml:"api_key"`
	APIKeys       []Secret       `yaml:"api_keys"`       // more of them, used when it is refused or has had enough
	Model         string         `yaml:"model"`          // its name at the provider
	ContextTokens int            `yaml:"context_tokens"` // how much it reads and writes at once
	MaxConcurrent int            `yaml:"max_concurrent"` // requests at once; 0 is no limit
	Fallback      []string       `yaml:"fallback"`       // keys of models, asked in this order when it fails
	Timeout       time.Duration  `yaml:"timeout"`        // of one request; of silence, where the answer comes in pieces
	ToolCalls     string         `yaml:"tool_calls" enum:"native,text"`
	Options       map[string]any `yaml:"options"` // passed on to the API: max_tokens, temperature, ...
}

// Values of Model.ToolCalls.
const (
	ToolCallsNative = "native" // by the API's own means
	ToolCallsText   = "text"   // written into the text, for models that know no other way
)

// Address returns the base URL as it may be shown: without what some services
// take as a password there. It is "" where the provider's own is asked.
func (m Model) Address() string {
	u, err := url.Parse(m.BaseURL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Keys returns the keys in the order in which they are used; one that is empty if
// there is none.
func (m Model) Keys() []Secret {
	var keys []Secret
	for _, key := range append([]Secret{m.APIKey}, m.APIKeys...) {
		if key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return []Secret{""}
	}
	return keys
}

func (m *Model) setDefaults() {
	m.ContextTokens, m.MaxConcurrent, m.Timeout, m.ToolCalls = 32_000, 64, 2*time.Minute, ToolCallsNative
}

// Store says where the ledger is kept.
type Store struct {
	Driver     string    `yaml:"driver"`
	Durability string    `yaml:"durability" enum:"full,fast"` // "full" survives a power cut, "fast" the process only
	Retention  Retention `yaml:"retention"`
}

// Retention says how long what is over is kept; 0 is for ever.
type Retention struct {
	Journal time.Duration `yaml:"journal"` // messages that are done, turns that ended, what was sent
	Dedupe  time.Duration `yaml:"dedupe"`  // ids of messages; at least as long as Journal
	History time.Duration `yaml:"history"` // what was said
}

// Tools configures the built-in tools.
type Tools struct {
	Workspace string        `yaml:"workspace" enum:"per_conversation,shared"`
	Timeout   time.Duration `yaml:"timeout"` // of one call; 0 = none
	Exec      Exec          `yaml:"exec"`
}

// Exec configures the tool that runs commands. It is off as long as nobody is
// allowed.
type Exec struct {
	Allow     []string      `yaml:"allow"`     // principals, or Owner
	Commands  []string      `yaml:"commands"`  // the only programs, without a shell; none: a shell
	Network   bool          `yaml:"network"`   // the machine's whole network
	Timeout   time.Duration `yaml:"timeout"`   // of one command
	MemoryMB  int           `yaml:"memory_mb"` // of a command with all its processes
	Processes int           `yaml:"processes"` // at once, of one command
	FileMB    int           `yaml:"file_mb"`   // of one file
}

// Owner in Exec.Allow stands for whoever owns the bot.
const Owner = "owner"

// Values of Tools.Workspace.
const (
	WorkspacePerConversation = "per_conversation"
	WorkspaceShared          = "shared"
)

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" enum:"debug,info,warn,error"`
	Format string `yaml:"format" enum:"text,json"`
}

// Health configures the endpoint with /healthz and /readyz.
type Health struct {
	Listen string `yaml:"listen"` // host:port; "" is off
}

// Telemetry says where traces are sent.
type Telemetry struct {
	OTLPEndpoint string  `yaml:"otlp_endpoint"` // of a collector, by HTTP; "" is off
	Sample       float64 `yaml:"sample"`        // which part of the turns is traced
	Content      bool    `yaml:"content"`       // traces also hold what was said
}

// Defaults returns what holds where the configuration says nothing. Load adds
// the offline model if there is no model, and the web chat if there is no
// channel.
func Defaults() *Config {
	return &Config{
		DataDir:  "~/.dragoman",
		Timezone: "Local",
		Agent: Agent{
			MaxIterations:    20,
			MaxParallelTurns: 1024,
			TurnTimeout:      5 * time.Minute,
			TurnsPerMinute:   10,
			HistoryMessages:  100,
		},
		Store: Store{Driver: "sqlite", Durability: "full", Retention: Retention{Journal: 7 * 24 * time.Hour, Dedupe: 30 * 24 * time.Hour}},
		Tools: Tools{
			Workspace: WorkspacePerConversation,
			Timeout:   2 * time.Minute,
			Exec:      Exec{Timeout: 30 * time.Second, MemoryMB: 512, Processes: 64, FileMB: 100},
		},
		Log:           Log{Level: "info", Format: "text"},
		Telemetry:     Telemetry{Sample: 1},
		ShutdownGrace: 20 * time.Second,
	}
}

// maxFile bounds a configuration file; a real one has a few kilobytes.
const maxFile = 1 << 20

// Load reads the configuration at path. With an empty path it takes the first
// that exists of ./config.yaml and dragoman/config.yaml in the user's
// configuration folder, and otherwise built-in defaults. env is os.Getenv, or a
// test's own; it serves ${NAME} in the file and, for the parts the file leaves
// out, the variables EnvVars lists.
//
// A mistake in what was written is an *Error. Load reads files named by
// "file:" values and nothing else; it opens no connection.
func Load(path string, env func(string) string) (*Config, error) {
	return read(path, &document{env: env, dir: "."})
}

// LoadOnly is Load for a program that talks to one terminal, also beside a
// running daemon: whatever channels there are, it takes one of the given type
// with an empty section, no health endpoint, and a ledger in memory.
func LoadOnly(channel, path string, env func(string) string) (*Config, error) {
	return read(path, &document{env: env, dir: ".", only: channel})
}

func read(path string, doc *document) (*Config, error) {
	if path == "" {
		path = find(doc.env)
	}
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		doc.path, doc.file, doc.dir = path, filepath.Base(path), filepath.Dir(path)
		if doc.root, err = doc.parse(text); err != nil {
			return nil, err
		}
	}
	return build(doc)
}

// FromEnv is Load without a file: environment variables and defaults.
func FromEnv(env func(string) string) (*Config, error) {
	return build(&document{env: env, dir: "."})
}

// build turns a parsed document into a checked configuration.
func build(doc *document) (*Config, error) {
	doc.addEnvironment()
	cfg := Defaults()
	cfg.doc = doc
	d := decoder{doc: doc, problems: doc.problems}
	if doc.root != nil {
		d.decode(doc.root, "", cfg)
	}
	d.fill(cfg)
	if doc.only != "" {
		cfg.Health.Listen, cfg.Store.Driver = "", "memory"
	}
	if len(d.problems) == 0 { // a half-read configuration would only add confusing remarks
		v := validator{decoder: &d, cfg: cfg}
		v.check()
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// offline is the provider that needs nothing.
const offline = "offline"

// fill adds what stands in for absent parts.
func (d *decoder) fill(cfg *Config) {
	if len(cfg.Models) == 0 {
		m := Model{Provider: offline}
		m.setDefaults()
		cfg.Models = map[string]Model{"main": m}
	}
	if len(cfg.Channels) == 0 {
		name := cmp.Or(d.doc.only, "webchat")
		cfg.Channels = map[string]Section{name: d.doc.section(name)}
	}
	for _, m := range cfg.Models {
		if u, err := url.Parse(m.BaseURL); err == nil && u.User != nil {
			password, ok := u.User.Password()
			if !ok {
				password = u.User.Username() // a key that stands alone
			}
			d.doc.addSecret(password)
		}
	}
	if cfg.Agent.Model == "" {
		cfg.Agent.Model = "main"
		if len(cfg.Models) == 1 {
			for name := range cfg.Models {
				cfg.Agent.Model = name
			}
		}
	}
	if dir, err := expandHome(cfg.DataDir, d.doc.env); err != nil {
		d.add("data_dir", "%v, here or in DRAGOMAN_DATA_DIR", err)
	} else {
		cfg.DataDir = dir
	}
}

// Path returns the file the configuration was read from, "" for none.
func (c *Config) Path() string { return c.doc.path }

// Location returns the time zone, ready to use.
func (c *Config) Location() *time.Location { return c.location }

// OnSecret calls fn with every secret the configuration holds, and later with
// each that an adapter reads from its section, so that a log can hide them. It
// is called before sections are decoded, from the goroutine that decodes them.
func (c *Config) OnSecret(fn func(string)) {
	for _, s := range c.doc.secrets {
		fn(s)
	}
	c.doc.onSecret = fn
}

// Errorf returns an *Error about the value at a key path such as
// "models.main.api_key", with the place where it stands if it stands anywhere.
func (c *Config) Errorf(path, format string, args ...any) error {
	d := decoder{doc: c.doc}
	d.add(path, format, args...)
	return d.err()
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil, newError("config: %s is a folder: name the file", path)
	}
	if err == nil && info.Size() > maxFile {
		return nil, newError("config: %s is larger than %d bytes: this is no configuration", path, maxFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, newError("config: there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, newError("config: %s cannot be read: permission denied", path)
	case err != nil:
		return nil, fmt.Errorf("config: read %s: %w", path, err)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return nil, newError("config: %s is not a text file", path)
	}
	return text, nil
}

// find returns the first configuration file there is, or "".
func find(env func(string) string) string {
	places := []string{"config.yaml"}
	if dir := userConfigDir(env); dir != "" {
		places = append(places, filepath.Join(dir, "dragoman", "config.yaml"))
	}
	for _, p := range places {
		// One that is there but cannot be read is an error later, not a reason
		// to run with something else.
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p
		}
	}
	return ""
}

// userConfigDir is os.UserConfigDir over env.
func userConfigDir(env func(string) string) string {
	home := env("HOME")
	switch {
	case runtime.GOOS == "windows":
		return env("AppData")
	case runtime.GOOS == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support")
	case env("XDG_CONFIG_HOME") != "":
		return env("XDG_CONFIG_HOME")
	case home != "":
		return filepath.Join(home, ".config")
	}
	return ""
}

// expandHome replaces a leading "~". What a shell would replace too, and nobody
// does here, is refused: it would name a strange folder below the current one.
func expandHome(path string, env func(string) string) (string, error) {
	if strings.HasPrefix(path, "$") {
		return "", fmt.Errorf("%q is taken as it stands: write ${HOME}, or the full path", path)
	}
	if len(path) > 1 && path[0] == '~' && !os.IsPathSeparator(path[1]) {
		return "", fmt.Errorf("%q: only ~ alone stands for a home folder: give the full path", path)
	}
	if path != "~" && (len(path) < 2 || path[0] != '~' || !os.IsPathSeparator(path[1])) {
		return path, nil
	}
	home := env("HOME")
	if home == "" && runtime.GOOS == "windows" {
		home = env("USERPROFILE")
	}
	if home == "" {
		return "", fmt.Errorf("%q needs a home folder and HOME is not set: give a full path", path)
	}
	return filepath.Join(home, path[1:]), nil
}
