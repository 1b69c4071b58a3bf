package telegram

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

func TestRenderGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/render/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden inputs: %v", err)
	}
	r := newRenderer()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, entities := r.render(string(source))
			var b strings.Builder
			b.WriteString(text + "\n=====\n")
			units := utf16.Encode([]rune(text))
			for _, e := range entities {
				part := string(utf16.Decode(units[e.Offset : e.Offset+e.Length]))
				fmt.Fprintf(&b, "%s %q %s\n", e.Type, part, e.URL+e.Language)
			}
			golden := strings.TrimSuffix(file, ".md") + ".golden"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("rendered (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderPlainTextIsUntouched(t *testing.T) {
	t.Parallel()
	r := newRenderer()
	for _, s := range []string{"hello", "one\ntwo\n\n\nthree", "a - b + c 1. 2", "what? (yes) 100%", "😀 漢字", "  indented"} {
		if hasMarkup(s) {
			t.Errorf("%q is taken for Markdown", s)
		}
		if text, entities := r.render(s); text != s || entities != nil {
			t.Errorf("render(%q) = %q, %v", s, text, entities)
		}
	}
}

func TestRenderKeepsWhatWouldVanish(t *testing.T) {
	t.Parallel()
	r := newRenderer()
	for in, want := range map[string]string{
		"```\n```": "```\n```",
		"**":       "**",
		"***":      "———",
		"#":        "#",
		"> ":       ">",
		"[]()":     "()",
		"```go```": "go",
	} {
		if got, _ := r.render(in); got != want {
			t.Errorf("render(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRenderIsNotStalledByNesting(t *testing.T) {
	t.Parallel()
	r := newRenderer()
	for _, mark := range []string{">", "> ", "- ", "1. ", "* > + "} {
		deep := strings.Repeat(mark, 30000/len(mark)) + "x"
		if got, _ := r.render(deep); got != deep {
			t.Errorf("%q nested deeply became %d of %d bytes", mark, len(got), len(deep))
		}
	}
	if got, _ := r.render("> > - x"); got != "• x" {
		t.Errorf("shallow nesting: %q", got)
	}
}

func TestRenderWritesOutLinksBeyondTheLimit(t *testing.T) {
	t.Parallel()
	text, entities := newRenderer().render(strings.Repeat("[a](https://example.org/x) ", maxEntities+1))
	if len(entities) != maxEntities || strings.Count(text, "https://example.org/x") != 1 {
		t.Errorf("%d entities, text %q", len(entities), text)
	}
}

func FuzzRender(f *testing.F) {
	files, _ := filepath.Glob("testdata/render/*.md")
	for _, file := range files {
		if source, err := os.ReadFile(file); err == nil {
			f.Add(string(source))
		}
	}
	f.Add("*a* **b** ~~c~~ `d` [e](https://f.gh) 😀*😀*\u0301")
	f.Add("1. a\n   > b\n   > ```c d\n   > e\n\n\t- f")
	server := telegramtest.New()
	user := server.AddUser("Ada", "ada")
	f.Fuzz(func(t *testing.T, markdown string) {
		r := newRenderer()
		text, entities := r.render(markdown)
		if !utf8.ValidString(text) {
			t.Fatalf("%q is not valid", text)
		}
		if n := r.measure(markdown); n != len(utf16.Encode([]rune(text))) {
			t.Fatalf("measure %q = %d, but its text has %d units", markdown, n, len(utf16.Encode([]rune(text))))
		}
		checkNothingLost(t, clean(markdown), text, entities)
		if isInvisible(text) {
			return
		}
		checkAccepted(t, server, user.ID, text, entities)
	})
}

// checkNothingLost counts letters and digits: each of the source has to be in
// the text, an address or a language.
func checkNothingLost(t *testing.T, source, text string, entities []entity) {
	t.Helper()
	count := make(map[rune]int)
	for _, r := range text {
		count[r]++
	}
	for _, e := range entities {
		for _, r := range e.URL + e.Language {
			count[r]++
		}
	}
	for _, r := range source {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsSymbol(r) && r > unicode.MaxLatin1 {
			if count[r]--; count[r] < 0 {
				t.Fatalf("%q is lost:\n%q\nbecame\n%q\n%+v", r, source, text, entities)
			}
		}
	}
}

// checkAccepted asks a strict server.
func checkAccepted(t *testing.T, server http.Handler, chat int64, text string, entities []entity) {
	t.Helper()
	raw, err := json.Marshal(entities)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"chat_id": {fmt.Sprint(chat)}, "text": {text}, "entities": {string(raw)}}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/bot"+telegramtest.Token+"/sendMessage", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, req)
	tooLong := lenUTF16(text) > maxText && strings.Contains(w.Body.String(), "message is too long")
	if w.Code != http.StatusOK && !tooLong {
		t.Fatalf("the platform refuses %q with %s: %s", text, raw, w.Body)
	}
}

func TestSplitByWhatIsRendered(t *testing.T) {
	t.Parallel()
	r := newRenderer()
	// Markup does not count, so this is one message although it is long.
	long := strings.Repeat("[a](https://example.org/a/very/long/address/indeed) ", 200)
	if n := len(channels.Split(long[:len(long)-1], maxText, r.measure)); n > 4 {
		t.Errorf("%d parts for %d visible characters", n, r.measure(long))
	}
	for _, part := range channels.Split(strings.Repeat("**bold** 😀 &<> ", 2000), maxText, r.measure) {
		if n := r.measure(part); n > maxText {
			t.Errorf("a part measures %d", n)
		}
	}
}

func BenchmarkRenderPlain(b *testing.B) {
	r := newRenderer()
	text := strings.Repeat("Hello there, this is a plain answer. ", 10)
	for b.Loop() {
		r.render(text)
	}
}

func BenchmarkRenderMarkdown(b *testing.B) {
	r := newRenderer()
	source, err := os.ReadFile("testdata/render/everything.md")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r.render(string(source))
	}
}
