package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mount puts a small file system of its own at dir, or skips the test where
// that is not allowed.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("not allowed to mount")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// A disk that is really full, by something else, until that is removed.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "size=4m")
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := fresh(t, filepath.Join(dir, "data"), Options{})
	full(t, s, "the disk is full", func() {
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
	})
}

// A ledger on a file system that has become read-only, as one does after an
// error of the disk, is as it was when that is over.
func TestReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "size=4m")
	remount := func(flags uintptr) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, "size=4m")
	}
	s := fresh(t, dir, Options{})
	apply(t, s, numbered("applied", 0, 10))
	shut(t, s)
	if err := remount(syscall.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, Options{}, ErrReadOnly, "the data directory cannot be written", "read-only")
	if err := remount(0); err != nil {
		t.Fatal(err)
	}
	s = fresh(t, dir, Options{})
	counted(t, s, "applied", 1)
	shut(t, s)
}

// readOnlyMount makes a directory that not even root can write.
func readOnlyMount(t *testing.T, dir string) string {
	t.Helper()
	mount(t, dir, "size=1m,ro")
	return dir
}
