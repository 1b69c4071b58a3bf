package tools_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// fickle is a model that may do anything, but the same whenever it is asked the
// same: what it replies depends on how far the turn is.
type fickle struct {
	replies []providers.LLMResponse
	failAt  int // round, 0: none
	asked   int
}

var errFickle = errors.New("no mood")

func (f *fickle) Chat(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	f.asked++
	round := 0
	for _, m := range messages {
		if m.Role == providers.RoleAssistant {
			round++
		}
	}
	if round+1 == f.failAt {
		return nil, errFickle
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	resp := f.replies[min(round, len(f.replies)-1)]
	if len(defs) == 0 {
		resp = answering("at last")
	}
	return &resp, nil
}

func anything(r *rand.Rand) (replies []providers.LLMResponse) {
	names := []string{"look", "look", "look", "do", "do", "finish", "show", "missing", ""}
	arguments := []string{`{"n":1}`, `{"n":2}`, `{}`, `null`, ``, `[1]`, `{"n":`, `{"n":1`, `nonsense`}
	cuts := 0
	for range 1 + r.IntN(12) {
		reply := providers.LLMResponse{Content: []string{"", "text"}[r.IntN(2)]}
		reply.FinishReason = []string{"stop", "tool_calls", "", "length", "refusal", "content_filter", "pause", "odd"}[min(r.IntN(24), 7)]
		for range max(0, r.IntN(8)-2) {
			tc := written(fmt.Sprint(r.IntN(4)), names[min(r.IntN(40), len(names)-1)], arguments[min(r.IntN(30), len(arguments)-1)])
			if r.IntN(4) > 0 {
				tc = toolCall(fmt.Sprint(r.IntN(4)), names[r.IntN(5)], number(r.IntN(3)))
			}
			reply.ToolCalls = append(reply.ToolCalls, tc)
		}
		if cut := reply.FinishReason == "length" || reply.FinishReason == "content_filter"; cut {
			if cuts++; cuts > 3 {
				reply.FinishReason = "stop" // how often in a row is not on record
			}
		}
		replies = append(replies, reply)
	}
	if r.IntN(3) == 0 { // it goes round in circles
		circle := []providers.LLMResponse{calling(toolCall("c", "look", number(r.IntN(2)))), calling(toolCall("d", "do", number(1))), calling(toolCall("c", "look", number(1)), toolCall("d", "do", number(1)), toolCall("e", "do", number(1)))}
		from := r.IntN(len(circle))
		return append(replies[:r.IntN(len(replies))], slices.Repeat(circle[from:from+1+r.IntN(len(circle)-from)], 20)...)
	}
	return append(replies, answering("done"))
}

func handy() *tools.ToolRegistry {
	r := tools.NewToolRegistry()
	say := func(name string) func(context.Context, map[string]interface{}) *tools.ToolResult {
		return func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			return tools.NewToolResult(fmt.Sprint(name, " ", args["n"], args["number"]))
		}
	}
	r.Register(&beside{fake: fake{name: "look", run: say("look")}, again: true})
	r.Register(&fake{name: "do", run: say("do")})
	r.Register(&breaker{fake{name: "finish"}})
	r.Register(&fake{name: "show", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return &tools.ToolResult{ForLLM: "shown", ForUser: "it", Final: true}
	}})
	return r
}

// stable leaves out the ids that the loop makes anew for calls that have none of
// their own.
func stable(messages []providers.Message) (lines []string) {
	names := map[string]string{}
	for _, m := range messages {
		line := m.Role + ": " + m.Content
		for _, tc := range m.ToolCalls {
			names[tc.ID] = tc.Name
			line += fmt.Sprint(" ", tc.Name, tc.Arguments, tc.Invalid)
		}
		lines = append(lines, line+names[m.ToolCallID])
	}
	return lines
}

// Whatever a model does, and wherever the run is cut short, the loop ends, its
// history is valid, and a run that goes on from what is on record comes to what
// it would have come to.
func TestLoopBearsAnything(t *testing.T) {
	ends := map[tools.StopReason]int{}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(7, seed))
		replies, all := anything(r), &kept{}
		config := tools.ToolLoopConfig{
			Tools: handy(), MaxIterations: 1 + r.IntN(20), FinalAnswer: r.IntN(2) == 0, LoopGuard: r.IntN(2) == 0,
			Parallel: r.IntN(4), MaxToolResultBytes: r.IntN(2) * 30, Checkpoint: all.keep,
		}
		model := &fickle{replies: replies}
		config.Provider = model
		whole, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
		if err != nil || whole.StopReason == "" || model.asked > 3*config.MaxIterations+4 {
			t.Fatalf("seed %d: %+v, %v after %d requests", seed, whole, err, model.asked)
		}
		if words := strings.TrimSpace(whole.Content) != ""; config.FinalAnswer && !words && !strings.HasPrefix(string(whole.StopReason), "tool:") && whole.StopReason != tools.StopRefused {
			t.Fatalf("seed %d: ends without a word: %+v", seed, whole)
		}
		checkHistory(t, whole.Messages)
		ends[whole.StopReason]++

		// Cut short: by the model, by the ledger, by the person.
		ctx, cancel := context.WithCancel(t.Context())
		broken := config
		broken.Provider = &fickle{replies: replies, failAt: r.IntN(5)}
		k, stopAt := &kept{failAt: r.IntN(2) * r.IntN(20)}, r.IntN(2)*r.IntN(20)
		broken.Checkpoint = func(ctx context.Context, record tools.Record) error {
			if stopAt--; stopAt == 0 {
				cancel()
			}
			return k.keep(ctx, record)
		}
		res, _ := tools.RunToolLoop(ctx, broken, user("hi"), "test", "1")
		cancel()
		checkHistory(t, res.Messages)

		// Taken up again from what was on record at some moment.
		n := r.IntN(len(all.records) + 1)
		if n > 0 {
			if last := all.records[n-1]; last.Kind == tools.RecordReply && len(last.Message.ToolCalls) == 0 && last.Finish != providers.FinishPause {
				continue // it has its answer: there is nothing to take up
			}
		}
		messages := user("hi")
		again := config
		again.Checkpoint, again.Provider = nil, &fickle{replies: replies}
		for _, record := range all.records[:n] {
			again.Rounds = record.Round
			if record.Kind == tools.RecordReply {
				again.Finish = record.Finish
			}
			if record.Kind != tools.RecordBegin {
				messages = append(messages, record.Message)
			}
		}
		res, err = tools.RunToolLoop(t.Context(), again, messages, "test", "1")
		if whole.StopReason == tools.StopTool+"show" {
			continue // that it was final is not on record
		}
		if err != nil || res.StopReason != whole.StopReason {
			t.Fatalf("seed %d, resumed at %d: %+v, %v, want %+v", seed, n, res, err, whole)
		}
		if diff := cmp.Diff(stable(append(user("hi"), whole.Messages...)), stable(append(messages, res.Messages...))); diff != "" {
			t.Fatalf("seed %d, resumed at %d: %s", seed, n, diff)
		}
	}
	if len(ends) < 7 {
		t.Errorf("only these ends were seen: %v", ends)
	}
	t.Log(ends)
}
