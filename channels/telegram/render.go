package telegram

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// renderer turns Markdown into a text and entities. Entities are used rather
// than HTML or MarkdownV2 because no text can then be refused for its markup.
//
// Only markup that is understood disappears from the text; everything else
// stays as it was written: HTML, tables, link definitions.
type renderer struct{ parser parser.Parser }

func newRenderer() *renderer {
	return &renderer{parser.NewParser(
		parser.WithBlockParsers(
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(parser.NewListParser(), 300),
			util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500),
			util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(parser.NewBlockquoteParser(), 800),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithInlineParsers(
			util.Prioritized(parser.NewCodeSpanParser(), 100),
			util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300),
			util.Prioritized(parser.NewEmphasisParser(), 500),
			util.Prioritized(extension.NewStrikethroughParser(), 500),
		),
	)}
}

// maxEntities is how many entities Telegram keeps; it ignores the rest.
const maxEntities = 100

// measure returns how many UTF-16 units markdown takes once it is rendered.
func (r *renderer) measure(markdown string) int {
	text, _ := r.render(markdown)
	return lenUTF16(text)
}

// render is pure and safe for concurrent use.
func (r *renderer) render(markdown string) (string, []entity) {
	markdown = clean(markdown)
	if !hasMarkup(markdown) || nestsTooDeep(markdown) {
		return markdown, nil
	}
	source := []byte(markdown + "\n") // without it the parser loses a fence's last info string
	w := &writer{source: source}
	w.blocks(r.parser.Parse(text.NewReader(source)))
	if rendered := strings.TrimRight(w.out.String(), " \n"); !isInvisible(rendered) {
		return w.finish(rendered)
	}
	return markdown, nil // nothing but markup, such as an empty code block
}

// clean makes a text of valid characters and plain newlines.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	if strings.IndexByte(s, '\r') >= 0 {
		s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	}
	return strings.TrimRight(s, " \n")
}

// isInvisible reports whether Telegram would call the text empty.
func isInvisible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > ' ' && !strings.ContainsRune(blanks, r) }) < 0
}

// blanks are the characters above the space that show nothing.
const blanks = "\u007f\u0085\u00a0\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e" +
	"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u200c\u200d\u200e\u200f\u2028\u2029" +
	"\u202a\u202b\u202c\u202d\u202e\u202f\u205f\u2060\u2061\u2062\u2063\u2064\u206a\u206b\u206c\u206d\u206e\u206f\u2800\u3000\u3164\ufeff\uffa0"

// hasMarkup reports whether s could hold any Markdown; false is certain.
func hasMarkup(s string) bool {
	lineStart := true
	for i := range len(s) {
		switch c := s[i]; c {
		case '*', '_', '`', '~', '[', '<', '>', '\\', '#', '\t':
			return true
		case '\n':
			lineStart = true
		case ' ':
			if lineStart && strings.HasPrefix(s[i:], "    ") {
				return true // a code block
			}
		default:
			if lineStart && (c == '-' || c == '+' || c >= '0' && c <= '9') {
				return true // perhaps a list
			}
			lineStart = false
		}
	}
	return false
}

// maxNesting is how many quotes and lists may stand within one another. Nobody
// writes that many, and the parser's work grows with their square.
const maxNesting = 32

// nestsTooDeep reports whether a line opens more quotes and lists than that.
func nestsTooDeep(s string) bool {
	marks, leading := 0, true
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			marks, leading = 0, true
		case !leading || strings.IndexByte(" \t0123456789", c) >= 0:
		case strings.IndexByte(">-+*.)", c) < 0:
			leading = false
		case c == '>' || strings.HasPrefix(s[i+1:], " "):
			if marks++; marks > maxNesting {
				return true
			}
		}
	}
	return false
}

func lenUTF16(s string) int {
	n := 0
	for _, r := range s {
		n += unitsOf(r)
	}
	return n
}

// writer collects the text and the entities.
type writer struct {
	source   []byte
	out      strings.Builder
	units    int // of out, in UTF-16
	entities []entity
	quotes   int // nested in how many quotes
	depth    int // nested in how many lists
}

func (w *writer) string(s string) {
	w.out.WriteString(s)
	w.units += lenUTF16(s)
}

func (w *writer) bytes(b []byte) {
	w.out.Write(b)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		w.units += unitsOf(r)
	}
}

// mark makes an entity of what was written since start.
func (w *writer) mark(e entity, start int) {
	if w.units > start && len(w.entities) < maxEntities {
		e.Offset, e.Length = start, w.units-start
		w.entities = append(w.entities, e)
	}
}

// finish makes the entities fit the text, which may have lost its last
// whitespace.
func (w *writer) finish(rendered string) (string, []entity) {
	end := lenUTF16(rendered)
	kept := w.entities[:0]
	for _, e := range w.entities {
		e.Length = min(e.Length, end-e.Offset)
		if e.Length > 0 {
			kept = append(kept, e)
		}
	}
	return rendered, kept
}

// blocks writes the blocks within parent.
func (w *writer) blocks(parent ast.Node) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if n.PreviousSibling() != nil {
			w.gap(n)
		}
		w.block(n)
	}
}

