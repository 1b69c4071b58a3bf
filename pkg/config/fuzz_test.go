package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: whatever a file holds, the answer is a configuration or an *Error,
// never a panic, and no error repeats what came from the environment.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "a: b", "agent: {model: main}\n", "models: {main: {provider: openai, api_key: ${T}}}\n", "owners: [\"${T:-x}\"]\n",
		"a: &a [*a]\n", "x: &x {a: 1}\nlog: {<<: *x, <<: [*x, *x]}\n", "channels:\n  t: {type: t, rate: {a: ${T}}, wait: ${T}}\n",
		"? {a: b}\n: c\n", "timezone: !!binary aGVsbG8=\n", "agent: !foo {max_iterations: !!int x}\n", "shutdown_grace: 1e9h\n",
		"\xff\xfe", "a:\n\t- b", "---\n---\n", "models: {main: {options: {a: [1, 2.5, ~, 2020-01-01, {b: .nan}]}}}\n", "${T}: ${T}\n", "log: *nope\n",
	} {
		f.Add(seed)
	}
	const secret = "SECRETsecretSECRET"
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file:") || strings.Contains(text, secret) {
			return // opens what it names; shows what it was told
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(path, func(name string) string {
			if name == "T" {
				return secret
			}
			return map[string]string{"HOME": "/home/ann"}[name]
		})
		if err == nil {
			for _, s := range cfg.Channels {
				err = errors.Join(err, s.Decode(&adapter{}))
			}
			err = errors.Join(err, cfg.Check(Names{}))
		}
		if err == nil {
			return
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Fatalf("%T: %v", err, err)
		}
		if strings.Contains(err.Error(), secret) && !isValueCheck(err.Error()) {
			t.Fatalf("an error shows the environment: %v", err)
		}
	})
}

// isValueCheck reports whether an error speaks of a value that had the right
// kind and is no secret, such as a time zone; those are shown.
func isValueCheck(text string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "SECRETsecretSECRET") &&
			!strings.Contains(line, "there is no ") && !strings.Contains(line, "expected ") && !strings.Contains(line, "name") && !strings.Contains(line, "needs a home") {
			return false
		}
	}
	return true
}
