package tools

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// What the model reads in place of a result.
const (
	textNoTools   = "There are no tools here. Answer without calling one."
	textNoName    = "The call names no tool. Call one of the tools by its name."
	textBadJSON   = "The arguments are not a JSON object. Nothing was run. Call the tool again with valid JSON."
	textCut       = "Your reply was cut off before it was complete, so nothing was run. Make the call again, with shorter arguments."
	textCancelled = "Cancelled before it was run."
	textNotRun    = "Not run, because the turn ended before it."
	textAnswerNow = "You have made all the tool calls allowed for this turn. Answer now from what you know, and say what is left undone."
)

// RunToolLoop asks the model, runs the tools it calls, gives it their results
// and asks again, until it replies without calls, a LoopBreaker was run or
// MaxIterations is reached.
//
// messages is the conversation so far, system and user messages included; the
// slice is not changed. If it ends in calls that have no results yet, those are
// run first. channel and chatID go to ToolRegistry.ExecuteWithContext with each
// call; a Call put into ctx by WithCall is what each call starts from.
//
// The result is never nil. When the model or Checkpoint fails, or ctx ends, it
// holds what was done until then, together with the error: Messages can be
// stored as they are, every call in them has a result. The error wraps that of
// the provider or of Checkpoint, or context.Cause(ctx). A tool that fails is no
// error of the loop: the model reads the failure and decides.
//
// RunToolLoop blocks, and works on the calling goroutine alone.
func RunToolLoop(ctx context.Context, config ToolLoopConfig, messages []providers.Message, channel, chatID string) (*ToolLoopResult, error) {
	l := &loop{
		cfg:     config,
		channel: channel,
		chatID:  chatID,
		wire:    make([]providers.Message, len(messages), len(messages)+8),
		res:     &ToolLoopResult{Iterations: config.Rounds},
	}
	copy(l.wire, messages)
	if id, ok := nestedID(ctx); ok {
		l.prefix = id + "/" // the model's ids are unique among themselves only
	}
	for i := range l.wire {
		l.wire[i] = wireForm(l.wire, i)
	}
	err := l.run(ctx, unanswered(messages))
	if err != nil {
		l.res.StopReason = StopError
		if ctx.Err() != nil && !errors.Is(err, errCheckpoint) {
			l.res.StopReason = StopCancelled
		}
	}
	return l.res, err
}

// loop is one run of RunToolLoop.
type loop struct {
	cfg             ToolLoopConfig
	channel, chatID string
	prefix          string              // of the calls' ids, when the loop runs within a tool
	wire            []providers.Message // what the provider is sent
	request         string              // the fingerprint of what it was sent last
	res             *ToolLoopResult
}

var errCheckpoint = errors.New("the step could not be recorded")

func (l *loop) run(ctx context.Context, pending []providers.ToolCall) error {
	if len(pending) > 0 {
		if err := l.calls(ctx, l.cfg.Rounds, pending, l.cfg.Finish); err != nil || l.res.StopReason != "" {
			return err
		}
	}
	for round := l.cfg.Rounds + 1; round <= l.cfg.MaxIterations; round++ {
		reply, finish, err := l.ask(ctx, round, l.cfg.Tools)
		if err != nil {
			return err
		}
		if len(reply.ToolCalls) == 0 {
			l.res.Content, l.res.StopReason = reply.Content, StopAnswer
			return nil
		}
		if err := l.calls(ctx, round, reply.ToolCalls, finish); err != nil || l.res.StopReason != "" {
			return err
		}
	}
	l.res.StopReason = StopMaxIterations
	if !l.cfg.FinalAnswer {
		return nil
	}
	l.wire = append(l.wire, providers.Message{Role: providers.RoleUser, Content: textAnswerNow})
	reply, _, err := l.ask(ctx, l.res.Iterations+1, nil)
	if err != nil {
		return err
	}
	l.res.Content = reply.Content
	return nil
}

// ask has one round with the model and records its reply. tools is nil in the
// final round; calls the model makes nevertheless are dropped then.
func (l *loop) ask(ctx context.Context, round int, tools *ToolRegistry) (reply providers.Message, finish string, err error) {
	if ctx.Err() != nil {
		return reply, "", ended(ctx, round)
	}
	l.event(Event{Kind: EventModelStart, Round: round})
	began := time.Now()
	resp, err := l.chat(ctx, tools)
	took := time.Since(began)
	l.event(Event{Kind: EventModelEnd, Round: round, Response: resp, Err: err, Duration: took})
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ended(ctx, round), err)
		} else {
			err = fmt.Errorf("tools: round %d: %w", round, err)
		}
		return reply, "", err
	}
	if u := resp.Usage; u != nil {
		l.res.Usage.Add(*u)
	}
	l.res.Iterations++
	reply = providers.Message{Role: providers.RoleAssistant, Content: resp.Content, Opaque: resp.Opaque}
	if round <= l.cfg.MaxIterations {
		reply.ToolCalls = tidyCalls(resp.ToolCalls)
	}
	record := Record{Kind: RecordReply, Round: round, Message: reply, Finish: resp.FinishReason, Request: l.request, Usage: resp.Usage, Took: took}
	if err := l.checkpoint(ctx, record); err != nil {
		return reply, "", err
	}
	l.add(reply)
	return reply, resp.FinishReason, nil
}