// gap separates a block from the one before.
func (w *writer) gap(n ast.Node) {
	w.string("\n")
	if n.Type() == ast.TypeBlock && n.HasBlankPreviousLines() {
		w.string("\n")
	}
}

func (w *writer) block(n ast.Node) {
	start := w.units
	switch n := n.(type) {
	case *ast.Heading:
		w.inlines(n)
		w.mark(entity{Type: "bold"}, start)
	case *ast.Blockquote:
		w.quotes++
		w.blocks(n)
		w.quotes--
		if w.quotes == 0 { // quotes cannot be nested
			w.mark(entity{Type: "blockquote"}, start)
		}
	case *ast.FencedCodeBlock:
		w.code(n, n.Info)
	case *ast.CodeBlock:
		w.code(n, nil)
	case *ast.List:
		w.list(n)
	case *ast.ThematicBreak:
		w.string("———")
	default: // paragraphs
		if isTable(n, w.source) {
			w.code(n, nil) // its columns line up in a fixed font
			return
		}
		w.inlines(n)
	}
}

// isTable reports whether a paragraph's second line is the rule under a table's
// head.
func isTable(n ast.Node, source []byte) bool {
	if n.Type() != ast.TypeBlock || n.Lines().Len() < 2 {
		return false
	}
	segment := n.Lines().At(1)
	rule := strings.TrimSpace(string(segment.Value(source)))
	return strings.Contains(rule, "|") && strings.Contains(rule, "-") && strings.Trim(rule, "|-: ") == ""
}

func (w *writer) code(n ast.Node, info *ast.Text) {
	start, begin := w.units, w.out.Len()
	lines := n.Lines()
	for i := range lines.Len() {
		segment := lines.At(i)
		b := segment.Value(w.source)
		if i == lines.Len()-1 && len(b) > 0 && b[len(b)-1] == '\n' {
			b = b[:len(b)-1]
		}
		w.bytes(b)
	}
	e := entity{Type: "pre"}
	if info != nil {
		e.Language = strings.TrimSpace(string(info.Segment.Value(w.source)))
	}
	if e.Language != "" && isInvisible(w.out.String()[begin:]) {
		w.string(e.Language) // a block without code: at least nothing is lost
		return
	}
	w.mark(e, start)
}

func (w *writer) list(list *ast.List) {
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		if item.PreviousSibling() != nil {
			w.gap(item)
		}
		w.string(strings.Repeat("  ", w.depth))
		if list.IsOrdered() {
			w.string(w.number(item, number) + string(rune(list.Marker)) + " ")
			number++
		} else {
			w.string("• ")
		}
		w.depth++
		w.blocks(item)
		w.depth--
	}
}

// number returns an item's number as it was written, which need not be the one
// that is due.
func (w *writer) number(item ast.Node, due int) string {
	start := item.Pos()
	if start >= 0 && start < len(w.source) {
		end := start
		for end < len(w.source) && w.source[end] >= '0' && w.source[end] <= '9' {
			end++
		}
		if end > start {
			return string(w.source[start:end])
		}
	}
	return strconv.Itoa(due)
}

// inlines writes the text within parent.
func (w *writer) inlines(parent ast.Node) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		w.inline(n)
	}
}

func (w *writer) inline(n ast.Node) {
	start := w.units
	switch n := n.(type) {
	case *ast.Text:
		w.bytes(util.UnescapePunctuations(n.Segment.Value(w.source)))
		if n.SoftLineBreak() || n.HardLineBreak() {
			w.string("\n")
		}
	case *ast.CodeSpan:
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			if t, ok := c.(*ast.Text); ok {
				w.bytes(t.Segment.Value(w.source))
			}
		}
		w.mark(entity{Type: "code"}, start)
	case *ast.Emphasis:
		w.inlines(n)
		kind := "italic"
		if n.Level > 1 {
			kind = "bold"
		}
		w.mark(entity{Type: kind}, start)
	case *extast.Strikethrough:
		w.inlines(n)
		w.mark(entity{Type: "strikethrough"}, start)
	case *ast.Link:
		w.inlines(n)
		w.link(start, n.Destination, n.Title)
	case *ast.Image:
		w.inlines(n)
		w.link(start, n.Destination, n.Title)
	case *ast.AutoLink:
		w.bytes(n.Label(w.source))
	default:
		w.inlines(n)
	}
}

// link makes what was written since start a link; where Telegram would drop it,
// the address is written out.
func (w *writer) link(start int, destination, title []byte) {
	to := string(util.UnescapePunctuations(destination))
	if len(title) == 0 && w.units > start && len(w.entities) < maxEntities && isLinkable(to) {
		w.mark(entity{Type: "text_link", URL: to}, start)
		return
	}
	if w.units > start {
		w.string(" ")
	}
	w.string("(" + to)
	if len(title) > 0 {
		w.string(` "` + string(util.UnescapePunctuations(title)) + `"`)
	}
	w.string(")")
}

// isLinkable reports whether Telegram accepts an address in a link.
func isLinkable(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil &&
		strings.Contains(strings.Trim(u.Hostname(), "."), ".") && !strings.ContainsAny(s, " \t\n")
}
