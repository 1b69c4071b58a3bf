//go:build unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestForbidden(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, true},
		{&fs.PathError{Op: "chmod", Path: "x", Err: syscall.EPERM}, true},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, true},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, false},
		{reason{fs.ErrPermission, ErrInUse}, false},
	} {
		if got := errors.Is(forbidden(dir, tc.err), ErrReadOnly); got != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
	only(t, dir) // the probe is gone
}

// What root restores is for the user whose directory it is.
func TestRestoreAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	src, dir := t.TempDir(), t.TempDir()
	s := fresh(t, src, Options{})
	backup := filepath.Join(src, "backup")
	if err := reader(t, src).Backup(backup); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	const uid, gid = 12345, 54321
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(dir, backup); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fileName, lockName} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t); got.Uid != uid || got.Gid != gid {
			t.Errorf("%s belongs to %d:%d", name, got.Uid, got.Gid)
		}
	}
}
