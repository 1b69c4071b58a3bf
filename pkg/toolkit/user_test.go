package toolkit_test

import (
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// TestSeedsAsAnotherUser runs the examples once more as somebody for whom there
// is a sandbox.
func TestSeedsAsAnotherUser(t *testing.T) { sandboxtest.Again(t, "^TestSeed") }
