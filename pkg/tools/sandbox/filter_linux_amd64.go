package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// Calls that only this architecture still has.
var (
	deniedHere     = []int{unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB}
	deniedBareHere = []int{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT, unix.SYS_INOTIFY_INIT,
	}
)

// foreign refuses the x32 calls, which have numbers of their own here.
func (f *filter) foreign() {
	f.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0x40000000, 0, 1)
	f.ret(kill)
}
