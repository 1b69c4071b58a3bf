package agent

import (
	"context"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// attempt is a turn's loop, with one more try if the conversation turns out to
// be longer than the model reads.
type attempt struct {
	loop            tools.ToolLoopConfig // Shape is set by run
	governor        Governor
	compactor       *Compactor // nil: nothing is summarised
	past            []store.Entry
	messages        func(past []store.Entry) []providers.Message // the whole conversation
	channel, chatID string
}

// run runs the loop, or takes the answer from the journal if the turn had come
// that far. When the provider says that the conversation is too long,
// its older part is summarised, the bound is set to half of what was sent, and
// the loop goes on from where it was, once. What it did before is not done
// again, and is part of the result. summary is what the ledger is to keep of
// it, nil if there is none; its Keep counts from the end of past.
func (a attempt) run(ctx context.Context) (res *tools.ToolLoopResult, summary *store.Summary, err error) {
	messages := a.messages(a.past)
	if res := a.answered(messages); res != nil {
		return res, nil, nil
	}
	d := &desk{}
	d.put(messages, a.governor) // a resumed turn may read before it asks
	defer d.top.Store(nil)      // background work keeps ctx for a while
	ctx = context.WithValue(ctx, deskKey{}, d)
	a.loop.Shape = d.shape(a.governor)
	res, err = tools.RunToolLoop(ctx, a.loop, messages, a.channel, a.chatID)
	if !Overflowed(err) || ctx.Err() != nil || res.Content != "" { // shown already
		return res, nil, err
	}
	sent := a.governor.Shape(slices.Concat(messages, res.Messages))
	tighter := Governor{MaxTokens: max(Tokens(sent)/2, 1)}
	tighter.MaxResultBytes = max(tighter.MaxTokens/4*3, minCut)
	if a.governor.MaxResultBytes > 0 {
		tighter.MaxResultBytes = min(tighter.MaxResultBytes, a.governor.MaxResultBytes)
	}
	if s, failed := a.summarise(ctx, tighter.MaxTokens); failed == nil {
		summary = &s
		messages = a.messages(compacted(a.past, s))
	}
	a.loop.Shape = d.shape(tighter)
	a.loop.Rounds, a.loop.Finish = res.Iterations, ""
	again, err := tools.RunToolLoop(ctx, a.loop, slices.Concat(messages, res.Messages), a.channel, a.chatID)
	again.Messages = slices.Concat(res.Messages, again.Messages)
	again.Usage.Add(res.Usage)
	return again, summary, err
}

// maxSummaryTime is how long a turn waits for a summary.
const maxSummaryTime = time.Minute

// summarise makes a summary of the past with requests that have input tokens at
// most. It takes no more than half of the time that is left: without the model
// there is a summary too.
func (a attempt) summarise(ctx context.Context, input int) (store.Summary, error) {
	if a.compactor == nil {
		return store.Summary{}, ErrNothingToCompact
	}
	c := *a.compactor
	c.Input = min(orElse(c.Input, defaultInput), input)
	patience := maxSummaryTime
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.Compact(ctx, a.past)
}

// answered returns the result of a turn that had its answer when it was
// interrupted, nil if it had none.
func (a attempt) answered(messages []providers.Message) *tools.ToolLoopResult {
	if a.loop.Rounds == 0 || len(messages) == 0 {
		return nil
	}
	last := messages[len(messages)-1]
	if last.Role != providers.RoleAssistant || len(last.ToolCalls) > 0 || a.loop.Finish == providers.FinishPause {
		return nil
	}
	res := &tools.ToolLoopResult{Content: last.Content, Iterations: a.loop.Rounds, StopReason: tools.StopAnswer}
	switch {
	case a.loop.Rounds > a.loop.MaxIterations:
		res.StopReason = tools.StopMaxIterations
	case a.loop.Finish == providers.FinishRefusal, a.loop.Finish == providers.FinishContentFilter:
		res.StopReason = tools.StopRefused
	case a.loop.Finish == providers.FinishLength:
		res.StopReason = tools.StopLength
	}
	return res
}
