package openai

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

const maxCalls = 1000 // of one reply; no model means that many

var errTooManyCalls = errors.New("the answer holds more than 1000 tool calls")

// assembly makes one reply of an answer that is whole or comes in pieces.
type assembly struct {
	onDelta func(providers.Delta) // nil: nobody watches
	told    bool                  // onDelta was given a text

	content, refusal strings.Builder
	thinking         thinking
	calls            []*draft
	finish           string
	usage            *usage
	frame            frame
	any              bool // there was a choice
	pieces           int  // events that brought something
	size             int  // bytes of text taken in
}

// draft is a call that may not be whole yet.
type draft struct {
	index     int // -1 if the server gives none
	id, name  string
	arguments strings.Builder
}

// add takes the next piece. Only the first choice counts; nobody asks for more.
func (a *assembly) add(piece *answer) error {
	if piece.Usage != nil {
		a.usage = piece.Usage
	}
	if len(piece.Choices) == 0 {
		return nil
	}
	a.any = true
	c := &piece.Choices[0]
	if c.FinishReason != "" {
		a.finish = string(c.FinishReason)
	}
	m, whole := c.Delta, false
	if m == nil {
		m, whole = c.Message, true
	}
	if m == nil {
		return nil
	}
	thought := m.ReasoningContent
	if thought == "" {
		thought = m.Reasoning
	}
	a.think(string(thought))
	if err := a.text(string(m.Content)); err != nil {
		return err
	}
	if m.Refusal != "" {
		a.refuse(string(m.Refusal))
	}
	for i := range m.ToolCalls {
		if err := a.call(&m.ToolCalls[i], whole); err != nil {
			return err
		}
	}
	return a.grow(len(m.Refusal) + len(thought))
}

// text takes a piece of the content.
func (a *assembly) text(piece string) error {
	if piece == "" {
		return nil
	}
	a.write(a.thinking.write(piece))
	return a.grow(len(piece))
}

// grow bounds what is taken in.
func (a *assembly) grow(by int) error {
	if a.size += by; a.size > httpapi.MaxAnswer {
		return httpapi.ErrTooLarge
	}
	return nil
}

func (a *assembly) think(thought string) {
	if thought != "" && a.onDelta != nil {
		a.onDelta(providers.Delta{Reasoning: thought})
	}
}

func (a *assembly) write(answer, thought string) {
	a.think(thought)
	if answer != "" {
		a.content.WriteString(answer)
		a.tell(answer)
	}
}

// refuse takes a piece of a refusal, which is the content if there is no other.
func (a *assembly) refuse(piece string) {
	a.refusal.WriteString(piece)
	if a.content.Len() == 0 {
		a.tell(piece)
	}
}

func (a *assembly) tell(piece string) {
	if a.onDelta != nil {
		a.told = true
		a.onDelta(providers.Delta{Text: piece})
	}
}

// call takes a tool call, or a piece of one.
func (a *assembly) call(c *call, whole bool) error {
	name, arguments := string(c.Function.Name), string(c.Function.Arguments)
	var d *draft
	if !whole {
		d = a.draft(c)
	}
	if d == nil {
		if len(a.calls) == maxCalls {
			return errTooManyCalls
		}
		d = &draft{index: indexOf(c)}
		a.calls = append(a.calls, d)
	}
	if d.id == "" {
		d.id = string(c.ID)
	}
	switch {
	case strings.HasPrefix(name, d.name): // the first piece of it, or all of it again
		d.name = name
	case d.name != name && d.arguments.Len() == 0:
		d.name += name
	}
	d.arguments.WriteString(arguments)
	return a.grow(len(name) + len(arguments))
}

func indexOf(c *call) int {
	if c.Index == nil {
		return -1
	}
	return *c.Index
}

// draft finds the call that a piece goes on with, nil if it begins one. Servers
// differ: the index may be missing or 0 for every call, the id may be missing,
// in the first piece only, in each, or another in each; the name may be repeated.
func (a *assembly) draft(c *call) *draft {
	var newest *draft // with the piece's index
	for _, d := range slices.Backward(a.calls) {
		if c.Index != nil && *c.Index != d.index {
			continue
		}
		if c.ID != "" && d.id == string(c.ID) {
			return d
		}
		if newest == nil {
			newest = d
		}
		if c.ID == "" {
			break
		}
	}
	switch f := &c.Function; {
	case newest == nil, f.Name == "": // without a name nothing begins
		return newest
	case c.ID != "":
		return nil
	case newest.id != "", string(f.Name) == newest.name && (f.Arguments == "" || !newest.whole()):
		return newest
	}
	return nil
}

// whole reports whether the arguments are a JSON object already.
func (d *draft) whole() bool {
	text := d.arguments.String()
	return strings.HasSuffix(text, "}") && json.Valid([]byte(text))
}

// reply is the reply when no more pieces come. names leads from aliases back to
// tools.
func (a *assembly) reply(names map[string]string) *providers.LLMResponse {
	a.write(a.thinking.end())
	out := &providers.LLMResponse{Content: a.content.String(), FinishReason: finishReason(a.finish), Usage: a.usage.read()}
	if a.refusal.Len() > 0 {
		out.FinishReason = providers.FinishRefusal
		if out.Content == "" {
			out.Content = a.refusal.String()
		}
	}
	if len(a.calls) > 0 {
		out.ToolCalls = readCalls(a.calls, names)
	}
	if out.FinishReason == "" {
		out.FinishReason = providers.FinishStop
		if len(a.calls) > 0 {
			out.FinishReason = providers.FinishToolCalls
		}
	}
	return out
}

// finishReason is the word of package providers for what a server says.
func finishReason(s string) string {
	switch strings.ToLower(s) {
	case "stop", "end_turn", "stop_sequence", "eos", "eos_token":
		return providers.FinishStop
	case "tool_calls", "tool_use", "function_call":
		return providers.FinishToolCalls
	case "length", "max_tokens", "model_length", "max_output_tokens":
		return providers.FinishLength
	case "content_filter", "safety", "sensitive", "recitation":
		return providers.FinishContentFilter
	case "refusal":
		return providers.FinishRefusal
	case "pause", "pause_turn":
		return providers.FinishPause
	}
	return s
}

// gaveUp reports whether a finish reason says that the service failed midway.
func gaveUp(finish string) bool {
	switch finish {
	case "error", "network_error", "insufficient_system_resource":
		return true
	}
	return false
}
