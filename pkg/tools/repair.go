package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Models write JSON the way people do: in single quotes, with a comma too many,
// in a block of code. repairJSON reads such text as long as it can mean but one
// thing. It never completes what ends too early: the half of a command is
// another command.

const (
	maxRepair  = 1 << 20 // bytes of a text that is repaired
	maxNesting = 200     // objects and arrays within one another
)

// errCut says that a text ends before what it began is complete.
var errCut = errors.New("the text ends too early")

// repairJSON returns text as JSON of the same meaning, or errCut, or an error
// that says what is wrong where. It takes time in proportion to the text.
func repairJSON(text string) (string, error) {
	if len(text) > maxRepair {
		return "", fmt.Errorf("not JSON, and too long to be repaired (%d bytes)", len(text))
	}
	r := &repairer{in: text, out: make([]byte, 0, len(text)+16)}
	if err := r.document(); err != nil {
		return "", err
	}
	return string(r.out), nil
}

type repairer struct {
	in    string
	pos   int
	depth int
	out   []byte
}

// wrong is the error for what stands at the present place.
func (r *repairer) wrong() error {
	if r.pos >= len(r.in) {
		return errCut
	}
	c, _ := utf8.DecodeRuneInString(r.in[r.pos:])
	return fmt.Errorf("unexpected %q at byte %d", c, r.pos+1)
}

func (r *repairer) peek() byte {
	if r.pos < len(r.in) {
		return r.in[r.pos]
	}
	return 0
}

func (r *repairer) skip(token string) bool {
	ok := strings.HasPrefix(r.in[r.pos:], token)
	if ok {
		r.pos += len(token)
	}
	return ok
}

const fence = "```"

func (r *repairer) document() error {
	if _, err := r.space(); err != nil {
		return err
	}
	if r.skip(fence) {
		r.word()
	}
	if err := r.value(); err != nil {
		return err
	}
	if _, err := r.space(); err != nil {
		return err
	}
	for r.skip("}") || r.skip(";") || r.skip(fence) {
		if _, err := r.space(); err != nil {
			return err
		}
	}
	if r.pos < len(r.in) {
		return r.wrong()
	}
	return nil
}

// space skips white space and comments, and reports whether there was any.
func (r *repairer) space() (skipped bool, err error) { return r.blank(false) }

// blank is space. Before a value, [#general] and [//host/share] are lists of
// something without its quotes, so a comment has a space behind its mark there.
func (r *repairer) blank(beforeValue bool) (skipped bool, err error) {
	begin := r.pos
	for {
		switch {
		case strings.IndexByte(" \t\r\n", r.peek()) >= 0:
			r.pos++
		case r.skip("\u00a0"), r.skip("\ufeff"):
		case r.peek() == '#', strings.HasPrefix(r.in[r.pos:], "//"):
			comment, _, _ := strings.Cut(r.in[r.pos:], "\n")
			text := strings.TrimLeft(comment, "#/")
			if beforeValue && text != "" && strings.IndexByte(" \t\r", text[0]) < 0 {
				return r.pos > begin, nil
			}
			r.pos += len(comment)
		case strings.HasPrefix(r.in[r.pos:], "/*"):
			end := strings.Index(r.in[r.pos+2:], "*/")
			if end < 0 {
				return true, errCut
			}
			r.pos += end + 4
		default:
			return r.pos > begin, nil
		}
	}
}

func (r *repairer) value() error {
	if _, err := r.blank(true); err != nil {
		return err
	}
	switch c := r.peek(); {
	case c == '{':
		return r.nested((*repairer).object)
	case c == '[':
		return r.nested((*repairer).array)
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case r.quote() != "":
		return r.text()
	}
	begin := r.pos
	literal := ""
	switch r.word() {
	case "true", "True":
		literal = "true"
	case "false", "False":
		literal = "false"
	case "null", "None":
		literal = "null"
	default:
		if r.pos < len(r.in) || r.depth == 0 {
			r.pos = begin
		}
		return r.wrong()
	}
	r.out = append(r.out, literal...)
	return nil
}

func (r *repairer) nested(read func(*repairer) error) error {
	if r.depth++; r.depth > maxNesting {
		return fmt.Errorf("nested more than %d deep", maxNesting)
	}
	defer func() { r.depth-- }()
	r.pos++
	return read(r)
}

// close ends an object or array if it ends here.
func (r *repairer) close(bracket string) bool {
	ok := r.skip(bracket)
	if ok {
		r.out = append(r.out, bracket...)
	}
	return ok
}

func (r *repairer) object() error {
	r.out = append(r.out, '{')
	for first := true; ; first = false {
		if _, err := r.space(); err != nil || r.close("}") {
			return err
		}
		if !first {
			r.out = append(r.out, ',')
		}
		if err := r.member(); err != nil {
			return err
		}
		spaced, err := r.space()
		if err != nil {
			return err
		}
		switch {
		case r.skip(","), r.peek() == '}', spaced && r.quote() != "":
		default:
			return r.wrong()
		}
	}
}

// member reads a key and its value.
func (r *repairer) member() error {
	if r.quote() != "" {
		if err := r.text(); err != nil {
			return err
		}
	} else {
		key := r.word()
		if key == "" || r.pos == len(r.in) {
			return r.wrong()
		}
		r.out = strconv.AppendQuote(r.out, key) // letters and the like only
	}
	if _, err := r.space(); err != nil {
		return err
	}
	if !r.skip(":") {
		return r.wrong()
	}
	r.out = append(r.out, ':')
	return r.value()
}

