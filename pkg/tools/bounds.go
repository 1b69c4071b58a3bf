package tools

import (
	"fmt"
	"unicode/utf8"
)

// shorten returns the beginning and the end of s with a notice between, limit
// bytes at most and cut between characters. A limit that holds no notice leaves
// the beginning.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	notice := func(left int) string {
		return fmt.Sprintf("\n[%d bytes of this result are left out here, because it is too long. Ask for less at once if you need them.]\n", left)
	}
	room := limit - len(notice(len(s)))
	if room <= 0 {
		return s[:edge(s, limit)]
	}
	head := edge(s, room-room/3)
	tail := len(s) - room/3
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + notice(tail-head) + s[tail:]
}

// edge returns i, or the place before it that is not within a character.
func edge(s string, i int) int {
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}
