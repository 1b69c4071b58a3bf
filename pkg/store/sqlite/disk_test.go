//go:build unix

package sqlite

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// exhaust fills the disk under s until an Apply fails, while it also posts, and
// returns how many changes were applied and posted. A change says its number in
// three places.
func exhaust(t *testing.T, s *Store) (applied, posted int, err error) {
	t.Helper()
	for n := range 100_000 {
		if _, err = s.Apply(t.Context(), numbered("applied", n, 5000)); err != nil {
			break
		}
		applied = n + 1
	}
	if err == nil {
		t.Fatal("the disk is never full")
	}
	for posted < 100 {
		s.Post(numbered("posted", posted, 5000))
		posted++
	}
	if _, err := s.Apply(t.Context(), store.Tx{}); err == nil {
		t.Error("a change passed those that were posted before it")
	}
	return applied, posted, err
}

// full is the life of a ledger whose disk fills up and is cured by cure.
func full(t *testing.T, s *Store, sentence string, cure func()) {
	t.Helper()
	applied, posted, err := exhaust(t, s)
	if !strings.Contains(err.Error(), sentence) {
		t.Errorf("the error does not say that %s: %v", sentence, err)
	}
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("health does not say that %s: %v", sentence, err)
	}
	counted(t, s, "applied", applied)
	counted(t, s, "posted", 0)
	cure()
	wellAgain(t, s)
	counted(t, s, "applied", applied)
	counted(t, s, "posted", posted)
	apply(t, s, numbered("applied", applied, 10))
	counted(t, s, "applied", applied+1)
	dir := filepath.Dir(s.file)
	shut(t, s)
	s = fresh(t, dir, Options{})
	counted(t, s, "applied", applied+1)
	counted(t, s, "posted", posted)
	shut(t, s)
}

// The system lets no file of this process grow beyond a size: what a disk that
// fails looks like, and every system has it.
func TestFilesCannotGrow(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	s := fresh(t, t.TempDir(), Options{})
	limit := before
	limit.Cur = 2 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	full(t, s, "the disk reports an error", restore)
}

func TestReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		dir = readOnlyMount(t, dir)
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, Options{}, ErrReadOnly, dir, "the data directory cannot be written", "data_dir")
	refused(t, filepath.Join(dir, "new"), Options{}, ErrReadOnly, "the data directory cannot be made")
}

func TestDirectoryThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, file, Options{}, nil, "the data directory cannot be made")
}
