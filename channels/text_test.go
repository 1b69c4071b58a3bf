package channels

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func utf16Len(s string) int { return len(utf16.Encode([]rune(s))) }

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		text  string
		limit int
		want  []string
	}{
		{"empty", "", 10, nil},
		{"blank", " \n\t\n ", 3, nil},
		{"fits", "  hello  ", 20, []string{"  hello  "}},
		{"no limit", "hello", 0, []string{"hello"}},
		{"paragraph before line", "aaaa aaaa aaaa\n\nbbbb\nbbbb bbbb bbbb", 22, []string{"aaaa aaaa aaaa", "bbbb\nbbbb bbbb bbbb"}},
		{"line before sentence", "one two three\nfour. five six", 20, []string{"one two three", "four. five six"}},
		{"sentence before word", "One two three. Four five six", 22, []string{"One two three.", "Four five six"}},
		{"sentence in quotes", `He said "no way." And then he left`, 26, []string{`He said "no way."`, "And then he left"}},
		{"word", "alpha beta gamma", 12, []string{"alpha beta", "gamma"}},
		{"early word rather than none", "to abcdefghijklmno", 16, []string{"to", "abcdefghijklmno"}},
		{"no boundary", "abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"a number with a dot is no sentence", "pay 3.50 or 4.50 at once", 13, []string{"pay 3.50 or", "4.50 at once"}},
		{"indentation of the next line stays", "- aaaaaaaa\n  - bbbbbbb", 14, []string{"- aaaaaaaa", "  - bbbbbbb"}},
		{"chinese sentence", "你好吗我很好。今天天气不错", 10, []string{"你好吗我很好。", "今天天气不错"}},
		{"family emoji stays whole", "ab👨‍👩‍👧‍👦cd", 11, []string{"ab", "👨‍👩‍👧‍👦", "cd"}},
		{"space that carries an accent", "aaaa \u0301bbbb", 6, []string{"aaaa \u0301", "bbbb"}},
		{"windows newlines", "aaaa\r\n\r\nbbbb", 7, []string{"aaaa", "bbbb"}},
		{"rune larger than the limit", "a😀b", 1, []string{"a", "😀", "b"}},
		{
			"fence is opened again with its language",
			"```go\nfunc a() {}\nfunc b() {}\nfunc c() {}\n```\nend", 40,
			[]string{"```go\nfunc a() {}\nfunc b() {}\n```", "```go\nfunc c() {}\n```\nend"},
		},
		{
			"cut before a fence rather than in it",
			"some words here\n\n```\ncode code\n```", 30,
			[]string{"some words here", "```\ncode code\n```"},
		},
		{
			"no empty block where the fence ends at the cut",
			"```\naaaaaaaaaaaa\nbbbbbbbbbbbb\n```\nafter it, more", 34,
			[]string{"```\naaaaaaaaaaaa\nbbbbbbbbbbbb\n```", "after it, more"},
		},
		{
			"blank lines in code stay",
			"```\naaaaaaaa\n\n\nbbbbbbbb\n```", 21,
			[]string{"```\naaaaaaaa\n\n```", "```\n\nbbbbbbbb\n```"},
		},
		{
			"fence in a quote",
			"> ```\n> aaaaaaaaaa\n> bbbbbbbbbb\n> ```", 34,
			[]string{"> ```\n> aaaaaaaaaa\n> ```", "> ```\n> bbbbbbbbbb\n> ```"},
		},
		{
			"fence in a list item",
			"- ```sh\n  aaaaaaaaaa\n  bbbbbbbbbb\n  ```", 36,
			[]string{"- ```sh\n  aaaaaaaaaa\n  ```", "  ```sh\n  bbbbbbbbbb\n  ```"},
		},
		{
			"three backticks in a longer fence close nothing",
			"````\n```\naaaaaaaa\n```\nbbbbbbbb\n````", 30,
			[]string{"````\n```\naaaaaaaa\n```\n````", "````\nbbbbbbbb\n````"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Split(tt.text, tt.limit, utf16Len)); diff != "" {
				t.Errorf("Split (-want +got):\n%s", diff)
			}
			checkSplit(t, tt.text, tt.limit, utf16Len)
		})
	}
}

// checkSplit holds Split to its contract for any input.
func checkSplit(t *testing.T, text string, limit int, measure func(string) int) {
	t.Helper()
	if limit <= 0 || strings.TrimSpace(text) == "" {
		return
	}
	s := newSplitter(text, limit, measure)
	pos := 0
	for _, p := range s.pieces() {
		gap := text[pos:p.start]
		if f := s.at(pos); f != nil && f.closer != "" && p.start >= f.end && pos <= f.close {
			gap = text[pos:f.close] + text[f.end:p.start]
		}
		if strings.TrimSpace(gap) != "" {
			t.Fatalf("limit %d lost %q of %q", limit, gap, text)
		}
		part := s.compose(p.start, p.end)
		if n := measure(part); n > limit && utf8.RuneCountInString(text[p.start:p.end]) > 1 {
			t.Fatalf("limit %d: part %q measures %d", limit, part, n)
		}
		pos = p.end
	}
	if strings.TrimSpace(text[pos:]) != "" && s.at(pos) == nil {
		t.Fatalf("limit %d lost the end %q", limit, text[pos:])
	}
	checkGraphemes(t, s)
}

