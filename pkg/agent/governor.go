package agent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Governor makes of a conversation what a provider accepts and the model can
// read. It is the last hand on the copy that is sent; the history keeps what
// really happened. The zero Governor repairs and bounds nothing.
type Governor struct {
	// MaxTokens is what the messages may take, as Tokens counts: the model's
	// window less the room for its answer and for the tools' definitions. 0 is
	// no bound.
	MaxTokens int
	// MaxResultBytes bounds each tool result, 512 at the least. 0 is no bound.
	MaxResultBytes int
}

// ForWindow returns the governor of a model that reads window tokens. A
// quarter of them, 16k at most, is left to the answer and the tools'
// definitions, and no tool result takes more than a quarter of the rest.
func ForWindow(window int) Governor {
	room := window - min(window/4, 16<<10)
	return Governor{MaxTokens: room, MaxResultBytes: min(room/4*3, 64<<10)}
}

// What stands in place of what is not there.
const (
	textNoText    = "(no text)"
	textNoOutput  = "(no output)"
	textNoStart   = "(the beginning of this conversation is not shown)"
	textNoResult  = "No result was recorded for this call, its outcome is unknown: check before you make it again."
	textStepsLeft = "[Earlier steps of this turn are left out here, because they no longer fit. They have been taken: do not repeat them.]"
	unnamedTool   = "unnamed"
)

// Shape returns messages as OpenAI's and Anthropic's rules want them and within
// the bounds. It returns the same slice if nothing is to be done, and otherwise
// a new one; nothing of messages is changed. Shaping twice is shaping once. The
// order stays as it is.
//
// Valid means: behind the system messages, of which none comes later, a person's
// message comes first; the results of an assistant's calls, one for each, stand
// right behind it; every call has a name and an id that no other has; no message
// is without text, unless it is a reply that has an opaque part. Calls and results are matched by place, so ids that come again
// in later turns do no harm. What cannot be matched is dropped, what is missing is
// filled in, and a system message that comes too late is a person's.
//
// To fit, whole turns are dropped, the oldest first; a turn is a person's
// message and all up to the next one. More than needed is dropped, up to an
// eighth of the bound, so that the next requests begin alike and prompt caches
// hit. Never dropped are the system messages, a summary at the beginning, and
// the newest turn. If that turn alone is too large its largest tool results are
// cut, where its last step is left half of the room, then its oldest steps
// dropped, then long texts of the person cut with a visible mark. If even that
// does not do, the result exceeds MaxTokens.
//
// Where a tool result is cut a notice says how the tool read_result reads the
// rest, see Agent.ReadResult.
func (g Governor) Shape(messages []providers.Message) []providers.Message {
	whole := mend(messages)
	shaped := whole
	if g.MaxResultBytes > 0 {
		shaped = cutResults(whole, max(g.MaxResultBytes, minCut), nil)
	}
	if g.MaxTokens > 0 && !fits(shaped, g.MaxTokens) {
		return g.fit(whole, shaped)
	}
	return shaped
}

// mender copies a conversation from the first message on that it has to change.
type mender struct {
	in, out []providers.Message // out is nil while nothing has changed
	ids     map[string]struct{} // of the calls so far
}

// mend makes a conversation valid; if it is, it is returned as it is.
func mend(messages []providers.Message) []providers.Message {
	r := mender{in: messages}
	begun := false
	person := slices.ContainsFunc(messages, func(m providers.Message) bool { return m.Role == providers.RoleUser })
	for i := 0; i < len(messages); {
		switch role := messages[i].Role; {
		case role == providers.RoleSystem && !begun:
			r.plain(i, role)
		case role == providers.RoleUser, role == providers.RoleSystem:
			begun = true
			r.plain(i, providers.RoleUser)
		case !begun && person:
			r.drop(i) // the rest of a turn whose beginning is gone
		case !begun:
			r.put(i, providers.Message{Role: providers.RoleUser, Content: textNoStart})
			begun = true
			continue
		case role == providers.RoleAssistant:
			i = r.assistant(i)
			continue
		default:
			r.drop(i) // a result without its call
		}
		i++
	}
	if r.out == nil {
		return messages
	}
	return r.out
}

// put adds m, which differs from what the next message of the input, i, is.
func (r *mender) put(i int, m providers.Message) {
	r.drop(i)
	r.out = append(r.out, m)
}

