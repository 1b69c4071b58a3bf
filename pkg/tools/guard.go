package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// How often the same call comes to the same before the guard acts.
const (
	guardWarns   = 3
	guardRefuses = 5
	guardStops   = 8
)

// maxCircle is how many calls a circle has at most that is seen as one.
const maxCircle = 16

const (
	textWarn    = "[You have made this very call several times now, and each time it came to the same. Making it again will not change that: do something else, or answer with what you know.]"
	textRefused = "Not run: you have made this very call again and again, and each time it came to the same. Do something else, or answer with what you know."
)

// guard watches the calls of a run for circles. A circle is a call, or some
// calls in turn, that come again with the outcomes they had before.
type guard struct{ made []made }

// made is a call that was made.
type made struct {
	call    [sha256.Size]byte
	outcome string
	stable  string // outcome without what changes by itself; made when it is needed
	open    bool   // it has no outcome yet, or was refused: any will do
}

// begin notes a call, and returns where and how often it has been made now.
func (g *guard) begin(call [sha256.Size]byte) (at, times int) {
	g.made = append(g.made, made{call: call, open: true})
	return len(g.made) - 1, g.times(len(g.made) - 1)
}

// end notes what a call has come to, and returns what the model reads of it.
func (g *guard) end(at int, text string) string {
	text = strings.TrimSuffix(strings.TrimSuffix(text, textWarn), "\n\n") // of a run that is played again
	if text == textRefused {
		return text
	}
	g.made[at].outcome, g.made[at].open = text, false
	switch {
	case g.times(at) < guardWarns:
		return text
	case text == "":
		return textWarn
	}
	return text + "\n\n" + textWarn
}

// times counts how often a call has been made in a circle that ends with it.
func (g *guard) times(at int) int {
	most := 1
	for size := 1; size <= min(maxCircle, at); size++ {
		same := 0
		for at-same >= size && g.same(at-same, at-same-size) {
			same++
		}
		if same > 0 {
			most = max(most, 1+(same+size-1)/size)
		}
	}
	return most
}

func (g *guard) same(i, j int) bool {
	a, b := &g.made[i], &g.made[j]
	return a.call == b.call && (a.open || b.open || a.outcome == b.outcome || a.settled() == b.settled())
}

// recall learns the calls of a turn that is resumed, which are those behind the
// last message of a person, and returns how often the last of them was made.
func (g *guard) recall(messages []providers.Message) (times int) {
	from := len(messages)
	for from > 0 && messages[from-1].Role != providers.RoleUser {
		from--
	}
	var calls []providers.ToolCall
	for _, m := range messages[from:] {
		if m.Role != providers.RoleTool {
			calls = m.ToolCalls
			continue
		}
		for _, tc := range calls {
			if tc.ID == m.ToolCallID {
				at, _ := g.begin(fingerprint(tc))
				g.end(at, m.Content)
				times = g.times(at)
			}
		}
	}
	return times
}

// watch has the guard look at a call that is about to be run.
func (l *loop) watch(s *slot, tc providers.ToolCall) {
	at, times := l.guard.begin(fingerprint(tc))
	s.seen = at
	if times >= guardRefuses {
		s.result = ErrorResult(textRefused)
	}
	if times >= guardStops {
		l.stop(StopLoopDetected, textCircles)
	}
}

// early reports whether a call would be refused now, by outcomes that are not
// there yet.
func (l *loop) early(tc providers.ToolCall) bool {
	if l.guard == nil {
		return false
	}
	at, times := l.guard.begin(fingerprint(tc))
	l.guard.made = l.guard.made[:at]
	return times >= guardRefuses
}

// fingerprint is the same for calls that ask for the same.
func fingerprint(tc providers.ToolCall) [sha256.Size]byte {
	var b bytes.Buffer
	b.WriteString(tc.Name)
	b.WriteByte(0)
	if args, ok := arguments(tc); !ok || tc.Invalid != "" || json.NewEncoder(&b).Encode(withoutVolatile(args)) != nil {
		if tc.Function != nil {
			b.WriteString(tc.Function.Arguments)
		}
	}
	return sha256.Sum256(b.Bytes())
}

// volatile are names, without _ and - and in lower case, of what is new in
// every call and means nothing.
var volatile = map[string]bool{
	"timestamp": true, "ts": true, "nonce": true, "requestid": true, "reqid": true, "traceid": true, "spanid": true,
	"correlationid": true, "idempotencykey": true, "clienttoken": true, "cachebuster": true, "cachebust": true,
}

func isVolatile(key string) bool {
	var plain [16]byte
	n := 0
	for i := range len(key) {
		c := key[i]
		if c == '_' || c == '-' {
			continue
		}
		if n == len(plain) {
			return false
		}
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		plain[n] = c
		n++
	}
	return volatile[string(plain[:n])]
}

// withoutVolatile returns v without what is volatile in it, v itself if nothing
// is.
func withoutVolatile(v any) any {
	if !hasVolatile(v) {
		return v
	}
	switch v := v.(type) {
	case map[string]interface{}:
		kept := make(map[string]interface{}, len(v))
		for key, e := range v {
			if !isVolatile(key) {
				kept[key] = withoutVolatile(e)
			}
		}
		return kept
	case []interface{}:
		kept := make([]interface{}, len(v))
		for i, e := range v {
			kept[i] = withoutVolatile(e)
		}
		return kept
	}
	return v
}

func hasVolatile(v any) bool {
	switch v := v.(type) {
	case map[string]interface{}:
		for key, e := range v {
			if isVolatile(key) || hasVolatile(e) {
				return true
			}
		}
	case []interface{}:
		return slices.ContainsFunc(v, hasVolatile)
	}
	return false
}

// moment matches dates with times and UUIDs.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// settled is the outcome without what changes by itself. It is made for calls
// that are made again only.
func (m *made) settled() string {
	if m.stable == "" && m.outcome != "" {
		m.stable = m.outcome
		var v any
		if text := strings.TrimSpace(m.outcome); text != "" && (text[0] == '{' || text[0] == '[') && json.Unmarshal([]byte(text), &v) == nil {
			if data, err := json.Marshal(withoutVolatile(v)); err == nil {
				m.stable = string(data)
			}
		}
		m.stable = moment.ReplaceAllString(m.stable, "")
	}
	return m.stable
}
