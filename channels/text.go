package channels

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Split cuts Markdown text into parts that each measure at most limit, in
// order. It cuts at the best boundary in the second half of a part: a
// paragraph, else a line, a sentence, a word; only where there is none, between
// two grapheme clusters. What is lost is the whitespace at a cut and nothing
// else. A code fence that a cut runs through is closed in the one part and
// opened again, with its language, in the next; that is counted too.
//
// measure must be pure and may be linear in its argument; Split then takes
// about linear time. Blank text gives no parts; text that fits is returned
// unchanged; a limit of 0 or less is no limit. Where nothing else is possible a
// single grapheme cluster larger than limit is cut between its runes, a single
// rune larger than limit is a part of its own, and a fence whose opening line
// fills more than half of limit is not opened again.
func Split(text string, limit int, measure func(string) int) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if limit <= 0 || (len(text)/8 <= limit && measure(text) <= limit) {
		return []string{text}
	}
	s := newSplitter(text, limit, measure)
	var parts []string
	for _, p := range s.pieces() {
		parts = append(parts, s.compose(p.start, p.end))
	}
	return parts
}

// piece is the range of the text that one part holds.
type piece struct{ start, end int }

// fence is a fenced code block of the text.
type fence struct {
	start int // the opening line
	body  int // the first byte after the opening line
	close int // the closing line; len(text) if there is none
	end   int // the end of the closing line, without its newline

	reopen string // the line that opens it again, with its newline; empty if that does not fit
	closer string // the line that closes it; empty if that does not fit
}

type splitter struct {
	text    string
	limit   int
	measure func(string) int
	fences  []fence // in order, not overlapping
}

func newSplitter(text string, limit int, measure func(string) int) *splitter {
	s := &splitter{text: text, limit: limit, measure: measure, fences: findFences(text)}
	fit := make(map[string]bool)
	for i := range s.fences {
		f := &s.fences[i]
		key := f.reopen + f.closer
		ok, known := fit[key]
		if !known {
			ok = measure(f.reopen+"\n"+f.closer) <= limit/2
			fit[key] = ok
		}
		if !ok {
			f.reopen, f.closer = "", ""
		}
	}
	return s
}

// pieces cuts the whole text.
func (s *splitter) pieces() []piece {
	var out []piece
	for pos := s.skip(0); pos < len(s.text); {
		end, next := s.cut(pos)
		if strings.TrimSpace(s.text[pos:end]) != "" {
			out = append(out, piece{pos, end})
		}
		pos = next
	}
	return out
}

// at returns the fence that a cut at e runs through, nil if none.
func (s *splitter) at(e int) *fence {
	i := sort.Search(len(s.fences), func(i int) bool { return s.fences[i].end > e })
	if i < len(s.fences) && s.fences[i].start < e {
		return &s.fences[i]
	}
	return nil
}

// compose is the part that holds text[pos:end].
func (s *splitter) compose(pos, end int) string {
	var prefix, suffix string
	if f := s.at(pos); f != nil && pos >= f.body {
		prefix = f.reopen
	}
	f := s.at(end)
	if f == nil || end < f.body {
		body := s.text[pos:end]
		if end < len(s.text) {
			body = strings.TrimRight(body, " \t\r\n")
		}
		return prefix + body
	}
	body := s.text[pos:min(end, f.close)]
	if f.closer != "" {
		suffix = f.closer
		if !strings.HasSuffix(body, "\n") {
			suffix = "\n" + suffix
		}
	}
	return prefix + body + suffix
}

func (s *splitter) fits(pos, end int) bool { return s.measure(s.compose(pos, end)) <= s.limit }

// cut returns where the part that starts at pos ends, and where the next one
// starts.
func (s *splitter) cut(pos int) (end, next int) {
	far := s.reach(pos)
	if far == len(s.text) {
		return far, far
	}
	half := pos + (far-pos)/2
	tries := 16 // a measure that is not monotone must not cost more than this
	for _, from := range [...]int{half, pos} {
		for rank := paragraph; rank <= word; rank++ {
			for e := s.last(rank, pos, from, far); e > from && tries > 0; e = s.last(rank, pos, from, e-1) {
				end, next = s.around(pos, e)
				if end > pos && s.graphemeFloor(pos, next) == next && s.graphemeFloor(pos, end) == end {
					if s.fits(pos, end) {
						return end, next
					}
					tries--
				}
			}
		}
	}
	return s.anywhere(pos, far)
}

