// Package sandboxtest helps tests that need a sandbox. For root there is one
// on newer kernels only (see package sandbox), and root is whom tests are run as in
// many a container.
package sandboxtest

import (
	"os"
	"testing"
)

// required makes a missing sandbox a failure instead of a reason to skip.
const required = "DRAGOMAN_REQUIRE_SANDBOX"

// Missing ends a test because no sandbox was found; why says the reason. It fails
// the test where the variable DRAGOMAN_REQUIRE_SANDBOX is set, and skips it
// otherwise. For root it always skips: see Again.
func Missing(t *testing.T, why any) {
	t.Helper()
	if os.Getenv(required) != "" && os.Geteuid() != 0 {
		t.Fatalf("a sandbox is required, but: %v", why)
	}
	t.Skip(why)
}
