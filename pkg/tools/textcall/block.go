package textcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxBlock bounds a block, in bytes. A longer one is an error, and takes what is
// left of the reply with it.
const maxBlock = 256 << 10

var (
	errCut       = errors.New("the tool block is not complete")
	errNotClosed = errors.New("the tool block is not closed")
	errMore      = errors.New("invalid JSON: something stands behind the object")
	errTooLong   = fmt.Errorf("the tool block is longer than %d KiB", maxBlock>>10)
)

// scan looks for the end of one block while it arrives.
type scan struct {
	open   string
	closer []byte

	seen   int  // up to here there is nothing new
	cdata  bool // of the XML form: seen is within CDATA
	closed int  // how many closing tags there were
	result Block
}

type verdict int

const (
	undecided verdict = iota
	noBlock           // it only looks like one
	found             // result is set, and where the block ends
	hopeless          // result is set, and there is no end to be found
)

// find reads the block from the beginning of buf, which stands behind the
// opening tag and has grown since the last time.
func (s *scan) find(buf []byte, final, cut bool) (end int, v verdict) {
	whole := final || len(buf) > maxBlock
	if len(buf) > maxBlock {
		buf = buf[:maxBlock]
		cut = false
	}
	switch f := s.form(buf); {
	case f == formUnknown && !whole:
		return 0, undecided
	case f == formUnknown && cut:
		return s.hopeless(buf, errCut)
	case f == formUnknown, f == formNone:
		return 0, noBlock
	case f == formXML:
		return s.xml(buf, whole)
	}
	return s.json(buf, whole, cut)
}

func (s *scan) hopeless(buf []byte, err error) (int, verdict) {
	if len(buf) == maxBlock {
		err = errTooLong
	}
	s.result.Err = quoted(err, buf)
	return len(buf), hopeless
}

type form int

const (
	formUnknown form = iota // not yet
	formNone                // no block
	formJSON
	formXML
)

// xmlFields are the elements by which the XML form may begin.
var xmlFields = []string{"<server_name>", "<tool_name>", "<name>", "<arguments>"}

func (s *scan) form(buf []byte) form {
	body := bytes.TrimLeft(buf, " \t\r\n")
	switch {
	case len(body) == 0:
		return formUnknown
	case body[0] == '{':
		return formJSON
	}
	f := formNone
	for _, field := range xmlFields {
		if bytes.HasPrefix(body, []byte(field)) {
			return formXML
		}
		if strings.HasPrefix(field, string(body)) {
			f = formUnknown
		}
	}
	return f
}

// json looks at the closing tags one by one, since one may be within a string:
// the first, the second, the fourth and so on, so that text full of them costs
// little. Whichever it looks at, the end is found from the beginning.
func (s *scan) json(buf []byte, whole, cut bool) (int, verdict) {
	for {
		i := bytes.Index(buf[s.seen:], s.closer)
		if i < 0 {
			s.seen = max(s.seen, len(buf)-len(s.closer)+1)
			break
		}
		s.seen += i + len(s.closer)
		s.closed++
		if s.closed&(s.closed-1) != 0 {
			continue
		}
		raw, at, err := value(buf[:s.seen])
		if err != nil {
			s.result.Err = quoted(err, buf[:s.seen-len(s.closer)])
			return s.seen, found
		}
		if end, ok := s.close(buf[:s.seen], raw, at); ok {
			return end, found
		}
	}
	if !whole {
		return 0, undecided
	}
	raw, at, err := value(buf)
	if err != nil {
		return s.hopeless(buf, err)
	}
	if end, ok := s.close(buf, raw, at); ok {
		return end, found
	}
	if at == 0 || cut {
		return s.hopeless(buf, errCut)
	}
	if tail := bytes.TrimSpace(buf[at:]); len(buf) == maxBlock || !bytes.HasPrefix(s.closer, tail) {
		return s.hopeless(buf, errNotClosed)
	}
	s.result = fromJSON(raw)
	return len(buf), found
}

// value decodes the JSON value that buf begins with. Its end is 0 if it goes on
// behind buf.
func value(buf []byte) (raw json.RawMessage, end int, err error) {
	d := json.NewDecoder(bytes.NewReader(buf))
	switch err := d.Decode(&raw); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("invalid JSON: %w", err)
	}
	return raw, int(d.InputOffset()), nil
}

// close wants the closing tag behind a value that ends at a place in buf.
func (s *scan) close(buf []byte, raw json.RawMessage, at int) (end int, ok bool) {
	if at == 0 {
		return 0, false
	}
	i := bytes.Index(buf[at:], s.closer)
	if i < 0 {
		return 0, false
	}
	if len(bytes.TrimSpace(buf[at:at+i])) > 0 {
		s.result.Err = quoted(errMore, buf[:at+i])
	} else {
		s.result = fromJSON(raw)
	}
	return at + i + len(s.closer), true
}

const cdata, cdataEnd = "<![CDATA[", "]]>"

// xml looks for the first closing tag that is not within CDATA.
func (s *scan) xml(buf []byte, whole bool) (int, verdict) {
	for {
		rest := buf[s.seen:]
		if s.cdata {
			i := bytes.Index(rest, []byte(cdataEnd))
			if i < 0 {
				s.seen = max(s.seen, len(buf)-len(cdataEnd)+1)
				break
			}
			s.seen, s.cdata = s.seen+i+len(cdataEnd), false
			continue
		}
		i, j := bytes.Index(rest, s.closer), bytes.Index(rest, []byte(cdata))
		if i >= 0 && (j < 0 || i < j) {
			end := s.seen + i + len(s.closer)
			s.result = fromXML(buf[:end-len(s.closer)])
			return end, found
		}
		if j < 0 {
			s.seen = max(s.seen, len(buf)-max(len(s.closer), len(cdata))+1)
			break
		}
		s.seen, s.cdata = s.seen+j+len(cdata), true
	}
	if !whole {
		return 0, undecided
	}
	return s.hopeless(buf, errNotClosed)
}
