package builtin_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

func (d *desk) here(tools.Call) (string, error) { return d.dir, nil }

func (d *desk) wantFile(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(d.dir, name)); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
	}
}

func TestEditFile(t *testing.T) {
	const poem = "roses are red\nviolets are blue\n\nsugar is sweet\n"
	cases := []struct {
		name, was string
		args      args
		want      string // of the file; "" is as it was
		says      string
		fails     bool
	}{
		{"one place", poem, args{"old": "violets are blue", "new": "violets are violet"}, strings.Replace(poem, "blue", "violet", 1), " roses are red\n-violets are blue\n+violets are violet\n ", false},
		{"within a line", poem, args{"old": "red", "new": "white"}, strings.Replace(poem, "red", "white", 1), "@@ line 1 @@\n-roses are red\n+roses are white\n violets are blue", false},
		{"over lines", poem, args{"old": "blue\n\nsugar", "new": "blue\nhoney"}, "roses are red\nviolets are blue\nhoney is sweet\n", "-violets are blue\n-\n-sugar is sweet\n+violets are blue\n+honey is sweet", false},
		{"removed", poem, args{"old": "violets are blue\n", "new": ""}, "roses are red\n\nsugar is sweet\n", "-violets are blue", false},
		{"all", poem, args{"old": " are ", "new": " is ", "all": true}, "roses is red\nviolets is blue\n\nsugar is sweet\n", "2 places", false},
		{"no final line break", "a\nb", args{"old": "b", "new": "c"}, "a\nc", "-b\n+c", false},
		{"line breaks of Windows stay", "a\r\nb\r\nc\r\n", args{"old": "a\nb\n", "new": "x\ny\nz\n"}, "x\r\ny\r\nz\r\nc\r\n", "+z", false},
		{"more lines with line breaks of Windows", "a\r\nb\r\n", args{"old": "b", "new": "b\nc"}, "a\r\nb\r\nc\r\n", "+c", false},
		{"mixed line breaks stay as they are", "a\r\nb\nc\n", args{"old": "b\nc", "new": "x\ny"}, "a\r\nx\ny\n", "+y", false},
		{"byte order mark stays", "\ufeffa=1\n", args{"old": "a=1", "new": "a=2"}, "\ufeffa=2\n", "a=2", false},
		{"dollars are not special", "x\n", args{"old": "x", "new": "$1 $$ \\1"}, "$1 $$ \\1\n", "$1", false},
		{"twice", poem, args{"old": "are", "new": "is"}, "", "2 times, on lines 1, 2, so nothing was changed", true},
		{"many times", strings.Repeat("x\n", 30), args{"old": "x", "new": "y"}, "", "30 times, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...", true},
		{"across itself", "=\n= =\n", args{"old": "=\n=", "new": "x"}, "x =\n", "1 place", false},
		{"twice across itself", "aXaXa\n", args{"old": "aXa", "new": "b"}, "", "2 times, on lines 1, 1", true},
		{"not there", poem, args{"old": "Violets are blue,\nand so am I", "new": "x"}, "", "line 2:\nviolets are blue", true},
		{"nothing like it", poem, args{"old": "0123456789", "new": "x"}, "", "to the letter", true},
		{"nothing to look for", poem, args{"old": "", "new": "x"}, "", "old is required", true},
		{"no new text", poem, args{"old": "red"}, "", "new is required", true},
		{"the same", poem, args{"old": "red", "new": "red"}, "", "nothing to change", true},
		{"no text", "a\x00b", args{"old": "a", "new": "b"}, "", "not text", true},
		{"too large", strings.Repeat("x", 4<<20+1), args{"old": "x", "new": "y"}, "", "too large", true},
		{"becomes too large", strings.Repeat("x", 100_000), args{"old": "x", "new": strings.Repeat("y", 100), "all": true}, "", "too large", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.put(t, "f", c.was)
			c.args["path"] = "f"
			r := builtin.NewEditFileTool(d.here).Execute(d.ctx, c.args)
			if c.fails {
				wantError(t, r, c.says)
				d.wantFile(t, "f", c.was)
				return
			}
			wantOK(t, r, c.says)
			d.wantFile(t, "f", c.want)
			if entries, err := os.ReadDir(d.dir); err != nil || len(entries) != 1 {
				t.Errorf("the folder holds %v, %v, want nothing beside the file", entries, err)
			}
		})
	}
}

