package channels

import (
	"strings"
	"unicode"
)

// Validate checks the lists of a gate, for the Validate method of an adapter's
// configuration: what can match nobody is a mistake, which wrong is told by its
// key. isUser and isChat say what the platform's ids look like. An entry may
// have the channel's own name in front, the way /id shows it; it is taken off.
func (g *Gate) Validate(channel string, isUser, isChat func(id string) bool, wrong func(key, format string, args ...any)) {
	for i, u := range g.AllowUsers {
		g.AllowUsers[i] = strings.TrimPrefix(u, channel+":")
		name, named := strings.CutPrefix(g.AllowUsers[i], "@")
		if named && name != "" && !strings.ContainsFunc(name, unicode.IsSpace) {
			continue
		}
		if u != "*" && !isUser(g.AllowUsers[i]) {
			wrong("allow_users", `%q is nobody: write a user's id, a @username or "*"`, u)
		}
	}
	for i, c := range g.AllowChats {
		g.AllowChats[i] = strings.TrimPrefix(c, channel+":")
		if c != "*" && !isChat(g.AllowChats[i]) {
			wrong("allow_chats", `%q is no group: write a group's id or "*"`, c)
		}
	}
}
