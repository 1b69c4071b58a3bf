package builtin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// desk is a workspace that exists, and a secret beside it.
type desk struct {
	dir    string
	secret string
	ctx    context.Context //nolint:containedctx // a test's
	read   *builtin.ReadFileTool
	write  *builtin.WriteFileTool
	list   *builtin.ListDirTool
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	base := t.TempDir()
	d := &desk{dir: filepath.Join(base, "w", "chat"), secret: filepath.Join(base, "secret.txt"), ctx: during(t, "telegram", "1", "c1")}
	if err := os.WriteFile(d.secret, []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := func(call tools.Call) (string, error) {
		if call.ChatID != "1" {
			return "", errors.New("unknown conversation at " + base)
		}
		return d.dir, nil
	}
	d.read, d.write, d.list = builtin.NewReadFileTool(w), builtin.NewWriteFileTool(w), builtin.NewListDirTool(w)
	return d
}

func (d *desk) put(t *testing.T, name, content string) {
	t.Helper()
	p := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesStartWithNothing(t *testing.T) {
	d := newDesk(t)
	wantOK(t, d.list.Execute(d.ctx, args{}), "workspace is empty")
	wantError(t, d.list.Execute(d.ctx, args{"path": "notes"}), "does not exist")
	wantError(t, d.read.Execute(d.ctx, args{"path": "a.txt"}), "does not exist")
	if _, err := os.Stat(d.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking made the workspace: %v", err)
	}
	wantOK(t, d.write.Execute(d.ctx, args{"path": "notes/2026/a.txt", "content": "hello\n"}), `"notes/2026/a.txt" is written, 6 bytes`)
	if got, err := os.ReadFile(filepath.Join(d.dir, "notes", "2026", "a.txt")); err != nil || string(got) != "hello\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(d.dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the workspace is %v, %v, want 0700", info.Mode(), err)
		}
	}
	if r := d.read.Execute(d.ctx, args{"path": "./notes//2026/a.txt"}); r.ForLLM != "hello\n" || r.IsError {
		t.Errorf("read %+v", r)
	}
	wantOK(t, d.list.Execute(d.ctx, args{"path": "notes"}), "2026/")
}

func TestFilesReplaceWhole(t *testing.T) {
	d := newDesk(t)
	wantOK(t, d.write.Execute(d.ctx, args{"path": "a", "content": "a long first version"}))
	wantOK(t, d.write.Execute(d.ctx, args{"path": "a", "content": "second"}))
	if r := d.read.Execute(d.ctx, args{"path": "a"}); r.ForLLM != "second" {
		t.Errorf("read %q", r.ForLLM)
	}
	wantOK(t, d.write.Execute(d.ctx, args{"path": "a", "content": ""}), "0 bytes")
	wantOK(t, d.read.Execute(d.ctx, args{"path": "a"}), `"a" is empty`)
	entries, err := os.ReadDir(d.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v, want one file and nothing left over", entries, err)
	}
	wantError(t, d.write.Execute(d.ctx, args{"path": "b", "content": strings.Repeat("x", 1<<20+1)}), "too large")
	wantError(t, d.write.Execute(d.ctx, args{"path": "b"}), "content is required")
	wantError(t, d.write.Execute(d.ctx, args{"path": ".", "content": "x"}), "folder")
	d.put(t, "dir/x", "x")
	wantError(t, d.write.Execute(d.ctx, args{"path": "dir", "content": "x"}), "is a folder")
	wantError(t, d.write.Execute(d.ctx, args{"path": "a/b", "content": "x"}), "a file is where a folder")
	wantError(t, d.read.Execute(d.ctx, args{"path": "dir"}), "is a folder")
	wantError(t, d.list.Execute(d.ctx, args{"path": "a"}), "is a file")
}

// escapes are paths that must reach nothing outside.
var escapes = []string{
	"..", "../secret.txt", "../../secret.txt", "a/../../../secret.txt", "./../../secret.txt", "notes/..",
	"/etc/passwd", "/", "//etc/passwd", "~/x", "~root", `..\..\secret.txt`, `\\host\share`, `C:\x`, "C:/x", "c:x",
	"CON", "nul", "NUL.txt", "sub/aux.log", "COM1", "com9.x", "LPT1", "COM¹", "CONIN$", "con .txt", "prn:x",
	"a\x00b", strings.Repeat("x/", 600),
}

