package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// jail is one way to confine a command.
type jail interface {
	// start makes the process and holds it before the first step of the
	// command, so that nothing of it runs unless everything is in place. The
	// calling thread has to live for as long as the cell does.
	start(cmd Command, limits Limits, out *os.File) (cell, error)
}

// cell is a command behind the wall, with all it starts.
type cell interface {
	release() error             // lets the command begin
	wait() int                  // blocks until the command itself has ended; its status
	excess(limits Limits) error // what of the limits is overstepped now, or nil
	destroy()                   // ends whatever is left, and returns when it is gone
}

const (
	lookEvery = 50 * time.Millisecond // how often a command's size is looked at
	lastWords = 2 * time.Second       // for output that is already written
)

// Run runs a command and blocks until it has ended and nothing of it is left:
// at the latest a moment after its time limit or the end of ctx. An error means
// that nothing was run; how a command that was run has failed is in its Outcome.
func (w *Wall) Run(ctx context.Context, cmd Command) (Outcome, error) {
	if err := cmd.check(); err != nil {
		return Outcome{}, err
	}
	// bubblewrap ends itself when the thread that made it ends, and so when the
	// daemon does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, w.limits.Time, ErrTime)
	defer cancel()
	if ctx.Err() != nil {
		return Outcome{}, fmt.Errorf("sandbox: %w", context.Cause(ctx))
	}
	r, out, err := os.Pipe()
	if err != nil {
		return Outcome{}, fmt.Errorf("sandbox: %w", err)
	}
	defer func() { _ = r.Close() }() // nothing is written to it
	kept := &headTail{size: w.limits.Output}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(kept, onlyReader{r}) // ends with the last writer, or at the deadline
	}()
	c, err := w.jail.start(cmd, w.limits, out)
	err = errors.Join(err, out.Close())
	var status int
	var ended error
	if err == nil {
		status, ended, err = w.attend(ctx, c)
	}
	_ = r.SetReadDeadline(time.Now().Add(lastWords)) // a pipe has deadlines
	<-read
	head, tail, skipped := kept.text()
	if err != nil {
		return Outcome{}, fmt.Errorf("sandbox: nothing was run: %w%s", err, saying(head))
	}
	o := Outcome{Output: head, Skipped: skipped, Status: status, Ended: ended, Took: time.Since(began)}
	if skipped > 0 {
		o.Output = fmt.Sprintf("%s\n[... %d bytes are left out here ...]\n%s", head, skipped, tail)
	}
	return o, nil
}

// onlyReader keeps io.Copy from handing the pipe to the system's own copying.
type onlyReader struct{ io.Reader }

// saying is what a wall that could not be built has said.
func saying(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	if line == "" {
		return ""
	}
	return " (" + line + ")"
}

// attend lets a command run to its end or to one of its limits.
func (w *Wall) attend(ctx context.Context, c cell) (status int, ended, err error) {
	defer c.destroy()
	if err := c.release(); err != nil {
		return 0, nil, err
	}
	done := make(chan int, 1)
	go func() { done <- c.wait() }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for ended == nil {
		select {
		case status = <-done:
			return status, nil, nil
		case <-ctx.Done():
			ended = context.Cause(ctx)
		case <-look.C:
			ended = c.excess(w.limits)
		}
	}
	c.destroy()
	return <-done, ended, nil
}

func (c Command) check() error {
	switch {
	case len(c.Args) == 0 || !filepath.IsAbs(c.Args[0]):
		return errors.New("sandbox: the program has to be given by its full path")
	case !filepath.IsAbs(c.Workspace):
		return errors.New("sandbox: the workspace has to be given by its full path")
	case c.Dir != "" && !filepath.IsLocal(c.Dir):
		return errors.New("sandbox: the directory is not in the workspace")
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return errors.New("sandbox: an argument holds a zero byte")
		}
	}
	return nil
}
