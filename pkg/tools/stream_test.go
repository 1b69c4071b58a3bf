package tools_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// streaming is a script that tells its replies word by word, and may fail or be
// cancelled after some words.
type streaming struct {
	*script
	failAfter int // words of the request that fails; 0: none does
	onWord    func(word string)
}

var errBroken = errors.New("connection lost")

func (s *streaming) ChatStream(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	resp, err := s.Chat(ctx, messages, defs, model, options)
	if err != nil {
		return nil, err
	}
	onDelta(providers.Delta{Reasoning: "hm"})
	for i, word := range strings.Fields(resp.Content) {
		if s.failAfter > 0 && i == s.failAfter {
			return nil, errBroken
		}
		onDelta(providers.Delta{Text: word})
		if s.onWord != nil {
			s.onWord(word)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return resp, nil
}

// Pieces are told as they come, round by round; what happens is decided on the
// whole reply, so calls behind a text are run.
func TestFieldStreaming(t *testing.T) {
	first := calling(toolCall("1", "echo", text("x")))
	first.Content = "let me see"
	replies := []providers.LLMResponse{first, answering("all done")}
	var told []string
	config := tools.ToolLoopConfig{
		Tools: echo(), MaxIterations: 5,
		Stream: func(d providers.Delta) { told = append(told, d.Text+d.Reasoning) },
		OnEvent: func(e tools.Event) {
			told = append(told, fmt.Sprint(e.Kind, " ", e.Round))
		},
	}
	run := func(p providers.LLMProvider) (*tools.ToolLoopResult, error) {
		told = nil
		config.Provider = p
		return tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	}
	res, err := run(&streaming{script: &script{replies: replies}})
	want := []string{"model_start 1", "hm", "let", "me", "see", "model_end 1", "tool_start 1", "tool_end 1", "model_start 2", "hm", "all", "done", "model_end 2"}
	if diff := cmp.Diff(want, told); diff != "" || err != nil || res.Content != "all done" {
		t.Errorf("%s %+v, %v", diff, res, err)
	}
	streamed := res.Messages
	res, err = run(&script{replies: replies})
	want = []string{"model_start 1", "let me see", "model_end 1", "tool_start 1", "tool_end 1", "model_start 2", "all done", "model_end 2"}
	if diff := cmp.Diff(want, told); diff != "" || err != nil {
		t.Errorf("of a provider that tells nothing: %s %v", diff, err)
	}
	if diff := cmp.Diff(streamed, res.Messages); diff != "" {
		t.Errorf("streaming changes the history: %s", diff)
	}

	// Once a text has been shown a failed reply is not asked for again.
	p := &streaming{script: &script{replies: []providers.LLMResponse{answering("one two three")}}, failAfter: 2}
	config.FinalAnswer = true
	if res, err = run(p); !errors.Is(err, errBroken) || len(p.asked) != 1 || res.StopReason != tools.StopError || len(res.Messages) != 0 || res.Content != "onetwo" {
		t.Errorf("%d requests, %+v, %v", len(p.asked), res, err)
	}

	// It can be cancelled between two words.
	why := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	p = &streaming{script: &script{replies: replies}, onWord: func(word string) {
		if word == "all" {
			cancel(why)
		}
	}}
	config.Provider = p
	res, err = tools.RunToolLoop(ctx, config, user("hi"), "test", "1")
	if !errors.Is(err, why) || res.StopReason != tools.StopCancelled || len(res.Messages) != 2 || res.Content != "all" {
		t.Errorf("%+v, %v", res, err)
	}
	checkHistory(t, res.Messages)
}
