package openai

import "strings"

const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
	space      = " \t\r\n"
)

// thinking takes the thoughts out that some local models write before their
// answer; nobody but the model's author wants to read them. It is given the
// content piece by piece.
type thinking struct {
	state thinkState
	held  string // what cannot be told apart yet
}

type thinkState int

const (
	thinkMaybe   thinkState = iota // nothing but space, or a part of the tag, so far
	thinkInside                    // between the tags
	thinkBetween                   // behind them, before the answer
	thinkOver                      // in the answer
)

// write takes a piece and returns what of it is answer and what is thought.
func (t *thinking) write(piece string) (answer, thought string) {
	if t.state == thinkMaybe {
		t.held += piece
		trimmed := strings.TrimLeft(t.held, space)
		rest, ok := strings.CutPrefix(trimmed, thinkBegin)
		switch {
		case ok:
			t.state, t.held, piece = thinkInside, "", rest
		case strings.HasPrefix(thinkBegin, trimmed):
			return "", ""
		default:
			t.state, piece, t.held = thinkOver, t.held, ""
		}
	}
	if t.state == thinkInside {
		before, after, ok := strings.Cut(t.held+piece, thinkEnd)
		if !ok {
			keep := overlap(before, thinkEnd)
			t.held = before[len(before)-keep:]
			return "", before[:len(before)-keep]
		}
		t.state, t.held, piece, thought = thinkBetween, "", after, before
	}
	if t.state == thinkBetween {
		if piece = strings.TrimLeft(piece, space); piece != "" {
			t.state = thinkOver
		}
	}
	return piece, thought
}

// end returns what is left when nothing more comes.
func (t *thinking) end() (answer, thought string) {
	held := t.held
	t.held = ""
	if t.state == thinkInside {
		return "", held
	}
	return held, ""
}

// overlap is how many bytes at the end of s are the beginning of tag.
func overlap(s, tag string) int {
	for n := min(len(s), len(tag)-1); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return n
		}
	}
	return 0
}
