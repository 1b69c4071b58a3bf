package tools

import (
	"context"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// What the model reads in place of a result.
const (
	textNoTools   = "There are no tools here. Answer without calling one."
	textNoName    = "The call names no tool. Call one of the tools by its name."
	textBadJSON   = "The arguments are not a JSON object (%v). Nothing was run. Call the tool again with valid JSON."
	textCut       = "Your reply was cut off before it was complete, so none of its calls was run. Send less at once: make the call again with shorter arguments, or in several parts."
	textCancelled = "Cancelled before it was run."
	textNotRun    = "Not run, because the turn ended before it."
	textSkipped   = "Skipped due to a new message."
)

// judge marks the calls of a reply that was cut off: the first of them may look
// whole and still not be what was meant.
func judge(calls []providers.ToolCall, finish string) {
	cut := finish == providers.FinishLength || finish == providers.FinishContentFilter
	if !cut && !slices.ContainsFunc(calls, func(tc providers.ToolCall) bool { return tc.Invalid == textCut }) {
		return
	}
	for i := range calls {
		calls[i].Invalid = textCut
	}
}

// calls runs the calls of one reply in order, neighbours that bear it together.
// Every one gets an answer, also when an error, the end of ctx, a message or a
// tool that ends the loop keeps it from being run.
func (l *loop) calls(ctx context.Context, round int, calls []providers.ToolCall) error {
	safe := l.safe(calls)
	for i := 0; i < len(calls); {
		if ctx.Err() != nil {
			l.leave(calls[i:], textCancelled)
			return ended(ctx, round)
		}
		if l.cfg.InjectSkips && l.drain(round) {
			l.leave(calls[i:], textSkipped)
			return nil
		}
		answered, err := l.some(ctx, round, calls[i:], safe)
		i += answered
		if safe != nil {
			safe = safe[answered:]
		}
		if err != nil || l.res.StopReason != "" {
			l.leave(calls[i:], textNotRun)
			return err
		}
	}
	return nil
}

// some runs the first of calls, and what may run beside it, and returns how many
// now have their answer. With an error those without one were not run.
func (l *loop) some(ctx context.Context, round int, calls []providers.ToolCall, safe []bool) (answered int, err error) {
	n := 0
	for n < len(safe) && safe[n] {
		n++
	}
	if n > 1 {
		return l.together(ctx, round, calls[:n])
	}
	s, err := l.begin(ctx, round, calls[0])
	if err != nil {
		return 0, err
	}
	s.run(ctx)
	return 1, l.end(ctx, s)
}

// leave answers calls that are not run.
func (l *loop) leave(calls []providers.ToolCall, text string) {
	for _, tc := range calls {
		l.add(providers.Message{Role: providers.RoleTool, Content: text, ToolCallID: tc.ID})
	}
}

// slot is a call from its beginning to its end.
type slot struct {
	tools  *ToolRegistry
	entry  *entry // nil: there is no such tool
	call   *callState
	id     string // the model's
	args   map[string]interface{}
	cb     AsyncCallback
	seen   int         // where the guard has it
	result *ToolResult // set before run: it is not run, and why
	took   time.Duration
}

// begin records that a call begins, if it is one that can be run. If it fails
// there is no slot.
func (l *loop) begin(ctx context.Context, round int, tc providers.ToolCall) (*slot, error) {
	s := &slot{tools: l.tools, id: tc.ID, call: newCallState(ctx, l.channel, l.chatID)}
	s.call.ID = l.prefix + tc.ID
	s.call.Tool, s.call.Round, s.call.via, s.call.limit = tc.Name, round, l.via, l.cfg.ToolTimeout
	if l.tools != nil {
		s.entry = l.tools.table().byName[tc.Name]
	}
	if s.entry != nil {
		s.call.Label = s.entry.label(tc.Arguments)
	}
	s.read(tc)
	if l.guard != nil {
		l.watch(s, tc)
	}
	if s.result == nil {
		record := Record{Kind: RecordBegin, Round: round, Call: s.call.Call, Idempotent: s.entry != nil && s.entry.repeats}
		if err := l.checkpoint(ctx, record); err != nil {
			return nil, err
		}
	}
	l.event(Event{Kind: EventToolStart, Round: round, Call: s.call.Call})
	if s.result == nil && s.entry != nil && s.entry.canAsync && l.cfg.AsyncCallback != nil {
		s.cb = l.cfg.AsyncCallback(s.call.Call)
	}
	return s, nil
}

// read gets a call ready, or says why it cannot be run.
func (s *slot) read(tc providers.ToolCall) {
	switch {
	case tc.Invalid != "":
		s.result = ErrorResult(tc.Invalid)
		return
	case s.tools == nil:
		s.result = ErrorResult(textNoTools)
		return
	case tc.Name == "":
		s.result = ErrorResult(textNoName)
		return
	}
	s.args, s.call.core = tc.Arguments, s.tools.core
	if tc.Function != nil {
		s.call.raw = tc.Function.Arguments
	}
}

// run runs the call.
func (s *slot) run(ctx context.Context) {
	if s.result != nil {
		return
	}
	began := time.Now()
	s.result = s.tools.run(ctx, s.entry, s.call, s.args, s.cb)
	s.took = time.Since(began)
}

// end adds the result of a call and records it.
func (l *loop) end(ctx context.Context, s *slot) (err error) {
	m := providers.Message{Role: providers.RoleTool, Content: resultText(s.result), ToolCallID: s.id}
	if s.entry != nil && s.entry.breaks && !s.result.IsError {
		// Its end is the end of the run and not recorded apart: a run that is
		// resumed before that comes to the same end by running it again.
		l.stop(StopTool+StopReason(s.entry.name), "")
		l.res.Content = m.Content
		l.add(m)
	} else {
		if l.cfg.MaxToolResultBytes > 0 {
			m.Content = shorten(m.Content, l.cfg.MaxToolResultBytes)
		}
		if l.guard != nil {
			m.Content = l.guard.end(s.seen, m.Content)
		}
		l.add(m)
		err = l.checkpoint(ctx, Record{Kind: RecordEnd, Round: s.call.Round, Call: s.call.Call, Message: m, Result: s.result, Took: s.took})
		if s.result.Final && !s.result.IsError {
			l.stop(StopTool+StopReason(s.call.Tool), "")
		}
	}
	l.event(Event{Kind: EventToolEnd, Round: s.call.Round, Call: s.call.Call, Result: s.result, Duration: s.took})
	return err
}
