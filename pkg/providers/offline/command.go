package offline

import (
	"strings"
	"unicode"
)

// verb is what a command asks for.
type verb int

const (
	unknown verb = iota
	help
	clock
	echo
	read
	list
	write
	remind
	reminders
	cancel
	tell
	background
	result
)

// command is a phrase understood.
type command struct {
	verb verb
	rest string // what follows the phrase
	text string // the whole of it
}

// phrases lead to commands; of two that fit the earlier wins. A phrase that
// ends in a space wants something after it.
var phrases = []struct {
	text string
	verb verb
}{
	{"help", help},
	{"what can you do", help},
	{"what time is it", clock},
	{"what's the time", clock},
	{"what is the time", clock},
	{"time", clock},
	{"date", clock},
	{"echo ", echo},
	{"list reminders", reminders},
	{"my reminders", reminders},
	{"reminders", reminders},
	{"cancel reminder ", cancel},
	{"remind me ", remind},
	{"list files in ", list},
	{"list files", list},
	{"ls ", list},
	{"ls", list},
	{"read ", read},
	{"write ", write},
	{"tell ", tell},
	{"in the background ", background},
	{"in the background, ", background},
	{"in the background: ", background},
	{"background: ", background},
	{"background ", background},
	{"[the background task ", result},
}

// parse reads one command. Case, a "please" and closing punctuation do not
// count.
func parse(text string) command {
	text = strings.TrimSpace(text)
	c := command{text: text}
	if len(text) > 7 && strings.EqualFold(text[:7], "please ") {
		text = strings.TrimSpace(text[7:])
	}
	bare := strings.TrimRightFunc(text, func(r rune) bool { return r == '?' || r == '!' || r == '.' || unicode.IsSpace(r) })
	for _, p := range phrases {
		if !strings.HasSuffix(p.text, " ") {
			if strings.EqualFold(bare, p.text) {
				c.verb = p.verb
				return c
			}
			continue
		}
		if len(text) > len(p.text) && strings.EqualFold(text[:len(p.text)], p.text) {
			c.verb, c.rest = p.verb, strings.TrimSpace(text[len(p.text):])
			return c
		}
	}
	return c
}

// unquote drops quotation marks or backticks around a name.
func unquote(s string) string {
	s = strings.TrimSpace(s)
	for _, q := range []string{`"`, "'", "`"} {
		if len(s) > 1 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return s[1 : len(s)-1]
		}
	}
	return s
}

// when reads "in 5 seconds to stretch", "at 18:30 to stretch" and the same the
// other way round. Both delay and at are empty if it is neither.
func when(rest string) (delay, at, what string) {
	lower := strings.ToLower(rest)
	if len(lower) != len(rest) {
		lower = rest // lengths differ in few scripts; positions must agree
	}
	head, body := rest, ""
	for _, sep := range []string{" to ", " that ", " about "} {
		if i := strings.Index(lower, sep); i >= 0 && i < len(head) {
			head, body = rest[:i], strings.TrimSpace(rest[i+len(sep):])
		}
	}
	switch {
	case strings.HasPrefix(lower, "in "):
		return head[3:], "", orDefault(body)
	case strings.HasPrefix(lower, "at "):
		return "", head[3:], orDefault(body)
	}
	for _, lead := range []string{"to ", "that ", "about "} {
		if strings.HasPrefix(lower, lead) {
			rest, lower = rest[len(lead):], lower[len(lead):]
			break
		}
	}
	for _, sep := range []string{" in ", " at "} {
		i := strings.LastIndex(lower, sep)
		if i < 0 || i+len(sep) >= len(rest) || !unicode.IsDigit(rune(rest[i+len(sep)])) {
			continue
		}
		what, moment := strings.TrimSpace(rest[:i]), rest[i+len(sep):]
		if sep == " in " {
			return moment, "", what
		}
		return "", moment, what
	}
	return "", "", rest
}

func orDefault(what string) string {
	if what == "" {
		return "the time you asked for has come"
	}
	return what
}
