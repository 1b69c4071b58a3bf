//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bubblewrap gives a command namespaces of its own: a tree of files in which only
// the workspace can be written to, a network without anything in it, and a table
// of processes that ends with the first of them.
type bubblewrap struct {
	program string
	sh      string
	network bool
	filter  []byte
}

func newBubblewrap(o Options) (jail, error) {
	program, err := lookPath("bwrap")
	if err != nil {
		return nil, errors.New("the program bwrap is missing (apt-get install bubblewrap)")
	}
	sh, err := lookPath("sh")
	if err != nil {
		return nil, err
	}
	return &bubblewrap{program: program, sh: sh, network: o.Network, filter: newFilter(rules{network: o.Network}).bytes()}, nil
}

// Where bubblewrap finds the files it is given besides the standard ones.
const (
	filterFile  = 3
	infoFile    = 4
	releaseFile = 5
)

// args are bubblewrap's own arguments before those of the command.
func (b *bubblewrap) args(cmd Command) []string {
	args := []string{
		b.program, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
		"--uid", "65534", "--gid", "65534", "--hostname", "sandbox",
		"--seccomp", strconv.Itoa(filterFile), "--info-fd", strconv.Itoa(infoFile), "--block-fd", strconv.Itoa(releaseFile),
	}
	shown := visible
	if b.network {
		args, shown = append(args, "--share-net"), append(append([]string{}, visible...), visibleOnline...)
	}
	for _, p := range shown {
		// /bin is a link to /usr/bin on most systems.
		if to, err := os.Readlink(p); err == nil && filepath.Dir(p) == "/" {
			args = append(args, "--symlink", to, p)
			continue
		}
		args = append(args, "--ro-bind-try", p, p)
	}
	args = append(
		args, "--proc", "/proc", "--dev", "/dev", "--size", strconv.Itoa(64<<20), "--tmpfs", "/tmp", "--bind", cmd.Workspace, inside,
		"--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/",
		"--chdir", filepath.Join(inside, cmd.Dir), "--clearenv", "--setenv", "HOME", inside, "--setenv", "TMPDIR", "/tmp",
	)
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		args = append(args, "--setenv", name, value)
	}
	return append(append(args, "--"), cmd.Args...)
}

func (b *bubblewrap) start(cmd Command, limits Limits, out *os.File) (cell, error) {
	var p pipes
	defer p.closeOther()
	null, program, info, hold := p.null(), p.in(), p.out(), p.in()
	if p.err != nil {
		p.closeOurs()
		return nil, p.err
	}
	// It fits into the pipe.
	_, err := program.ours.Write(b.filter)
	if err = errors.Join(err, program.ours.Close(), closeOnExec()); err != nil {
		p.closeOurs()
		return nil, err
	}
	c := &wrapped{hold: hold.ours}
	c.outer, err = os.StartProcess(b.program, b.args(cmd), &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, out, out, program.theirs, info.theirs, hold.theirs},
	})
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	p.closeOther()
	if err = c.learn(info.ours); err == nil {
		err = bound(c.inner, limits, limits.Processes+2)
	}
	if err == nil && isRoot() {
		err = c.boundTasks(b.sh, limits)
	}
	if err != nil {
		c.destroy()
		_, _ = c.outer.Wait() // only to be rid of it
		_ = c.hold.Close()    // nothing is left that would take it for a sign to begin
		return nil, err
	}
	return c, nil
}

// wrapped is a command in bubblewrap.
type wrapped struct {
	outer *os.Process // bubblewrap; it ends with the command, with its status
	inner int         // the first process of the sandbox, with which all others end
	pidfd int         // of inner; 0 if there is none
	hold  *os.File    // what inner waits for
}

func (c *wrapped) boundTasks(sh string, l Limits) error {
	ns, err := pidNamespace(c.inner)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // nothing was written
	return boundTasks(sh, ns, l)
}

// learn reads from bubblewrap which process is the first inside. That one waits
// for us, so its number is its own.
func (c *wrapped) learn(info *os.File) error {
	defer func() { _ = info.Close() }() // nothing was written
	_ = info.SetReadDeadline(time.Now().Add(10 * time.Second))
	var said struct {
		Child int `json:"child-pid"`
	}
	text, err := io.ReadAll(info)
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil || said.Child <= 1 {
		return errors.New("bubblewrap could not build the sandbox")
	}
	c.inner = said.Child
	c.pidfd, err = unix.PidfdOpen(c.inner, 0)
	if err != nil {
		c.pidfd = 0
		return fmt.Errorf("find the sandbox: %w", err)
	}
	return nil
}

func (c *wrapped) release() error {
	_, err := c.hold.Write([]byte{1})
	return errors.Join(err, c.hold.Close())
}

func (c *wrapped) wait() int { return status(c.outer.Wait()) }

func (c *wrapped) excess(l Limits) error {
	all, err := processes()
	if err != nil {
		return err
	}
	children := make(map[int][]process, len(all))
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	members := children[c.inner]
	for i := 0; i < len(members); i++ { // it grows
		members = append(members, children[members[i].id]...)
	}
	return excess(members, l)
}

// destroy ends the first process inside and waits until it is gone: the kernel
// lets it go only after all others.
func (c *wrapped) destroy() {
	if c.pidfd != 0 {
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0) // it may be gone
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}, int(lastWords/time.Millisecond)) //nolint:gosec // a file's number
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = unix.Close(c.pidfd)
		c.pidfd = 0
		_ = c.hold.Close() // not before: its end lets a command begin
	}
	_ = c.outer.Kill() // it may be gone
}
