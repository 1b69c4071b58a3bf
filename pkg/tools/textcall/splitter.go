package textcall

import (
	"bytes"
	"strings"
)

// Splitter separates the calls and the thoughts from the text of a reply while
// it arrives. The zero value is ready; it serves one reply and one goroutine.
// However the reply is cut into chunks, the outcome is the same.
//
// Thoughts are what stands between <think> or <thinking>, where a line begins,
// and the tag that closes it, or the end of the reply. Behind such a tag within a
// line nothing is a call either, but it is text: somebody writes about the tag.
type Splitter struct {
	buf     []byte // what nothing can be said about yet
	mode    mode
	blocks  []Block
	text    strings.Builder // what this Write or Close returns
	thought strings.Builder

	midLine bool   // the line can no longer begin or end a fence
	indent  int    // spaces at its beginning
	code    bool   // within inline code
	last    byte   // the last byte of text
	fence   []byte // in a fence: the marks it began with
	closer  string // in thoughts and blocks: the tag that ends them
	hidden  bool   // the thoughts are no text
	said    int    // bytes of text so far
	from    int    // before these it was all thoughts

	block scan
}

// Block is a block of a reply: a call, or what is wrong with it.
type Block struct {
	Call ToolCall // with Err it has no more than the name, if there was one
	Err  error

	body string // of a call: the block as it was written
}

type mode int

const (
	inText  mode = iota
	inFence      // a code block
	inThought
	inBlock
	inVain // what is left of the reply belongs to a broken block
)

// tags lead from text into something else, or say that one was in thoughts
// already.
var tags = []struct {
	open, closer string
	mode         mode
}{
	{"<tool>", "</tool>", inBlock},
	{"<tool_call>", "</tool_call>", inBlock},
	{"<think>", "</think>", inThought},
	{"<thinking>", "</thinking>", inThought},
	{"</think>", "", inText},
	{"</thinking>", "", inText},
}

// Write takes the next chunk and returns what of the text, and of the thoughts,
// is certain by now. What might be the beginning of a block is held back.
func (s *Splitter) Write(chunk string) (text, thought string) {
	s.buf = append(s.buf, chunk...)
	return s.advance(false, false)
}

// Close ends the reply and returns what was held back. cut says that the reply
// is not whole, because it was too long or withheld; a block that is not closed
// is then no call. Without that it is one if it is complete but for its closing
// tag.
func (s *Splitter) Close(cut bool) (text, thought string) { return s.advance(true, cut) }

// Blocks returns the blocks found so far, in order. They are final after Close:
// a reply may turn out to have been a thought.
func (s *Splitter) Blocks() []Block { return s.blocks }

// split takes a whole reply apart.
func split(reply string, cut bool) (rest string, blocks []Block) {
	var s Splitter
	first, _ := s.Write(reply)
	last, _ := s.Close(cut)
	return (first + last)[s.from:], s.blocks
}

func (s *Splitter) advance(final, cut bool) (text, thought string) {
	for len(s.buf) > 0 || final && s.mode == inBlock {
		var moved bool
		switch s.mode {
		case inText:
			moved = s.inText(final)
		case inFence:
			moved = s.fenced(final)
		case inThought:
			moved = s.inThought(final)
		case inBlock:
			moved = s.inBlock(final, cut)
		case inVain:
			s.buf = nil
		}
		if !moved {
			break
		}
	}
	text, thought = s.text.String(), s.thought.String()
	s.said += len(text)
	s.text.Reset()
	s.thought.Reset()
	return text, thought
}

// emit moves the next n bytes to the text.
func (s *Splitter) emit(n int) {
	for _, b := range s.buf[:n] {
		switch b {
		case '\n':
			s.midLine, s.code, s.indent = false, false, 0
		case ' ':
			s.indent++
			s.midLine = s.midLine || s.indent > maxIndent
		default:
			s.midLine = true
			s.code = s.code != (b == '`' && s.last != '`')
		}
		s.last = b
	}
	s.text.Write(s.buf[:n])
	s.buf = s.buf[n:]
}

// inText goes on to the next tag or fence. Like its sisters it reports whether
// there is anything left to do with what is there.
func (s *Splitter) inText(final bool) bool {
	if !s.midLine {
		marks, certain := fenceMarks(s.buf)
		if !certain && !final {
			return false
		}
		if len(marks) >= 3 {
			s.mode, s.fence = inFence, bytes.Clone(marks)
			s.emit(bytes.Index(s.buf, marks) + len(marks))
			return true
		}
	}
	switch i := bytes.IndexAny(s.buf, "<\n"); {
	case i < 0:
		s.emit(len(s.buf))
		return true
	case s.buf[i] == '\n':
		s.emit(i + 1)
		return true
	default:
		s.emit(i)
		return s.tag(final)
	}
}

