package sandbox

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHeadTailKeepsBeginningAndEnd(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	for _, piece := range []int{1, 3, 7, 80, 999, 1000} {
		h := &headTail{size: 80}
		for rest := text; rest != ""; {
			n := min(piece, len(rest))
			if got, err := h.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("wrote %d, %v", got, err)
			}
			rest = rest[n:]
		}
		head, tail, skipped := h.text()
		if head != text[:20] || tail != text[len(text)-60:] || skipped != 920 {
			t.Errorf("in pieces of %d: %q %q %d", piece, head, tail, skipped)
		}
		if cap(h.head)+cap(h.tail) > 2*h.size {
			t.Errorf("it holds %d and %d bytes", cap(h.head), cap(h.tail))
		}
	}
	for _, n := range []int{0, 1, 20, 21, 79, 80} {
		h := &headTail{size: 80}
		_, _ = h.Write([]byte(text[:n]))
		if head, tail, skipped := h.text(); head != text[:n] || tail != "" || skipped != 0 {
			t.Errorf("%d bytes: %q %q %d", n, head, tail, skipped)
		}
	}
}

// Characters are never cut, wherever the cut would be.
func TestHeadTailCutsBetweenCharacters(t *testing.T) {
	for size := 8; size < 60; size++ {
		h := &headTail{size: size}
		_, _ = h.Write([]byte(strings.Repeat("aé€😀", 40)))
		head, tail, skipped := h.text()
		if skipped == 0 || !utf8.ValidString(head+tail) || strings.ContainsAny(head+tail, "?\uFFFD") || len(head)+len(tail) > size {
			t.Errorf("size %d: %q %q", size, head, tail)
		}
	}
}

func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                          "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x": "red x",
		"10%\r20%\r\nend":                        "10%\n20%\nend",
		"a\x00\x00\xff\xfe\x01b\u0085c":          "a?b?c",
		"\x1b":                                   "?",
		"über 日本 👍\u200d":                        "über 日本 👍\u200d",
	} {
		if got := readable(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func FuzzReadable(f *testing.F) {
	f.Add("\x1b[31m\xff\x00a")
	f.Fuzz(func(t *testing.T, in string) {
		got := readable(in)
		if !utf8.ValidString(got) || len(got) > len(in) || readable(got) != got {
			t.Errorf("%q is %q", in, got)
		}
	})
}
