//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAsAnotherUser runs the tests of this package once more, as somebody who is
// not root: most daemons are not, and only for them there is Landlock.
func TestAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("they are run like this anyway")
	}
	const somebody = 54321
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, somebody, somebody), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.timeout=10m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + searched, "HOME=/", "TMPDIR=" + dir, "DRAGOMAN_REQUIRE_SANDBOX=" + os.Getenv("DRAGOMAN_REQUIRE_SANDBOX")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
}
