package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// refused fails the test unless Open of dir fails with a sentence that has all
// these words.
func refused(t *testing.T, dir string, o Options, why error, words ...string) {
	t.Helper()
	s, err := Open(dir, o)
	if err == nil {
		_ = s.Close()
		t.Fatal("it was opened")
	}
	for _, known := range []error{ErrInUse, ErrReadOnly, ErrUnusable} {
		if got := errors.Is(err, known); got != errors.Is(why, known) {
			t.Errorf("errors.Is(%v, %v) is %v", err, known, got)
		}
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error has no %q: %v", w, err)
		}
	}
}

func shut(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	refused(t, dir, Options{}, ErrInUse, fmt.Sprintf("process %d uses the data directory", os.Getpid()))
	shut(t, s)
	shut(t, fresh(t, dir, Options{}))
}

func TestLockOfADeadProcessIsNoLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, lockName), []byte("99999999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shut(t, fresh(t, dir, Options{}))
}

func TestUnknownDurability(t *testing.T) {
	refused(t, t.TempDir(), Options{Durability: "some"}, nil, `"some" is unknown`, "full or fast")
}

// edit changes a closed ledger behind its back.
func edit(t *testing.T, dir, sql string) {
	t.Helper()
	c, err := dial(filepath.Join(dir, fileName), "rwc", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.script(sql); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

func TestNewerFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	shut(t, fresh(t, dir, Options{}))
	edit(t, dir, "PRAGMA user_version = 9999")
	refused(t, dir, Options{}, ErrUnusable, "newer version", "format 9999", "upgrade")
}

func TestForeignFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	edit(t, dir, "CREATE TABLE somebody (elses TEXT)")
	refused(t, dir, Options{}, ErrUnusable, "no ledger of dragoman")
}

func TestDamagedFileIsRefused(t *testing.T) {
	for name, damage := range map[string]func(content []byte) []byte{
		"no database":       func([]byte) []byte { return bytes.Repeat([]byte("this is no database "), 1000) },
		"a header of zeros": func(b []byte) []byte { clear(b[:512]); return b },
		"a schema of noise": func(b []byte) []byte { copy(b[100:], bytes.Repeat([]byte{0xa5}, 3900)); return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shut(t, fresh(t, dir, Options{}))
			file := filepath.Join(dir, fileName)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(content), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, Options{}, ErrUnusable, "ledger", "backup")
			refused(t, dir, Options{}, ErrUnusable, "ledger", "backup") // and nobody holds the lock
		})
	}
}

// A page that is damaged somewhere in the middle shows when it is read. It is
// an error then, not half an answer, and what the change had done is undone.
func TestDamagedPage(t *testing.T) {
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	var tx store.Tx
	for n := range 2000 {
		tx.Send = append(tx.Send, store.Outbound{Message: bus.OutboundMessage{Key: fmt.Sprint("k", n), Text: strings.Repeat("x", 300)}})
	}
	apply(t, s, tx)
	shut(t, s)
	file := filepath.Join(dir, fileName)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(content) / 3 / 4096 * 4096; at < len(content)/2; at += 4096 {
		copy(content[at:], bytes.Repeat([]byte{0xa5}, 100))
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = fresh(t, dir, Options{})
	defer func() { _ = s.Close() }()
	if _, err := s.Unsent(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("reading: %v", err)
	}
	bad := store.Tx{Facts: []store.Fact{{Key: "k", Value: "v"}}}
	for n := range 2000 {
		bad.Receipts = append(bad.Receipts, store.Receipt{Key: fmt.Sprint("k", n)})
	}
	if _, err := s.Apply(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("writing: %v", err)
	}
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), "backup") {
		t.Errorf("health: %v", err)
	}
	if v, err := s.Fact(t.Context(), "k"); v != "" || err != nil {
		t.Errorf("half a change: %q, %v", v, err)
	}
}

