//go:build failpoint && unix

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// chosen is the point of this process; it is read before anything can hit it.
var chosen, left = parse(os.Getenv(Env))

func parse(s string) (name string, left *atomic.Int64) {
	name, n, _ := strings.Cut(s, ":")
	left = new(atomic.Int64)
	left.Store(1)
	if k, err := strconv.ParseInt(n, 10, 64); err == nil {
		left.Store(k)
	}
	return name, left
}

// Hit kills the process if the environment chose this point and this time. It
// does not return then. Safe for concurrent use.
func Hit(name string) {
	if name != chosen || left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // to oneself it cannot fail
	select {}
}
