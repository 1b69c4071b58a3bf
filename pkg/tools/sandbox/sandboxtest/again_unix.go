//go:build unix

package sandboxtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// somebody is a user that does not exist.
const somebody = 54321

// Again runs the tests of the package that match a pattern once more, as somebody
// who is not root, and fails t with them. Where the tests are not run as root it
// skips t: they have been run as they should.
func Again(t *testing.T, pattern string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the tests are not run as root anyway")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, somebody, somebody), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=" + pattern, "-test.skip=^" + t.Name() + "$", "-test.timeout=10m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "TMPDIR=" + dir, required + "=" + os.Getenv(required)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as another user: %v", err)
	}
}
