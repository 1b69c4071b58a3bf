package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gopkg.in/yaml.v3"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

// TestExampleHoldsEveryOptionOfTheChannels: config.example.yaml, uncommented,
// has each key of each adapter at its default. Package config checks the rest
// of the file.
func TestExampleHoldsEveryOptionOfTheChannels(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = cutLine(text, "channels:")
	text, _, _ = cutLine(text, "store:")
	text = regexp.MustCompile(`(?m)^( *)#(\w+:|  +\w+:)`).ReplaceAll(text, []byte("$1$2"))
	var sections map[string]map[string]any
	if err := yaml.Unmarshal(text, &sections); err != nil {
		t.Fatal(err)
	}
	for name, typ := range channelTypes {
		want := typ.defaults()
		checkKeys(t, "channels."+name, reflect.TypeOf(want).Elem(), sections[name])
		if sections[name]["token"] != nil { // the one thing without a default
			sections[name]["token"] = "t"
			reflect.ValueOf(want).Elem().FieldByName("Token").SetString("t")
		}
		body, err := yaml.Marshal(sections[name])
		if err != nil {
			t.Fatal(err)
		}
		section, err := config.ParseSection(name, string(body))
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem())
		if err := section.Decode(got.Interface()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got.Interface(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("channels.%s differs from its defaults (-default +example):\n%s", name, diff)
		}
	}
}

// cutLine cuts text around the line that is exactly line.
func cutLine(text []byte, line string) (before, after []byte, found bool) {
	b, a, ok := strings.Cut("\n"+string(text), "\n"+line+"\n")
	return []byte(b), []byte(a), ok
}

// checkKeys reports the keys of a struct type that a section does not show.
func checkKeys(t *testing.T, path string, typ reflect.Type, in map[string]any) {
	t.Helper()
	for f := range typ.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if opts == "inline" {
			checkKeys(t, path, f.Type, in)
			continue
		}
		val, ok := in[name]
		if !ok {
			t.Errorf("%s.%s is missing from config.example.yaml", path, name)
		}
		if f.Type.Kind() == reflect.Struct {
			sub, _ := val.(map[string]any)
			checkKeys(t, path+"."+name, f.Type, sub)
		}
	}
}
