package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// A tool result that is cut says in the notice how the rest is read: with the
// tool read_result, which takes an id of the whole text and an offset.

const (
	partBytes = 64 << 10 // a part of a result where the governor has no bound
	idBytes   = 6
)

// resultID names a result by its text: calls' ids come again, texts do not.
func resultID(whole string) string {
	sum := sha256.Sum256([]byte(whole))
	return hex.EncodeToString(sum[:idBytes])
}

// resultIDs remembers ids where several bounds are tried; nil remembers none.
type resultIDs map[string]string

func (ids resultIDs) of(whole string) string {
	id, ok := ids[whole]
	if !ok {
		if id = resultID(whole); ids != nil {
			ids[whole] = id
		}
	}
	return id
}

// readOn is how the model asks for what is behind an offset.
func readOn(id string, offset int) string {
	return fmt.Sprintf(`call read_result with {"id": "%s", "offset": %d}`, id, offset)
}

// sent is a running loop's conversation as it went into its last request, before
// the governor's hand was on it, and the bound that it had for results.
type sent struct {
	messages []providers.Message
	bound    int
}

// desk is where a running loop leaves what it has sent, for the tools it runs.
// Background work of theirs may look while the loop goes on.
type desk struct{ top atomic.Pointer[sent] }

type deskKey struct{}

// put leaves messages that are shaped by g.
func (d *desk) put(messages []providers.Message, g Governor) {
	d.top.Store(&sent{messages, g.MaxResultBytes})
}

// shape is g.Shape for a loop with this desk.
func (d *desk) shape(g Governor) func([]providers.Message) []providers.Message {
	return func(messages []providers.Message) []providers.Message {
		d.put(messages, g)
		return g.Shape(messages)
	}
}

// ReadResult returns the part of an earlier tool result that begins at offset,
// in bytes, and says how to read on. It is what the tool read_result does; call
// is its call. The result is looked for in the loop that ctx belongs to, then in
// the history of call's session, and nowhere else. The part is no longer than
// what the governor leaves whole.
func (a *Agent) ReadResult(ctx context.Context, call tools.Call, id string, offset int) *tools.ToolResult {
	now := sent{bound: a.cfg.Governor.MaxResultBytes}
	if d, ok := ctx.Value(deskKey{}).(*desk); ok {
		if top := d.top.Load(); top != nil {
			now = *top
		}
	}
	whole, ok := findResult(now.messages, id)
	if !ok && call.SessionKey != "" {
		past, err := a.cfg.History.History(ctx, call.SessionKey, wholeHistory)
		if err != nil {
			return tools.ErrorResult("The conversation's history cannot be read at the moment. Try again, or call the tool that gave the result once more.").WithError(err)
		}
		whole, ok = findResult(Past(past), id)
	}
	switch {
	case !ok:
		return tools.ErrorResult(fmt.Sprintf("This conversation holds no result with the id %q: it has been summarised or erased, or the id is not the one in the notice. "+
			"If you still need it, call the tool that gave it once more, so that it returns less.", id))
	case offset < 0 || offset >= len(whole):
		return tools.ErrorResult(fmt.Sprintf("The result has %d bytes, so offset goes from 0 to %d.", len(whole), len(whole)-1))
	}
	return tools.SilentResult(part(whole, id, offset, now.bound))
}

// findResult finds the tool result with an id, among those long enough to have
// been cut.
func findResult(messages []providers.Message, id string) (whole string, ok bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := &messages[i]; m.Role == providers.RoleTool && len(m.Content) > minCut && resultID(m.Content) == id {
			return m.Content, true
		}
	}
	return "", false
}

// part returns as much of a result as bound allows, cut between characters, and
// behind it what it is.
func part(whole, id string, offset, bound int) string {
	if bound <= 0 {
		bound = partBytes
	}
	from := boundary(whole, offset, -1)
	note := func(to int) string {
		if to == len(whole) {
			return fmt.Sprintf("\n[These are bytes %d to %d, the end of the result.]", from, to)
		}
		return fmt.Sprintf("\n[These are bytes %d to %d of %d. To read on %s.]", from, to, len(whole), readOn(id, to))
	}
	room := max(bound, minCut) - len(note(len(whole)-1))
	to := len(whole)
	if to-from > room {
		to = boundary(whole, from+room, -1)
	}
	return whole[from:to] + note(to)
}
