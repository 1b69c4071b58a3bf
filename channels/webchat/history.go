package webchat

import (
	"context"
	"slices"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// historyLines is how much of the past a page shows.
const historyLines = 100

// shown is one message as the page gets it. A person's has Text, the
// assistant's HTML.
type shown struct {
	Seq  int64  `json:"seq,omitempty"` // 0: from the history
	ID   string `json:"id,omitempty"`  // the page's own id of a person's message
	Role string `json:"role"`
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`
	Time int64  `json:"time"` // Unix, milliseconds
}

func (c *Channel) showEvent(e *event) shown {
	s := shown{Seq: e.seq, Role: e.role, Time: e.time.UnixMilli()}
	if e.html != nil {
		s.HTML = e.html(&c.render)
	} else {
		s.ID, s.Text = e.id, e.text
	}
	return s
}

func (c *Channel) showLine(l Line) shown {
	s := shown{Role: l.Role, Time: l.Time.UnixMilli()}
	if l.Role == providers.RoleAssistant {
		s.HTML = c.render.html(l.Text)
	} else {
		s.Text = l.Text
	}
	return s
}

// past returns what a page shows when it opens, and the cursor from which its
// stream goes on.
func (c *Channel) past(ctx context.Context, chat string) (lines []shown, cursor int64, err error) {
	var old []Line
	if c.history != nil {
		old, err = c.history(ctx, bus.Address{Channel: c.name, ChatID: chat}, historyLines)
		if err != nil {
			return nil, 0, err
		}
	}
	old = c.recall(chat, old)
	events, cursor := c.hub.snapshot(chat)
	old = before(old, events)
	lines = make([]shown, 0, len(old)+len(events))
	for _, l := range old {
		if l.Role == providers.RoleUser || l.Role == providers.RoleAssistant {
			lines = append(lines, c.showLine(l))
		}
	}
	for _, e := range events {
		if e.kind == kindMessage {
			lines = append(lines, c.showEvent(e))
		}
	}
	return lines, cursor, nil
}

// recall takes into memory what still waits for its answer since before a
// restart, so that it stays shown when the answer is there, and returns the
// other lines.
func (c *Channel) recall(chat string, lines []Line) (rest []Line) {
	for _, l := range lines {
		if l.Waiting == "" {
			rest = append(rest, l)
			continue
		}
		c.hub.add(chat, event{kind: kindMessage, role: providers.RoleUser, id: l.Waiting, text: l.Text})
	}
	return rest
}

// before returns the lines of the history that events do not show. events are
// all there was since the first of them, so older lines are the rest. One
// thing is in both: an answer is committed to the history before it is
// delivered, a moment or, with a restart between, long before. So the answers
// the events begin with may be the ones the history ends with.
func before(lines []Line, events []*event) []Line {
	if len(events) == 0 {
		return lines
	}
	n := len(lines)
	for n > 0 && !lines[n-1].Time.Before(events[0].time) {
		n--
	}
	rest := slices.Clone(lines[:n])
	for _, e := range events {
		if e.kind != kindMessage {
			continue
		}
		if e.role != providers.RoleAssistant {
			break
		}
		rest = withoutTwin(rest, e.text)
	}
	return rest
}

// withoutTwin removes the answer text from those lines end with, if it is among
// them.
func withoutTwin(lines []Line, text string) []Line {
	for i := len(lines) - 1; i >= 0 && lines[i].Role != providers.RoleUser; i-- {
		if lines[i].Role == providers.RoleAssistant && strings.TrimSpace(lines[i].Text) == strings.TrimSpace(text) {
			return slices.Delete(lines, i, i+1)
		}
	}
	return lines
}
