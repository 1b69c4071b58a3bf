package logger

import "regexp"

// tokens are the keys of Telegram, OpenAI and Anthropic, and Discord, by their
// shapes.
var tokens = regexp.MustCompile(`[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b|sk-[A-Za-z0-9_-]{40,}|[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}`)

// shortestToken is how long what has one of these shapes is at least.
const shortestToken = 43

// HideTokens blots out whatever has the shape of a key for the services that
// this program talks to, whoever's it is: what a tool has read may hold one that
// the configuration does not know. Ordinary text is returned as it is, cheaply.
func HideTokens(text string) string {
	run := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == ':', c == '.':
			if run++; run == shortestToken {
				return tokens.ReplaceAllString(text, mask)
			}
		default:
			run = 0
		}
	}
	return text
}