// tag looks at what begins with "<".
func (s *Splitter) tag(final bool) bool {
	for _, t := range tags {
		if s.code {
			break
		}
		if !final && len(s.buf) < len(t.open) && strings.HasPrefix(t.open, string(s.buf)) {
			return false
		}
		if bytes.HasPrefix(s.buf, []byte(t.open)) {
			s.enter(t.open, t.closer, t.mode)
			return true
		}
	}
	s.emit(1)
	return true
}

// enter goes behind a tag that leads somewhere.
func (s *Splitter) enter(open, closer string, to mode) {
	s.mode, s.closer, s.hidden = to, closer, to == inBlock || !s.midLine
	switch to {
	case inBlock:
		s.block = scan{open: open, closer: []byte(closer)}
	case inText: // it began in the prompt
		s.blocks = nil
		if s.hidden {
			s.from = s.said + s.text.Len()
		}
	case inFence, inThought, inVain:
	}
	if s.hidden {
		s.buf = s.buf[len(open):]
	} else {
		s.emit(len(open))
	}
}

// maxIndent is how many spaces a fence may stand behind.
const maxIndent = 3

// fenceMarks returns the run of marks that a line begins with. certain is false
// if there may be more to come.
func fenceMarks(line []byte) (marks []byte, certain bool) {
	rest := bytes.TrimLeft(line, " ")
	if len(line)-len(rest) > maxIndent {
		return nil, true
	}
	if len(rest) == 0 {
		return nil, false
	}
	if rest[0] != '`' && rest[0] != '~' {
		return nil, true
	}
	after := bytes.TrimLeft(rest, string(rest[:1]))
	return rest[:len(rest)-len(after)], len(after) > 0
}

// fenced goes on to the end of a line, or of the code block.
func (s *Splitter) fenced(final bool) bool {
	line, _, whole := bytes.Cut(s.buf, []byte("\n"))
	if !s.midLine {
		marks, certain := fenceMarks(line)
		after := bytes.TrimLeft(line, " ")[len(marks):]
		blank := len(bytes.TrimSpace(after)) == 0
		switch {
		case !whole && !final && (!certain || len(marks) > 0 && blank):
			return false
		case len(marks) >= len(s.fence) && marks[0] == s.fence[0] && blank:
			s.mode = inText
		}
	}
	if whole {
		s.emit(len(line) + 1)
	} else {
		s.emit(len(line))
	}
	return true
}

// inThought goes on to the end of the model's thoughts.
func (s *Splitter) inThought(final bool) bool {
	if i := bytes.Index(s.buf, []byte(s.closer)); i >= 0 {
		s.think(i)
		if s.hidden {
			s.buf = s.buf[len(s.closer):]
		} else {
			s.emit(len(s.closer))
		}
		s.mode, s.midLine, s.code, s.indent = inText, false, false, 0
		return true
	}
	keep := 0
	for n := min(len(s.closer)-1, len(s.buf)); n > 0 && !final; n-- {
		if bytes.HasSuffix(s.buf, []byte(s.closer[:n])) {
			keep = n
			break
		}
	}
	s.think(len(s.buf) - keep)
	return false
}

// think moves the next n bytes to the thoughts, or to the text if they only seem
// to be such.
func (s *Splitter) think(n int) {
	if !s.hidden {
		s.emit(n)
		return
	}
	s.thought.Write(s.buf[:n])
	s.buf = s.buf[n:]
}

// inBlock looks for the end of a block.
func (s *Splitter) inBlock(final, cut bool) bool {
	end, verdict := s.block.find(s.buf, final, cut)
	switch verdict {
	case undecided:
		return false
	case noBlock: // the tag is text, and so is what stands behind it
		s.buf = append([]byte(s.block.open), s.buf...)
		s.mode = inText
		s.emit(len(s.block.open))
		return true
	case hopeless:
		s.mode = inVain
	case found:
		s.mode = inText
	}
	s.blocks = append(s.blocks, s.block.result)
	s.buf = s.buf[end:]
	s.last, s.midLine, s.code = 0, true, false
	return true
}
