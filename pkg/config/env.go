package config

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// EnvVar is an environment variable that takes part in the configuration.
type EnvVar struct {
	Name string
	Key  string // the key path it stands for
	// Starts says that the variable brings its channel or model to life; the
	// others of the same channel or model count only when one of those is set.
	Starts bool
}

// EnvVars lists the variables Load reads, besides those a file names as
// ${NAME}. A key of the file wins over its variable, unless nothing is in it. A file that has channels
// lists all of them, and the channel variables are not looked at; the same
// holds for models.
func EnvVars() []EnvVar {
	return []EnvVar{
		{"TELEGRAM_BOT_TOKEN", "channels.telegram.token", true},
		{"TELEGRAM_ALLOW_USERS", "channels.telegram.allow_users", false},
		{"TELEGRAM_ALLOW_CHATS", "channels.telegram.allow_chats", false},
		{"TELEGRAM_GROUPS", "channels.telegram.groups", false},
		{"DISCORD_BOT_TOKEN", "channels.discord.token", true},
		{"DISCORD_ALLOW_USERS", "channels.discord.allow_users", false},
		{"DISCORD_ALLOW_CHATS", "channels.discord.allow_chats", false},
		{"DISCORD_GROUPS", "channels.discord.groups", false},
		{"WEBCHAT_LISTEN", "channels.webchat.listen", true},
		{"WEBCHAT_TOKEN", "channels.webchat.token", true},
		{"OPENAI_API_KEY", "models.main.api_key", true},
		{"OPENAI_BASE_URL", "models.main.base_url", true},
		{"OPENAI_MODEL", "models.main.model", false},
		{"ANTHROPIC_API_KEY", "models.claude.api_key", true},
		{"ANTHROPIC_BASE_URL", "models.claude.base_url", true},
		{"ANTHROPIC_MODEL", "models.claude.model", false},
		{"DRAGOMAN_DATA_DIR", "data_dir", true},
		{"DRAGOMAN_OWNERS", "owners", true},
		{"DRAGOMAN_TIMEZONE", "timezone", true},
		{"DRAGOMAN_STORE", "store.driver", true},
		{"DRAGOMAN_LOG_LEVEL", "log.level", true},
		{"DRAGOMAN_LOG_FORMAT", "log.format", true},
		{"DRAGOMAN_HEALTH_LISTEN", "health.listen", true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint", true},
	}
}

// What is asked for at OpenAI itself, or at Anthropic, when only a key is given.
const (
	defaultModel  = "gpt-5-mini"
	defaultClaude = "claude-haiku-5-5"
)

// addEnvironment adds what variables say and the file does not.
func (doc *document) addEnvironment() {
	listed := map[string]bool{}
	for _, section := range []string{"channels", "models"} {
		if doc.root != nil {
			n := lookup(doc.root, section)
			listed[section] = n != nil && !isNull(n)
		}
	}
	listed["channels"] = listed["channels"] || doc.only != ""
	started := map[string]bool{}
	for _, v := range EnvVars() {
		if v.Starts && doc.env(v.Name) != "" {
			started[parent(v.Key)] = true
		}
	}
	for _, v := range EnvVars() {
		top, _, _ := strings.Cut(v.Key, ".")
		if value := doc.env(v.Name); value != "" && !listed[top] && started[parent(v.Key)] {
			doc.set(v.Key, value, v.Name)
		}
	}
	for _, m := range []struct{ path, provider, vars, model string }{
		{"models.main", "openai", "OPENAI", defaultModel},
		{"models.claude", "anthropic", "ANTHROPIC", defaultClaude},
	} {
		if !started[m.path] || listed["models"] {
			continue
		}
		doc.set(m.path+".provider", m.provider, m.vars+"_API_KEY")
		if doc.env(m.vars+"_BASE_URL") == "" { // another service has other models
			doc.set(m.path+".model", m.model, m.vars+"_MODEL")
		}
	}
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// set puts a value at a key path, unless one that is not empty is there.
func (doc *document) set(path, value, variable string) {
	if doc.varOf == nil {
		doc.varOf = map[*yaml.Node]string{}
	}
	if doc.root == nil {
		doc.root = &yaml.Node{Kind: yaml.MappingNode}
	}
	at := doc.root
	keys := strings.Split(path, ".")
	for i, key := range keys {
		next := lookup(at, key)
		if next != nil && isEmpty(next) {
			remove(at, key)
			next = nil
		}
		last := i == len(keys)-1
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode}
			if last {
				next = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
				doc.hide(next)
			}
			doc.varOf[next] = variable
			name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
			doc.varOf[name] = variable
			at.Content = append(at.Content, name, next)
		}
		if next.Kind != yaml.MappingNode {
			return
		}
		at = next
	}
}

// isEmpty reports whether n says nothing: no value, empty text, an empty list.
func isEmpty(n *yaml.Node) bool {
	return isNull(n) || n.Kind == yaml.ScalarNode && n.Value == "" || n.Kind == yaml.SequenceNode && len(n.Content) == 0
}

func remove(mapping *yaml.Node, key string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
			return
		}
	}
}