// A diff says enough and never floods the model.
func TestEditFileShowsAllItDoesInBounds(t *testing.T) {
	d := newDesk(t)
	d.put(t, "f", strings.Repeat("same line\n", 1000))
	r := builtin.NewEditFileTool(d.here).Execute(d.ctx, args{"path": "f", "old": "same", "new": "other", "all": true})
	wantOK(t, r, "1000 places", "[995 places more, changed alike.]")
	if len(r.ForLLM) > 10<<10 {
		t.Errorf("the result has %d bytes", len(r.ForLLM))
	}
}

func TestEditFileKeepsTheMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes here")
	}
	d := newDesk(t)
	d.put(t, "run.sh", "#!/bin/sh\necho a\n")
	if err := os.Chmod(filepath.Join(d.dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantOK(t, builtin.NewEditFileTool(d.here).Execute(d.ctx, args{"path": "run.sh", "old": "echo a", "new": "echo b"}))
	if info, err := os.Stat(filepath.Join(d.dir, "run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is now %v, %v", info.Mode(), err)
	}
}

// Of edits at the same time none is lost.
func TestEditFileAtOnce(t *testing.T) {
	d := newDesk(t)
	var was strings.Builder
	const n = 20
	for i := range n {
		fmt.Fprintf(&was, "<%d>\n", i)
	}
	d.put(t, "f", was.String())
	tool := builtin.NewEditFileTool(d.here)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := tool.Execute(d.ctx, args{"path": "f", "old": fmt.Sprintf("<%d>", i), "new": fmt.Sprintf("done %d", i)})
			if r.IsError {
				t.Errorf("edit %d: %s", i, r.ForLLM)
			}
		})
	}
	wg.Wait()
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "done %d\n", i)
	}
	d.wantFile(t, "f", want.String())
}

func TestAppendFile(t *testing.T) {
	d := newDesk(t)
	tool := builtin.NewAppendFileTool(d.here)
	wantOK(t, tool.Execute(d.ctx, args{"path": "log/today.md", "content": "one"}), "3 bytes are added", "3 bytes.")
	wantOK(t, tool.Execute(d.ctx, args{"path": "log/today.md", "content": "\ntwo\n"}), "5 bytes are added", "8 bytes.")
	d.wantFile(t, "log/today.md", "one\ntwo\n")
	wantError(t, tool.Execute(d.ctx, args{"path": "log/today.md", "content": ""}), "content is required")
	wantError(t, tool.Execute(d.ctx, args{"path": "log", "content": "x"}), "is a folder")
	wantError(t, tool.Execute(d.ctx, args{"path": ".", "content": "x"}), "folder")
	wantError(t, tool.Execute(d.ctx, args{"path": "log/today.md/x", "content": "x"}))
	wantError(t, tool.Execute(d.ctx, args{"path": "log/today.md", "content": strings.Repeat("x", 1<<20+1)}), "too large")
	d.put(t, "big", strings.Repeat("x", 4<<20-2))
	wantError(t, tool.Execute(d.ctx, args{"path": "big", "content": "abc"}), "would become too large")
	wantOK(t, tool.Execute(d.ctx, args{"path": "big", "content": "ab"}))

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { wantOK(t, tool.Execute(d.ctx, args{"path": "lines", "content": "a line\n"})) })
	}
	wg.Wait()
	d.wantFile(t, "lines", strings.Repeat("a line\n", 20))
}

func TestSearchFiles(t *testing.T) {
	d := newDesk(t)
	tool := builtin.NewSearchFilesTool(d.here)
	wantOK(t, tool.Execute(d.ctx, args{"query": "x"}), "workspace is empty")
	d.put(t, "a.md", "Alpha\nbeta (x)\n")
	d.put(t, "notes/b.md", "gamma\r\nalphabet\r\n")
	d.put(t, "notes/c.txt", "ALPHA")
	d.put(t, "notes/blob", "alpha\x00")
	d.put(t, "notes/.dragoman-partial-x", "alpha")
	d.put(t, "big", strings.Repeat("x", 4<<20+1))
	cases := []struct {
		args args
		want string
	}{
		{args{"query": "alpha"}, "notes/b.md:2: alphabet\n[1 file larger than 4.0 MiB not searched.]"},
		{args{"query": "alpha", "path": "notes"}, "notes/b.md:2: alphabet"},
		{args{"query": "alpha", "path": "notes/c.txt", "ignore_case": true}, "notes/c.txt:1: ALPHA"},
		{args{"query": "ALPHA", "glob": "*.md", "ignore_case": true}, "a.md:1: Alpha\nnotes/b.md:2: alphabet"},
		{args{"query": "a", "glob": "notes/*.md"}, "notes/b.md:1: gamma\nnotes/b.md:2: alphabet"},
		{args{"query": "(x)", "path": "a.md"}, "a.md:2: beta (x)"},
		{args{"query": `^a.*t$`, "regexp": true, "glob": "*.md"}, "notes/b.md:2: alphabet"},
		{args{"query": "nowhere", "path": "notes"}, "Nothing was found."},
	}
	for _, c := range cases {
		if r := tool.Execute(d.ctx, c.args); r.IsError || r.ForLLM != c.want {
			t.Errorf("%v gave %q, want %q", c.args, r.ForLLM, c.want)
		}
	}
	wantError(t, tool.Execute(d.ctx, args{"query": ""}), "query is required")
	wantError(t, tool.Execute(d.ctx, args{"query": "a\nb"}), "line by itself")
	wantError(t, tool.Execute(d.ctx, args{"query": "(", "regexp": true}), "no regular expression")
	wantError(t, tool.Execute(d.ctx, args{"query": "a", "glob": "["}), "cannot be read")
	wantError(t, tool.Execute(d.ctx, args{"query": "a", "path": "none"}), "does not exist")
	ended, cancel := context.WithCancel(d.ctx)
	cancel()
	wantError(t, tool.Execute(ended, args{"query": "a"}), "interrupted")
}

