package failpoint_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/failpoint"
)

// Each name stands at one place of the program or more, and each place has a
// name of the list.
func TestEveryNameIsHit(t *testing.T) {
	found := map[string]int{}
	for _, root := range []string{"../../pkg", "../../channels", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return hits(path, found)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range failpoint.Names() {
		if found[name] == 0 {
			t.Errorf("%s is hit nowhere", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("%s is not in the list", name)
	}
}

// hits counts the calls of failpoint.Hit in a file by their name.
func hits(path string, found map[string]int) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "Hit" {
			return true
		}
		if x, ok := f.X.(*ast.Ident); !ok || x.Name != "failpoint" {
			return true
		}
		name := path + ": not a literal"
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			name, _ = strconv.Unquote(lit.Value) // the parser has read it
		}
		found[name]++
		return true
	})
	return nil
}

func TestNamesAreUnique(t *testing.T) {
	names := failpoint.Names()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name is there twice: %v", names)
	}
}

// TestKills builds a program with the tag, and without.
func TestKills(t *testing.T) {
	dir := t.TempDir()
	source := `package main

import "github.com/dragoman-chat/dragoman/pkg/failpoint"

func main() {
	failpoint.Hit("other")
	failpoint.Hit("here")
	println("once")
	failpoint.Hit("here")
	println("twice")
}
`
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tags, env, said string
		killed          bool
	}{
		{"", "here", "once\ntwice\n", false},
		{"failpoint", "", "once\ntwice\n", false},
		{"failpoint", "elsewhere", "once\ntwice\n", false},
		{"failpoint", "here", "", true},
		{"failpoint", "here:2", "once\n", true},
		{"failpoint", "here:3", "once\ntwice\n", false},
	} {
		bin := filepath.Join(dir, "bin"+c.tags)
		if _, err := os.Stat(bin); err != nil {
			build := exec.CommandContext(t.Context(), "go", "build", "-tags", c.tags, "-o", bin, main)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		cmd := exec.CommandContext(t.Context(), bin)
		cmd.Env = append(os.Environ(), failpoint.Env+"="+c.env)
		out, err := cmd.CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		killed := false
		if exit != nil {
			status, ok := exit.Sys().(syscall.WaitStatus)
			killed = ok && status.Signal() == syscall.SIGKILL
		}
		if string(out) != c.said || killed != c.killed || !killed && err != nil {
			t.Errorf("%q, %q: said %q, killed %t, %v", c.tags, c.env, out, killed, err)
		}
	}
}
