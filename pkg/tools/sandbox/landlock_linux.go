//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlock confines a command by the kernel's own means, without namespaces. A
// thread is put behind the wall, starts the command there and is thrown away.
type landlock struct {
	network bool
	sh      string
}

// leastABI is the first version of Landlock that keeps signals, and sockets
// without a place in the tree of files, within the wall: Linux 6.12.
const leastABI = 6

func newLandlock(o Options) (jail, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.EPERM:
		return nil, errors.New("the system calls of Landlock are forbidden here (see SystemCallFilter in the unit)")
	case errno != 0:
		return nil, errors.New("this kernel does not have it")
	case abi < leastABI:
		return nil, fmt.Errorf("this kernel has version %d of it, needed is %d (Linux 6.12)", abi, leastABI)
	}
	sh, err := lookPath("sh")
	if err != nil {
		return nil, err
	}
	return &landlock{network: o.Network, sh: sh}, nil
}

const (
	reads = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// What Landlock can be asked to look at, by the version above. Whatever is
	// in it and not granted is refused.
	handled = reads | writes | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	writes = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// A rule about a file may hold only these.
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// ruleset returns what the command may do with files and the network, as a
// file descriptor.
func (l *landlock) ruleset(workspace string) (fd int, err error) {
	attr := unix.LandlockRulesetAttr{
		Handled_access_fs: handled,
		Scoped:            unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	}
	if !l.network {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	// Later fields are of later versions.
	size := unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0) //nolint:gosec // a system call takes it so
	if errno != 0 {
		return -1, fmt.Errorf("landlock: rules: %w", errno)
	}
	fd = int(n)
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := grant(fd, workspace, reads|writes); err != nil {
		return -1, err
	}
	for _, dev := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"} {
		if err := grantIfThere(fd, dev, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return -1, err
		}
	}
	shown := visible
	if l.network {
		shown = slices.Concat(visible, visibleOnline)
	}
	for _, p := range shown {
		if err := grantIfThere(fd, p, reads); err != nil {
			return -1, err
		}
	}
	return fd, nil
}

func grantIfThere(ruleset int, path string, access uint64) error {
	err := grant(ruleset, path, access)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}

// grant lets the command do access with a file, or with all that is in a folder.
func grant(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= ofFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}                                                                   //nolint:gosec // a file's number
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // a system call takes it so
	if errno != 0 {
		return fmt.Errorf("landlock: %s: %w", path, errno)
	}
	return nil
}

// Two texts for sh, which are the same for every command.
const (
	// guardian is outside of the wall and the first of the group in which the
	// command runs. When its input ends, because we close it or are gone, it
	// ends the group and with it itself.
	guardian = `read -r _; kill -9 0`
	// begin is behind the wall. It waits for a line and becomes the command.
	begin = `read -r _ <&3 && exec 3<&- && exec "$@"; exit 126`
)

