package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// example returns config.example.yaml, with its examples uncommented if so
// asked: keys that stand behind "#" without a space, or with more than one.
func example(t *testing.T, uncommented bool) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// What a DRAGOMAN_ variable may say is commented out, but a default.
	text = regexp.MustCompile(`(?m)^( *)#(data_dir|timezone|driver|level|format): `).ReplaceAll(text, []byte("$1$2: "))
	if !uncommented {
		return string(text)
	}
	single := regexp.MustCompile(`(?m)^(owners):.*\n#`) // a default with an example below it
	return regexp.MustCompile(`(?m)^( *)#(\w+:|  +\w+:)`).ReplaceAllString(single.ReplaceAllString(string(text), "#"), "$1$2")
}

func TestExampleIsTheDefaults(t *testing.T) {
	got := load(t, example(t, false), vars())
	want := load(t, "", vars())
	if diff := cmp.Diff(want, got, ignoreDoc); diff != "" {
		t.Errorf("config.example.yaml differs from the defaults (-default +example):\n%s", diff)
	}
}

func TestExampleCanBeUncommented(t *testing.T) {
	cfg := load(t, example(t, true), vars("TELEGRAM_BOT_TOKEN", "1:a", "DISCORD_BOT_TOKEN", "b", "OPENAI_API_KEY", "c", "ANTHROPIC_API_KEY", "d"))
	if cfg.Owners[0] != "telegram:12345" || cfg.Models["gpt"].APIKey != "c" || cfg.Models["claude"].APIKey != "d" || cfg.Models["local"].Timeout != 2*time.Minute {
		t.Errorf("got %+v", cfg)
	}
	for name, kind := range map[string]string{"webchat": "webchat", "telegram": "telegram", "discord": "discord", "work": "telegram"} {
		if s, ok := cfg.Channels[name]; !ok || s.Type() != kind {
			t.Errorf("channel %s is of type %q, want %q", name, s.Type(), kind)
		}
	}
}

// TestExampleHoldsEveryOption: an option nobody can read about is none.
func TestExampleHoldsEveryOption(t *testing.T) {
	text := example(t, false)
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	var check func(path string, typ reflect.Type, in any)
	check = func(path string, typ reflect.Type, in any) {
		keys, ok := in.(map[string]any)
		if !ok {
			t.Errorf("%s is %v, want keys and values", path, in)
			return
		}
		for _, f := range fieldsOf(typ) {
			at := join(path, f.name)
			val, ok := keys[f.name]
			if !ok {
				t.Errorf("%s is missing from config.example.yaml", at)
				continue
			}
			switch ft := typ.FieldByIndex(f.index).Type; {
			case ft == reflect.TypeFor[map[string]Model]():
				check(at+".main", reflect.TypeFor[Model](), val.(map[string]any)["main"])
			case ft.Kind() == reflect.Struct:
				check(at, ft, val)
			}
		}
	}
	check("", reflect.TypeFor[Config](), tree)
}

// TestExampleExplainsEveryOption: each key has a remark above it.
func TestExampleExplainsEveryOption(t *testing.T) {
	lines := strings.Split(example(t, false), "\n")
	key := regexp.MustCompile(`^ *\w+: \S`)
	for i, line := range lines {
		if key.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "# ") {
			t.Errorf("config.example.yaml:%d: %q has no remark above it", i+1, line)
		}
	}
}

// TestCopiedExampleLeavesRoomForVariables: the unit and the image say by
// variables where the data lies, and whoever copies the example keeps that.
func TestCopiedExampleLeavesRoomForVariables(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := load(t, string(text), vars("DRAGOMAN_DATA_DIR", "/data", "DRAGOMAN_HEALTH_LISTEN", "127.0.0.1:8081", "DRAGOMAN_TIMEZONE", "Asia/Tokyo", "DRAGOMAN_STORE", "sqlite",
		"DRAGOMAN_LOG_LEVEL", "warn", "DRAGOMAN_LOG_FORMAT", "json", "DRAGOMAN_OWNERS", "webchat:1"))
	if cfg.DataDir != "/data" || cfg.Health.Listen != "127.0.0.1:8081" || cfg.Timezone != "Asia/Tokyo" || cfg.Store.Driver != "sqlite" || cfg.Log != (Log{"warn", "json"}) || len(cfg.Owners) != 1 {
		t.Errorf("got %+v", cfg)
	}
}
