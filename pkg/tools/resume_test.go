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

// kept collects the records of a loop, and fails at one of them.
type kept struct {
	records []tools.Record
	failAt  int // 0: never
}

var errDisk = errors.New("disk full")

func (k *kept) keep(_ context.Context, r tools.Record) error {
	if len(k.records)+1 == k.failAt {
		return errDisk
	}
	k.records = append(k.records, r)
	return nil
}

func (k *kept) String() string {
	var kinds []string
	for _, r := range k.records {
		kinds = append(kinds, fmt.Sprintf("%d %s %s", r.Round, r.Kind, r.Call.ID))
	}
	return strings.Join(kinds, ", ")
}

func TestLoopCheckpoints(t *testing.T) {
	replies := []providers.LLMResponse{calling(toolCall("1", "echo", text("x")), toolCall("2", "quiet", nil)), answering("done")}
	all := &kept{}
	base := tools.WithCall(t.Context(), tools.Call{Turn: "t1", Principal: "test:9"})
	res, err := tools.RunToolLoop(base, tools.ToolLoopConfig{Provider: &script{replies: replies}, Tools: echo(), MaxIterations: 5, Checkpoint: all.keep}, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	if want := "1 reply , 1 begin 1, 1 end 1, 1 begin 2, 1 end 2, 2 reply "; all.String() != want {
		t.Errorf("recorded %s", all)
	}
	var recorded []providers.Message
	for _, r := range all.records {
		if r.Kind != tools.RecordBegin {
			recorded = append(recorded, r.Message)
		}
	}
	if diff := cmp.Diff(res.Messages, recorded); diff != "" {
		t.Errorf("the records do not make up the history: %s", diff)
	}
	call := all.records[2].Call
	want := tools.Call{ID: "1", Tool: "echo", Channel: "test", ChatID: "1", Turn: "t1", Round: 1, Principal: "test:9"}
	if diff := cmp.Diff(want, call); diff != "" {
		t.Error(diff)
	}
	if all.records[2].Result.ForLLM != "x" {
		t.Errorf("the result is %+v", all.records[2].Result)
	}

	for at := 1; at <= len(all.records); at++ {
		k := &kept{failAt: at}
		p := &script{replies: replies}
		res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 5, Checkpoint: k.keep}, user("hi"), "test", "1")
		if !errors.Is(err, errDisk) || res.StopReason != tools.StopError {
			t.Errorf("failing at %d: %+v, %v", at, res, err)
		}
		checkHistory(t, res.Messages)
		if at <= 5 && len(p.asked) != 1 {
			t.Errorf("failing at %d the loop went on", at)
		}
	}
}

// A loop that was interrupted after any of its steps goes on from there: nothing
// is asked again, no call is run twice.
func TestLoopResumes(t *testing.T) {
	replies := []providers.LLMResponse{
		calling(toolCall("1", "echo", text("x")), toolCall("2", "echo", text("y"))),
		calling(toolCall("3", "echo", text("z"))),
		answering("done"),
	}
	all := &kept{}
	whole, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: &script{replies: replies}, Tools: echo(), MaxIterations: 3, Checkpoint: all.keep}, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(all.records) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			messages, rounds, ended := user("hi"), 0, map[string]bool{}
			for _, r := range all.records[:n] {
				if r.Kind == tools.RecordReply {
					rounds = r.Round
				}
				if r.Kind != tools.RecordBegin {
					messages = append(messages, r.Message)
				}
				if r.Kind == tools.RecordEnd {
					ended[r.Call.ID] = true
				}
			}
			again := &kept{}
			p := &script{replies: replies[rounds:]}
			res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 3, Checkpoint: again.keep, Rounds: rounds}, messages, "test", "1")
			if err != nil || res.Content != "done" || res.Iterations != 3 || len(p.asked) != 3-rounds {
				t.Fatalf("got %+v after %d requests, %v", res, len(p.asked), err)
			}
			if diff := cmp.Diff(append(user("hi"), whole.Messages...), append(messages, res.Messages...)); diff != "" {
				t.Error(diff)
			}
			for _, r := range again.records {
				if r.Kind == tools.RecordBegin && ended[r.Call.ID] {
					t.Errorf("call %s was run again", r.Call.ID)
				}
			}
			for i, r := range again.records {
				if want := all.records[len(all.records)-len(again.records)+i].Round; r.Round != want {
					t.Errorf("record %d has round %d, want %d", i, r.Round, want)
				}
			}
		})
	}
}
