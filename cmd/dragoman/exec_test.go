package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// execApp is an app with what tools.exec says, and its log.
func execApp(t *testing.T, exec string, find func(context.Context, sandbox.Options) (*sandbox.Wall, error)) (a *app, log string, err error) {
	t.Helper()
	text := fmt.Sprintf("data_dir: %q\nstore: {driver: memory}\nowners: [\"work:1\"]\nchannels: {work: {type: telegram, token: \"1:a\"}}\ntools: {exec: {%s}}\n", t.TempDir(), exec)
	cfg, err := config.Load(file(t, text), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	a, err = newApp(cfg, slog.New(slog.NewTextHandler(&said, nil)), appOptions{FindWall: find})
	if a != nil {
		t.Cleanup(func() { _ = a.store.Close() }) // in memory
	}
	return a, said.String(), err
}

func noWall(context.Context, sandbox.Options) (*sandbox.Wall, error) {
	return nil, fmt.Errorf("%w: bubblewrap: not installed", sandbox.ErrNoWall)
}

// Where no wall holds there is no exec; the log says why, and all else works.
func TestExecIsOffWithoutASandbox(t *testing.T) {
	a, log, err := execApp(t, "allow: [owner]", noWall)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.tools.Get("exec"); ok {
		t.Error("exec is there without a wall")
	}
	if !strings.Contains(log, "exec is configured but stays off") || !strings.Contains(log, "bubblewrap: not installed") {
		t.Errorf("the log says %q", log)
	}
	if a.tools.Count() == 0 {
		t.Error("there are no other tools either")
	}
}

// Without anybody who may use it, nothing is even tried.
func TestExecIsOffUnlessSomebodyIsNamed(t *testing.T) {
	for _, exec := range []string{"", "allow: []", "commands: [ls]"} {
		a, log, err := execApp(t, exec, func(context.Context, sandbox.Options) (*sandbox.Wall, error) {
			t.Error("a sandbox is looked for")
			return noWall(t.Context(), sandbox.Options{})
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := a.tools.Get("exec"); ok || log != "" {
			t.Errorf("{%s}: exec is %v, and the log says %q", exec, ok, log)
		}
	}
}

// A list that cannot hold is refused, and where one cannot be kept there is no
// exec rather than one without a list.
func TestCaseListOfCommandsHoldsOrThereIsNoExec(t *testing.T) {
	for _, name := range []string{"bash", "env", "xargs", "sudo", "timeout"} {
		_, _, err := execApp(t, "allow: [owner], commands: [ls, "+name+"]", noWall)
		if err == nil || !strings.Contains(err.Error(), "tools.exec.commands: "+name+" runs any program") {
			t.Errorf("%s in the list: %v", name, err)
		}
	}
	a, log, err := execApp(t, "allow: [owner], commands: [ls, no-such-program]", aWall(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.tools.Get("exec"); ok || !strings.Contains(log, `no-such-program`) {
		t.Errorf("exec is there: %v, and the log says %q", ok, log)
	}
}

// aWall skips the test where no wall holds, unless one is required.
func aWall(t *testing.T) func(context.Context, sandbox.Options) (*sandbox.Wall, error) {
	t.Helper()
	if _, err := sandbox.Find(t.Context(), sandbox.Options{Dir: t.TempDir()}); err != nil {
		sandboxtest.Missing(t, err)
	}
	return sandbox.Find
}

// TestExecAsAnotherUser runs these tests once more as somebody for whom there is
// a sandbox.
func TestExecAsAnotherUser(t *testing.T) { sandboxtest.Again(t, "^(TestExec|TestCaseListOfCommands)") }

// exec is offered to those who are named, and refuses all others again when it
// is called: a model may call what it was not offered.
func TestExecIsForThoseWhoAreNamed(t *testing.T) {
	a, _, err := execApp(t, `allow: [owner, "work:2"]`, aWall(t))
	if err != nil {
		t.Fatal(err)
	}
	for principal, allowed := range map[string]bool{
		"work:1": true, "work:2": true, "work:3": false, "work:": false, "": false, "owner": false, "telegram:2": false, "work:22": false,
	} {
		if _, offered := a.toolsFor(principal).Get("exec"); offered != allowed {
			t.Errorf("exec is offered to %q: %v", principal, offered)
		}
		ctx := tools.WithCall(t.Context(), tools.Call{Principal: principal})
		// Also when the call comes from a helper of theirs, or later.
		for _, agent := range []string{"", "helper"} {
			ctx := tools.WithCall(ctx, tools.Call{Principal: principal, AgentID: agent, Hops: len(agent)})
			name := fmt.Sprintf("was-here-%d-%s", len(agent), strings.ReplaceAll(principal, ":", "-"))
			r := a.tools.ExecuteWithContext(ctx, "exec", map[string]any{"command": "echo yes; echo x > " + name}, "work", "7", nil)
			if r.IsError == allowed || allowed != strings.Contains(r.ForLLM, "yes") || allowed == strings.Contains(r.ForLLM, "forbidden") {
				t.Errorf("for %q: %+v", principal, r)
			}
			if _, err := os.Stat(filepath.Join(a.cfg.DataDir, "workspaces", "chats", "work", "7", name)); (err == nil) != allowed {
				t.Errorf("for %q: the command has run: %v", principal, err)
			}
		}
	}
	for _, name := range a.toolsFor("work:3").List() {
		if name == "exec" {
			t.Error("exec is in the list of a stranger")
		}
	}
	if all, few := a.toolsFor("work:1").Count(), a.toolsFor("work:3").Count(); few != all-1 {
		t.Errorf("%d tools and %d: only exec is held back", all, few)
	}
}
