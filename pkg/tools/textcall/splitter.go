package textcall

import (
	"bytes"
	"strings"
)

// Splitter separates the calls from the text of a reply while it arrives. The
// zero value is ready; it serves one reply and one goroutine. However the reply
// is cut into chunks, the outcome is the same.
type Splitter struct {
	buf    []byte // what nothing can be said about yet
	mode   mode
	blocks []Block

	midLine bool   // the line can no longer begin or end a fence
	indent  int    // spaces at its beginning
	code    bool   // within inline code
	last    byte   // the last byte of text
	fence   []byte // in a fence: the marks it began with
	closer  string // in thoughts and blocks: the tag that ends them

	block scan
}

// Block is a block of a reply: a call, or what is wrong with it.
type Block struct {
	Call ToolCall // with Err it has no more than the name, if there was one
	Err  error
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

// Write takes the next chunk and returns the text that is certain by now. What
// might be the beginning of a block is held back.
func (s *Splitter) Write(chunk string) string {
	s.buf = append(s.buf, chunk...)
	return s.advance(false, false)
}

// Close ends the reply and returns the text that was held back. cut says that
// the reply is not whole, because it was too long or withheld; a block that is
// not closed is then no call. Without that it is one if it is complete but for
// its closing tag.
func (s *Splitter) Close(cut bool) string { return s.advance(true, cut) }

// Blocks returns the blocks found so far, in order. They are final after Close:
// a reply may turn out to have been a thought.
func (s *Splitter) Blocks() []Block { return s.blocks }

func (s *Splitter) advance(final, cut bool) string {
	var out strings.Builder
	for len(s.buf) > 0 || final && s.mode == inBlock {
		var moved bool
		switch s.mode {
		case inText:
			moved = s.text(&out, final)
		case inFence:
			moved = s.fenced(&out, final)
		case inThought:
			moved = s.thought(&out, final)
		case inBlock:
			moved = s.inBlock(&out, final, cut)
		case inVain:
			s.buf = nil
		}
		if !moved {
			break
		}
	}
	return out.String()
}

// emit moves the next n bytes to the text.
func (s *Splitter) emit(out *strings.Builder, n int) {
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
	out.Write(s.buf[:n])
	s.buf = s.buf[n:]
}

// text goes on to the next tag or fence. Like its sisters it reports whether
// there is anything left to do with what is there.
func (s *Splitter) text(out *strings.Builder, final bool) bool {
	if !s.midLine {
		marks, certain := fenceMarks(s.buf)
		if !certain && !final {
			return false
		}
		if len(marks) >= 3 {
			s.mode, s.fence = inFence, bytes.Clone(marks)
			s.emit(out, bytes.Index(s.buf, marks)+len(marks))
			return true
		}
	}
	switch i := bytes.IndexAny(s.buf, "<\n"); {
	case i < 0:
		s.emit(out, len(s.buf))
		return true
	case s.buf[i] == '\n':
		s.emit(out, i+1)
		return true
	default:
		s.emit(out, i)
		return s.tag(out, final)
	}
}

// tag looks at what begins with "<".
func (s *Splitter) tag(out *strings.Builder, final bool) bool {
	for _, t := range tags {
		if s.code {
			break
		}
		if !final && len(s.buf) < len(t.open) && strings.HasPrefix(t.open, string(s.buf)) {
			return false
		}
		if !bytes.HasPrefix(s.buf, []byte(t.open)) {
			continue
		}
		s.mode, s.closer = t.mode, t.closer
		switch t.mode {
		case inBlock:
			s.buf = s.buf[len(t.open):]
			s.block = scan{open: t.open, closer: []byte(t.closer)}
		case inText: // its beginning was in the prompt
			s.blocks = nil
			fallthrough
		default:
			s.emit(out, len(t.open))
		}
		return true
	}
	s.emit(out, 1)
	return true
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
func (s *Splitter) fenced(out *strings.Builder, final bool) bool {
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
		s.emit(out, len(line)+1)
	} else {
		s.emit(out, len(line))
	}
	return true
}

// thought goes on to the end of the model's thoughts.
func (s *Splitter) thought(out *strings.Builder, final bool) bool {
	if i := bytes.Index(s.buf, []byte(s.closer)); i >= 0 {
		s.emit(out, i+len(s.closer))
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
	s.emit(out, len(s.buf)-keep)
	return false
}

// inBlock looks for the end of a block.
func (s *Splitter) inBlock(out *strings.Builder, final, cut bool) bool {
	end, verdict := s.block.find(s.buf, final, cut)
	switch verdict {
	case undecided:
		return false
	case noBlock: // the tag is text, and so is what stands behind it
		s.buf = append([]byte(s.block.open), s.buf...)
		s.mode = inText
		s.emit(out, len(s.block.open))
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