// chat calls the provider and offers it tools, nil for none; a panic in it is
// its failure.
func (l *loop) chat(ctx context.Context, tools *ToolRegistry) (resp *providers.LLMResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, &ProviderPanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if l.cfg.Provider == nil {
		return nil, errors.New("no provider is configured")
	}
	var offered table
	if tools != nil {
		offered = *tools.table()
	}
	sent := slices.Clip(l.wire)
	if l.cfg.Shape != nil {
		sent = slices.Clip(l.cfg.Shape(sent))
	}
	if l.cfg.Checkpoint != nil {
		digest := providers.ToolsDigest(nil)
		if tools != nil {
			digest = offered.digest()
		}
		l.request = providers.Fingerprint(sent, digest, l.cfg.Model, l.cfg.LLMOptions)
	}
	resp, err = l.cfg.Provider.Chat(ctx, sent, slices.Clip(offered.defs), l.cfg.Model, l.cfg.LLMOptions)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errors.New("the provider returned neither a reply nor an error")
	}
	return resp, nil
}

// ProviderPanicError is a panic of the provider.
type ProviderPanicError struct {
	Value any
	Stack []byte // for the log
}

func (e *ProviderPanicError) Error() string { return fmt.Sprintf("the provider panicked: %v", e.Value) }

// calls runs the calls of one reply in order. Every one gets an answer, also
// when an error, the end of ctx or a LoopBreaker before it keeps it from being
// run.
func (l *loop) calls(ctx context.Context, round int, calls []providers.ToolCall, finish string) error {
	for i, tc := range calls {
		if ctx.Err() != nil {
			l.leave(calls[i:], textCancelled)
			return ended(ctx, round)
		}
		answered, err := l.call(ctx, round, tc, finish)
		if err != nil {
			if answered {
				i++
			}
			l.leave(calls[i:], textNotRun)
			return err
		}
		if l.res.StopReason != "" {
			l.leave(calls[i+1:], textNotRun)
			return nil
		}
	}
	return nil
}

// leave answers calls that are not run.
func (l *loop) leave(calls []providers.ToolCall, text string) {
	for _, tc := range calls {
		l.add(providers.Message{Role: providers.RoleTool, Content: text, ToolCallID: tc.ID})
	}
}

// ended is the error of a loop whose ctx has ended.
func ended(ctx context.Context, round int) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err { //nolint:errorlint // identity is meant: no cause was given
		return fmt.Errorf("tools: round %d: %w", round, err)
	}
	return fmt.Errorf("tools: round %d: %w: %w", round, err, cause)
}

// call runs one call and records it. answered is false if it failed before.
func (l *loop) call(ctx context.Context, round int, tc providers.ToolCall, finish string) (answered bool, err error) {
	call := newCallState(ctx, l.channel, l.chatID)
	call.ID = l.prefix + tc.ID
	call.Tool, call.Round = tc.Name, round
	e := l.entry(tc.Name)
	if e != nil {
		call.Label = e.label(tc.Arguments)
	}
	begin := Record{Kind: RecordBegin, Round: round, Call: call.Call, Idempotent: l.cfg.Tools != nil && l.cfg.Tools.Idempotent(tc.Name)}
	if err := l.checkpoint(ctx, begin); err != nil {
		return false, err
	}
	l.event(Event{Kind: EventToolStart, Round: round, Call: call.Call})
	began := time.Now()
	result := l.execute(ctx, e, tc, call, finish)
	took := time.Since(began)

	m := providers.Message{Role: providers.RoleTool, Content: resultText(result), ToolCallID: tc.ID}
	l.add(m)
	if e != nil && e.breaks && !result.IsError {
		// Its end is the end of the run and not recorded apart: a run that is
		// resumed before that comes to the same end by running it again.
		l.res.StopReason, l.res.Content = StopTool+StopReason(e.name), m.Content
	} else {
		err = l.checkpoint(ctx, Record{Kind: RecordEnd, Round: round, Call: call.Call, Message: m, Result: result, Took: took})
	}
	l.event(Event{Kind: EventToolEnd, Round: round, Call: call.Call, Result: result, Duration: took})
	return true, err
}

// entry finds a tool by name; nil if there is none, or no tools at all.
func (l *loop) entry(name string) *entry {
	if l.cfg.Tools == nil {
		return nil
	}
	return l.cfg.Tools.table().byName[name]
}

// execute runs a call, or says why it cannot be run.
func (l *loop) execute(ctx context.Context, e *entry, tc providers.ToolCall, call *callState, finish string) *ToolResult {
	tools := l.cfg.Tools
	switch {
	case finish == providers.FinishLength || finish == providers.FinishContentFilter:
		return ErrorResult(textCut)
	case tc.Invalid != "":
		return ErrorResult(tc.Invalid)
	case tools == nil:
		return ErrorResult(textNoTools)
	case tc.Name == "":
		return ErrorResult(textNoName)
	}
	args, ok := arguments(tc)
	if !ok {
		return ErrorResult(textBadJSON)
	}
	call.core = tools.core
	if tc.Function != nil {
		call.raw = tc.Function.Arguments
	}
	var cb AsyncCallback
	if e != nil && e.canAsync && l.cfg.AsyncCallback != nil {
		cb = l.cfg.AsyncCallback(call.Call)
	}
	return tools.run(ctx, e, call, args, cb)
}

// add appends a message to the history and, in its wire form, to what the
// provider is sent.
func (l *loop) add(m providers.Message) {
	l.res.Messages = append(l.res.Messages, m)
	l.wire = append(l.wire, m)
	last := len(l.wire) - 1
	l.wire[last] = wireForm(l.wire, last)
}

func (l *loop) event(e Event) {
	if l.cfg.OnEvent != nil {
		l.cfg.OnEvent(e)
	}
}

func (l *loop) checkpoint(ctx context.Context, r Record) error {
	if l.cfg.Checkpoint == nil {
		return nil
	}
	if err := l.cfg.Checkpoint(ctx, r); err != nil {
		return fmt.Errorf("tools: round %d: %w (%s): %w", r.Round, errCheckpoint, r.Kind, err)
	}
	return nil
}
