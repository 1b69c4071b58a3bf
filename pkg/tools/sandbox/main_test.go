package sandbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// walls returns every wall that holds on this machine, by its name. Where
// DRAGOMAN_REQUIRE_SANDBOX is set there has to be one.
func walls(t *testing.T, o Options) map[string]*Wall {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("for root there is none; TestAsAnotherUser runs this too")
	}
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
	switch {
	case len(found) > 0:
	case os.Getenv("DRAGOMAN_REQUIRE_SANDBOX") != "":
		t.Fatal("neither wall holds here, and one is required")
	default:
		t.Skip("neither wall holds here")
	}
	return found
}