// drop leaves out message i of the input.
func (r *mender) drop(i int) {
	if r.out == nil {
		r.out = make([]providers.Message, i, len(r.in)+4)
		copy(r.out, r.in[:i])
	}
}

// keep adds message i of the input as it is.
func (r *mender) keep(i int) {
	if r.out != nil {
		r.out = append(r.out, r.in[i])
	}
}

// plain handles a message that has nothing to do with calls, and gives it a
// role.
func (r *mender) plain(i int, role string) {
	m := r.in[i]
	empty := blank(m.Content) && (m.Role != providers.RoleAssistant || len(m.Opaque) == 0)
	switch {
	case empty && m.Role != providers.RoleUser:
		r.drop(i)
		return
	case empty:
		m.Content = textNoText
	case m.Role == role && len(m.ToolCalls) == 0 && m.ToolCallID == "":
		r.keep(i)
		return
	}
	m.Role, m.ToolCalls, m.ToolCallID = role, nil, ""
	r.put(i, m)
}

// assistant handles the assistant's message i and the results behind it, and
// returns where it stopped.
func (r *mender) assistant(i int) (next int) {
	m := r.in[i]
	if len(m.ToolCalls) == 0 {
		r.plain(i, m.Role)
		return i + 1
	}
	calls, changed := r.calls(i, m.ToolCalls)
	if changed || m.ToolCallID != "" || m.Content != "" && blank(m.Content) {
		if m.ToolCalls, m.ToolCallID = calls, ""; blank(m.Content) {
			m.Content = ""
		}
		r.put(i, m)
	} else {
		r.keep(i)
	}
	return r.results(i, calls)
}

// calls gives each call of message i a name and an id of its own.
func (r *mender) calls(i int, calls []providers.ToolCall) (fixed []providers.ToolCall, changed bool) {
	if r.ids == nil {
		r.ids = make(map[string]struct{}, len(r.in))
	}
	fixed = calls
	for k := range calls {
		id, named := calls[k].ID, callName(&calls[k]) != ""
		_, used := r.ids[id]
		if id == "" || used || !named {
			if !changed {
				fixed, changed = slices.Clone(calls), true
			}
			if id == "" || used {
				id = r.freshID(i, k)
			}
			fixed[k].ID = id
			if !named {
				fixed[k].Name = unnamedTool
			}
		}
		r.ids[id] = struct{}{}
	}
	return fixed, changed
}

// freshID makes an id from a call's place, so that it is the same in the next
// request.
func (r *mender) freshID(i, k int) string {
	id := "call_" + strconv.Itoa(i) + "_" + strconv.Itoa(k)
	for {
		if _, used := r.ids[id]; !used {
			return id
		}
		id += "x"
	}
}

// results handles what stands behind the assistant's message i, whose calls are
// now these, and returns where it stopped.
func (r *mender) results(i int, calls []providers.ToolCall) (next int) {
	var few [16]bool
	answered := few[:]
	if len(calls) > len(few) {
		answered = make([]bool, len(calls))
	}
	asked := r.in[i].ToolCalls
	next = i + 1
	for ; next < len(r.in) && r.in[next].Role == providers.RoleTool; next++ {
		m := r.in[next]
		k := 0
		for k < len(asked) && (answered[k] || asked[k].ID != m.ToolCallID) {
			k++
		}
		if k == len(asked) {
			r.drop(next)
			continue
		}
		answered[k] = true
		empty := blank(m.Content)
		if m.ToolCallID == calls[k].ID && !empty && len(m.ToolCalls) == 0 {
			r.keep(next)
			continue
		}
		if m.ToolCallID, m.ToolCalls = calls[k].ID, nil; empty {
			m.Content = textNoOutput
		}
		r.put(next, m)
	}
	for k := range calls {
		if !answered[k] {
			r.put(next, providers.Message{Role: providers.RoleTool, Content: textNoResult, ToolCallID: calls[k].ID})
		}
	}
	return next
}

func callName(tc *providers.ToolCall) string {
	if tc.Name == "" && tc.Function != nil {
		return tc.Function.Name
	}
	return tc.Name
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// beginsTurn reports whether a message, and what follows it, can be parted from
// the one before it. What is said between tool results and the next step
// belongs to the turn that is going on.
func beginsTurn(m, before *providers.Message) bool {
	return m.Role == providers.RoleUser && before.Role != providers.RoleTool && !tellsDay(before) &&
		m.Content != textStepsLeft && before.Content != textStepsLeft
}
