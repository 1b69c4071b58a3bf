//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rules say what the filter of system calls leaves out.
type rules struct {
	network bool // sockets of the internet families may be made
	// bare means that there are no namespaces: a command has the identity of the
	// daemon and the machine's own tree of files before it. Landlock does not
	// look at modes, owners, times and attributes of files, nor at what one
	// process may set for another, so the filter has to.
	bare  bool
	group int // bare: the only process group that may be joined
	// root is bare for root, who owns the machine's files: what their owner may
	// do with one that is open for reading, nobody may.
	root bool
}

// filter is a program for the kernel that decides about each system call.
type filter []unix.SockFilter

// What of a system call the program reads, as offsets into struct seccomp_data.
// Both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

const (
	allow  = unix.SECCOMP_RET_ALLOW
	kill   = unix.SECCOMP_RET_KILL_PROCESS
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

func (f *filter) add(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (f *filter) ret(action uint32)  { f.add(unix.BPF_RET|unix.BPF_K, action, 0, 0) }

// unless skips the next n steps if what was loaded is not value.
func (f *filter) unless(value uint32, n int) {
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, value, 0, uint8(n)) //nolint:gosec // a few steps
}

// when adds steps that are taken for one system call only.
func (f *filter) when(number int, body filter) {
	f.unless(uint32(number), len(body)) //nolint:gosec // a small number
	*f = append(*f, body...)
}

// deny answers system calls with an action.
func (f *filter) deny(action uint32, numbers ...int) {
	for _, n := range numbers {
		f.when(n, filter{{Code: unix.BPF_RET | unix.BPF_K, K: action}})
	}
}

// half is the place of an argument's lower or upper 32 bits.
func half(arg int, upper bool) uint32 {
	offset := offArgs + 8*uint32(arg) //nolint:gosec // 0 to 5
	if upper {
		offset += 4
	}
	return offset
}

// only is a body that lets a call pass if the lower half of an argument, masked,
// is one of the values, and refuses it otherwise.
func only(arg int, mask uint32, values ...uint32) filter {
	var f filter
	f.load(half(arg, false))
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	for _, v := range values {
		f.unless(v, 1)
		f.ret(allow)
	}
	f.ret(refuse)
	return f
}

// except is a body that refuses a call if the lower half of an argument is one
// of the values, and lets it pass otherwise.
func except(arg int, values ...uint32) filter {
	var f filter
	f.load(half(arg, false))
	for _, v := range values {
		f.unless(v, 1)
		f.ret(refuse)
	}
	f.ret(allow)
	return f
}

// zero is a body that lets a call pass if all of the arguments are 0.
func zero(args ...int) filter {
	var f filter
	for _, a := range args {
		for _, upper := range []bool{false, true} {
			f.load(half(a, upper))
			f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, 0)
			f.ret(refuse)
		}
	}
	f.ret(allow)
	return f
}

const (
	// namespaces are the flags of clone by which a process gets a world of its
	// own, another parent, or a tracer.
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_PTRACE | unix.CLONE_PARENT

	setFlags    = 0x40086602 // FS_IOC_SETFLAGS
	setXattr    = 0x401c5820 // FS_IOC_FSSETXATTR
	verity      = 0x40806685 // FS_IOC_ENABLE_VERITY
	socketKinds = 0xf        // without SOCK_NONBLOCK and SOCK_CLOEXEC
)

// newFilter writes the program.
func newFilter(r rules) filter {
	var f filter
	// Other architectures number their calls differently.
	f.load(offArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	f.ret(kill)
	f.load(offNumber)
	f.deny(refuse, denied...)
	f.deny(refuse, deniedHere...)
	f.foreign()
	// Its flags are where a filter cannot see them. Whoever is told that there
	// is no clone3 takes clone.
	f.deny(absent, unix.SYS_CLONE3)
	f.when(unix.SYS_CLONE, only(0, uint32(namespaces), 0))
	// Writing into a terminal's input is writing into somebody's shell.
	f.when(unix.SYS_IOCTL, except(1, unix.TIOCSTI, unix.TIOCLINUX, setFlags, setXattr, verity))
	if r.network {
		f.when(unix.SYS_SOCKET, only(0, ^uint32(0), unix.AF_INET, unix.AF_INET6))
	} else {
		f.deny(refuse, unix.SYS_SOCKET)
	}
	// A pair of datagram sockets could be turned to another address afterwards.
	f.when(unix.SYS_SOCKETPAIR, only(1, socketKinds, unix.SOCK_STREAM, unix.SOCK_SEQPACKET))
	if r.bare {
		f.bare(r)
	}
	f.ret(allow)
	return f
}

// bare adds what namespaces and a read-only system would see to.
func (f *filter) bare(r rules) {
	f.deny(refuse, deniedBare...)
	f.deny(refuse, deniedBareHere...)
	// Of its limits a process sets its own.
	f.when(unix.SYS_PRLIMIT64, zero(0))
	// All that a command starts stays in one group, by which it is ended.
	group := uint32(r.group) //nolint:gosec // a process id
	f.when(unix.SYS_SETPGID, append(filter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: half(0, false)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
	}, only(1, ^uint32(0), group)...))
	if r.root {
		f.deny(refuse, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_UTIMENSAT)
	}
	f.when(unix.SYS_UTIMENSAT, zero(1)) // of an open file, which Landlock let it open
}

// denied is refused behind every wall: what reaches into other processes, into
// the kernel, or around this filter.
var denied = []int{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_PROCESS_MADVISE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_PERSONALITY,
}

// deniedBare is refused where there are no namespaces.
var deniedBare = []int{
	unix.SYS_SETSID,
	unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR,
	unix.SYS_INOTIFY_INIT1,                                                                  // hears of other conversations' files
	unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, // outlive their maker
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, // of the daemon, too
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

// bytes is the program as bubblewrap reads it.
func (f filter) bytes() []byte {
	var b []byte
	for _, s := range f {
		b = binary.LittleEndian.AppendUint16(b, s.Code)
		b = append(b, s.Jt, s.Jf)
		b = binary.LittleEndian.AppendUint32(b, s.K)
	}
	return b
}

// apply puts the calling thread, and all that comes of it, under the filter. It
// cannot be undone.
func (f filter) apply() error {
	program := slices.Clone(f)
	arg := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                            //nolint:gosec // some hundred steps
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&arg))) //nolint:gosec // a system call takes it so
	if errno != 0 {
		return errno
	}
	return nil
}
