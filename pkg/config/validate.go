package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // a container has no zone files; costs 450 KB
)

// validator checks values that have the right kind.
type validator struct {
	*decoder
	cfg *Config
}

func (v *validator) check() {
	c := v.cfg
	if c.DataDir == "" {
		v.add("data_dir", "must name a folder")
	} else if info, err := os.Stat(c.DataDir); err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR) {
		v.add("data_dir", "%s is a file, or lies in one: name a folder", c.DataDir)
	}
	v.owners()
	var err error
	if c.location, err = time.LoadLocation(c.Timezone); err != nil || c.Timezone == "" {
		v.add("timezone", "there is no time zone %q: write a name such as Europe/Berlin, UTC or Local", c.Timezone)
	}
	if c.Timezone == "Local" {
		c.location = localZone()
	}
	v.agent(c.Agent)
	v.models()
	v.retention(c.Store.Retention)
	v.exec(c.Tools.Exec)
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		if !isName(name) {
			v.add("channels."+name, "a channel's name has only letters, digits, - and _")
		}
	}
	if c.Health.Listen != "" && !isListen(c.Health.Listen) {
		v.add("health.listen", "expected host:port, for example 127.0.0.1:8081, found %q", c.Health.Listen)
	}
	v.telemetry(c.Telemetry)
	between(v, "shutdown_grace", c.ShutdownGrace, 0, 10*time.Minute)
}

func (v *validator) owners() {
	for i, o := range v.cfg.Owners {
		v.principal(fmt.Sprintf("owners[%d]", i), "an owner", o)
	}
}

// principal checks the name of somebody who is to have rights.
func (v *validator) principal(at, who, name string) {
	channel, id, ok := strings.Cut(name, ":")
	_, exists := v.cfg.Channels[channel]
	switch {
	case !ok || channel == "" || id == "":
		v.add(at, "expected channel:id, for example telegram:12345, found %q", name)
	case id[0] == '@' || id == "*":
		v.add(at, "%s is named by a number, because names change hands: /id in the chat says which", who)
	case !exists && v.doc.only == "":
		v.unknown(at, "channel", channel, slices.Sorted(maps.Keys(v.cfg.Channels)))
	}
}

func (v *validator) exec(e Exec) {
	for i, name := range e.Allow {
		if name != Owner {
			v.principal(fmt.Sprintf("tools.exec.allow[%d]", i), "who may run commands", name)
		}
	}
	for i, name := range e.Commands {
		if name == "" || strings.ContainsAny(name, "/ \t") {
			v.add(fmt.Sprintf("tools.exec.commands[%d]", i), "expected the plain name of a program, for example git, found %q", name)
		}
	}
	between(v, "tools.timeout", v.cfg.Tools.Timeout, 0, 24*time.Hour)
	between(v, "tools.exec.timeout", e.Timeout, time.Second, time.Hour)
	between(v, "tools.exec.memory_mb", e.MemoryMB, 16, 1<<20)
	between(v, "tools.exec.processes", e.Processes, 1, 10_000)
	between(v, "tools.exec.file_mb", e.FileMB, 1, 1<<20)
}

func (v *validator) agent(a Agent) {
	between(v, "agent.max_iterations", a.MaxIterations, 1, 1000)
	between(v, "agent.max_parallel_turns", a.MaxParallelTurns, 1, 1_000_000)
	between(v, "agent.turn_timeout", a.TurnTimeout, time.Second, 24*time.Hour)
	between(v, "agent.turns_per_minute", a.TurnsPerMinute, 0, 100_000)
	between(v, "agent.history_messages", a.HistoryMessages, 1, 100_000)
	if _, ok := v.cfg.Models[a.Model]; !ok {
		v.model("agent.model", a.Model)
	}
}

func (v *validator) models() {
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Models)) {
		m, path := v.cfg.Models[name], "models."+name
		if m.Provider == "" {
			v.missing(path, "provider", "say who serves the model, for example openai")
		}
		if u, err := url.Parse(m.BaseURL); m.BaseURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			v.add(path+".base_url", "expected an address that begins with http:// or https://")
		}
		between(v, path+".context_tokens", m.ContextTokens, 2_000, 100_000_000)
		between(v, path+".max_concurrent", m.MaxConcurrent, 0, 1_000_000)
		between(v, path+".timeout", m.Timeout, time.Second, time.Hour)
		for i, f := range m.Fallback {
			at := fmt.Sprintf("%s.fallback[%d]", path, i)
			if _, ok := v.cfg.Models[f]; !ok {
				v.model(at, f)
			} else if f == name {
				v.add(at, "a model cannot stand in for itself")
			}
		}
	}
}

