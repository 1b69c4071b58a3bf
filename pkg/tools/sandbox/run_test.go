//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// begun waits until a command has made a file in its workspace.
func (s *scene) begun(t *testing.T, name string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Lstat(filepath.Join(s.workspace, name)); err == nil {
			return
		}
		select {
		case <-look.C:
		case <-deadline:
			t.Fatal("the command does not begin")
		}
	}
}

const busy = `(setsid sleep @TOKEN &); sleep @TOKEN & echo begun; touch begun; wait`

// Whoever gives a command up finds nothing of it when the call returns.
func TestCancelEndsEverything(t *testing.T) {
	for name, w := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped by a person")
			go func() {
				s.begun(t, "begun")
				cancel(stopped)
			}()
			r := NewExecuteBash(w, in(s.workspace)).Execute(ctx, args{"command": s.fill(busy)})
			wantText(t, r, true, "begun", "[cancelled after ")
			if !errors.Is(r.Err, stopped) {
				t.Errorf("the error is %v", r.Err)
			}
			if left := s.running(t); len(left) > 0 {
				t.Error(left)
			}
			cancel(nil)
			if r := NewExecuteBash(w, in(s.workspace)).Execute(ctx, args{"command": "touch again"}); !r.IsError {
				t.Errorf("after the end: %+v", r)
			}
			if _, err := os.Lstat(filepath.Join(s.workspace, "again")); err == nil {
				t.Error("a command ran after the end")
			}
		})
	}
}

// TestCallerForKilled is not a test: it is the process that
// TestKilledCallerLeavesNothing kills.
func TestCallerForKilled(t *testing.T) {
	name := os.Getenv("DRAGOMAN_TEST_WALL")
	if name == "" {
		t.Skip("for another test")
	}
	w := walls(t, Options{})[name]
	o, err := w.Run(t.Context(), Command{Args: strings.Split(os.Getenv("DRAGOMAN_TEST_ARGS"), "\x1f"), Workspace: os.Getenv("DRAGOMAN_TEST_WORKSPACE")})
	t.Errorf("not killed: %+v, %v", o, err)
}

// What a daemon that is killed was running ends too.
func TestKilledCallerLeavesNothing(t *testing.T) {
	for name := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			argv, err := shell(s.fill(busy))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestCallerForKilled$")
			cmd.Env = append(os.Environ(), "DRAGOMAN_TEST_WALL="+name, "DRAGOMAN_TEST_WORKSPACE="+s.workspace, "DRAGOMAN_TEST_ARGS="+strings.Join(argv, "\x1f"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s.begun(t, "begun")
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			deadline := time.After(20 * time.Second)
			look := time.NewTicker(5 * time.Millisecond)
			defer look.Stop()
			for len(s.running(t)) > 0 {
				select {
				case <-look.C:
				case <-deadline:
					t.Fatal(s.running(t))
				}
			}
		})
	}
}

// A wall that fails when it is needed lets nothing through.
func TestBrokenWallRunsNothing(t *testing.T) {
	dir := t.TempDir()
	for name, j := range map[string]jail{
		"a bubblewrap that fails":           &bubblewrap{program: "/bin/false"},
		"a bubblewrap that does nothing":    &bubblewrap{program: "/bin/true"},
		"a bubblewrap that is not there":    &bubblewrap{program: "/no/bwrap"},
		"a filter the kernel does not take": &bubblewrap{program: "/usr/bin/bwrap", sh: "/bin/sh", filter: []byte("no filter")},
		"a shell that is not there":         &landlock{sh: "/no/sh"},
		"no wall":                           broken{},
	} {
		w := &Wall{name: name, limits: DefaultLimits(), jail: j}
		r := NewExecuteBash(w, in(dir)).Execute(t.Context(), args{"command": "touch was-here"})
		if late := strings.Contains(name, "filter"); late {
			wantText(t, r, true, "bwrap: ") // by then it has taken the place of the command
		} else {
			wantText(t, r, true, "nothing was run")
		}
		if r.Err == nil {
			t.Errorf("%s: the operator hears nothing", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "was-here")); err == nil {
			t.Errorf("%s: the command was run", name)
		}
	}
}

