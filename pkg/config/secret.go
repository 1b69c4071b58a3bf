package config

import (
	"log/slog"

	"gopkg.in/yaml.v3"
)

// Secret is a value that must not be seen: fmt, slog and YAML print "***".
// Convert it to a string where it is used, and nowhere else.
type Secret string

const hidden = "***"

// String returns "***", or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalYAML hides the value from YAML.
func (s Secret) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.String()}, nil
}

// MarshalText hides the value from JSON and everything else that asks for text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