func apply(tb testing.TB, s *Store, tx store.Tx) store.Result {
	tb.Helper()
	res, err := s.Apply(tb.Context(), tx)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

func TestFilesAreTheOwners(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := fresh(t, dir, Options{})
	apply(t, s, store.Tx{Facts: []store.Fact{{Key: "k", Value: "v"}}})
	modes := func() {
		t.Helper()
		for name, want := range map[string]os.FileMode{
			"": 0o700, fileName: 0o600, fileName + "-wal": 0o600, fileName + "-shm": 0o600, lockName: 0o600,
		} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%q has mode %o, not %o", name, got, want)
			}
		}
	}
	modes()
	shut(t, s)
	if err := os.Chmod(filepath.Join(dir, fileName), 0o644); err != nil {
		t.Fatal(err)
	}
	s = fresh(t, dir, Options{})
	apply(t, s, store.Tx{Facts: []store.Fact{{Key: "k", Value: "w"}}})
	modes()
	shut(t, s)
}

// lockedOut opens a ledger that another program keeps locked until the returned
// function is called.
func lockedOut(t *testing.T) (s *Store, unlock func()) {
	t.Helper()
	s = fresh(t, t.TempDir(), Options{busy: 10 * time.Millisecond})
	other, err := dial(s.file, "rw", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.exec(beginWrite); err != nil {
		t.Fatal(err)
	}
	return s, func() {
		t.Helper()
		if err := other.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What a locked ledger does not take is refused, what was posted waits, and all
// is well when the other program lets go.
func TestLockedByAnotherProgram(t *testing.T) {
	s, unlock := lockedOut(t)
	defer shut(t, s)
	s.Post(store.Tx{Facts: []store.Fact{{Key: "posted", Value: "1"}}})
	if _, err := s.Apply(t.Context(), store.Tx{Facts: []store.Fact{{Key: "applied", Value: "1"}}}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("apply: %v", err)
	}
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("health: %v", err)
	}
	if v, err := s.Fact(t.Context(), "posted"); v != "" || err != nil { // and reading goes on
		t.Errorf("posted: %q, %v", v, err)
	}
	unlock()
	wellAgain(t, s)
	for key, want := range map[string]string{"posted": "1", "applied": ""} {
		if v, err := s.Fact(t.Context(), key); v != want || err != nil {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}
}

// Close says what it could not write.
func TestClosedWhileLocked(t *testing.T) {
	s, unlock := lockedOut(t)
	for range 3 {
		s.Post(store.Tx{Facts: []store.Fact{{Key: "posted", Value: "1"}}})
	}
	for range 2 {
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "3 posted changes are lost") || !strings.Contains(err.Error(), "another program") {
			t.Errorf("close: %v", err)
		}
	}
	unlock()
}

// While the disk takes nothing, only so much is held: then whoever posts waits,
// and nothing is lost.
func TestPostWaitsForTheDisk(t *testing.T) {
	s, unlock := lockedOut(t)
	const all = mostHeld + queueSize + 2*mostRows
	var posted atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range all {
			s.Post(store.Tx{History: []store.Entry{padded("s", fmt.Sprint(n), 0)}})
			posted.Add(1)
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for posted.Load() < mostHeld+queueSize {
		<-tick.C
	}
	if n := posted.Load(); n > mostHeld+queueSize+mostRows {
		t.Errorf("%d posts did not wait", n)
	}
	unlock()
	<-done
	apply(t, s, store.Tx{})
	entries, err := s.History(t.Context(), "s", all+1)
	if err != nil {
		t.Fatal(err)
	}
	for n, e := range entries {
		if e.Message.Content != fmt.Sprint(n) {
			t.Fatalf("entry %d is %s", n, e.Message.Content)
		}
	}
	if len(entries) != all {
		t.Errorf("%d of %d posts are there", len(entries), all)
	}
	shut(t, s)
}

// wellAgain waits until the store has found out by itself that it is well.
func wellAgain(t *testing.T, s *Store) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); s.Health() != nil; <-tick.C {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("not well after 10 seconds: %v", s.Health())
		}
	}
}
