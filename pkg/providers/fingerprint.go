package providers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// A fingerprint stands for a request where the request itself is not kept: equal
// requests have equal ones, and where two differ it says in which part. It is a
// line of words: its version, the number of messages, a digest of the model and
// the options, one of the tools, and one each of the messages up to certain
// places (see places), the last of which covers them all. About 150 bytes for a
// hundred messages.
const fingerprintVersion = "1"

const (
	digestBytes = 4  // of a part, to tell where a difference is
	wholeBytes  = 16 // of all the messages
)

// ToolsDigest is the part of a Fingerprint that stands for the tools. It takes
// a while, so a caller with the same tools each time keeps it.
func ToolsDigest(tools []ToolDefinition) string {
	if len(tools) == 0 {
		return "-"
	}
	return digest(tools)
}

// Fingerprint returns the fingerprint of what LLMProvider.Chat is given; tools
// is the ToolsDigest of the definitions.
func Fingerprint(messages []Message, tools, model string, options map[string]interface{}) string {
	words := make([]string, 0, 16)
	words = append(words, fingerprintVersion, strconv.Itoa(len(messages)), parametersDigest(model, options), tools)
	words = append(words, prefixes(messages, places(len(messages)))...)
	return strings.Join(words, " ")
}

// Deviation compares a request with the fingerprint of another one and says
// where the two differ, "" if nowhere.
func Deviation(fingerprint string, messages []Message, tools, model string, options map[string]interface{}) string {
	if fingerprint == Fingerprint(messages, tools, model, options) {
		return ""
	}
	words := strings.Split(fingerprint, " ")
	if len(words) < 4 || words[0] != fingerprintVersion {
		return "the fingerprint has a form that this program does not know"
	}
	count, err := strconv.Atoi(words[1])
	if err != nil || count < 0 || len(words) != 4+len(places(count)) {
		return "the fingerprint is damaged"
	}
	var parts []string
	if words[2] != parametersDigest(model, options) {
		parts = append(parts, "the model's name or options differ")
	}
	if words[3] != tools {
		parts = append(parts, "the tools differ")
	}
	if where := firstDifference(words[4:], count, messages); where != "" {
		parts = append(parts, where)
	}
	return strings.Join(parts, "; ")
}

// firstDifference says in which messages two conversations begin to differ.
func firstDifference(recorded []string, count int, messages []Message) string {
	at := places(count)
	same := 0 // so many messages are alike
	for i, now := range prefixes(messages, at) {
		if now == recorded[i] {
			same = at[i]
			continue
		}
		switch first, last := same+1, at[i]; {
		case len(messages) <= same:
			return fmt.Sprintf("the first %d messages are alike, then %d more were sent", same, count-same)
		case first == last:
			return fmt.Sprintf("message %d of %d differs", first, count)
		default:
			return fmt.Sprintf("the first difference is in messages %d to %d of %d", first, last, count)
		}
	}
	if len(messages) > count {
		return fmt.Sprintf("the first %d messages are alike, then come %d more", count, len(messages)-count)
	}
	return ""
}

// places are where the digests of n messages end, ascending: behind the first
// message, and behind those that are 0, 1, 2, 4, 8, ... before the last. What
// differs in a conversation is mostly at its ends.
func places(n int) []int {
	if n == 0 {
		return nil
	}
	at := []int{n}
	for back := 1; n-back > 1; back *= 2 {
		at = append(at, n-back)
	}
	if n > 1 {
		at = append(at, 1)
	}
	for i, j := 0, len(at)-1; i < j; i, j = i+1, j-1 {
		at[i], at[j] = at[j], at[i]
	}
	return at
}

// prefixes returns the digest of the messages up to each place. A place behind
// the last message has the digest of them all and of their number.
func prefixes(messages []Message, at []int) []string {
	h := hasher{Hash: sha256.New()}
	out := make([]string, 0, len(at))
	done := 0
	for i, end := range at {
		for ; done < min(end, len(messages)); done++ {
			h.message(&messages[done])
		}
		if end > done {
			h.int(len(messages))
		}
		size := digestBytes
		if i == len(at)-1 {
			size = wholeBytes
		}
		out = append(out, hex.EncodeToString(h.Sum(nil)[:size]))
	}
	return out
}

// hasher takes values in, each with its length, so that no two lists of values
// are the same to it.
type hasher struct {
	hash.Hash
	scratch []byte
}

func (h *hasher) int(n int) {
	h.scratch = binary.AppendUvarint(h.scratch[:0], uint64(n)) //nolint:gosec // lengths are not negative
	h.Write(h.scratch)
}

func (h *hasher) string(s string) {
	h.int(len(s))
	for len(s) > 0 { // by way of scratch, which is not allocated anew
		n := min(len(s), 512)
		h.scratch = append(h.scratch[:0], s[:n]...)
		h.Write(h.scratch)
		s = s[n:]
	}
}

func (h *hasher) message(m *Message) {
	if len(m.Opaque) > 0 { // and nothing where there is none, as ever
		var b bytes.Buffer // white space is not of its meaning, and not kept by every file
		if json.Compact(&b, m.Opaque) != nil {
			b.Write(m.Opaque)
		}
		h.string("opaque")
		h.string(b.String())
	}
	h.string(m.Role)
	h.string(m.Content)
	h.string(m.ToolCallID)
	h.int(len(m.ToolCalls))
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		h.string(c.ID)
		if c.Function != nil { // what the model wrote; the rest is made from it
			h.string(c.Function.Name)
			h.string(c.Function.Arguments)
			continue
		}
		h.string(c.Name)
		h.string(canonical(c.Arguments))
	}
}

func parametersDigest(model string, options map[string]interface{}) string {
	if len(options) == 0 {
		return digest(model)
	}
	return digest([]any{model, options})
}

func digest(v any) string {
	sum := sha256.Sum256([]byte(canonical(v)))
	return hex.EncodeToString(sum[:digestBytes])
}

// canonical is the JSON of v, whose keys are sorted.
func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("no JSON: %T", v)
	}
	return string(text)
}

// FingerprintLen returns how many messages a fingerprint stands for; ok is false
// if it is none.
func FingerprintLen(fingerprint string) (n int, ok bool) {
	words := strings.SplitN(fingerprint, " ", 3)
	if len(words) < 3 || words[0] != fingerprintVersion {
		return 0, false
	}
	n, err := strconv.Atoi(words[1])
	return n, err == nil && n >= 0
}

// FingerprintTools returns the ToolsDigest in a fingerprint, "" if it is none.
func FingerprintTools(fingerprint string) string {
	words := strings.SplitN(fingerprint, " ", 5)
	if len(words) < 5 || words[0] != fingerprintVersion {
		return ""
	}
	return words[3]
}
