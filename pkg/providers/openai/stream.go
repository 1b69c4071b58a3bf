package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// errCutOff is an answer that ends before it is over.
var errCutOff = errors.New("it ends in the middle")

// midwayError is a failure that the service tells in the middle of a stream. raw
// is what it wrote, nil if it gave no reason.
type midwayError struct{ raw []byte }

func (*midwayError) Error() string { return "the service failed on the way" }

// read takes in a whole answer or a stream of pieces: what was asked for is a
// hint, what arrives counts.
func (a *assembly) read(seen *observation) error {
	r := bufio.NewReader(seen.body)
	first, err := firstByte(r)
	if err != nil {
		return err
	}
	if first != '{' && first != '<' && (seen.events || isField(r)) {
		return a.stream(r, seen.alive)
	}
	var whole answer
	if err := tolerate(json.NewDecoder(r).Decode(&whole), &whole); err != nil {
		return err
	}
	return a.add(&whole)
}

// tolerate forgets that a field is not of its type: the others were read.
func tolerate(err error, read *answer) error {
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && len(read.Choices) > 0 {
		return nil
	}
	return err
}

// firstByte skips the space that keeps connections alive.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(space), rune(b)) {
			return b, r.UnreadByte()
		}
	}
}

// isField reports whether an answer begins like a stream of events.
func isField(r *bufio.Reader) bool {
	for _, field := range []string{"data:", ":", "event:", "id:", "retry:"} {
		if begin, err := r.Peek(len(field)); err == nil && string(begin) == field {
			return true
		}
	}
	return false
}

// stream takes in server-sent events, of which only the data count. It is over
// with the server's mark or, from servers without one, with a finish reason.
// alive is called before what may be the last wait.
func (a *assembly) stream(r *bufio.Reader, alive func()) error {
	for {
		if a.finish != "" && r.Buffered() == 0 {
			alive()
		}
		line, end := readLine(r)
		ended := errors.Is(end, io.EOF)
		data, ok := dataOf(line)
		if string(data) == "[DONE]" {
			return nil
		}
		if ok && (end == nil || ended) {
			switch err := a.event(data); {
			case err != nil && ended:
				return errCutOff
			case err != nil:
				return err
			}
		}
		switch {
		case end == nil:
		case a.finish != "":
			return nil
		case ended && a.any:
			return errCutOff
		default:
			return end
		}
	}
}

func (a *assembly) event(data []byte) error {
	if text, ok := a.frame.text(data); ok {
		a.pieces++
		return a.text(string(text))
	}
	var piece answer
	if err := tolerate(json.Unmarshal(data, &piece), &piece); err != nil {
		return err
	}
	if len(piece.Error) > 0 && string(piece.Error) != "null" {
		return &midwayError{bytes.Clone(data)}
	}
	if len(piece.Choices) > 0 {
		a.pieces++
	}
	a.frame.learn(data, &piece)
	return a.add(&piece)
}

// dataOf returns the data of a line. Some servers write an error in place of an
// event, without a field.
func dataOf(line []byte) (data []byte, ok bool) {
	line = bytes.TrimRight(line, "\r\n")
	if data, ok = bytes.CutPrefix(line, []byte("data:")); ok {
		data = bytes.TrimSpace(data)
		return data, len(data) > 0
	}
	return line, len(line) > 0 && line[0] == '{'
}

// readLine returns the next line with its end. It is good until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long) > httpapi.MaxAnswer {
			return nil, httpapi.ErrTooLarge
		}
		line, err = r.ReadSlice('\n')
		long = append(long, line...)
	}
	return long, err
}
