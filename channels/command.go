package channels

import "strings"

// ParseCommand reads a leading slash command the way a platform without
// commands of its own needs it: "/Remind me" is "remind" with the arguments
// "me". ok is false when text is something else, such as "/usr/bin is full".
// It is pure.
func ParseCommand(text string) (name, args string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "/")
	if !ok {
		return "", "", false
	}
	name, args = rest, ""
	if i := strings.IndexAny(rest, " \t\r\n"); i >= 0 {
		name, args = rest[:i], strings.TrimSpace(rest[i:])
	}
	if name == "" || len(name) > maxCommand || strings.ContainsFunc(name, notInCommand) {
		return "", "", false
	}
	return strings.ToLower(name), args, true
}

// maxCommand is the longest name a command has on the platforms we know.
const maxCommand = 32

func notInCommand(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
}
