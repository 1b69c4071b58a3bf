//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one of those that run on the machine.
type process struct {
	id, parent, group int
	gone              bool // ended, and only not yet taken note of
	threads           int
	memory            int64 // bytes
}

// processes returns all that can be seen.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // nothing was written
	if err != nil {
		return nil, err
	}
	list := make([]process, 0, len(names))
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if p, ok := parseProcess(id, text); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

// parseProcess reads /proc/<id>/stat. The name in it may hold anything, closing
// brackets included.
func parseProcess(id int, text []byte) (process, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return process{}, false
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(string(fields[i]), 10, 64); return n }
	return process{
		id: id, parent: int(number(1)), group: int(number(2)),
		gone:    fields[0][0] == 'Z' || fields[0][0] == 'X',
		threads: int(number(17)), memory: number(21) * int64(os.Getpagesize()),
	}, true
}

// excess says which limit a command oversteps with all its processes.
func excess(members []process, l Limits) error {
	var count int
	var memory int64
	for _, p := range members {
		if !p.gone {
			count++
			memory += p.memory
		}
	}
	switch {
	case count > l.Processes:
		return ErrProcesses
	case memory > l.Memory:
		return ErrMemory
	}
	return nil
}

// niceness is how far a process gives way to others: -20 is least, 19 is most.
func niceness(pid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	return 20 - n, err // the kernel counts from the other end
}

// giveWay lowers the priority of a process, if it is not that low already.
func giveWay(pid, nice int) error {
	if now, err := niceness(pid); err != nil || now >= nice {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, nice)
}

// bound sets the limits the kernel keeps for each process alone. The process has
// not begun its command yet; what it starts inherits them. tasks is the most
// threads its user may have, by the kernel's count.
func bound(pid int, l Limits, tasks int) error {
	seconds := uint64(l.Time.Seconds()) + 2 // should nobody be there to look at the clock
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CORE:    0,
		unix.RLIMIT_CPU:     seconds,
		unix.RLIMIT_DATA:    uint64(l.Memory),   //nolint:gosec // positive
		unix.RLIMIT_FSIZE:   uint64(l.FileSize), //nolint:gosec // positive
		unix.RLIMIT_NOFILE:  256,
		unix.RLIMIT_NPROC:   uint64(tasks), //nolint:gosec // positive
		unix.RLIMIT_MEMLOCK: 64 << 10, unix.RLIMIT_MSGQUEUE: 0, unix.RLIMIT_RTPRIO: 0, unix.RLIMIT_NICE: 0,
	} {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
			return fmt.Errorf("read limit %d: %w", resource, err)
		}
		most = min(most, old.Max)
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	// Whoever has to watch over it comes first.
	if err := giveWay(pid, 5); err != nil {
		return fmt.Errorf("lower its priority: %w", err)
	}
	// When memory runs short, the kernel ends this before the daemon.
	if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("prefer it when memory is short: %w", err)
	}
	return nil
}

// status is what a shell would call the end of a process.
func status(s *os.ProcessState, err error) int {
	if err != nil {
		return 128
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// closeOnExec sees to it that of the daemon's files a command gets none but those
// it is given. Go opens all of its own like that; a library may not have.
func closeOnExec() error {
	return unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}

// Variables of a command's environment. HOME and TMPDIR depend on the wall.
var environment = []string{"PATH=" + searched, "LANG=C.UTF-8", "TERM=dumb"}

// visible is what of the machine a command may read and run, where it exists:
// programs, and what they need to know. /etc as a whole has secrets, and so may
// have what somebody put into /usr/local.
var visible = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share", "/usr/include", "/usr/games",
	"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/libexec", "/usr/local/share", "/usr/local/include",
	"/nix/store", "/run/current-system/sw",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone", "/etc/os-release",
	"/etc/protocols", "/etc/services", "/etc/mime.types", "/etc/magic", "/etc/terminfo", "/etc/inputrc", "/etc/fonts",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/ca-certificates",
}

// visibleOnline is what besides a command with a network needs.
var visibleOnline = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf"}