func TestFilesRefuseToLeaveByPath(t *testing.T) {
	for _, p := range escapes {
		d := newDesk(t)
		d.put(t, "a/b", "x")
		for name, r := range map[string]*tools.ToolResult{
			"read":  d.read.Execute(d.ctx, args{"path": p}),
			"write": d.write.Execute(d.ctx, args{"path": p, "content": "x"}),
			"list":  d.list.Execute(d.ctx, args{"path": p}),
		} {
			if !r.IsError || strings.Contains(r.ForLLM, "the secret") {
				t.Errorf("%s %q gave %+v, want a refusal", name, p, r)
			}
		}
		if got, err := os.ReadFile(d.secret); err != nil || string(got) != "the secret" {
			t.Errorf("after %q the secret is %q, %v", p, got, err)
		}
	}
	d := newDesk(t)
	wantError(t, d.read.Execute(d.ctx, args{}), "path is required")
	for _, fine := range []string{"console.log", "communication.txt", "a..b", "...", "nul-values.csv", "lpt.txt", "COM10"} {
		wantOK(t, d.write.Execute(d.ctx, args{"path": fine, "content": "x"}))
	}
}

func TestFilesRefuseToLeaveBySymlink(t *testing.T) {
	d := newDesk(t)
	d.put(t, "inside.txt", "inside")
	outside := filepath.Dir(d.secret)
	for name, target := range map[string]string{
		"file": d.secret, "dir": outside, "relative": "../../secret.txt", "up": "..", "loop": "loop", "good": "inside.txt",
	} {
		if err := os.Symlink(target, filepath.Join(d.dir, name)); err != nil {
			t.Skipf("no symlinks here: %v", err)
		}
	}
	for _, p := range []string{"file", "dir", "dir/secret.txt", "relative", "up", "up/up/secret.txt", "loop", "up/../secret.txt"} {
		for name, r := range map[string]*tools.ToolResult{
			"read": d.read.Execute(d.ctx, args{"path": p}),
			"list": d.list.Execute(d.ctx, args{"path": p}),
		} {
			if !r.IsError || strings.Contains(r.ForLLM, "secret") && !strings.Contains(p, "secret") || strings.Contains(r.ForLLM, outside) {
				t.Errorf("%s %q gave %+v, want a refusal that tells nothing", name, p, r)
			}
		}
	}
	wantError(t, d.read.Execute(d.ctx, args{"path": "file"}), "leads out of the workspace")
	for _, p := range []string{"dir/new.txt", "up/new.txt", "dir/sub/new.txt"} {
		wantError(t, d.write.Execute(d.ctx, args{"path": p, "content": "x"}))
	}
	// Writing to a link replaces the link, never what it points to.
	wantOK(t, d.write.Execute(d.ctx, args{"path": "file", "content": "mine"}))
	if got, err := os.ReadFile(d.secret); err != nil || string(got) != "the secret" {
		t.Errorf("the secret is %q, %v", got, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 2 {
		t.Errorf("outside are %v, %v, want the secret and the workspaces", entries, err)
	}
	wantOK(t, d.list.Execute(d.ctx, args{}), "dir (link)", "inside.txt (6 bytes)")
	if r := d.read.Execute(d.ctx, args{"path": "good"}); r.ForLLM != "inside" {
		t.Errorf("a link within the workspace gave %+v", r)
	}
}

func TestFilesTellNothingOfTheMachine(t *testing.T) {
	d := newDesk(t)
	ctx := during(t, "telegram", "2", "c1") // the workspace function fails for it
	for _, r := range []*tools.ToolResult{
		d.read.Execute(ctx, args{"path": "a"}),
		d.write.Execute(ctx, args{"path": "a", "content": "x"}),
		d.list.Execute(ctx, args{}),
		builtin.NewReadFileTool(nil).Execute(ctx, args{"path": "a"}),
	} {
		wantError(t, r, "cannot be opened")
		if r.Err == nil || strings.Contains(r.ForLLM, string(filepath.Separator)) {
			t.Errorf("result %q (%v): a path is for the log only", r.ForLLM, r.Err)
		}
	}
}

func TestReadLines(t *testing.T) {
	d := newDesk(t)
	d.put(t, "f", "one\ntwo\nthree\nfour")
	d.put(t, "crlf", "one\r\ntwo\r\n")
	cases := []struct {
		file       string
		start, end any
		want       string
		problem    string
	}{
		{"f", nil, nil, "one\ntwo\nthree\nfour", ""},
		{"f", 2, nil, "two\nthree\nfour", ""},
		{"f", nil, 2, "one\ntwo\n", ""},
		{"f", 2.0, 3.0, "two\nthree\n", ""},
		{"f", 4, 4, "four", ""},
		{"f", 3, 99, "three\nfour", ""},
		{"f", 5, nil, "", "has no line 5"},
		{"f", 3, 2, "", "not before"},
		{"f", -1, nil, "", "count from 1"},
		{"crlf", 2, 2, "two\r\n", ""},
		{"crlf", 3, nil, "", "has no line 3"},
	}
	for _, c := range cases {
		a := args{"path": c.file}
		if c.start != nil {
			a["start_line"] = c.start
		}
		if c.end != nil {
			a["end_line"] = c.end
		}
		r := d.read.Execute(d.ctx, a)
		if c.problem != "" {
			wantError(t, r, c.problem)
			continue
		}
		if r.IsError || r.ForLLM != c.want {
			t.Errorf("%v gave %+v, want %q", a, r, c.want)
		}
	}
}

func TestReadBounds(t *testing.T) {
	d := newDesk(t)
	var long strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&long, "line %d äöü\n", i+1)
	}
	d.put(t, "long", long.String())
	// Reading on as told gives the whole file, every line once.
	var whole strings.Builder
	start := 1
	for calls := 1; ; calls++ {
		r := d.read.Execute(d.ctx, args{"path": "long", "start_line": start})
		if r.IsError || len(r.ForLLM) > 257<<10 {
			t.Fatalf("call %d gave %d bytes, error %v", calls, len(r.ForLLM), r.IsError)
		}
		at := strings.Index(r.ForLLM, "\n[256 KiB is the most")
		if at < 0 {
			whole.WriteString(r.ForLLM)
			if calls != 3 {
				t.Errorf("%d bytes took %d calls, want 3", long.Len(), calls)
			}
			break
		}
		whole.WriteString(r.ForLLM[:at])
		if _, err := fmt.Sscanf(r.ForLLM[strings.LastIndex(r.ForLLM, "start_line "):], "start_line %d", &start); err != nil {
			t.Fatal(err)
		}
	}
	if whole.String() != long.String() {
		t.Errorf("the parts are not the file: %d bytes, want %d", whole.Len(), long.Len())
	}

	d.put(t, "wide", strings.Repeat("ä", 200_000)+"\nend\n")
	r := d.read.Execute(d.ctx, args{"path": "wide"})
	wantOK(t, r, "start_line 2.")
	if !utf8.ValidString(r.ForLLM) || strings.Contains(r.ForLLM, "\uFFFD") || len(r.ForLLM) > 257<<10 {
		t.Errorf("a line wider than the limit gave %d bytes, valid %v", len(r.ForLLM), utf8.ValidString(r.ForLLM))
	}
	if r := d.read.Execute(d.ctx, args{"path": "wide", "start_line": 2}); r.ForLLM != "end\n" {
		t.Errorf("read %q", r.ForLLM)
	}
}

