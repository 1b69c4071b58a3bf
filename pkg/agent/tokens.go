package agent

import "github.com/dragoman-chat/dragoman/pkg/providers"

// What a message and a call cost beside their texts: role marks, ids, the
// braces around arguments.
const (
	tokensPerMessage = 8
	tokensPerCall    = 24
)

// Tokens estimates how many tokens messages take, on the high side: a third of
// a token for a byte of ASCII, half of one for any other byte. Measured with
// the vocabularies o200k and cl100k, English, German, code and JSON count 1.05
// to 1.5 times what they take, other scripts 1 to 4 times. Noise (hashes,
// base64) takes up to twice its count: what a request with little else in it
// then meets is the provider's complaint, and a second attempt at half the
// size.
func Tokens(messages []providers.Message) int {
	total := 0
	for i := range messages {
		total += messageTokens(&messages[i])
	}
	return total
}

func messageTokens(m *providers.Message) int {
	n := tokensPerMessage + textTokens(m.Content) + (len(m.Opaque)+2)/3
	for i := range m.ToolCalls {
		tc := &m.ToolCalls[i]
		n += tokensPerCall + textTokens(tc.Name)
		if tc.Function != nil && tc.Function.Arguments != "" {
			n += textTokens(tc.Function.Arguments)
		} else {
			n += sizeOf(tc.Arguments) / 2
		}
	}
	return n
}

// textTokens is the estimate for one text.
func textTokens(s string) int {
	other := 0
	for i := range len(s) {
		other += int(s[i] >> 7)
	}
	return (2*len(s) + other + 5) / 6
}

// fits reports whether messages take no more than limit tokens. Since no token
// is shorter than a byte, most requests are let through without a look at
// their texts.
func fits(messages []providers.Message, limit int) bool {
	most := 0
	for i := range messages {
		m := &messages[i]
		most += tokensPerMessage + len(m.Content) + len(m.Opaque)
		for j := range m.ToolCalls {
			tc := &m.ToolCalls[j]
			most += tokensPerCall + len(tc.Name)
			if tc.Function != nil && tc.Function.Arguments != "" {
				most += len(tc.Function.Arguments)
			} else {
				most += sizeOf(tc.Arguments)
			}
		}
	}
	return most <= limit || Tokens(messages) <= limit
}

// sizeOf is about how many bytes a decoded JSON value has when it is written.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case map[string]any:
		n := 2
		for key, value := range v {
			n += len(key) + 4 + sizeOf(value)
		}
		return n
	case []any:
		n := 2
		for _, value := range v {
			n += 1 + sizeOf(value)
		}
		return n
	}
	return 8 // a number, a boolean, null
}
