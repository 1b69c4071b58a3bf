package agent

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const (
	minCut   = 512     // bytes a text keeps that is cut
	firstCut = 1 << 20 // bytes tried first where no other bound is given
)

// fit brings a conversation that is too long within MaxTokens. whole and shaped
// are the same messages, in shaped the results are cut already.
func (g Governor) fit(whole, shaped []providers.Message) []providers.Message {
	lead := leading(whole)
	from := g.firstTurn(shaped, lead)
	if rest := join(shaped[:lead], shaped[from:]); fits(rest, g.MaxTokens) {
		return rest
	}
	return g.squeeze(join(whole[:lead], whole[from:]), lead)
}

func join(a, b []providers.Message) []providers.Message {
	return append(append(make([]providers.Message, 0, len(a)+len(b)), a...), b...)
}

// leading returns how many messages at the beginning are never dropped: the
// system's, and the summary behind them.
func leading(messages []providers.Message) int {
	n := 0
	for n < len(messages) && messages[n].Role == providers.RoleSystem {
		n++
	}
	if n < len(messages) && isSummary(&messages[n]) {
		n++
	}
	return n
}

// firstTurn returns where the turns begin that are kept. What is dropped is
// counted in steps of an eighth of the bound: as the conversation grows, the
// place stays the same until the next step is due.
func (g Governor) firstTurn(messages []providers.Message, lead int) int {
	step := max(g.MaxTokens/8, 1)
	excess := Tokens(messages) - g.MaxTokens
	excess = (excess + step - 1) / step * step
	dropped, from := 0, lead
	for i := lead; i < len(messages); i++ {
		if i > lead && beginsTurn(&messages[i], &messages[i-1]) {
			if from = i; dropped >= excess {
				break
			}
		}
		dropped += messageTokens(&messages[i])
	}
	return from
}

// squeeze makes the newest turn smaller, which alone is too large. The bounds
// it tries are halved each time and so stay the same over many requests. The
// last step, what the model has just asked for, is left half of the room:
// otherwise it could not read on in something long.
func (g Governor) squeeze(messages []providers.Message, lead int) []providers.Message {
	start := firstCut
	if g.MaxResultBytes > 0 {
		start = max(g.MaxResultBytes, minCut)
	}
	ids := resultIDs{}
	before, last := messages[:lastStep(messages)], messages[lastStep(messages):]
	asked := last
	for limit := start; limit >= minCut; limit /= 2 {
		if asked = cutResults(last, limit, ids); fits(asked, g.MaxTokens/2) {
			break
		}
	}
	shaped := messages
	for limit := start; limit >= minCut; limit /= 2 {
		if shaped = join(cutResults(before, limit, ids), asked); fits(shaped, g.MaxTokens) {
			return shaped
		}
	}
	if fewer := g.dropSteps(shaped, lead, 1); fits(fewer, g.MaxTokens) {
		return fewer
	}
	shaped = cutResults(messages, minCut, ids)
	short := shaped
	for _, keep := range []int{1, 0} {
		fewer := g.dropSteps(shaped, lead, keep)
		for limit := firstCut; limit >= minCut; limit /= 2 {
			if short = cutTexts(fewer, limit); fits(short, g.MaxTokens) {
				return short
			}
		}
	}
	return short
}

// lastStep returns where the last step begins, 0 if there is none.
func lastStep(messages []providers.Message) int {
	i := len(messages) - 1
	for i > 0 && messages[i].Role != providers.RoleAssistant {
		i--
	}
	return max(i, 0)
}

// dropSteps drops the oldest steps of a turn until it fits or only keep of them
// are left, and says so where they were. A step is an assistant's message with
// its results.
func (g Governor) dropSteps(messages []providers.Message, lead, keep int) []providers.Message {
	var steps []int
	for i := lead; i < len(messages); i++ {
		if role := messages[i].Role; role != providers.RoleUser && role != providers.RoleTool {
			steps = append(steps, i)
		}
	}
	notice := providers.Message{Role: providers.RoleUser, Content: textStepsLeft}
	total := Tokens(messages)
	left := slices.Clone(messages[:lead])
	next := lead // the first message that has not been looked at
	for n := 0; n < len(steps)-keep && total > g.MaxTokens; n++ {
		left = append(left, messages[next:steps[n]]...)
		if len(left) == lead || left[len(left)-1].Content != textStepsLeft {
			left = append(left, notice)
			total += messageTokens(&notice)
		}
		next = steps[n]
		for next == steps[n] || next < len(messages) && messages[next].Role == providers.RoleTool {
			total -= messageTokens(&messages[next])
			next++
		}
	}
	return append(left, messages[next:]...)
}

// cutResults cuts every tool result that is longer than limit bytes.
func cutResults(messages []providers.Message, limit int, ids resultIDs) []providers.Message {
	return cutLong(messages, providers.RoleTool, limit, func(whole string) func(head, tail int) string {
		id := ids.of(whole)
		return func(head, tail int) string {
			return fmt.Sprintf("\n[%d bytes of this result are left out here. To read them %s.]\n", tail-head, readOn(id, head))
		}
	})
}

// cutTexts cuts every text of a person, or summary, that is longer than limit
// bytes.
func cutTexts(messages []providers.Message, limit int) []providers.Message {
	return cutLong(messages, providers.RoleUser, limit, func(string) func(head, tail int) string { return textLeftOut })
}

func textLeftOut(head, tail int) string {
	return fmt.Sprintf("\n[%d bytes are left out here, because the message is too long.]\n", tail-head)
}

// cutLong cuts the messages of a role that are longer than limit; notice makes
// the notice for one of these texts.
func cutLong(messages []providers.Message, role string, limit int, notice func(whole string) func(head, tail int) string) []providers.Message {
	out := messages
	for i := range messages {
		if m := &messages[i]; m.Role == role && len(m.Content) > limit {
			if &out[0] == &messages[0] {
				out = slices.Clone(messages)
			}
			out[i].Content = shorten(m.Content, limit, notice(m.Content))
		}
	}
	return out
}

// shorten returns the beginning and the end of s with a notice between, no more
// than limit bytes together and cut between characters. The notice is made from
// where the beginning stops and the end starts; it has to fit.
func shorten(s string, limit int, notice func(head, tail int) string) string {
	if len(s) <= limit {
		return s
	}
	const digits = 10 // by which the notice may yet grow
	room := max(limit-len(notice(0, len(s)))-digits, 0)
	head := boundary(s, room*2/3, -1)
	tail := boundary(s, len(s)-(room-room*2/3), +1)
	return s[:head] + notice(head, tail) + s[tail:]
}

// boundary returns i, or the next place in a direction that is not within a
// character.
func boundary(s string, i, direction int) int {
	for j := i; j >= 0 && j <= len(s) && (j-i)*direction < utf8.UTFMax; j += direction {
		if j == len(s) || utf8.RuneStart(s[j]) {
			return j
		}
	}
	return i // not UTF-8
}
