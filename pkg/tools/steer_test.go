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

// mailbox is what waits for a run.
type mailbox struct {
	waiting []string
	drains  int
}

func (m *mailbox) take(limit int) (messages []providers.Message) {
	m.drains++
	for len(m.waiting) > 0 && len(messages) < limit {
		messages = append(messages, user(m.waiting[0])...)
		m.waiting = m.waiting[1:]
	}
	return messages
}

// Messages that come while a run goes on reach the model in the next request,
// all of them, between a call's result and the next call and never elsewhere.
func TestFieldSteeringMidTurn(t *testing.T) {
	calls := calling(toolCall("1", "echo", text("x")), toolCall("2", "echo", text("y")), toolCall("3", "echo", text("z")))
	for name, c := range map[string]struct {
		arrive map[int][]string // by event
		config tools.ToolLoopConfig
		want   []string
	}{
		"while the model thinks": {
			map[int][]string{1: {"a"}},
			tools.ToolLoopConfig{},
			[]string{"assistant :  [1 echo] [2 echo] [3 echo]", "tool 1: x", "tool 2: y", "tool 3: z", "user : a", "assistant : done"},
		},
		"while a tool runs, several": {
			map[int][]string{3: {"a", "b"}},
			tools.ToolLoopConfig{},
			[]string{"assistant :  [1 echo] [2 echo] [3 echo]", "tool 1: x", "tool 2: y", "tool 3: z", "user : a", "user : b", "assistant : done"},
		},
		"while a tool runs, and the rest is skipped": {
			map[int][]string{3: {"a"}},
			tools.ToolLoopConfig{InjectSkips: true},
			[]string{"assistant :  [1 echo] [2 echo] [3 echo]", "tool 1: x", "tool 2: Skipped due to a new message.", "tool 3: Skipped due to a new message.", "user : a", "assistant : done"},
		},
		"before the answer": {
			map[int][]string{9: {"a"}},
			tools.ToolLoopConfig{},
			[]string{"assistant :  [1 echo] [2 echo] [3 echo]", "tool 1: x", "tool 2: y", "tool 3: z", "assistant : done", "user : a", "assistant : done"},
		},
		"more than fits at once": {
			map[int][]string{1: {"a", "b", "c", "d"}},
			tools.ToolLoopConfig{},
			[]string{"assistant :  [1 echo] [2 echo] [3 echo]", "tool 1: x", "tool 2: y", "tool 3: z", "user : a", "user : b", "user : c", "assistant : done", "user : d", "assistant : done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			box, events, all := &mailbox{}, 0, &kept{}
			c.config.Inject, c.config.Checkpoint = box.take, all.keep
			c.config.OnEvent = func(tools.Event) {
				events++
				box.waiting = append(box.waiting, c.arrive[events]...)
			}
			_, res := run(t, c.config, calls, answering("done"))
			if diff := cmp.Diff(c.want, outline(res.Messages)); diff != "" {
				t.Error(diff)
			}
			var injected []string
			for _, r := range all.records {
				if r.Kind == tools.RecordInject {
					injected = append(injected, "user : "+r.Message.Content)
				}
			}
			var want []string
			for _, line := range c.want {
				if strings.HasPrefix(line, "user") {
					want = append(want, line)
				}
			}
			if diff := cmp.Diff(want, injected); diff != "" {
				t.Errorf("records: %s", diff)
			}
		})
	}
}

func TestLoopInjectIsBounded(t *testing.T) {
	endless := &mailbox{waiting: strings.Fields(strings.Repeat("more ", 100))}
	p, res := run(t, tools.ToolLoopConfig{Inject: endless.take}, answering("done"))
	if len(p.asked) != 6 || len(endless.waiting) != 100-15 || res.StopReason != tools.StopAnswer || res.Messages[len(res.Messages)-1].Content != "done" {
		t.Errorf("%d requests, %d still wait, %+v", len(p.asked), len(endless.waiting), res.StopReason)
	}

	// What no request would follow is not taken.
	for _, final := range []bool{false, true} {
		box := &mailbox{waiting: []string{"a"}}
		p, res = run(t, tools.ToolLoopConfig{Inject: box.take, MaxIterations: 1, FinalAnswer: final}, answering("done"))
		if taken := len(box.waiting) == 0; taken != final || (len(p.asked) == 2) != final || res.Content != "done" {
			t.Errorf("final answer %v: %d requests, %q", final, len(p.asked), outline(res.Messages))
		}
	}
}

// A message that could not be recorded is not taken over.
func TestLoopInjectThatIsNotRecorded(t *testing.T) {
	box, k := &mailbox{waiting: []string{"a", "b"}}, &kept{failAt: 3}
	p := &script{replies: []providers.LLMResponse{answering("done")}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, MaxIterations: 3, Inject: box.take, Checkpoint: k.keep}, user("hi"), "test", "1")
	if diff := cmp.Diff([]string{"assistant : done", "user : a"}, outline(res.Messages)); diff != "" || !errors.Is(err, errDisk) {
		t.Errorf("%s %v", diff, err)
	}
}

// Together calls are skipped by what has come before they begin.
func TestLoopInjectSkipsSideBySide(t *testing.T) {
	r := echo()
	r.Register(&beside{fake: fake{name: "work"}})
	box := &mailbox{}
	var ran []string
	config := tools.ToolLoopConfig{Tools: r, Inject: box.take, InjectSkips: true, OnEvent: func(e tools.Event) {
		if e.Kind == tools.EventToolEnd {
			ran = append(ran, e.Call.ID)
		}
		if len(ran) == 1 && e.Kind == tools.EventToolEnd {
			box.waiting = []string{"stop"}
		}
	}}
	_, res := run(t, config, calling(toolCall("1", "work", number(1)), toolCall("2", "work", number(2)), toolCall("3", "echo", text("x")), toolCall("4", "work", number(1))), answering("done"))
	if fmt.Sprint(ran) != "[1 2]" || res.Messages[3].Content != res.Messages[4].Content || !strings.HasPrefix(res.Messages[3].Content, "Skipped") {
		t.Errorf("ran %v, %q", ran, outline(res.Messages))
	}
}

// The whole run of a message that comes in, on record, is the run again.
func TestLoopResumesBehindAnInjection(t *testing.T) {
	box, all := &mailbox{waiting: []string{"a"}}, &kept{}
	replies := []providers.LLMResponse{calling(toolCall("1", "echo", text("x"))), answering("done")}
	config := tools.ToolLoopConfig{Tools: echo(), MaxIterations: 5, Inject: box.take, Checkpoint: all.keep, Provider: &script{replies: replies}}
	whole, err := tools.RunToolLoop(context.WithoutCancel(t.Context()), config, user("hi"), "test", "1")
	if err != nil || all.String() != "1 reply , 1 begin 1, 1 end 1, 1 inject , 2 reply " {
		t.Fatalf("%v, recorded %s", err, all)
	}
	messages := user("hi")
	for _, r := range all.records[:4] {
		if r.Kind != tools.RecordBegin {
			messages = append(messages, r.Message)
		}
	}
	config.Rounds, config.Provider = 1, &script{replies: replies[1:]}
	res, err := tools.RunToolLoop(t.Context(), config, messages, "test", "1")
	if diff := cmp.Diff(append(user("hi"), whole.Messages...), append(messages, res.Messages...)); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
}