// anywhere cuts between two grapheme clusters, or between two runes if there is
// only one cluster.
func (s *splitter) anywhere(pos, far int) (end, next int) {
	for {
		end = s.graphemeFloor(pos, far)
		if end <= pos {
			end = far
		}
		if s.fits(pos, end) {
			break
		}
		shorter := s.runeFloor(pos + (end-pos)/2)
		if shorter <= pos {
			_, size := utf8.DecodeRuneInString(s.text[pos:])
			end = pos + size
			break
		}
		far = shorter
	}
	if next = s.skip(end); s.graphemeFloor(end, next) != next {
		next = end // the whitespace carries an accent
	}
	return end, next
}

// reach returns roughly the furthest end of a part that starts at pos and still
// fits, at least one rune away.
func (s *splitter) reach(pos int) int {
	lo, hi := pos, len(s.text)
	for w := s.limit; ; w *= 2 {
		if w >= len(s.text)-pos {
			if s.fits(pos, len(s.text)) {
				return len(s.text)
			}
			break
		}
		e := s.runeFloor(pos + w)
		if !s.fits(pos, e) {
			hi = e
			break
		}
		lo = e
	}
	for hi-lo > max(1, s.limit/128) {
		mid := s.runeFloor(lo + (hi-lo)/2)
		if mid <= lo {
			_, size := utf8.DecodeRuneInString(s.text[lo:])
			if mid = lo + size; mid >= hi {
				break
			}
		}
		if s.fits(pos, mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo == pos {
		_, size := utf8.DecodeRuneInString(s.text[pos:])
		lo += size
	}
	return lo
}

// The ranks of a boundary, best first.
const (
	paragraph = iota
	line
	sentence
	word
)

// last returns the last boundary of a rank in (from, to], or from.
func (s *splitter) last(rank, pos, from, to int) int {
	for e := to; e > from; e-- {
		if s.isBoundary(rank, pos, e) {
			return e
		}
	}
	return from
}

// isBoundary reports whether a cut at e, whose next byte is whitespace or the
// first after a full stop that needs none, is one of that rank.
func (s *splitter) isBoundary(rank, pos, e int) bool {
	c := s.text[e]
	switch rank {
	case paragraph:
		if c != '\n' {
			return false
		}
		if s.at(e) != nil {
			return false
		}
		rest := s.text[e+1:]
		i := 0
		for i < len(rest) && (rest[i] == ' ' || rest[i] == '\t' || rest[i] == '\r') {
			i++
		}
		return i == len(rest) || rest[i] == '\n' || s.at(e-1) != nil || s.at(e+2) != nil
	case line:
		return c == '\n'
	case sentence:
		return s.endsSentence(pos, e) && s.at(e) == nil && !startsFence(s.text[e:])
	default:
		return (c == ' ' || c == '\t') && !startsFence(s.text[e:])
	}
}

func (s *splitter) endsSentence(pos, e int) bool {
	r, size := utf8.DecodeLastRuneInString(s.text[pos:e])
	switch r {
	case '。', '！', '？':
		return true
	case '"', '\'', ')', ']', '”', '’', '*', '_':
		r, _ = utf8.DecodeLastRuneInString(s.text[pos : e-size])
	}
	if c := s.text[e]; c != ' ' && c != '\t' {
		return false
	}
	return r == '.' || r == '!' || r == '?' || r == '…'
}

// startsFence reports whether text, put at the start of a line, would open a
// code fence that is none where it stands now.
func startsFence(text string) bool {
	text = strings.TrimLeft(text, " \t")
	return strings.HasPrefix(text, "```") || strings.HasPrefix(text, "~~~")
}

// around turns a boundary at e into the end of one part and the start of the
// next.
func (s *splitter) around(pos, e int) (end, next int) {
	f := s.at(e)
	if f == nil {
		for e > pos && isSpace(s.text[e-1]) {
			e--
		}
		if f = s.at(e); f == nil {
			return e, s.skip(e)
		}
	}
	if e < f.body || strings.TrimSpace(s.text[f.body:e]) == "" {
		// An opening line alone would be an empty block: cut before it.
		if f.start <= pos {
			return pos, pos
		}
		return s.around(pos, f.start)
	}
	return e, s.skip(e)
}

// skip returns where a part that follows a cut at e starts: behind the
// whitespace, but before the indentation of a new line. In a code fence only
// one newline is dropped; if nothing but blank lines remain of it, it is over.
func (s *splitter) skip(e int) int {
	if f := s.at(e); f != nil && e >= f.body {
		if e < f.close && s.text[e] == '\n' && s.text[e-1] != '\n' {
			e++
		}
		if e < f.close && strings.Trim(s.text[e:f.close], " \t\r\n") != "" || f.closer == "" && e < f.end {
			return e
		}
		e = f.end
	}
	next := e
	for i := e; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\n':
			next = i + 1
		case !isSpace(s.text[i]):
			if next == e && e > 0 {
				return i
			}
			return next
		}
	}
	return len(s.text)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// runeFloor returns the last boundary between runes at or before e. A byte that
// is not UTF-8 is a rune of its own.
func (s *splitter) runeFloor(e int) int {
	for start := e - 1; start > e-utf8.UTFMax && start >= 0 && e < len(s.text); start-- {
		if utf8.RuneStart(s.text[start]) {
			if _, size := utf8.DecodeRuneInString(s.text[start:]); start+size > e {
				return start
			}
			break
		}
	}
	return e
}

// graphemeFloor returns the last boundary between grapheme clusters at or
// before e. pos must be one.
func (s *splitter) graphemeFloor(pos, e int) int {
	if e >= len(s.text) {
		return e
	}
	start := e
	for start > pos && !surelyApart(s.text[start-1], s.text[start]) {
		start--
	}
	state := -1
	for rest := s.text[start:]; start < e; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if start+len(cluster) > e {
			return start
		}
		start += len(cluster)
	}
	return start
}

