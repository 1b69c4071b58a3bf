package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var lane = bus.Address{Channel: "telegram", ChatID: "-100/7"}

// told fills a ledger with one turn, answered, and one message that waits.
func told(t *testing.T, s *Store) {
	t.Helper()
	put(t, s, store.Tx{Admit: []bus.InboundMessage{
		{Address: lane, ID: "m:-100:17", MessageID: "17", SessionKey: lane.String(), Text: "hello"},
		{Address: lane, ID: "e:-100:17:1700000000", MessageID: "17", SessionKey: lane.String(), Text: "hello!"},
		{Address: lane, ID: "m:-100:18", MessageID: "18", SessionKey: lane.String(), Text: "later"},
		{Address: bus.Address{Channel: "discord", ChatID: "5"}, ID: "m:5:17", MessageID: "17", SessionKey: "discord:5", Text: "elsewhere"},
	}})
	put(t, s, store.Tx{Begin: &store.Turn{ID: "turn1", Address: lane, Session: lane.String(), Inbound: []int64{1, 2}, Started: time.UnixMilli(1000)}})
	put(t, s, store.Tx{Steps: []store.Step{{Turn: "turn1", Round: 1, Kind: store.StepReply, Message: uttered("assistant", "hi"), Took: time.Second}}})
	put(t, s, store.Tx{
		History: []store.Entry{
			{Session: lane.String(), Turn: "turn1", Message: uttered("user", "hello"), Time: time.UnixMilli(2000)},
			{Session: lane.String(), Turn: "turn1", Message: uttered("assistant", "hi"), Time: time.UnixMilli(2000)},
		},
		Send: []store.Outbound{
			{Turn: "turn1", Message: bus.OutboundMessage{Address: lane, Key: "k", Text: "hi"}, Created: time.UnixMilli(2000)},
			{Turn: "turn1", Message: bus.OutboundMessage{Address: lane, Key: "k-1", Text: "there"}, Created: time.UnixMilli(2000)},
			{Message: bus.OutboundMessage{Address: lane, Key: "kk", Text: "other"}, Created: time.UnixMilli(2000)},
		},
		End: []string{"turn1"},
	})
	put(t, s, store.Tx{Receipts: []store.Receipt{{Key: "k", Result: bus.Receipt{MessageID: "99", Time: time.UnixMilli(3000)}}}})
}

func uttered(role, text string) providers.Message {
	return providers.Message{Role: role, Content: text}
}

func put(t *testing.T, s *Store, tx store.Tx) {
	t.Helper()
	if _, err := s.Apply(context.Background(), tx); err != nil {
		t.Fatal(err)
	}
}