func (r *repairer) array() error {
	r.out = append(r.out, '[')
	for first := true; ; first = false {
		if _, err := r.blank(true); err != nil || r.close("]") {
			return err
		}
		if !first {
			r.out = append(r.out, ',')
		}
		if err := r.value(); err != nil {
			return err
		}
		last := r.in[r.pos-1]
		if _, err := r.space(); err != nil {
			return err
		}
		// ["a" "b"] is one string to some and two to others.
		apart := (last == '}' || last == ']') && (r.peek() == '{' || r.peek() == '[')
		if !r.skip(",") && r.peek() != ']' && !apart {
			return r.wrong()
		}
	}
}

// word reads a name; "" if there is none.
func (r *repairer) word() string {
	begin := r.pos
	for r.pos < len(r.in) {
		c := r.in[r.pos]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
		further := r.pos > begin && (c >= '0' && c <= '9' || c == '-')
		if !letter && !further {
			break
		}
		r.pos++
	}
	return r.in[begin:r.pos]
}

func (r *repairer) number() error {
	begin := r.pos
	for r.pos < len(r.in) && strings.IndexByte("+-.0123456789eE", r.in[r.pos]) >= 0 {
		r.pos++
	}
	text := r.in[begin:r.pos]
	if !json.Valid([]byte(text)) {
		if r.pos < len(r.in) {
			r.pos = begin
		}
		return r.wrong()
	}
	r.out = append(r.out, text...)
	return nil
}

// quotes leads from what opens a string to what closes it.
var quotes = []struct{ open, closes string }{
	{`"`, `"`},
	{`'`, `'`},
	{"“", "”“"},
	{"”", "”“"},
	{"„", "”“"},
	{"‘", "’‘"},
	{"’", "’‘"},
}

// quote returns what closes the string that begins here; "" if none does.
func (r *repairer) quote() (closes string) {
	for _, q := range quotes {
		if strings.HasPrefix(r.in[r.pos:], q.open) {
			return q.closes
		}
	}
	return ""
}

// text reads a string.
func (r *repairer) text() error {
	closes := r.quote()
	begin := r.pos
	_, width := utf8.DecodeRuneInString(r.in[r.pos:])
	r.pos += width
	r.out = append(r.out, '"')
	// plain: a backslash stands for itself somewhere. meant: another makes a
	// character. Whoever forgot to double the one has forgotten the other.
	var plain, meant bool
	for r.pos < len(r.in) {
		c, width := utf8.DecodeRuneInString(r.in[r.pos:])
		switch {
		case strings.ContainsRune(closes, c):
			r.pos += width
			if plain && meant {
				r.pos = begin
				return fmt.Errorf("a backslash that is not doubled in the string at byte %d", begin+1)
			}
			r.out = append(r.out, '"')
			return nil
		case c == '\\':
			if err := r.escape(&plain, &meant); err != nil {
				return err
			}
			continue
		case c == '"':
			r.out = append(r.out, `\"`...)
		case c < ' ':
			r.out = fmt.Appendf(r.out, `\u%04x`, c)
		default:
			r.out = utf8.AppendRune(r.out, c) // U+FFFD for what is no character
		}
		r.pos += width
	}
	return errCut
}

// escape reads a backslash and what it makes of the next character.
func (r *repairer) escape(plain, meant *bool) error {
	if r.pos++; r.pos >= len(r.in) {
		return errCut
	}
	switch c := r.in[r.pos]; c {
	case '\'':
		r.out = append(r.out, c)
	case '"', '\\', '/':
		r.out = append(r.out, '\\', c)
	case 'b', 'f', 'n', 'r', 't':
		*meant = true
		r.out = append(r.out, '\\', c)
	case 'u':
		*meant = true
		if r.pos+5 > len(r.in) {
			return errCut
		}
		digits := r.in[r.pos+1 : r.pos+5]
		if _, err := strconv.ParseUint(digits, 16, 16); err != nil {
			return r.wrong()
		}
		r.out = append(r.out, '\\', 'u')
		r.out = append(r.out, digits...)
		r.pos += 4
	default:
		*plain = true
		r.out = append(r.out, `\\`...)
		return nil // the character itself is read like any other
	}
	r.pos++
	return nil
}

// maxWrapped is how many strings within one another the arguments may be in.
const maxWrapped = 4

// readArguments reads the text of a call's arguments, and returns them with a
// text of the same meaning that is a JSON object. No text and null mean no
// arguments. The error is errCut, or says what is wrong.
func readArguments(text string) (args map[string]interface{}, object string, err error) {
	for range maxWrapped {
		text = strings.TrimSpace(text)
		if text == "" || text == "null" {
			return map[string]interface{}{}, "{}", nil
		}
		if text[0] == '{' && json.Unmarshal([]byte(text), &args) == nil {
			return args, text, nil
		}
		if json.Valid([]byte(text)) {
			if text[0] != '"' || json.Unmarshal([]byte(text), &text) != nil {
				return nil, "", errors.New("they have another form")
			}
			continue // a string within a string
		}
		if text, err = repairJSON(text); err != nil {
			return nil, "", err
		}
	}
	return nil, "", errors.New("they are strings within strings")
}
