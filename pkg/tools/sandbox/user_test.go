package sandbox

import (
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// TestAsAnotherUser runs the tests of this package once more as somebody for
// whom there is a sandbox.
func TestAsAnotherUser(t *testing.T) { sandboxtest.Again(t, ".") }