func (l *landlock) start(cmd Command, limits Limits, out *os.File) (cell, error) {
	ruleset, err := l.ruleset(cmd.Workspace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(ruleset) }() // nothing was written
	tmp := filepath.Join(cmd.Workspace, ".tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	var p pipes
	defer p.closeOther()
	null, life, hold := p.null(), p.in(), p.in()
	if err = errors.Join(p.err, closeOnExec()); err != nil {
		p.closeOurs()
		return nil, err
	}
	c := &group{life: life.ours, hold: hold.ours}
	err = c.begin(l.sh, limits, []*os.File{life.theirs, null, null})
	if c.first == nil {
		p.closeOurs()
		return nil, err
	}
	rules := newFilter(rules{network: l.network, bare: true, group: c.number, root: isRoot()})
	onThread(func() {
		if err == nil && c.ns != nil {
			err = unix.Setns(int(c.ns.Fd()), unix.CLONE_NEWPID)
		}
		if err == nil {
			err = enter(ruleset, rules)
		}
		if err != nil {
			return
		}
		c.command, err = os.StartProcess(l.sh, append([]string{"sh", "-c", begin, "sh"}, cmd.Args...), &os.ProcAttr{
			Dir: filepath.Join(cmd.Workspace, cmd.Dir), Files: []*os.File{null, out, out, hold.theirs},
			Env: append(slices.Clone(environment), "HOME="+cmd.Workspace, "TMPDIR="+tmp),
			Sys: &syscall.SysProcAttr{Setpgid: true, Pgid: c.number},
		})
	})
	p.closeOther()
	if err == nil {
		err = bound(c.command.Pid, limits, ownTasks()+limits.Processes)
	}
	if err != nil {
		c.destroy()
		return nil, err
	}
	return c, nil
}

// onThread runs f on a thread of its own, which ends with it. Nothing else ever
// runs on that thread, and Go makes no thread from a locked one but by another
// that is clean.
//
// It is never the process's first thread: that one outlives its goroutine, and
// for signals the kernel asks behind which wall the first thread is. A daemon
// whose first thread is behind a command's wall could be killed by the command.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // this one is held meanwhile, so that is another
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// enter puts the calling thread behind the wall, for good.
func enter(ruleset int, rules filter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// A service may have been given some.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	if err := rules.apply(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// ownTasks is how many threads the user of this process has.
func ownTasks() int {
	all, err := processes()
	if err != nil {
		return 0 // and so the command may have the least
	}
	own, n := uint32(os.Geteuid()), 0 //nolint:gosec // a user's number
	for _, p := range all {
		var st unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(p.id), &st) == nil && st.Uid == own {
			n += p.threads
		}
	}
	return n
}

// group is a command and all it starts: a group of processes that none of them
// can leave, by the filter.
type group struct {
	first   *os.Process // the guardian; until it is waited for, the group's number is taken
	command *os.Process
	number  int      // what the command sees as the group's number
	ns      *os.File // the pid namespace in which all of it is; nil: ours
	life    *os.File // the guardian's input
	hold    *os.File // what the command waits for
	over    bool     // destroyed
	reaped  sync.Once
	status  int // the command's, once it is reaped
}

// begin starts the guardian, for root in a pid namespace of its own, which is
// bounded and ends with it. first is nil if there is none.
func (c *group) begin(sh string, limits Limits, files []*os.File) (err error) {
	sys := &syscall.SysProcAttr{Setpgid: true}
	if isRoot() {
		sys.Cloneflags = unix.CLONE_NEWPID
	}
	c.first, err = os.StartProcess(sh, []string{"sh", "-c", guardian}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: sys})
	if err != nil {
		c.first = nil
		return err
	}
	if c.number = c.first.Pid; !isRoot() {
		return nil
	}
	c.number = 1
	if c.ns, err = pidNamespace(c.first.Pid); err != nil {
		return err
	}
	return boundTasks(sh, c.ns, limits)
}

func (c *group) release() error {
	_, err := c.hold.WriteString("\n")
	return errors.Join(err, c.hold.Close())
}

func (c *group) wait() int {
	c.reaped.Do(func() { c.status = status(c.command.Wait()) })
	return c.status
}

// members are the processes of the group, the guardian not counted, nor those
// that have ended.
func (c *group) members() ([]process, error) {
	all, err := processes()
	return slices.DeleteFunc(all, func(p process) bool { return p.group != c.first.Pid || p.id == c.first.Pid || p.gone }), err
}

func (c *group) excess(l Limits) error {
	members, err := c.members()
	if err != nil {
		return err
	}
	return excess(members, l)
}

func (c *group) destroy() {
	if c.over {
		return
	}
	c.over = true
	for until := time.Now().Add(lastWords); ; time.Sleep(time.Millisecond) {
		_ = unix.Kill(-c.first.Pid, unix.SIGKILL) // it may be empty
		if left, err := c.members(); err == nil && len(left) == 0 || time.Now().After(until) {
			break
		}
	}
	_ = c.hold.Close() // it may be closed already
	_ = c.life.Close() // nothing is written to it
	if c.command != nil {
		c.wait() // before the guardian: a namespace's first process ends last
	}
	_, _ = c.first.Wait()
	if c.ns != nil {
		_ = c.ns.Close() // nothing was written
	}
}