func TestSearchFilesInBounds(t *testing.T) {
	d := newDesk(t)
	tool := builtin.NewSearchFilesTool(d.here)
	d.put(t, "many", strings.Repeat("needle\n", 5000))
	r := tool.Execute(d.ctx, args{"query": "needle"})
	wantOK(t, r, "only the first 200 lines")
	d.put(t, "many", strings.Repeat("ä", 100_000)+"needle"+strings.Repeat("ö", 100_000))
	r = tool.Execute(d.ctx, args{"query": "needle"})
	if r.IsError || !strings.Contains(r.ForLLM, "needle") || len(r.ForLLM) > 500 {
		t.Errorf("of a long line it shows %d bytes: %.600s", len(r.ForLLM), r.ForLLM)
	}
}

// What leads out is refused by the newer tools too.
func TestFilesNeverLeave(t *testing.T) {
	d := newDesk(t)
	d.put(t, "inside.txt", "the inside\n")
	outside := filepath.Dir(d.secret)
	for name, target := range map[string]string{"file": d.secret, "dir": outside, "up": "..", "good": "inside.txt"} {
		if err := os.Symlink(target, filepath.Join(d.dir, name)); err != nil {
			t.Skipf("no symlinks here: %v", err)
		}
	}
	edit, add, find := builtin.NewEditFileTool(d.here), builtin.NewAppendFileTool(d.here), builtin.NewSearchFilesTool(d.here)
	for _, p := range append(escapes, "file", "dir", "dir/secret.txt", "up/up/secret.txt") {
		for name, r := range map[string]*tools.ToolResult{
			"edit":   edit.Execute(d.ctx, args{"path": p, "old": "secret", "new": "x"}),
			"append": add.Execute(d.ctx, args{"path": p, "content": "x"}),
		} {
			if !r.IsError {
				t.Errorf("%s %q gave %+v", name, p, r)
			}
		}
		if r := find.Execute(d.ctx, args{"path": p, "query": "secret"}); strings.Contains(r.ForLLM, "the secret") {
			t.Errorf("search in %q found %q", p, r.ForLLM)
		}
	}
	if got, err := os.ReadFile(d.secret); err != nil || string(got) != "the secret" {
		t.Errorf("the secret is %q, %v", got, err)
	}
	wantError(t, edit.Execute(d.ctx, args{"path": "good", "old": "the", "new": "our"}), "is a link")
	wantOK(t, find.Execute(d.ctx, args{"query": "the "}), "inside.txt:1: the inside")
}

func TestReadFileByExtension(t *testing.T) {
	d := newDesk(t)
	d.put(t, "a.TXT", "text")
	d.put(t, "Makefile", "all:")
	d.put(t, ".env", "secret")
	d.put(t, "id_rsa", "secret")
	d.put(t, "a.bin", "text")
	d.put(t, "large.txt", strings.Repeat("x", 101))
	read := builtin.NewReadFileTool(d.here, builtin.WithExtensions(".txt", "Makefile"), builtin.WithMaxFileBytes(100))
	for _, p := range []string{"a.TXT", "Makefile"} {
		wantOK(t, read.Execute(d.ctx, args{"path": p}))
	}
	for _, p := range []string{"a.bin", ".env", "id_rsa"} {
		wantError(t, read.Execute(d.ctx, args{"path": p}), "only files of these kinds are: .txt, Makefile.")
	}
	wantError(t, read.Execute(d.ctx, args{"path": "large.txt"}), "too large to be read: 101 bytes, the most is 100 bytes")
}