// surelyApart reports whether the bytes a and b, side by side, are known
// without further context to belong to different grapheme clusters.
func surelyApart(a, b byte) bool {
	return a == '\n' || a < utf8.RuneSelf && b < utf8.RuneSelf && (a != '\r' || b != '\n')
}

// findFences finds the code fences of text, also in quotes and list items.
func findFences(text string) []fence {
	if !strings.Contains(text, "```") && !strings.Contains(text, "~~~") {
		return nil
	}
	var (
		out    []fence
		open   bool
		marker string
		quotes int
	)
	for start := 0; start < len(text); {
		end, next := len(text), len(text)
		if i := strings.IndexByte(text[start:], '\n'); i >= 0 {
			end, next = start+i, start+i+1
		}
		prefix, m, info := fenceLine(text[start:end], !open)
		depth := strings.Count(prefix, ">")
		switch {
		case !open && m != "":
			out = append(out, fence{
				start: start, body: next, close: len(text), end: len(text),
				reopen: prefix + m + info + "\n", closer: prefix + m,
			})
			open, marker, quotes = true, m, depth
		case open && depth < quotes:
			last := &out[len(out)-1] // the quote is over, and the fence with it
			last.close, last.end, open = start, start, false
			continue // the line may open the next one
		case open && depth == quotes && strings.HasPrefix(m, marker) && info == "":
			last := &out[len(out)-1]
			last.close, last.end, open = start, end, false
		}
		start = next
	}
	return out
}

// fenceLine reads a line that may open or close a fence: what stands before it
// (indentation and quote marks; list marks become blanks), the run of backticks
// or tildes, and the info string. marker is empty for any other line.
func fenceLine(s string, lists bool) (prefix, marker, info string) {
	i := 0
	var b strings.Builder
	for i < len(s) {
		if s[i] == ' ' || s[i] == '\t' || s[i] == '>' {
			b.WriteByte(s[i])
			i++
			continue
		}
		n := listMark(s[i:])
		if !lists || n == 0 {
			break
		}
		b.WriteString(strings.Repeat(" ", n))
		i += n
	}
	rest := s[i:]
	n := 0
	for n < len(rest) && (rest[n] == '`' || rest[n] == '~') && rest[n] == rest[0] {
		n++
	}
	info = strings.TrimSpace(rest[n:])
	if n < 3 || (rest[0] == '`' && strings.Contains(info, "`")) {
		return b.String(), "", ""
	}
	return b.String(), rest[:n], info
}

// listMark returns the length of a list mark such as "- " or "12. ".
func listMark(s string) int {
	i := 0
	for i < len(s) && i < 9 && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i < len(s) && ((i > 0 && (s[i] == '.' || s[i] == ')')) || (i == 0 && (s[i] == '-' || s[i] == '*' || s[i] == '+'))) {
		if i+1 < len(s) && s[i+1] == ' ' {
			return i + 2
		}
	}
	return 0
}
