package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// lock keeps the data directory for one process. It is a file that holds the
// process id; what counts is not that the file exists but that the system keeps
// it locked for as long as the process lives, so a killed one leaves nothing
// that has to be cleared away.
type lock struct{ f *os.File }

// acquire locks path, or says which process has it.
func acquire(path string) (*lock, error) {
	f, taken, err := openLocked(path)
	if err != nil {
		return nil, fmt.Errorf("the data directory cannot be written: %w", err)
	}
	if !taken {
		return nil, inUse(path)
	}
	l := &lock{f}
	if err := l.write(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("the data directory cannot be written: %w", err), f.Close())
	}
	return l, nil
}

func inUse(path string) error {
	by := "another process"
	content, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(content)); err == nil && pid != "" {
		by = "process " + pid
	}
	return reason{fmt.Errorf("%s uses the data directory: stop it first, or give this one a directory of its own", by), ErrInUse}
}

func (l *lock) write(content string) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(content), 0)
	return err
}

// release unlocks. The file stays: if it were removed, somebody who has just
// opened it would lock what nobody else can see.
func (l *lock) release() error {
	return errors.Join(l.write(""), l.f.Close())
}
