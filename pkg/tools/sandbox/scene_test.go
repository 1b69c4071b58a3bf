//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// scene is what is around a command that must not come out: a data folder, other
// conversations, sockets, a process. It sees what a command does from outside.
type scene struct {
	dir, workspace string
	secret         string            // must not come up in any output
	token          string            // a number that is in the arguments of all a command starts
	victim         *exec.Cmd         // a process that has to live on
	contacts       atomic.Int64      // connections and datagrams that arrived
	before         map[string]string // what is in dir, but for the workspace
	ports          map[string]string
	left           []string // files that may not come to be anywhere
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb-") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &scene{dir: dir, token: fmt.Sprint(1e9 + rand.Int64N(1e9)), ports: map[string]string{}}
	s.secret = "TOP-SECRET-" + s.token
	s.workspace = filepath.Join(s.dir, "workspace")
	for _, dir := range []string{s.workspace, filepath.Join(s.dir, "other")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"secret", "config.yaml", "other/diary"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("DRAGOMAN_API_KEY", s.secret)
	s.victim = exec.CommandContext(t.Context(), "sleep", "100000")
	s.victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.victim.Process.Kill()
		_ = s.victim.Wait()
	})
	s.listen(t)
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/usr/bin", "/etc", "/run", "/"} {
		s.left = append(s.left, filepath.Join(dir, s.token))
	}
	t.Cleanup(func() {
		for _, f := range s.left {
			_ = os.Remove(f) // what an attempt without a wall has made
		}
	})
	// A file that whoever opened it forgot to keep from other programs.
	fd, err := unix.Open(filepath.Join(s.dir, "secret"), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	s.ports["FD"] = strconv.Itoa(fd)
	s.before = s.look(t)
	return s
}

// listen opens sockets of every kind, and counts what comes.
func (s *scene) listen(t *testing.T) {
	t.Helper()
	var c net.ListenConfig
	for name, at := range map[string][2]string{"TCP": {"tcp", "127.0.0.1:0"}, "SOCK": {"unix", filepath.Join(s.dir, "docker.sock")}, "ABSTRACT": {"unix", "@dragoman-" + s.token}} {
		l, err := c.Listen(t.Context(), at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.contacts.Add(int64(count(l)))
		}()
		t.Cleanup(func() { _ = l.Close(); <-done })
		s.ports[name] = strings.TrimPrefix(l.Addr().String(), "127.0.0.1:")
	}
	for name, at := range map[string][2]string{"UDP": {"udp", "127.0.0.1:0"}, "DGRAM": {"unixgram", filepath.Join(s.dir, "log.sock")}} {
		l, err := c.ListenPacket(t.Context(), at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for b := make([]byte, 64); ; {
				if _, _, err := l.ReadFrom(b); err != nil {
					return
				}
				s.contacts.Add(1)
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-done })
		s.ports[name] = strings.TrimPrefix(l.LocalAddr().String(), "127.0.0.1:")
	}
}

// fill writes what is where into a script: @DIR, @TCP and so on.
func (s *scene) fill(script string) string {
	pairs := []string{
		"@DIR", s.dir, "@WS", s.workspace, "@TOKEN", s.token, "@VICTIM", strconv.Itoa(s.victim.Process.Pid), "@PARENT", strconv.Itoa(os.Getpid()),
		"@ARCH", runtime.GOARCH, "@REFUSED", strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Concat(denied, deniedHere)), " ", ","), "[]"),
	}
	for name, at := range s.ports {
		pairs = append(pairs, "@"+name, strings.TrimPrefix(at, "@"))
	}
	for name, number := range map[string]int{
		"ptrace": unix.SYS_PTRACE, "unshare": unix.SYS_UNSHARE, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "prlimit": unix.SYS_PRLIMIT64,
		"setxattr": unix.SYS_SETXATTR, "io_uring": unix.SYS_IO_URING_SETUP, "inotify_init": unix.SYS_INOTIFY_INIT1, "inotify_add": unix.SYS_INOTIFY_ADD_WATCH,
		"setns": unix.SYS_SETNS, "affinity": unix.SYS_SCHED_SETAFFINITY, "pidfd_open": unix.SYS_PIDFD_OPEN, "pidfd_kill": unix.SYS_PIDFD_SEND_SIGNAL,
		"readv": unix.SYS_PROCESS_VM_READV, "keyctl": unix.SYS_KEYCTL, "fchmodat": unix.SYS_FCHMODAT, "mq_open": unix.SYS_MQ_OPEN,
	} {
		pairs = append(pairs, "%"+name+"%", strconv.Itoa(number))
	}
	return ": @TOKEN\n" + strings.NewReplacer(pairs...).Replace(script)
}

// look says what is in dir, but for what is in the workspace.
func (s *scene) look(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		is := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		if path == s.workspace {
			// Its own modes are a command's to change.
			seen[path] = strconv.Itoa(int(st.Mode & unix.S_IFMT))
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n, _ := unix.Listxattr(path, nil)
			is += fmt.Sprintf(" %x %d %d", sha256.Sum256(data), st.Mtim.Nano(), n)
		}
		seen[path] = is
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return seen
}

// escaped says everything that can be seen from outside of a command that got
// out, or out of hand.
func (s *scene) escaped(t *testing.T, o Outcome, l Limits) []string {
	t.Helper()
	var found []string
	add := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	if strings.Contains(o.Output, s.secret) {
		add("the secret is in the output")
	}
	if strings.Contains(o.Output, "ESCAPED") {
		add("it says so")
	}
	if len(o.Output) > l.Output+100 || !utf8.ValidString(o.Output) || strings.ContainsFunc(o.Output, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		add("the output is not fit to be read")
	}
	if n := s.contacts.Load(); n > 0 {
		add("%d contacts", n)
	}
	if after := s.look(t); !maps.Equal(s.before, after) {
		for path, is := range after {
			if s.before[path] != is {
				add("%s is now %s", path, is)
			}
		}
		add("the data folder has changed")
	}
	for _, f := range s.left {
		if _, err := os.Lstat(f); err == nil {
			add("%s is there", f)
		}
	}
	if err := s.victim.Process.Signal(syscall.Signal(0)); err != nil {
		add("the process outside: %v", err)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.victim.Process.Pid)); err != nil || bytes.Contains(state, []byte(") Z")) {
		add("the process outside has been ended: %s %v", state, err)
	}
	return append(found, s.running(t)...)
}

// running names the processes that a command has left.
func (s *scene) running(t *testing.T) []string {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range all {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.id))
		if err == nil && bytes.Contains(line, []byte(s.token)) {
			found = append(found, fmt.Sprintf("it runs on: %q", line))
		}
		if p.parent == os.Getpid() && p.gone {
			found = append(found, fmt.Sprintf("process %d was never taken note of", p.id))
		}
	}
	return found
}

// files are the names in the workspace, but for what is ours.
func (s *scene) files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.workspace)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == ".tmp" })
}

// size is how large a file of the workspace is.
func (s *scene) size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Lstat(filepath.Join(s.workspace, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// hexToken is the token as ipcs writes keys.
func (s *scene) hexToken() string {
	n, _ := strconv.ParseInt(s.token, 10, 64)
	return fmt.Sprintf("0x%08x", n)
}

// end ends what an attempt without a wall has left.
func (s *scene) end(t *testing.T) {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.id)); err == nil && bytes.Contains(line, []byte(s.token)) {
			_ = unix.Kill(p.id, unix.SIGKILL)
		}
	}
}
