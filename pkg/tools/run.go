package tools

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// What the model is asked, without tools, when the loop ends otherwise than by
// an answer.
const (
	textAnswerNow = "You have made all the tool calls allowed for this turn. Answer now from what you know, and say what is left undone."
	textCircles   = "You repeat the same calls and get no further, so no more calls are run in this turn. Answer now from what you know, and say what is left undone."
	textTooLong   = "Your replies were cut off before they were complete. Answer now, in a few sentences, and say what is left undone."
	textSayIt     = "Your last reply held no text. Answer now, in words that the person can read, and say what is left undone."
)

// How often the loop puts up with a reply that does not get it further.
const (
	maxEmpty  = 2  // neither text nor calls, in a row
	maxCut    = 3  // calls that were cut off, in a row
	maxPauses = 10 // the service stopped on the way
)

// RunToolLoop asks the model, runs the tools it calls, gives it their results
// and asks again, until it replies without calls, a LoopBreaker was run or
// MaxIterations is reached; ToolLoopConfig has more.
//
// messages is the conversation so far, system and user messages included; the
// slice is not changed. If it ends in calls that have no results yet, those are
// run first. channel and chatID go to ToolRegistry.ExecuteWithContext with each
// call; a Call put into ctx by WithCall is what each call starts from.
//
// The result is never nil. When the model or Checkpoint fails, or ctx ends, it
// holds what was done until then, together with the error: Messages can be
// stored as they are, every call in them has a result. The error wraps that of
// the provider, of Checkpoint or of PrepareStep, or context.Cause(ctx). A tool
// that fails is no error of the loop: the model reads the failure and decides.
//
// A reply is judged when it is whole. Calls in it are run, whatever the finish
// reason says, unless the model declined (providers.FinishRefusal: they are
// dropped) or the reply was cut off, by its finish reason or within the
// arguments of a call: then none of its calls is run, and each is answered so.
//
// RunToolLoop blocks. Whatever is in config is called on the calling goroutine,
// one thing at a time, except tools, and Middleware around them: calls that are
// ParallelSafe have goroutines, and so have tools with a limit of time. They are
// gone when it returns, all but a tool that was given up; see TimeoutTool.
func RunToolLoop(ctx context.Context, config ToolLoopConfig, messages []providers.Message, channel, chatID string) (*ToolLoopResult, error) {
	l := &loop{
		cfg:     config,
		tools:   config.Tools,
		channel: channel,
		chatID:  chatID,
		wire:    make([]providers.Message, len(messages), len(messages)+8),
		res:     &ToolLoopResult{Iterations: config.Rounds},
	}
	copy(l.wire, messages)
	l.via = wrap(config.Middleware, throughRegistry)
	if id, ok := nestedID(ctx); ok {
		l.prefix = id + "/" // the model's ids are unique among themselves only
	}
	for i := range l.wire {
		l.wire[i] = wireForm(l.wire, i)
	}
	if config.Stream != nil {
		l.tell = func(d providers.Delta) {
			l.told.WriteString(d.Text)
			config.Stream(d)
		}
	}
	if config.LoopGuard {
		l.guard = &guard{}
		if config.Rounds > 0 && l.guard.recall(messages) >= guardStops {
			l.stop(StopLoopDetected, textCircles)
		}
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
	via             Handler             // the loop's middleware, nil for none
	prefix          string              // of the calls' ids, when the loop runs within a tool
	wire            []providers.Message // what the provider is sent
	request         string              // the fingerprint of what it was sent last
	tools           *ToolRegistry       // what it was offered last
	res             *ToolLoopResult
	tell            func(providers.Delta) // nil: nobody listens
	told            strings.Builder       // of the reply that is being made
	last            string                // what the final request asks for, "" for none
	spent           providers.Usage       // on empty replies of the round that goes on
	guard           *guard                // nil: none
	steps           []Step                // for StopWhen
	waiting         []providers.Message   // from Inject, not yet part of the conversation
	schema          *jsonschema.Schema    // of OutputSchema, nil: none

	empty, cut int  // how often in a row
	pauses     int  // how often
	injections int  // how often Inject had something
	repaired   bool // an answer was sent back
}

// reply is a reply that counts.
type reply struct {
	round   int
	message providers.Message
	finish  string
	usage   *providers.Usage
}

var errCheckpoint = errors.New("the step could not be recorded")

func (l *loop) run(ctx context.Context, pending []providers.ToolCall) error {
	err := l.prepareOutput()
	switch {
	case err != nil || len(pending) == 0:
	case l.res.StopReason != "":
		l.leave(pending, textNotRun)
	default:
		for i := range pending {
			tidyArguments(&pending[i]) // of a history from before they were stored tidy
		}
		judge(pending, l.cfg.Finish)
		err = l.answer(ctx, reply{round: l.cfg.Rounds, message: providers.Message{ToolCalls: pending}, finish: l.cfg.Finish})
	}
	for round := l.cfg.Rounds + 1; err == nil && l.res.StopReason == "" && round <= l.cfg.MaxIterations; round++ {
		err = l.round(ctx, round)
	}
	if err != nil {
		return err
	}
	if l.res.StopReason == "" {
		l.stop(StopMaxIterations, textAnswerNow)
	}
	if l.last == "" {
		return nil
	}
	l.wire = append(l.wire, providers.Message{Role: providers.RoleUser, Content: l.last})
	r, err := l.ask(ctx, l.res.Iterations+1, true)
	if l.circles(err) {
		return nil
	}
	if err == nil {
		l.res.Content = r.message.Content
	}
	return err
}

// circles reports whether the guard takes the provider's word that the model
// goes round in circles.
func (l *loop) circles(err error) bool { return l.guard != nil && errors.Is(err, providers.ErrCircles) }

// stop ends the loop. last is what the model is then asked without tools, if
// that is wanted at all.
func (l *loop) stop(why StopReason, last string) {
	l.res.StopReason = why
	if l.cfg.FinalAnswer {
		l.last = last
	}
}

func (l *loop) round(ctx context.Context, round int) error {
	r, err := l.ask(ctx, round, false)
	switch {
	case l.circles(err):
		l.stop(StopLoopDetected, textCircles)
		return nil
	case err != nil:
		return err
	case l.empty > maxEmpty:
		l.stop(StopAnswer, textSayIt)
		return nil
	case len(r.message.ToolCalls) == 0:
		return l.conclude(ctx, r)
	}
	return l.answer(ctx, r)
}

// answer has the calls of a reply answered.
func (l *loop) answer(ctx context.Context, r reply) error {
	from := len(l.res.Messages)
	calls := r.message.ToolCalls
	if err := l.calls(ctx, r.round, calls); err != nil || l.res.StopReason != "" {
		return err
	}
	if calls[0].Invalid != textCut {
		l.cut = 0
	} else if l.cut++; l.cut > maxCut {
		l.stop(StopLength, textTooLong)
		return nil
	}
	if l.cfg.StopWhen != nil {
		messages := slices.Concat([]providers.Message{r.message}, l.res.Messages[from:])
		l.steps = append(l.steps, Step{Round: r.round, Messages: messages, Finish: r.finish, Usage: r.usage})
		if l.cfg.StopWhen(slices.Clip(l.steps)) {
			l.stop(StopCondition, "")
			l.res.Content = r.message.Content
			return nil
		}
	}
	_, err := l.inject(ctx, r.round)
	return err
}

// conclude decides what a reply without calls means.
func (l *loop) conclude(ctx context.Context, r reply) error {
	text := r.message.Content
	switch r.finish {
	case providers.FinishPause:
		if l.pauses++; l.pauses > maxPauses {
			l.stop(StopMaxIterations, textAnswerNow)
		}
		return nil
	case providers.FinishRefusal, providers.FinishContentFilter:
		l.stop(StopRefused, "")
	case providers.FinishLength:
		last := ""
		if blank(text) {
			last = textTooLong
		}
		l.stop(StopLength, last)
	default:
		if more, err := l.inject(ctx, r.round); more || err != nil {
			return err
		}
		if l.cfg.OutputSchema != nil {
			return l.output(ctx, r)
		}
		l.stop(StopAnswer, "")
	}
	l.res.Content = text
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// ask has one round with the model and records its reply. A reply that is not
// worth it is asked for again, unless it has been so often enough; l.empty then
// says so. In the final round no tools are offered, and calls the model makes
// nevertheless are dropped.
func (l *loop) ask(ctx context.Context, round int, final bool) (reply, error) {
	var resp *providers.LLMResponse
	var took time.Duration
	for {
		began := time.Now()
		var usage *providers.Usage
		var err error
		if resp, usage, err = l.chat(ctx, round, final); err != nil {
			return reply{}, err
		}
		took = time.Since(began)
		if usage != nil {
			l.spent.Add(*usage)
		}
		if final || !l.isEmpty(resp) {
			break
		}
		if l.empty++; l.empty > maxEmpty {
			return reply{}, nil
		}
	}
	l.empty = 0
	l.res.Iterations++
	r := reply{round: round, finish: resp.FinishReason}
	if l.spent != (providers.Usage{}) {
		usage := l.spent
		r.usage, l.spent = &usage, providers.Usage{}
	}
	r.message = providers.Message{Role: providers.RoleAssistant, Content: resp.Content, Opaque: resp.Opaque}
	if !final && r.finish != providers.FinishRefusal {
		r.message.ToolCalls = tidyCalls(resp.ToolCalls)
		judge(r.message.ToolCalls, r.finish)
	}
	record := Record{Kind: RecordReply, Round: round, Message: r.message, Finish: r.finish, Request: l.request, Usage: r.usage, Took: took}
	if err := l.checkpoint(ctx, record); err != nil {
		return r, err
	}
	l.add(r.message)
	return r, nil
}

// isEmpty reports whether a reply gets nobody any further, though it should.
func (l *loop) isEmpty(resp *providers.LLMResponse) bool {
	if !l.cfg.FinalAnswer || len(resp.ToolCalls) > 0 || !blank(resp.Content) {
		return false
	}
	switch resp.FinishReason {
	case providers.FinishPause, providers.FinishRefusal, providers.FinishContentFilter, providers.FinishLength:
		return false
	}
	return l.cfg.Answered == nil || !l.cfg.Answered()
}

// chat makes one request.
func (l *loop) chat(ctx context.Context, round int, final bool) (*providers.LLMResponse, *providers.Usage, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx, round)
	}
	req := Request{Round: round, Model: l.cfg.Model, Messages: slices.Clip(l.wire), Options: l.cfg.LLMOptions}
	if !final {
		req.Tools = l.cfg.Tools
	}
	if l.cfg.PrepareStep != nil {
		if err := l.cfg.PrepareStep(ctx, &req); err != nil {
			return nil, nil, fmt.Errorf("tools: round %d: prepare: %w", round, err)
		}
	}
	if final {
		req.Tools = nil
	}
	l.tools = req.Tools
	l.event(Event{Kind: EventModelStart, Round: round})
	l.told.Reset()
	began := time.Now()
	resp, err := l.send(ctx, &req)
	usage := l.count(&req, resp, err)
	if err != nil {
		resp = nil
	}
	l.event(Event{Kind: EventModelEnd, Round: round, Response: resp, Usage: usage, Err: err, Duration: time.Since(began)})
	if err == nil {
		return resp, usage, nil
	}
	l.res.Content = l.told.String()
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("%w: %w", ended(ctx, round), err)
	}
	return nil, nil, fmt.Errorf("tools: round %d: %w", round, err)
}

