package openai

import (
	"bytes"
	"unicode/utf8"
)

// frame is what stands around the text in the events of a stream. Nearly all are
// the same but for it, and decoding each as if it were new takes most of the
// time that streaming costs. The zero value fits nothing.
type frame struct {
	before, after []byte
	rest          []byte // behind the padding that OpenAI adds; nil if there is none
}

// padding is a field that only hides how long an event is.
const padding = `"obfuscation":"`

// learn takes the frame of an event that says nothing but a text. It is sound
// only if the text, in its quotes, stands there once.
func (f *frame) learn(data []byte, piece *answer) {
	f.before = f.before[:0]
	if len(piece.Choices) != 1 || piece.Usage != nil || piece.Choices[0].FinishReason != "" || piece.Choices[0].Delta == nil {
		return
	}
	d := piece.Choices[0].Delta
	if d.Content == "" || d.Refusal != "" || d.Reasoning != "" || d.ReasoningContent != "" || len(d.ToolCalls) > 0 {
		return
	}
	quoted := []byte(`"` + d.Content + `"`)
	at := bytes.Index(data, quoted)
	if at < 0 || bytes.Count(data, quoted) != 1 || !asWritten(quoted[1:len(quoted)-1]) {
		return
	}
	f.before = append(f.before, data[:at+1]...)
	f.after, f.rest = append(f.after[:0], data[at+len(quoted)-1:]...), nil
	if at := bytes.Index(f.after, []byte(padding)); at >= 0 {
		value := f.after[at+len(padding):]
		if end := bytes.IndexByte(value, '"'); end >= 0 {
			f.after, f.rest = f.after[:at+len(padding)], value[end:]
		}
	}
}

// text returns the text of an event that has the frame.
func (f *frame) text(data []byte) (text []byte, ok bool) {
	if len(f.before) == 0 {
		return nil, false
	}
	data, ok = bytes.CutPrefix(data, f.before)
	if !ok {
		return nil, false
	}
	text, data, ok = value(data)
	if !ok {
		return nil, false
	}
	if f.rest == nil {
		return text, bytes.Equal(data, f.after)
	}
	if data, ok = bytes.CutPrefix(data, f.after); !ok {
		return nil, false
	}
	_, data, ok = value(data)
	return text, ok && bytes.Equal(data, f.rest)
}

// value cuts off the inside of a JSON string that says what it is.
func value(data []byte) (inside, rest []byte, ok bool) {
	end := bytes.IndexByte(data, '"')
	if end < 0 || !asWritten(data[:end]) {
		return nil, nil, false
	}
	return data[:end], data[end:], true
}

// asWritten reports whether the inside of a JSON string is its value.
func asWritten(s []byte) bool {
	for _, c := range s {
		if c == '\\' || c == '"' || c < ' ' {
			return false
		}
	}
	return utf8.Valid(s)
}
