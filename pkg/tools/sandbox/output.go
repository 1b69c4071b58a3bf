package sandbox

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// headTail keeps the beginning and the end of what is written to it and never
// holds more than its size. A quarter is the beginning: how something started is
// soon said, how it ended is what matters.
type headTail struct {
	size  int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where in tail the next byte goes
	total int64
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	if room := h.size/4 - len(h.head); room > 0 {
		k := min(room, len(p))
		h.head = append(h.head, p[:k]...)
		p = p[k:]
	}
	limit := h.size - h.size/4
	if len(p) > limit {
		p = p[len(p)-limit:]
	}
	if room := limit - len(h.tail); room > 0 {
		k := min(room, len(p))
		h.tail = append(h.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(h.tail[h.next:], p)
		h.next = (h.next + k) % limit
		p = p[k:]
	}
	return n, nil
}

// text returns what was kept, and how many bytes are left out before tail. The
// cut is never within a character.
func (h *headTail) text() (head, tail string, skipped int64) {
	end := string(h.tail[h.next:]) + string(h.tail[:h.next])
	skipped = h.total - int64(len(h.head)+len(end))
	if skipped == 0 {
		return readable(string(h.head) + end), "", 0
	}
	begin := string(h.head)
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRuneInString(begin); r != utf8.RuneError || size != 1 {
			break
		}
		begin = begin[:len(begin)-1]
	}
	for range utf8.UTFMax - 1 {
		if end == "" || utf8.RuneStart(end[0]) {
			break
		}
		end = end[1:]
	}
	return readable(begin), readable(end), skipped
}

// Colours, cursor movements, window titles.
var terminal = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])`)

// readable makes text fit for a model and a person: UTF-8, without what only a
// terminal understands. What cannot be read becomes one "?", however much of it
// stands together. It makes no text longer.
func readable(s string) string {
	s = terminal.ReplaceAllString(strings.ToValidUTF8(s, "\x00"), "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	lost := false
	return strings.Map(func(r rune) rune {
		before := lost
		lost = unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
		switch {
		case lost && before:
			return -1
		case lost:
			return '?'
		case r == '\r':
			return '\n'
		}
		return r
	}, s)
}
