//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Root is bound by no RLIMIT_NPROC, and whoever looks at a fork bomb from outside
// looks too late. What binds root too is how many numbers a pid namespace has for
// processes, and since Linux 6.14 each has its own.
// https://man7.org/linux/man-pages/man7/pid_namespaces.7.html
const numberOfTasks = "/proc/sys/kernel/pid_max"

// errRoot is why there is no wall for root.
var errRoot = errors.New("nothing binds root to a number of processes before Linux 6.14, so commands are not run for it; run the daemon as a user of its own")

func isRoot() bool { return os.Geteuid() == 0 }

// namespacesCount reports whether each pid namespace has its own numberOfTasks.
// An older kernel has one for all, which must never be touched.
func namespacesCount() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 14
}

// setTasks is run within a pid namespace, outside of the wall. It says by its
// status whether the namespace has the number now. (A shell's own read takes one
// byte at a time, which this file does not bear.)
const setTasks = `echo "$1" >` + numberOfTasks + ` && [ "$(cat ` + numberOfTasks + `)" = "$1" ]`

// boundTasks bounds the processes and threads in the pid namespace of a process,
// which must not be ours. Behind the 300th number the kernel begins again once it
// has given out all, and there is no smaller bound than that.
func boundTasks(sh string, ns *os.File, l Limits) error {
	most := strconv.Itoa(300 + 4*l.Processes)
	before, err := os.ReadFile(numberOfTasks)
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }() // nothing was written that counts
	var ended *os.ProcessState
	onThread(func() {
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWPID); err != nil {
			return
		}
		var p *os.Process
		if p, err = os.StartProcess(sh, []string{"sh", "-c", setTasks, "sh", most}, &os.ProcAttr{Dir: "/", Env: []string{"PATH=" + searched}, Files: []*os.File{null, null, null}}); err == nil {
			ended, err = p.Wait()
		}
	})
	switch after, failed := os.ReadFile(numberOfTasks); {
	case err != nil:
		return fmt.Errorf("bound the number of processes: %w", err)
	case failed != nil:
		return failed
	case string(after) != string(before):
		return errors.Join(errors.New("the bound on the number of processes reaches beyond the sandbox"), os.WriteFile(numberOfTasks, before, 0)) //nolint:gosec // a constant path
	case !ended.Success():
		return errors.New("the number of processes cannot be bound, which root needs (" + numberOfTasks + " cannot be written)")
	}
	return nil
}

// pidNamespace opens the pid namespace of a process, and fails if it is ours.
func pidNamespace(pid int) (*os.File, error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	if err != nil {
		return nil, err
	}
	theirs, err := ns.Stat()
	ours, err2 := os.Stat("/proc/self/ns/pid")
	if err = errors.Join(err, err2); err == nil && os.SameFile(theirs, ours) {
		err = errors.New("the sandbox has no pid namespace of its own")
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}
