package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

type args = map[string]any

// in is the workspace dir for every call.
func in(dir string) Workspace { return func(tools.Call) (string, error) { return dir, nil } }

func wantText(t *testing.T, r *tools.ToolResult, isError bool, parts ...string) {
	t.Helper()
	if r.IsError != isError {
		t.Errorf("IsError is %v, want %v, in %q (%v)", r.IsError, isError, r.ForLLM, r.Err)
	}
	for _, p := range parts {
		if !strings.Contains(r.ForLLM, p) {
			t.Errorf("%q does not hold %q", r.ForLLM, p)
		}
	}
}

func TestExecPassesTheKit(t *testing.T) {
	for name, w := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			toolstest.Check(t, NewExecuteBash(w, in(t.TempDir())), toolstest.Patience(30*time.Second),
				toolstest.Args(args{"command": "ls -la"}, args{"command": "printf 'a\nb\n' | wc -l", "working_directory": "."}))
		})
	}
}

// What a program that calls execute_bash itself is told.
func TestExecuteBash(t *testing.T) {
	for name, w := range walls(t, Options{Limits: Limits{Time: time.Second}}) {
		t.Run(name, func(t *testing.T) {
			bash := NewExecuteBash(w, in(t.TempDir()))
			run := func(command string) *tools.ToolResult { return bash.Execute(t.Context(), args{"command": command}) }
			wantText(t, bash.Execute(t.Context(), args{}), true, "required")
			wantText(t, run("  "), true, "required")
			wantText(t, run("sudo rm -rf /"), true, "forbidden")
			wantText(t, run("printf 'a\nb\n' | wc -l"), false, "2\n[exit status 0, ")
			wantText(t, run("ls -la"), false, ".")
			wantText(t, run("echo 100%d; exit 3"), true, "100%d\n[exit status 3, ")
			wantText(t, run("true"), false, "(no output)\n[exit status 0, ")
			wantText(t, run("echo begun; sleep 60"), true, "begun\n[timed out after ")
			wantText(t, run("echo to stderr >&2"), false, "to stderr")
			wantText(t, run("cat"), false, "(no output)")
		})
	}
}
