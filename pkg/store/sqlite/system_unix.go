//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openLocked opens path and takes it for this process, or reports that another
// has it. The kernel gives it back when the process ends, however that happens;
// programs that the process starts do not inherit it.
func openLocked(path string) (f *os.File, taken bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return f, true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, false, f.Close()
	}
	return nil, false, errors.Join(err, f.Close())
}

// syncDir makes sure that what was made in dir is found after a power cut.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// giveToOwner lets root, who made files in dir, give them to whom dir belongs:
// the daemon runs as that user and could not open them.
func giveToOwner(dir string, files ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	for _, file := range files {
		if err := os.Lchown(file, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give %s to the owner of the data directory: %w", file, err)
		}
	}
	return nil
}
