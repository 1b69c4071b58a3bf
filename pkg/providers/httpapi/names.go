package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const maxName = 64 // characters of a tool's name that every API takes

// Alias returns the name under which an API knows a tool: the name itself where
// APIs take it, otherwise one made from it.
func Alias(name string) string {
	if legal(name) {
		return name
	}
	return Substitute(name, maxName, LegalInName)
}

// Aliases leads from the aliases of tools back to their names; nil when none
// needs one.
func Aliases(tools []providers.ToolDefinition) map[string]string {
	var names map[string]string
	for i := range tools {
		if name := tools[i].Function.Name; !legal(name) {
			if names == nil {
				names = make(map[string]string)
			}
			names[Alias(name)] = name
		}
	}
	return names
}

// Substitute makes a text of at most most characters, all of them ok, of any
// text, and another one of another. ok takes ASCII only, and "_" and hexadecimal
// digits at least; most is more than 9.
func Substitute(s string, most int, ok func(rune) bool) string {
	sum := sha256.Sum256([]byte(s))
	safe := strings.Map(func(r rune) rune {
		if ok(r) {
			return r
		}
		return '_'
	}, s)
	return safe[:min(len(safe), most-9)] + "_" + hex.EncodeToString(sum[:4])
}

func legal(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, r := range name {
		if !LegalInName(r) {
			return false
		}
	}
	return true
}

// LegalInName reports whether every API takes r in the name of a tool.
func LegalInName(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}