// With the network commands reach the machine's addresses, and still no socket
// of its other kinds.
func TestNetworkIsLetThroughOnDemand(t *testing.T) {
	for name, w := range walls(t, Options{Network: true}) {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			run := func(script string) string {
				argv, err := shell(s.fill(script))
				if err != nil {
					t.Fatal(err)
				}
				o, err := w.Run(t.Context(), Command{Args: argv, Workspace: s.workspace})
				if err != nil {
					t.Fatal(err)
				}
				return o.Output
			}
			if out := run(`exec 3<>/dev/tcp/127.0.0.1/@TCP && echo reached`); !strings.Contains(out, "reached") {
				t.Errorf("the network is not reached: %q", out)
			}
			for _, a := range attempts {
				if strings.Contains(a.name, "socket") && !strings.Contains(a.name, "raw") {
					if out := run(a.script); strings.Contains(out, "ESCAPED") {
						t.Errorf("%s: %q", a.name, out)
					}
				}
			}
		})
	}
}

// A folder outside of the workspace is no place to work in.
func TestWorkingDirectory(t *testing.T) {
	for name, w := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tool := NewExecuteBash(w, in(s.workspace))
			run := func(dir string) (text string, failed bool) {
				r := tool.Execute(t.Context(), args{"command": "touch here; echo ok", "working_directory": dir})
				return r.ForLLM, r.IsError
			}
			if err := errors.Join(os.MkdirAll(filepath.Join(s.workspace, "a", "b"), 0o700), os.Symlink(s.dir, filepath.Join(s.workspace, "out")), os.Symlink("a", filepath.Join(s.workspace, "in"))); err != nil {
				t.Fatal(err)
			}
			for dir, file := range map[string]string{"": "here", ".": "here", "a": "a/here", "a/b/": "a/b/here", "/workspace/a": "a/here", s.workspace: "here", filepath.Join(s.workspace, "a"): "a/here", "in/b": "a/b/here"} {
				_ = os.Remove(filepath.Join(s.workspace, file)) // of the one before
				if text, failed := run(dir); failed {
					t.Errorf("%q: %s", dir, text)
				}
				if _, err := os.Lstat(filepath.Join(s.workspace, file)); err != nil {
					t.Errorf("%q: %v", dir, err)
				}
			}
			for _, dir := range []string{"..", "/", "/etc", "../other", "a/../..", "out", "out/other", s.dir, s.workspace + "2", "/workspace/..", "no", "a\x00b"} {
				if text, failed := run(dir); !failed || strings.Contains(text, s.dir+"/") && !strings.Contains(dir, s.dir) {
					t.Errorf("%q: %s", dir, text)
				}
			}
			if after := s.look(t); after[filepath.Join(s.dir, "here")] != "" || after[filepath.Join(s.dir, "other", "here")] != "" {
				t.Errorf("a command worked outside: %v", after)
			}
		})
	}
}

// A command that is not let begin, because something could not be put in place,
// never begins.
func TestNotBegunIsNotRun(t *testing.T) {
	for name, w := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			argv, err := shell(s.fill("touch was-here; sleep @TOKEN"))
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				c, err := w.jail.start(Command{Args: argv, Workspace: s.workspace}, w.limits, os.Stderr)
				if err != nil {
					t.Fatal(err)
				}
				c.destroy()
				c.wait()
				if left := s.running(t); len(left) > 0 || len(s.files(t)) > 0 {
					t.Fatal(left, s.files(t))
				}
			}
		})
	}
}

// A daemon that gives way to others, by nice or by its unit's Nice=, has commands
// give way at least as much: nobody but root may raise a priority.
func TestLowPriorityStays(t *testing.T) {
	own, err := niceness(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []int{0, 5, 10, 19} {
		given = max(given, own)
		cmd := exec.CommandContext(t.Context(), "sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, given); err != nil {
			t.Fatal(err)
		}
		if err := bound(cmd.Process.Pid, DefaultLimits(), 1000); err != nil {
			t.Errorf("at %d: %v", given, err)
		}
		if got, err := niceness(cmd.Process.Pid); err != nil || got != max(given, 5) {
			t.Errorf("from %d the command comes to %d, %v", given, got, err)
		}
	}
}
