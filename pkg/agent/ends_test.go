package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The journal of a turn tells what came in on the way, and what was not run for
// it.
func TestReplayOfWhatCameIn(t *testing.T) {
	registry := tools.NewToolRegistry()
	a := newAgent(nil, registry)
	reply := func(calls ...providers.ToolCall) providers.Message {
		return providers.Message{Role: providers.RoleAssistant, ToolCalls: calls}
	}
	result := func(id, text string) providers.Message {
		return providers.Message{Role: providers.RoleTool, ToolCallID: id, Content: text}
	}
	first, second := providers.ToolCall{ID: "1", Name: "a"}, providers.ToolCall{ID: "2", Name: "a"}
	person := providers.Message{Role: providers.RoleUser, Content: "wait"}
	steps := []store.Step{
		{Round: 1, Kind: store.StepReply, Message: reply(first, second), Finish: "tool_calls"},
		{Round: 1, Kind: store.StepBegin, CallID: "1"},
		{Round: 1, Kind: store.StepEnd, CallID: "1", Message: result("1", "done")},
		{Round: 1, Kind: store.StepInject, Message: person},
		{Round: 1, Kind: store.StepInject, Message: person},
		{Round: 2, Kind: store.StepReply, Message: reply(second), Finish: "stop"},
	}
	messages, rounds, finish := a.replay(steps)
	want := []providers.Message{reply(first, second), result("1", "done"), result("2", skipped), person, person, reply(second)}
	if diff := cmp.Diff(want, messages); diff != "" || rounds != 2 || finish != "stop" {
		t.Errorf("%s round %d, %s", diff, rounds, finish)
	}

	// A turn writes down what comes in.
	var kinds []string
	turn := Turn{ID: "t", Journal: func(_ context.Context, tx store.Tx, wait bool) error {
		kinds = append(kinds, string(tx.Steps[0].Kind)+" "+tx.Steps[0].Message.Content)
		return nil
	}}
	if err := turn.checkpoint(t.Context(), tools.Record{Kind: tools.RecordInject, Round: 1, Message: person}); err != nil || kinds[0] != "inject wait" {
		t.Errorf("%v, %q", err, kinds)
	}
}

// A turn whose last reply is on record ends as it would have then.
func TestAnswerFromTheJournalEndsAsItDid(t *testing.T) {
	for finish, want := range map[string]tools.StopReason{
		"stop": tools.StopAnswer, providers.FinishRefusal: tools.StopRefused, providers.FinishContentFilter: tools.StopRefused,
		providers.FinishLength: tools.StopLength, providers.FinishPause: tools.StopAnswer,
	} {
		asked := 0
		a := newAgent(func([]providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
			asked++
			return text(" and the rest"), nil
		}, tools.NewToolRegistry())
		steps := []store.Step{{Round: 1, Kind: store.StepReply, Finish: finish, Message: providers.Message{Role: providers.RoleAssistant, Content: "the beginning"}}}
		out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}, Steps: steps})
		if err != nil || out.StopReason != want || (asked == 1) != (finish == providers.FinishPause) {
			t.Errorf("%s: %+v after %d requests, %v", finish, out, asked, err)
		}
	}
}

// A turn is guarded, presses for words, and counts what it costs.
func TestRunTurnsOnWhatTheLoopHas(t *testing.T) {
	registry := tools.NewToolRegistry()
	registry.Register(tools.Func("look", "looks", func(context.Context, struct{}) *tools.ToolResult { return tools.NewToolResult("nothing") }))
	asked := 0
	a := newAgent(func(_ []providers.Message, defs []providers.ToolDefinition) (*providers.LLMResponse, error) {
		asked++
		switch {
		case len(defs) == 0:
			return text("I give up"), nil
		case asked == 1:
			return text(" "), nil
		}
		return &providers.LLMResponse{ToolCalls: []providers.ToolCall{{ID: "1", Name: "look"}}}, nil
	}, registry)
	a.cfg.MaxIterations = 20
	out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}})
	if err != nil || out.Answer != "I give up" || out.StopReason != tools.StopLoopDetected || out.Rounds != 9 || asked != 10 || !out.Usage.Estimated {
		t.Errorf("%+v after %d requests, %v", out, asked, err)
	}
	result := a.RunTask(t.Context(), tools.Call{}, "look for ever")
	if result.IsError || result.ForLLM != "I give up" {
		t.Errorf("a task: %+v", result)
	}
	for _, why := range []tools.StopReason{tools.StopAnswer, tools.StopRefused, tools.StopLength, tools.StopLoopDetected, tools.StopMaxIterations} {
		if word := Silence(why); word == "" || strings.Contains(word, "config") || strings.Contains(word, "iteration") {
			t.Errorf("%s: %q", why, word)
		}
	}
}

// breaking is a model whose reply breaks off half-way.
type breaking struct {
	err   error
	asked int
}

func (b *breaking) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	b.asked++
	return nil, b.err
}

func (b *breaking) ChatStream(ctx context.Context, m []providers.Message, d []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	onDelta(providers.Delta{Text: "It began in "})
	return b.Chat(ctx, m, d, model, options)
}

// What was shown of a reply that broke off is in the history, and it is not
// asked for again.
func TestReplyThatBreaksOffIsKept(t *testing.T) {
	for _, kind := range []providers.ErrorKind{providers.KindUnreachable, providers.KindContextOverflow} {
		p := &breaking{err: &providers.Error{Kind: kind}}
		a := New(Config{Provider: p, Tools: tools.NewToolRegistry(), History: past(nil), MaxIterations: 5, Log: slog.New(slog.DiscardHandler)})
		out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("hi")}, OnDelta: func(providers.Delta) {}})
		last := out.History[len(out.History)-1].Message
		if !errors.Is(err, p.err) || p.asked != 1 || last.Role != providers.RoleAssistant || !strings.HasPrefix(last.Content, "It began in \n(no answer was given: ") {
			t.Errorf("%s: %v after %d requests, %+v", kind, err, p.asked, last)
		}
	}
}
