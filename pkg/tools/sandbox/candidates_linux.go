//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
)

func candidates() []candidate {
	if os.Geteuid() == 0 {
		return []candidate{{"root", func(Options) (jail, error) { return nil, errRoot }}}
	}
	return []candidate{{"bubblewrap", newBubblewrap}, {"landlock", newLandlock}}
}

// errRoot: a fork bomb of root's is not contained. Looking at it often is not
// enough, it takes the processor from whoever looks.
var errRoot = errors.New("no limit on the number of processes binds root, inside a sandbox as outside, so commands are not run for it; run the daemon as a user of its own")