// send calls the provider; a panic in it is its failure.
func (l *loop) send(ctx context.Context, req *Request) (resp *providers.LLMResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, &ProviderPanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if l.cfg.Provider == nil {
		return nil, errors.New("no provider is configured")
	}
	var offered table
	if req.Tools != nil {
		offered = *req.Tools.table()
	}
	if l.cfg.Shape != nil {
		req.Messages = slices.Clip(l.cfg.Shape(req.Messages))
	}
	if l.cfg.Checkpoint != nil {
		digest := providers.ToolsDigest(nil)
		if req.Tools != nil {
			digest = offered.digest()
		}
		l.request = providers.Fingerprint(req.Messages, digest, req.Model, req.Options)
	}
	resp, err = providers.Stream(ctx, l.cfg.Provider, req.Messages, slices.Clip(offered.defs), req.Model, req.Options, l.tell)
	if err == nil && resp == nil {
		err = errors.New("the provider returned neither a reply nor an error")
	}
	return resp, err
}

// count adds what a request cost to the total and returns it, nil if that is
// not known.
func (l *loop) count(req *Request, resp *providers.LLMResponse, err error) *providers.Usage {
	var usage *providers.Usage
	switch {
	case resp != nil && resp.Usage != nil:
		usage = resp.Usage
	case err == nil && l.cfg.EstimateUsage:
		usage = &providers.Usage{PromptTokens: roughly(req.Messages...), Estimated: true}
		usage.CompletionTokens = roughly(providers.Message{Content: resp.Content, ToolCalls: resp.ToolCalls})
		usage.TotalTokens = usage.PromptTokens + usage.CompletionTokens
	default:
		return nil
	}
	l.res.Usage.Add(*usage)
	return usage
}

// roughly counts tokens, at four bytes each.
func roughly(messages ...providers.Message) int {
	n := 0
	for _, m := range messages {
		n += len(m.Content)
		for _, tc := range m.ToolCalls {
			n += len(tc.Name)
			if tc.Function != nil {
				n += len(tc.Function.Arguments)
			}
		}
	}
	return (n + 3) / 4
}

// ProviderPanicError is a panic of the provider.
type ProviderPanicError struct {
	Value any
	Stack []byte // for the log
}

func (e *ProviderPanicError) Error() string { return fmt.Sprintf("the provider panicked: %v", e.Value) }

// ended is the error of a loop whose ctx has ended.
func ended(ctx context.Context, round int) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err { //nolint:errorlint // identity is meant: no cause was given
		return fmt.Errorf("tools: round %d: %w", round, err)
	}
	return fmt.Errorf("tools: round %d: %w: %w", round, err, cause)
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
