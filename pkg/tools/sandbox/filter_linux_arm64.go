package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// Calls that only this architecture has: none.
var deniedHere, deniedBareHere []int

// foreign has nothing to do: 32-bit calls have an architecture of their own.
func (f *filter) foreign() {}
