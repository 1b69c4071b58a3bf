// Package sandbox runs commands behind a wall and offers them to the model as
// the tools exec and execute_bash.
//
// The wall is bubblewrap or, without it, Landlock with seccomp; Find tries which
// of them holds on this machine and returns none that does not. Behind it a
// command reads the programs of the system, writes to its workspace and does
// nothing else: no network, no other file, no other process, no variable of the
// daemon's environment. Its time, its memory, its processes and its output are
// bounded, and when the call returns nothing it started is left.
//
// For root there is a wall from Linux 6.14 on, since nothing else binds root to a
// number of processes.
//
// Nothing in a command's text is relied on for any of this. What the tools refuse
// beforehand (sudo, rm -rf /) is a courtesy to the model.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits bound a command together with all it starts.
type Limits struct {
	Time      time.Duration // until everything is killed
	Memory    int64         // bytes, of all processes together
	Processes int           // at once, threads not counted
	FileSize  int64         // bytes, of one file
	Output    int           // bytes of output that are kept: the beginning and the end
}

// DefaultLimits are those that hold where Options says nothing.
func DefaultLimits() Limits {
	return Limits{Time: 30 * time.Second, Memory: 512 << 20, Processes: 64, FileSize: 100 << 20, Output: 32 << 10}
}

// Options say what a wall lets through.
type Options struct {
	Limits Limits // a zero field is that of DefaultLimits
	// Network gives commands the machine's whole network, loopback included.
	Network bool
	// Dir is a folder that commands must not see, such as the one in which all
	// workspaces are. Find makes a workspace in it for its trial, and removes it.
	Dir string
	// Hidden is a file that commands must not be able to read, such as the
	// configuration; "" for none.
	Hidden string
	// Log hears of walls that do not hold, also if another does; nil discards.
	Log *slog.Logger
}

// Command is one command.
type Command struct {
	// Args are the program, by its full path, and its arguments. No shell reads
	// them unless the program is one.
	Args []string
	// Workspace is the full path of an existing folder, the only one the
	// command writes to.
	Workspace string
	// Dir is where it starts, relative to Workspace; "" is the workspace itself.
	Dir string
}

// Outcome is what came of a command that was started.
type Outcome struct {
	Output  string        // what it wrote, both streams in one; made fit to be read
	Skipped int64         // how many bytes of it are left out in the middle
	Status  int           // its exit status; 128 and the number of the signal that ended it
	Ended   error         // why it was ended before its time, nil if it was not
	Took    time.Duration // from start to end
}

// Why a command was ended. The end of the caller's context is its cause instead.
var (
	ErrTime      = errors.New("timed out")
	ErrMemory    = errors.New("took more memory than it may")
	ErrProcesses = errors.New("started more processes than it may")
)

// ErrNoWall is what Find's error wraps when no wall holds here.
var ErrNoWall = errors.New("no sandbox")

// Wall confines commands. It is safe for concurrent use.
type Wall struct {
	name   string
	limits Limits
	jail   jail
}

// Name says what the wall is made of: "bubblewrap" or "landlock".
func (w *Wall) Name() string { return w.name }

// candidate is a wall that may or may not hold here.
type candidate struct {
	name string
	make func(Options) (jail, error)
}

// Find returns the first wall that holds on this machine, bubblewrap before
// Landlock. It tries each in earnest, by commands that have to fail: a write
// outside of the workspace, a look at what is beside it, a connection. The error
// wraps ErrNoWall and says of each wall why it is none, and what to do. It
// blocks for as long as the commands take, some tens of milliseconds.
func Find(ctx context.Context, o Options) (*Wall, error) { return find(ctx, o, candidates()) }

func find(ctx context.Context, o Options, list []candidate) (*Wall, error) {
	o.Limits = o.Limits.orDefault()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	why := make([]string, 0, len(list))
	for _, c := range list {
		w, err := try(ctx, o, c)
		if err == nil {
			return w, nil
		}
		o.Log.Info("a kind of sandbox cannot be used", "sandbox", c.name, "err", err)
		why = append(why, c.name+": "+err.Error())
	}
	return nil, fmt.Errorf("%w: %s", ErrNoWall, strings.Join(why, "; "))
}

// try makes a wall and proves it.
func try(ctx context.Context, o Options, c candidate) (*Wall, error) {
	j, err := c.make(o)
	if err != nil {
		return nil, err
	}
	w := &Wall{name: c.name, limits: o.Limits, jail: j}
	if err := w.prove(ctx, o); err != nil {
		return nil, err
	}
	return w, nil
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	if l.Time <= 0 {
		l.Time = d.Time
	}
	if l.Memory <= 0 {
		l.Memory = d.Memory
	}
	if l.Processes <= 0 {
		l.Processes = d.Processes
	}
	if l.FileSize <= 0 {
		l.FileSize = d.FileSize
	}
	if l.Output <= 0 {
		l.Output = d.Output
	}
	return l
}

// inside is where bubblewrap shows the workspace.
const inside = "/workspace"

// searched is where programs are looked for, in a sandbox and for one.
const searched = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// lookPath finds a program by its plain name.
func lookPath(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("%q is no plain name of a program", name)
	}
	for _, dir := range filepath.SplitList(searched) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("there is no program %q", name)
}

// shell returns the arguments that have a shell run a text.
func shell(text string) ([]string, error) {
	for _, name := range []string{"bash", "sh"} {
		if file, err := lookPath(name); err == nil {
			return []string{file, "-c", text}, nil
		}
	}
	return nil, errors.New("there is no shell")
}
