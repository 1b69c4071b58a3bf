package sandbox

import (
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// TestAsAnotherUser runs the tests of this package once more as somebody who
// is not root.
func TestAsAnotherUser(t *testing.T) { sandboxtest.Again(t, ".") }