func (v *validator) telemetry(t Telemetry) {
	u, err := url.Parse(t.OTLPEndpoint)
	switch {
	case t.OTLPEndpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		v.add("telemetry.otlp_endpoint", "expected an address that begins with http:// or https://, for example http://127.0.0.1:4318")
	case u.User != nil:
		v.add("telemetry.otlp_endpoint", "a name and a password in the address are not sent: set the variable OTEL_EXPORTER_OTLP_HEADERS instead")
	}
	between(v, "telemetry.sample", t.Sample, 0, 1)
}

func (v *validator) retention(r Retention) {
	for _, k := range []struct {
		key  string
		keep time.Duration
	}{{"journal", r.Journal}, {"dedupe", r.Dedupe}, {"history", r.History}} {
		if k.keep < 0 || k.keep > 0 && k.keep < time.Second {
			v.add("store.retention."+k.key, "expected a time of at least 1s, or 0 for ever, found %v", k.keep)
		}
	}
	switch {
	case r.Dedupe <= 0 || r.Journal > 0 && r.Journal <= r.Dedupe:
	case r.Journal == 0:
		v.add("store.retention.journal", "0 is for ever, and a message is kept no longer than its id: set dedupe to 0 as well, or give a time of at most %s here", days(r.Dedupe))
	default:
		v.add("store.retention.dedupe", "a message is kept no longer than its id: give this as long as journal (%s) at least, or 0 for ever", days(r.Journal))
	}
}

// model reports a name that is none of the models.
func (v *validator) model(path, name string) {
	v.unknown(path, "model", name, slices.Sorted(maps.Keys(v.cfg.Models)))
}

// unknown reports a name that should have been one of known.
func (d *decoder) unknown(path, what, name string, known []string) {
	if n := nearest(name, known); n != "" {
		d.add(path, "there is no %s %q: did you mean %q?", what, name, n)
		return
	}
	there := "there are "
	if len(known) == 1 {
		there = "there is only "
	}
	d.add(path, "there is no %s %q: %s%s", what, name, there, strings.Join(known, ", "))
}

func between[T cmp.Ordered](v *validator, path string, value, low, high T) {
	if value < low || value > high {
		v.add(path, "expected a value from %v to %v, found %v", low, high, value)
	}
}

// isName reports whether s can be part of an address, "name:chat".
func isName(s string) bool {
	for _, c := range []byte(s) {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

// isListen reports whether s is host:port with a port that exists.
func isListen(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n <= 65535
}

// Names are the words a program has an implementation for.
type Names struct {
	Channels  []string
	Refused   map[string]string // channel types that cannot be configured, and why
	Providers []string
	Stores    []string
}

// Check reports names in c that the program does not know. It needs to be told
// them, because only the program knows what it was built with.
func (c *Config) Check(known Names) error {
	d := decoder{doc: c.doc}
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		s := c.Channels[name]
		if slices.Contains(known.Channels, s.Type()) {
			continue
		}
		if why := known.Refused[s.Type()]; why != "" {
			d.add(s.path, "%s", why)
			continue
		}
		path := s.path
		if _, ok := c.doc.places[path+".type"]; ok {
			path += ".type"
		}
		d.unknown(path, "channel type", s.Type(), known.Channels)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		m, path := c.Models[name], "models."+name
		if !slices.Contains(known.Providers, m.Provider) {
			d.unknown(path+".provider", "provider", m.Provider, known.Providers)
		} else if m.Provider != offline && m.Model == "" {
			d.missing(path, "model", "say which one, by its name at the provider")
		}
	}
	if !slices.Contains(known.Stores, c.Store.Driver) {
		d.unknown("store.driver", "store driver", c.Store.Driver, known.Stores)
	}
	return d.err()
}

// days writes a time as a person would in the configuration.
func days(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return d.String()
}
