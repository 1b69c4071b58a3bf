//go:build unix

package builtin_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a pipe nobody writes to would hang the turn.
func TestFilesSkipPipes(t *testing.T) {
	d := newDesk(t)
	d.put(t, "a.txt", "x")
	if err := syscall.Mkfifo(filepath.Join(d.dir, "pipe"), 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	wantError(t, d.read.Execute(d.ctx, args{"path": "pipe"}), "not a plain file")
	// Writing takes its place, as with any other file.
	wantOK(t, d.write.Execute(d.ctx, args{"path": "pipe", "content": "x"}))
	if info, err := os.Lstat(filepath.Join(d.dir, "pipe")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("it is now %v, %v", info, err)
	}
}
