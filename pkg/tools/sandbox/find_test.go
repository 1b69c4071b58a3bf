package sandbox

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// open is a wall that holds nothing back.
type open struct{}

type openCell struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (open) start(cmd Command, _ Limits, out *os.File) (cell, error) {
	c := &openCell{cmd: exec.Command(cmd.Args[0], cmd.Args[1:]...), done: make(chan struct{})} //nolint:noctx // the trial
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = cmd.Workspace, out, out
	return c, c.cmd.Start()
}
func (c *openCell) release() error { return nil }
func (c *openCell) wait() int {
	defer close(c.done)
	_ = c.cmd.Wait()
	return c.cmd.ProcessState.ExitCode()
}
func (c *openCell) excess(Limits) error { return nil }
func (c *openCell) destroy()            { <-c.done }

// broken is a wall that cannot be built.
type broken struct{}

func (broken) start(_ Command, _ Limits, out *os.File) (cell, error) {
	_, _ = io.WriteString(out, "no namespaces for you\nmore\n")
	return nil, errors.New("not built")
}

func made(j jail) func(Options) (jail, error) { return func(Options) (jail, error) { return j, nil } }

func TestCaseWallThatDoesNotHoldIsNone(t *testing.T) {
	if _, err := shell("true"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	w, err := find(t.Context(), Options{Dir: dir}, []candidate{
		{"missing", func(Options) (jail, error) { return nil, errors.New("not installed") }}, {"broken", made(broken{})}, {"open", made(open{})},
	})
	if w != nil || !errors.Is(err, ErrNoWall) {
		t.Fatalf("found %v, %v", w, err)
	}
	for _, part := range []string{"missing: not installed", "broken: sandbox: nothing was run: not built (no namespaces for you)", "open: it does not hold", "read", "wrote", "connected"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not hold %q", err, part)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the trial leaves %v, %v", left, err)
	}
	if _, err := find(t.Context(), Options{Dir: dir}, nil); !errors.Is(err, ErrNoWall) {
		t.Errorf("with no wall at all: %v", err)
	}
}

// A file that has to stay hidden and lies where programs are keeps exec off.
func TestFindMindsWhatHasToStayHidden(t *testing.T) {
	walls(t, Options{}) // skips where there is none
	if _, err := find(t.Context(), Options{Dir: t.TempDir(), Hidden: "/etc/passwd"}, candidates()); err == nil || !strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
	if _, err := find(t.Context(), Options{Dir: t.TempDir(), Hidden: "/etc/shadow"}, candidates()); err != nil {
		t.Error(err)
	}
}
