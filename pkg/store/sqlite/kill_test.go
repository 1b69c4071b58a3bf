package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// childDurability says to this program that it is a child of its own test: it
// writes a ledger where it is started, until it is killed.
const childDurability = "DRAGOMAN_TEST_LEDGER"

const childWriters = 4

// child writes numbered changes from several goroutines, posts one before each,
// and says which of them are durable. It goes on from where the ledger is.
func child(d Durability) int {
	s, err := Open(".", Options{Durability: d})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range childWriters {
		wg.Go(func() {
			applied, posted := fmt.Sprint("applied", i), fmt.Sprint("posted", i)
			for n := next(s, applied); ; n++ {
				for m := next(s, posted); m <= n; m++ { // one behind after a kill in between
					s.Post(numbered(posted, m, 100))
				}
				if _, err := s.Apply(ctx, numbered(applied, n, 100)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(i, n) // one write, so it is there whole or not at all
			}
		})
	}
	wg.Wait()
	return 0
}

// next is the number of the next change of who.
func next(s *Store, who string) (n int) {
	last, err := s.Fact(context.Background(), "last/"+who)
	if err != nil || last == "" {
		return 0
	}
	if _, err := fmt.Sscan(last, &n); err != nil {
		return 0
	}
	return n + 1
}

// A process that is killed at any moment leaves all it said was durable, whole
// and in order, what it posted before that, and no lock.
func TestKilled(t *testing.T) {
	for _, d := range []Durability{Full, Fast} {
		t.Run(string(d), func(t *testing.T) {
			dir := t.TempDir()
			reported := make([]int, childWriters)
			for range 15 {
				runAndKill(t, dir, d, reported)
				s := fresh(t, dir, Options{})
				for i, n := range reported {
					written := next(s, fmt.Sprint("applied", i))
					if written < n {
						t.Errorf("writer %d said that %d were durable, and there are %d", i, n, written)
					}
					posted := next(s, fmt.Sprint("posted", i))
					if posted < written || posted > written+1 {
						t.Errorf("writer %d posted %d before %d", i, posted, written)
					}
					counted(t, s, fmt.Sprint("applied", i), written)
					counted(t, s, fmt.Sprint("posted", i), posted)
				}
				if reported[0] > 0 {
					again := store.Tx{Admit: numbered("applied0", reported[0]-1, 0).Admit}
					if res := apply(t, s, again); res.Duplicates != 1 {
						t.Error("a message that was taken before is taken again")
					}
				}
				shut(t, s)
			}
			t.Logf("%v changes survived", reported)
		})
	}
}

// runAndKill runs the child for a random time and counts what it reports.
func runAndKill(t *testing.T, dir string, d Durability, reported []int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), childDurability+"="+string(d))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var i, n int
		if _, err := fmt.Sscan(lines.Text(), &i, &n); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			continue
		}
		reported[i] = n + 1
	}
	_ = cmd.Wait() // it was killed
	if complaint.Len() > 0 {
		t.Errorf("the child says: %s", &complaint)
	}
}
