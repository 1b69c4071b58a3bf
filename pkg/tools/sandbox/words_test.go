package sandbox

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplitKnowsWordsAndQuotes(t *testing.T) {
	for text, want := range map[string][]string{
		"ls -la":                        {"ls", "-la"},
		"  a\tb  ":                      {"a", "b"},
		"grep 'a|b; $(c)' \"x > y\"":    {"grep", "a|b; $(c)", "x > y"},
		"echo '' \"\" a'b'\"c\"d":       {"echo", "", "", "abcd"},
		"echo über/straße.txt --x=1,2%": {"echo", "über/straße.txt", "--x=1,2%"},
		"":                              nil,
	} {
		got, err := split(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
}

// Each of these means more to a shell than its words, and is refused as a whole.
var syntax = []string{
	"echo ok && touch x", "echo ok || touch x", "echo ok; touch x", "echo x | node", "echo x|node", "echo ok & touch x", "touch x &",
	"echo ok\ntouch x", "echo ok\rtouch x", "echo ok\x00touch x", "echo x > y", "echo x >> y", "cat < y", "cat <<< y", "cat <<E", "echo 2>&1",
	"echo $(touch x)", "echo `touch x`", "echo $HOME", "echo ${HOME}", "echo \"$(touch x)\"", "echo \"`touch x`\"", "echo \"$HOME\"",
	"(touch x)", "{ touch x; }", "echo {a,b}", "ls *", "ls ?", "ls [ab]", "ls ~", "echo !!", "echo \\\ntouch", "echo a\\ b", "# touch x",
	"echo $'a'", "cat <(touch x)", "echo 'open", "echo \"open", "echo \"a\\\"", "echo \u2028\x1b[0m", "echo ^a^b", "echo \xff", "if true", "! ls;",
}

func TestCaseShellSyntaxThroughAList(t *testing.T) {
	for name, w := range walls(t, Options{}) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tool, err := NewExecTool(w, in(dir), func(string) bool { return true }, []string{"echo", "ls", "cat"}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range syntax {
				wantText(t, tool.Execute(t.Context(), args{"command": text}), true)
			}
			if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
				t.Error("touch has run")
			}
			// In quotes they are what they look like.
			wantText(t, tool.Execute(t.Context(), args{"command": "echo 'ok && touch x | node > y'"}), false, "ok && touch x | node > y\n")
			if files, err := os.ReadDir(dir); err != nil || len(files) > 1 || len(files) == 1 && files[0].Name() != ".tmp" {
				t.Errorf("there are files: %v, %v", files, err)
			}
		})
	}
}

func TestCaseListRunsOnlyWhatIsInIt(t *testing.T) {
	var log bytes.Buffer
	list, err := newPrograms([]string{"echo", "find", "tar", "git"}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Skip(err) // a machine without one of them
	}
	for _, text := range []string{
		"touch x", "node", "/bin/echo x", "./echo x", "../bin/echo", "bin/echo", "ECHO x", "echo2", "X=1 echo", "PATH=. echo", "'echo x'", "'' echo",
		"env echo", "xargs echo", "nice echo", "timeout 1 echo", "nohup echo", "setsid echo", "sh -c echo", "bash -c echo", "busybox echo",
		"find . -exec touch x", "find . -execdir touch x", "find . -ok touch x", "find . '-exec' touch x",
		"tar --checkpoint-action=exec=touch -cf x y", "tar '--to-command' touch -xf x", "tar -Itouch -cf x y", "tar --use-compress-program=touch -cf x y",
		"git -c alias.x=!touch x", "git -ccore.pager=touch log", "git --exec-path=. x", "git clone --upload-pack=touch . y",
	} {
		if got, err := list.args(text); err == nil {
			t.Errorf("%q would run %q", text, got)
		}
	}
	for text, want := range map[string]string{"echo a": "echo", "git status": "git", "find . -name x": "find", "tar -cf x.tar y": "tar"} {
		got, err := list.args(text)
		if err != nil || !filepath.IsAbs(got[0]) || filepath.Base(got[0]) != want {
			t.Errorf("%q runs %q, %v", text, got, err)
		}
	}
	// The operator hears of those that can do more than they look like.
	for _, name := range []string{"find", "tar", "git"} {
		if !strings.Contains(log.String(), "program="+name) {
			t.Errorf("the log says nothing of %s: %s", name, log.String())
		}
	}
	if strings.Contains(log.String(), "program=echo") {
		t.Errorf("the log warns of echo: %s", log.String())
	}
}

func TestWrappersCannotBeListed(t *testing.T) {
	for _, name := range wrappers {
		if CheckCommands([]string{"ls", name}) == nil {
			t.Errorf("%s can be listed", name)
		}
	}
	if err := CheckCommands([]string{"ls", "git", "awk"}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "no-such-program", "/bin/ls", "../ls"} {
		if _, err := newPrograms([]string{name}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%q can be listed", name)
		}
	}
}

// A list whose proof fails is none.
func TestListIsProved(t *testing.T) {
	if err := (programs{"sh": "/bin/sh"}).prove(); err == nil {
		t.Error("a list with sh in it holds")
	}
	if _, err := split("a; b"); !errors.Is(err, errSyntax) {
		t.Errorf("the error is %v", err)
	}
}

func FuzzSplit(f *testing.F) {
	for _, text := range syntax {
		f.Add(text)
	}
	f.Add("a 'b c' \"d\"")
	f.Fuzz(func(t *testing.T, text string) {
		words, err := split(text)
		if err != nil {
			return
		}
		// What passes means the same to a shell: quoted again, it is the same.
		var again strings.Builder
		for _, w := range words {
			if strings.ContainsRune(w, '\'') {
				return
			}
			again.WriteString("'" + w + "' ")
		}
		if got, err := split(again.String()); err != nil || !slices.Equal(got, words) {
			t.Errorf("%q is %q, and that again %q, %v", text, words, got, err)
		}
	})
}
