package sandbox

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// walls returns every wall that holds on this machine, by its name. There has to
// be one, or the test ends.
func walls(t *testing.T, o Options) map[string]*Wall {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	found := map[string]*Wall{}
	for _, c := range candidates() {
		w, err := find(t.Context(), o, []candidate{c})
		if err != nil {
			t.Log(err)
			continue
		}
		found[c.name] = w
	}
	if len(found) == 0 {
		sandboxtest.Missing(t, "no wall holds here")
	}
	return found
}
