// Package dragoman_test holds the house's plan: which package may import which.
package dragoman_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dragoman-chat/dragoman/"

// layers says what of this module each package that others build on may
// import. The direction is cmd -> gateway -> agent -> tools -> providers.
var layers = map[string][]string{
	"pkg/bus":               {},
	"pkg/config":            {},
	"pkg/failpoint":         {},
	"pkg/logger":            {},
	"pkg/providers":         {},
	"pkg/providers/httpapi": {"pkg/config", "pkg/providers"},
	"channels":              {"pkg/bus"},
	"pkg/tools":             {"pkg/bus", "pkg/providers"},
	"pkg/tools/jsontool":    {"pkg/tools"},
	"pkg/tools/control":     {"pkg/tools", "pkg/tools/jsontool"}, // tools in jsontool's form
	"pkg/tools/textcall":    {"pkg/providers"},
	"pkg/toolkit":           {"pkg/tools", "pkg/tools/builtin", "pkg/tools/sandbox"}, // the one that brings the built-in tools with it
	"pkg/store":             {"pkg/bus", "pkg/providers"},
	"pkg/state":             {"pkg/bus", "pkg/store"},
	"pkg/agent":             {"pkg/bus", "pkg/providers", "pkg/store", "pkg/tools"},
	"pkg/metrics":           {"pkg/gateway", "pkg/providers", "pkg/tools"},
	"pkg/tracing":           {"pkg/agent", "pkg/providers", "pkg/tools"},
	"pkg/gateway":           {"channels", "pkg/agent", "pkg/bus", "pkg/failpoint", "pkg/providers", "pkg/state", "pkg/store", "pkg/tools"},
}

// contracts are the layers an adapter may know.
var contracts = []string{"channels", "pkg/bus", "pkg/config", "pkg/failpoint", "pkg/logger", "pkg/providers", "pkg/providers/httpapi", "pkg/state", "pkg/store", "pkg/tools"}

// sdks says who may import a library that stands for one technology. The load
// test's bare mode talks through the same clients as the daemon.
var sdks = map[string][]string{
	"github.com/go-telegram-bot-api/telegram-bot-api": {"channels/telegram", "cmd/loadtest"},
	"github.com/anthropics/anthropic-sdk-go":          {"pkg/providers/anthropic"},
	"github.com/bwmarrin/discordgo":                   {"channels/discord", "cmd/loadtest"},
	"github.com/sashabaranov/go-openai":               {"pkg/providers/openai", "cmd/loadtest"},
	"github.com/prometheus/":                          {"pkg/metrics"},
	"github.com/santhosh-tekuri/jsonschema":           {"pkg/tools"},
	"github.com/spf13/cobra":                          {"cmd/dragoman"},
	"github.com/yuin/goldmark":                        {"channels/webchat", "channels/telegram"},
	"golang.org/x/sys":                                {"pkg/tools/sandbox"},
	"gopkg.in/yaml.v3":                                {"pkg/config"},
	"go.opentelemetry.io/":                            {"pkg/tracing"},
	"modernc.org/sqlite":                              {"pkg/store/sqlite"},
}

// refused are names that say nothing about what a package is for.
var refused = []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}

// pack is a package as `go list` describes it. Paths of this module are
// without its prefix.
type pack struct {
	ImportPath string   `json:"ImportPath"`
	Name       string   `json:"Name"`
	Imports    []string `json:"Imports"`
}

// list returns the packages of the module with what they import in the binary,
// not in tests. What does not compile is the compiler's matter.
func list(t *testing.T) []pack {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Imports", "./...")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packs []pack
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pack
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		for i, in := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(in, module)
		}
		packs = append(packs, p)
	}
	if len(packs) < 5 {
		t.Fatalf("go list found only %d packages", len(packs))
	}
	return packs
}

// ours reports whether p, shortened by list, is a package of this module.
func ours(p string) bool {
	return strings.HasPrefix(p, "channels") || strings.HasPrefix(p, "pkg/") || strings.HasPrefix(p, "cmd/")
}

// isKit reports whether p is a test kit or a fake server.
func isKit(p string) bool { return strings.HasSuffix(p, "test") && !strings.HasPrefix(p, "cmd/") }

// isAdapter reports whether p is a leaf: an implementation of a contract.
func isAdapter(p string) bool {
	for _, contract := range []string{"channels", "pkg/providers", "pkg/tools", "pkg/store"} {
		if rest, ok := strings.CutPrefix(p, contract+"/"); ok && !isKit(p) {
			return rest != "" && !strings.HasSuffix(rest, "/testdata")
		}
	}
	return false
}

// within reports whether p is one of the folders or lies under one.
func within(p string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") })
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range list(t) {
		allowed, layer := layers[p.ImportPath]
		for _, in := range p.Imports {
			switch {
			case !ours(in):
			case isKit(in):
				if !isKit(p.ImportPath) && p.ImportPath != "cmd/loadtest" {
					t.Errorf("%s imports %s: kits and fake servers are for tests", p.ImportPath, in)
				}
			case strings.HasPrefix(in, "cmd/"):
				t.Errorf("%s imports %s: nothing imports a program", p.ImportPath, in)
			case strings.HasPrefix(p.ImportPath, "cmd/"), isKit(p.ImportPath) && !isAdapter(in):
			case layer:
				if !slices.Contains(allowed, in) {
					t.Errorf("%s imports %s: it may import %v", p.ImportPath, in, allowed)
				}
			case !slices.Contains(contracts, in):
				t.Errorf("%s imports %s: an adapter or a kit may import contracts only, %v", p.ImportPath, in, contracts)
			}
		}
	}
}

// TestEveryPackageHasAPlace: a new package says in the table above where it
// belongs.
func TestEveryPackageHasAPlace(t *testing.T) {
	for _, p := range list(t) {
		_, layer := layers[p.ImportPath]
		top := p.ImportPath == strings.TrimSuffix(module, "/")
		if !top && !layer && !isKit(p.ImportPath) && !isAdapter(p.ImportPath) && !strings.HasPrefix(p.ImportPath, "cmd/") {
			t.Errorf("%s is in none of the tables of this test: say what it may import", p.ImportPath)
		}
		if slices.Contains(refused, p.Name) || slices.Contains(refused, path.Base(p.ImportPath)) {
			t.Errorf("%s: the name does not say what it is for", p.ImportPath)
		}
	}
}

func TestLibrariesStayWithTheirAdapter(t *testing.T) {
	for _, p := range list(t) {
		if isKit(p.ImportPath) {
			continue
		}
		for _, in := range p.Imports {
			for sdk, users := range sdks {
				if strings.HasPrefix(in, sdk) && !within(p.ImportPath, users) {
					t.Errorf("%s imports %s: that belongs to %v", p.ImportPath, in, users)
				}
			}
		}
	}
}
