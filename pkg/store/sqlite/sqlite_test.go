package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	if d := os.Getenv(childDurability); d != "" {
		os.Exit(child(Durability(d)))
	}
	goleak.VerifyTestMain(m)
}

// fresh opens a ledger in dir; the test closes it.
func fresh(tb testing.TB, dir string, o Options) *Store {
	tb.Helper()
	s, err := Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return fresh(t, t.TempDir(), Options{})
	}, storetest.WithReopen(func(t *testing.T, s store.Store) store.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return fresh(t, filepath.Dir(s.(*Store).file), Options{})
	}))
}

func BenchmarkStore(b *testing.B) {
	for _, d := range []Durability{Fast, Full} {
		b.Run(string(d), func(b *testing.B) {
			storetest.Benchmark(b, func(b *testing.B) store.Store {
				b.Helper()
				return fresh(b, b.TempDir(), Options{Durability: d})
			})
		})
	}
}