func checkGraphemes(t *testing.T, s *splitter) {
	t.Helper()
	whole := make(map[int]bool)
	largest := 0
	for pos, rest, state := 0, s.text, -1; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		whole[pos] = true
		pos += len(cluster)
		largest = max(largest, s.measure(cluster))
	}
	whole[len(s.text)] = true
	if largest > s.limit/2 {
		return // where a cluster does not fit it may be cut
	}
	for _, p := range s.pieces() {
		if !whole[p.start] || !whole[p.end] {
			t.Fatalf("limit %d: %q is cut within a grapheme cluster", s.limit, s.text[p.start:p.end])
		}
	}
}

// document makes a random text of the kind models write.
func document(r *rand.Rand) string {
	words := []string{"a", "gateway", "carries", "the", "Antwort", "zurück.", "你好，世界。", "👩‍🚀", "e\u0301te\u0301", "**bold**", "`x := 1`", "!", "https://example.org/a/b?c=d"}
	var b strings.Builder
	for range 3 + r.IntN(30) {
		switch r.IntN(5) {
		case 0:
			b.WriteString("\n\n")
		case 1:
			indent := []string{"", "", "  ", "> "}[r.IntN(4)]
			mark := []string{"```", "~~~", "````"}[r.IntN(3)]
			b.WriteString("\n" + indent + mark + []string{"", "go", "python"}[r.IntN(3)] + "\n")
			for range 1 + r.IntN(12) {
				fmt.Fprintf(&b, "%s\tline %d of code\n%s\n", indent, r.IntN(100), indent)
			}
			b.WriteString(indent + mark + "\n")
		default:
			for range 1 + r.IntN(40) {
				b.WriteString(words[r.IntN(len(words))] + " ")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestSplitKeepsFencesBalanced(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := document(r)
		for _, limit := range []int{60, 120, 400, 2000} {
			checkSplit(t, text, limit, utf16Len)
			for _, part := range Split(text, limit, utf16Len) {
				for _, f := range findFences(part) {
					if f.close == len(part) && f.end == f.close {
						t.Fatalf("seed %d, limit %d: open fence in\n%s", seed, limit, part)
					}
				}
			}
		}
	}
}

func TestSplitKeepsTheCode(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for i := range 500 {
		fmt.Fprintf(&code, "\tif x == %d {\n\n\t\treturn\n\t}\n", i)
	}
	var got strings.Builder
	for _, part := range Split("```go\n"+code.String()+"```", 300, utf16Len) {
		body, ok := strings.CutPrefix(part, "```go\n")
		if !ok || !strings.HasSuffix(body, "\n```") {
			t.Fatalf("part is no whole block: %q", part)
		}
		got.WriteString(strings.TrimSuffix(body, "```"))
	}
	if diff := cmp.Diff(code.String(), got.String()); diff != "" {
		t.Errorf("code (-want +got):\n%s", diff)
	}
}

// A measure that forgets markup is neither monotone nor additive.
func TestSplitWithAnUnevenMeasure(t *testing.T) {
	t.Parallel()
	measure := func(s string) int { return utf16Len(strings.ReplaceAll(s, "**", "")) + 30*strings.Count(s, "&") }
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		text := strings.ReplaceAll(document(r), "!", "&")
		checkSplit(t, text, 200, measure)
	}
}

func TestSplitIsLinear(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{
		"words":    "lorem ipsum dolor ",
		"nothing":  "x",
		"chinese":  "漢字",
		"newlines": "\n",
		"fences":   "```\nx\n```\n",
		"quotes":   ">",
		"accents":  "e\u0301",
		"ticks":    "`",
	} {
		measured := 0
		text := strings.Repeat(unit, 1<<20/len(unit))
		start := time.Now()
		Split(text, 4096, func(s string) int { measured += len(s); return utf8.RuneCountInString(s) })
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: 1 MB took %s", name, took)
		}
		if measured > 64*len(text) {
			t.Errorf("%s: measured %d bytes to split %d", name, measured, len(text))
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("hello world", 5)
	f.Add("```go\na\nb\n```\n\nc", 12)
	f.Add("> ```\n> a\nb ``` c\n~~~\n", 20)
	f.Add("a \u0301 \r\n\r\n 👨‍👩‍👧‍👦 \u0600 x", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit > 1<<20 || len(text) > 1<<16 {
			t.Skip()
		}
		checkSplit(t, text, limit, utf16Len)
		Split(text, limit, utf16Len)
	})
}

func BenchmarkSplitFits(b *testing.B) {
	text := strings.Repeat("word ", 100)
	for b.Loop() {
		Split(text, 4096, utf16Len)
	}
}
