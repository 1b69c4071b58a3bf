package webchat

import (
	"context"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const (
	historyLines = 100             // how much of the past a page shows
	twinWindow   = 2 * time.Minute // how long after its commit an answer is delivered at most, see merge
	twinLines    = 8
)

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
	events, cursor := c.hub.snapshot(chat)
	var old []Line
	if c.history != nil {
		old, err = c.history(ctx, bus.Address{Channel: c.name, ChatID: chat}, historyLines)
		if err != nil {
			return nil, 0, err
		}
	}
	old = before(old, events)
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

// before returns the lines of the history that events do not show. events are
// all there was since the first of them, so older lines are the rest. One
// thing is in both: an answer is committed to the history a moment before it is
// delivered, so the first events may have a twin just before them.
func before(lines []Line, events []*event) []Line {
	if len(events) == 0 {
		return lines
	}
	start := events[0].time
	n := len(lines)
	for n > 0 && !lines[n-1].Time.Before(start) {
		n--
	}
	rest := append([]Line(nil), lines[:n]...)
	for _, e := range events {
		if e.kind == kindMessage {
			rest = withoutTwin(rest, e, start)
		}
	}
	return rest
}

// withoutTwin removes e from the end of lines, if it is there.
func withoutTwin(lines []Line, e *event, start time.Time) []Line {
	for i := len(lines) - 1; i >= max(0, len(lines)-twinLines); i-- {
		l := lines[i]
		if start.Sub(l.Time) > twinWindow {
			break
		}
		if l.Role == e.role && strings.TrimSpace(l.Text) == strings.TrimSpace(e.text) {
			return append(lines[:i], lines[i+1:]...)
		}
	}
	return lines
}