func closes(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func reader(t *testing.T, dir string) *Reader {
	t.Helper()
	r, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A reader sees the same beside a daemon, after one, and after one that was
// killed, and leaves nothing that would keep a daemon from starting.
func TestReaderBesideAndAfterADaemon(t *testing.T) {
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	told(t, s)
	look := func(when string) {
		r, err := OpenReader(dir)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		list, err := r.Sessions()
		if err != nil || len(list) != 1 || list[0].Name != lane.String() || list[0].Shown != 2 || list[0].Hidden != 0 || list[0].Bytes == 0 || list[0].Last.IsZero() {
			t.Errorf("%s: sessions %+v, %v", when, list, err)
		}
		turn, ok, err := r.Turn("turn1")
		if err != nil || !ok || len(turn.Steps) != 1 || turn.Steps[0].Took != time.Second || len(turn.Messages) != 2 || len(turn.Sent) != 2 || len(turn.History) != 2 || turn.Ended.IsZero() {
			t.Errorf("%s: turn %+v, %v, %v", when, turn, ok, err)
		}
		if u, err := r.Unfinished(); err != nil || u != (Unfinished{Messages: 2, Unsent: 2}) {
			t.Errorf("%s: unfinished %+v, %v", when, u, err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	look("beside")
	copied := t.TempDir() // as a kill leaves it
	for _, name := range []string{fileName, fileName + "-wal"} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look("after")
	if err := fresh(t, dir, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	dir = copied
	look("after a kill")
	if err := fresh(t, dir, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTranscriptTellsWhatIsHidden(t *testing.T) {
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	defer closes(t, s)
	say := func(turn string, texts ...string) {
		var tx store.Tx
		for _, text := range texts {
			tx.History = append(tx.History, store.Entry{Session: "s", Turn: turn, Message: uttered("user", text), Time: time.UnixMilli(1)})
		}
		put(t, s, tx)
	}
	say("1", "one", "two")
	put(t, s, store.Tx{Reset: []string{"s"}})
	say("2", "three", "four")
	say("3", "five")
	put(t, s, store.Tx{Undo: []string{"s"}})
	say("4", "six")
	put(t, s, store.Tx{Summaries: []store.Summary{{Session: "s", Text: "sum", Keep: 2}}})
	r := reader(t, dir)
	lines, ok, err := r.Transcript("s")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var got []string
	for _, l := range lines {
		text := l.Message.Content
		if l.Summary {
			text = "[" + text + "]"
		}
		got = append(got, text+"|"+l.Hidden)
	}
	want := []string{
		"one|" + HiddenEarlier, "two|" + HiddenEarlier, "three|" + HiddenEarlier,
		"[sum]|", "four|", "five|" + HiddenUndone, "six|",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list, err := r.Sessions(); err != nil || list[0].Shown != 2 || list[0].Hidden != 4 {
		t.Errorf("%+v, %v", list, err)
	}
	put(t, s, store.Tx{Forget: []string{"s"}})
	if list, err := r.Sessions(); err != nil || len(list) != 0 {
		t.Errorf("after Forget there is %+v, %v", list, err)
	}
	if _, ok, err := r.Transcript("nobody"); ok || err != nil {
		t.Error(ok, err)
	}
}

func TestFindMessages(t *testing.T) {
	dir := t.TempDir()
	s := fresh(t, dir, Options{})
	defer closes(t, s)
	told(t, s)
	r := reader(t, dir)
	for _, tc := range []struct {
		channel, chat, id string
		want              []int64
	}{
		{"", "", "17", []int64{1, 2, 4}},
		{"telegram", "", "17", []int64{1, 2}},
		{"telegram", "-100", "17", []int64{1, 2}},
		{"telegram", "-100/7", "17", []int64{1, 2}},
		{"telegram", "-1", "17", nil},
		{"", "", "m:-100:18", []int64{3}},
		{"", "", "7", nil},
		{"", "", "1700000000", nil},
		{"", "", "", nil},
	} {
		found, err := r.FindMessages(tc.channel, tc.chat, tc.id)
		var got []int64
		for _, m := range found {
			got = append(got, m.Seq)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v, %s", tc, err, diff)
		}
	}
	found, err := r.FindMessages("", "", "m:-100:17")
	if err != nil || found[0].Turn != "turn1" || found[0].Done.IsZero() || found[0].Message.Text != "hello" || found[0].Erased {
		t.Errorf("%+v, %v", found, err)
	}
	put(t, s, store.Tx{Forget: []string{lane.String()}})
	found, err = r.FindMessages("", "", "m:-100:17")
	if err != nil || !found[0].Erased || found[0].Message.Address != lane || found[0].Message.ID != "m:-100:17" {
		t.Errorf("forgotten: %+v, %v", found, err)
	}
	if sent, err := r.FindSent("telegram", "", "99"); err != nil || len(sent) != 1 || sent[0].Turn != "turn1" || sent[0].Receipt.Result.MessageID != "99" {
		t.Errorf("%+v, %v", sent, err)
	}
	if sent, err := r.SentWithKeys("k"); err != nil || len(sent) != 2 || sent[1].Message.Key != "k-1" || !sent[1].Ended.IsZero() {
		t.Errorf("%+v, %v", sent, err)
	}
}

func TestReaderRefuses(t *testing.T) {
	ledger := func(script string) string {
		dir := t.TempDir()
		if err := fresh(t, dir, Options{}).Close(); err != nil {
			t.Fatal(err)
		}
		c, err := dial(filepath.Join(dir, fileName), "rw", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.script(script), c.close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, fileName), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ dir, want string }{
		{t.TempDir(), "there is no ledger"},
		{ledger("PRAGMA user_version = 99"), "a newer version of dragoman wrote the ledger"},
		{ledger("PRAGMA user_version = 0"), "an older version of dragoman wrote the ledger"},
		{ledger("PRAGMA application_id = 1"), "the file is no ledger of dragoman"},
		{broken, "the ledger is damaged"},
	} {
		r, err := OpenReader(tc.dir)
		if err == nil {
			closes(t, r)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if strings.HasSuffix(tc.want, "no ledger") != errors.Is(err, ErrNoLedger) {
			t.Errorf("%v: ErrNoLedger does not fit", err)
		}
	}
}

func TestBackupBesideADaemonAndRestore(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	s := fresh(t, dir, Options{})
	told(t, s)
	r := reader(t, dir)
	file := filepath.Join(elsewhere, "with space ? # % 'quote'.db")
	stop, done := make(chan struct{}), make(chan int)
	go func() { // the daemon goes on
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			default:
				s.Post(store.Tx{History: []store.Entry{{Session: "busy", Turn: fmt.Sprint(n), Message: uttered("user", "x")}}})
			}
		}
	}()
	err := r.Backup(file)
	close(stop)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Backup(file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second backup to the same file: %v", err)
	}
	only(t, elsewhere, filepath.Base(file))
	private := func(file string) {
		t.Helper()
		if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", file, info.Mode(), err)
		}
	}
	private(file)

	_, _, err = Restore(dir, file)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid(), " uses the data directory")) {
		t.Errorf("restored under a daemon: %v", err)
	}
	put(t, s, store.Tx{History: []store.Entry{{Session: "lost", Turn: "x", Message: uttered("user", "after the backup")}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	aside, u, err := Restore(dir, file)
	if err != nil || aside == "" || u != (Unfinished{Messages: 2, Unsent: 2}) {
		t.Fatalf("%q, %+v, %v", aside, u, err)
	}
	private(filepath.Join(dir, fileName))
	only(t, dir, fileName, lockName, filepath.Base(aside))
	s = fresh(t, dir, Options{})
	defer closes(t, s)
	if h, err := s.History(t.Context(), lane.String(), 10); err != nil || len(h) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := s.History(t.Context(), "lost", 10); err != nil || len(h) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	old, err := openReader(aside, "ro", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, old)
	if lines, ok, err := old.Transcript("lost"); err != nil || !ok || len(lines) != 1 {
		t.Errorf("what was there is not whole: %+v, %v", lines, err)
	}
}

// only checks which files a directory holds.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	for _, e := range list {
		if !want[e.Name()] {
			t.Errorf("%s is left", e.Name())
		}
		delete(want, e.Name())
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestRestoreRefusesBadBackups(t *testing.T) {
	dir, src := t.TempDir(), t.TempDir()
	s := fresh(t, dir, Options{})
	told(t, s)
	good := filepath.Join(src, "good")
	if err := reader(t, dir).Backup(good); err != nil {
		t.Fatal(err)
	}
	inUse := filepath.Join(dir, fileName)
	body, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, change func(b []byte) []byte) string {
		file := filepath.Join(src, name)
		if err := os.WriteFile(file, change(append([]byte(nil), body...)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	other := t.TempDir()
	for _, tc := range []struct{ file, want string }{
		{filepath.Join(src, "none"), "no such file"},
		{src, "it is a directory: name the file"},
		{inUse, "make a backup of it instead"},
		{write("text", func([]byte) []byte { return []byte("hello") }), "the backup cannot be used: it is damaged, try an older one"},
		{write("half", func(b []byte) []byte { return b[:len(b)/2] }), "the backup cannot be used: it is damaged, try an older one"},
		{write("newer", func(b []byte) []byte { b[63] = 99; return b }), "newer version"},
		{write("scratched", func(b []byte) []byte {
			for i := 5 * 4096; i < 5*4096+64; i++ {
				b[i] ^= 0x55
			}
			return b
		}), "damaged"},
	} {
		if _, _, err := Restore(other, tc.file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", filepath.Base(tc.file), err, tc.want)
		}
		only(t, other, lockName)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// In an empty directory there is nothing to keep.
	if aside, _, err := Restore(other, good); err != nil || aside != "" {
		t.Errorf("%q, %v", aside, err)
	}
	only(t, other, lockName, fileName)
}