func TestReadRefusesWhatIsNoText(t *testing.T) {
	d := newDesk(t)
	d.put(t, "image.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	d.put(t, "noise", strings.Repeat("\xff\xfe\xfa", 100))
	for _, p := range []string{"image.png", "noise"} {
		wantError(t, d.read.Execute(d.ctx, args{"path": p}), "is not text")
	}
	d.put(t, "latin1", "Sch\xf6ne Gr\xfc\xdfe aus M\xfcnchen, im alten Zeichensatz geschrieben")
	r := d.read.Execute(d.ctx, args{"path": "latin1"})
	if r.IsError || !utf8.ValidString(r.ForLLM) || !strings.Contains(r.ForLLM, "M\uFFFDnchen") {
		t.Errorf("text in an old encoding gave %+v", r)
	}
	d.put(t, "bmw", "BMW is a make of car, and this is text.")
	wantOK(t, d.read.Execute(d.ctx, args{"path": "bmw"}), "BMW")
}

func TestReadStopsWithItsContext(t *testing.T) {
	d := newDesk(t)
	d.put(t, "f", "one\ntwo\n")
	ctx, cancel := context.WithCancel(d.ctx)
	cancel()
	wantError(t, d.read.Execute(ctx, args{"path": "f"}), "interrupted")
}

func TestListIsSortedAndBounded(t *testing.T) {
	d := newDesk(t)
	for _, n := range []string{"b.txt", "a.txt", ".hidden", "c/x", ".dragoman-partial-ABC"} {
		d.put(t, n, strings.Repeat("x", 2000))
	}
	if r := d.list.Execute(d.ctx, args{}); r.ForLLM != ".hidden (2.0 KiB)\na.txt (2.0 KiB)\nb.txt (2.0 KiB)\nc/" {
		t.Errorf("listed %q", r.ForLLM)
	}
	for i := range 510 {
		d.put(t, fmt.Sprintf("many/%03d", i), "")
	}
	r := d.list.Execute(d.ctx, args{"path": "many"})
	wantOK(t, r, "000 (0 bytes)", "499 (0 bytes)", "[10 more entries are not shown.]")
	if strings.Contains(r.ForLLM, "500 (") {
		t.Error("more than 500 entries are shown")
	}
	if err := os.Mkdir(filepath.Join(d.dir, "void"), 0o700); err != nil {
		t.Fatal(err)
	}
	wantOK(t, d.list.Execute(d.ctx, args{"path": "void"}), `"void" is empty`)
}
