//go:build unix

package builtin

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What has become a pipe since it was looked at is refused, and not waited for.
func TestOpenPlainDoesNotWaitForPipes(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // a test's
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_CREATE | os.O_APPEND} {
		if f, err := openPlain(root, "pipe", flag); err == nil || f != nil {
			t.Errorf("with %#x it is opened: %v, %v", flag, f, err)
		}
	}
	other, err := root.OpenFile("pipe", os.O_RDWR, 0) // now somebody would read what is written
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // a test's
	if _, err := openPlain(root, "pipe", os.O_WRONLY|os.O_APPEND); !errors.Is(err, errNotPlain) {
		t.Errorf("got %v", err)
	}
}
