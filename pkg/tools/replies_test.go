package tools_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// run runs a loop over echo's tools, unless config has others.
func run(t *testing.T, config tools.ToolLoopConfig, replies ...providers.LLMResponse) (*script, *tools.ToolLoopResult) {
	t.Helper()
	p := &script{replies: replies}
	config.Provider = p
	if config.Tools == nil {
		config.Tools = echo()
	}
	if config.MaxIterations == 0 {
		config.MaxIterations = 20
	}
	res, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	checkHistory(t, res.Messages)
	return p, res
}

// outline is a history in short.
func outline(messages []providers.Message) []string {
	var lines []string
	for _, m := range messages {
		line := m.Role + " " + m.ToolCallID + ": " + m.Content
		for _, tc := range m.ToolCalls {
			line += " [" + tc.ID + " " + tc.Name + "]"
		}
		lines = append(lines, line)
	}
	return lines
}

func ending(r providers.LLMResponse, finish string) providers.LLMResponse {
	r.FinishReason = finish
	return r
}

func written(id, name, arguments string) providers.ToolCall {
	return providers.ToolCall{ID: id, Type: "function", Name: name, Function: &providers.FunctionCall{Name: name, Arguments: arguments}}
}

// Whatever the finish reason says: calls are run, and a reply without any ends
// the loop.
func TestFieldOddFinishReason(t *testing.T) {
	for _, finish := range []string{providers.FinishStop, providers.FinishToolCalls, "", "end_turn", "function_call", "eos"} {
		_, res := run(t, tools.ToolLoopConfig{}, ending(calling(toolCall("1", "echo", text("x"))), finish), ending(answering("done"), finish))
		want := []string{"assistant :  [1 echo]", "tool 1: x", "assistant : done"}
		if diff := cmp.Diff(want, outline(res.Messages)); diff != "" || res.StopReason != tools.StopAnswer || res.Content != "done" {
			t.Errorf("finish reason %q: %s %+v", finish, diff, res)
		}
	}
}

// What a model may send instead of a proper call is answered, and the next
// request is in order.
func TestLoopTakesWhatModelsSend(t *testing.T) {
	for name, c := range map[string]struct {
		calls []providers.ToolCall
		want  []string // how the answers begin
	}{
		"no name":             {[]providers.ToolCall{toolCall("1", "", nil)}, []string{"The call names no tool"}},
		"double ids":          {[]providers.ToolCall{toolCall("1", "echo", text("a")), toolCall("1", "echo", text("b"))}, []string{"a", "b"}},
		"null for arguments":  {[]providers.ToolCall{written("1", "quiet", "null")}, []string{""}},
		"blank for arguments": {[]providers.ToolCall{written("1", "quiet", " ")}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			p, res := run(t, tools.ToolLoopConfig{}, calling(c.calls...), answering("done"))
			var got []string
			for _, m := range res.Messages[1 : len(res.Messages)-1] {
				got = append(got, m.Content)
			}
			if !slices.EqualFunc(got, c.want, func(g, w string) bool { return w == g || w != "" && strings.HasPrefix(g, w) }) {
				t.Errorf("answered %q, want %q", got, c.want)
			}
			checkHistory(t, p.asked[1][1:])
		})
	}

	// Ids that come again in the next round belong to that round.
	_, res := run(t, tools.ToolLoopConfig{}, calling(toolCall("1", "echo", text("a"))), calling(toolCall("1", "echo", text("b"))), answering("done"))
	if res.Messages[1].Content != "a" || res.Messages[3].Content != "b" {
		t.Errorf("got %q", outline(res.Messages))
	}
}

// Of a reply that was cut off nothing runs, though all but the last of its calls
// look whole, and the model has three tries to send less.
func TestFieldTruncatedCalls(t *testing.T) {
	ran := 0
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "write", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		ran++
		return tools.NewToolResult("written")
	}})
	whole, half := written("1", "write", `{"path":"a"}`), written("2", "write", `{"path":"b","content":"half of`)
	for name, cut := range map[string]providers.LLMResponse{
		"by its finish reason":           ending(calling(whole, written("2", "write", `{}`)), providers.FinishLength),
		"by a filter":                    ending(calling(whole, whole), providers.FinishContentFilter),
		"and the service denies it":      calling(whole, half),
		"and the service says it ended":  ending(calling(half, whole), providers.FinishStop),
		"behind arguments it has parsed": calling(toolCall("1", "write", text("x")), half),
	} {
		t.Run(name, func(t *testing.T) {
			ran = 0
			_, res := run(t, tools.ToolLoopConfig{Tools: r}, cut, cut, cut, calling(whole), cut, answering("done"))
			if ran != 1 || res.Content != "done" || res.StopReason != tools.StopAnswer {
				t.Errorf("%d calls ran: %+v", ran, res)
			}
			for _, m := range res.Messages[:3] {
				if m.Role == providers.RoleTool && !strings.Contains(m.Content, "Send less") {
					t.Errorf("a call of the reply is answered %q", m.Content)
				}
			}

			ran = 0
			p, res := run(t, tools.ToolLoopConfig{Tools: r}, cut)
			if ran != 0 || len(p.asked) != 4 || res.StopReason != tools.StopLength {
				t.Errorf("cut off every time: %d calls ran, %d requests, %+v", ran, len(p.asked), res)
			}
			p, res = run(t, tools.ToolLoopConfig{Tools: r, FinalAnswer: true}, cut, cut, cut, cut, answering("a is missing"))
			if len(p.asked) != 5 || p.defs[4] != nil || res.StopReason != tools.StopLength || res.Content != "a is missing" {
				t.Errorf("with a final answer: %d requests, %+v", len(p.asked), res)
			}
		})
	}
	_, res := run(t, tools.ToolLoopConfig{}, ending(answering("it goes on and"), providers.FinishLength))
	if res.StopReason != tools.StopLength || res.Content != "it goes on and" {
		t.Errorf("a text that was cut off ends the loop with %+v", res)
	}
	_, res = run(t, tools.ToolLoopConfig{FinalAnswer: true}, ending(answering(""), providers.FinishLength), answering("in short"))
	if res.StopReason != tools.StopLength || res.Content != "in short" {
		t.Errorf("thoughts that were cut off end the loop with %+v", res)
	}
}

// A reply that was cut off is not run either when the run is resumed.
func TestLoopResumesBehindACut(t *testing.T) {
	k := &kept{failAt: 2} // the end of the first call
	p := &script{replies: []providers.LLMResponse{calling(toolCall("1", "echo", text("x")), written("2", "echo", `{"text":"ha`))}}
	config := tools.ToolLoopConfig{Provider: p, Tools: echo(), MaxIterations: 3, Checkpoint: k.keep}
	if _, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1"); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	config.Checkpoint, config.Rounds = nil, 1
	config.Provider = &script{replies: []providers.LLMResponse{answering("done")}}
	res, err := tools.RunToolLoop(t.Context(), config, append(user("hi"), k.records[0].Message), "test", "1")
	if err != nil || len(res.Messages) != 3 || !strings.Contains(res.Messages[0].Content, "cut off") || !strings.Contains(res.Messages[1].Content, "cut off") {
		t.Errorf("%q, %v", outline(res.Messages), err)
	}

	// What it ended with may be all that is known.
	config.Finish = providers.FinishLength
	open := providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{toolCall("1", "echo", text("x"))}}
	res, err = tools.RunToolLoop(t.Context(), config, append(user("hi"), open), "test", "1")
	if err != nil || !strings.Contains(res.Messages[0].Content, "cut off") || open.ToolCalls[0].Invalid != "" {
		t.Errorf("%q, %v, of %+v", outline(res.Messages), err, open)
	}
}

// An empty reply is asked for again, unseen, and then for words; only a run that
// wants an answer does so, and none that has given one.
func TestFieldEmptyAnswers(t *testing.T) {
	call, empty := calling(toolCall("1", "echo", text("x"))), answering(" \n")
	empty.Usage = &providers.Usage{TotalTokens: 3}
	for name, c := range map[string]struct {
		config  tools.ToolLoopConfig
		replies []providers.LLMResponse
		asked   int
		content string
		usage   int
	}{
		"plain loop":       {tools.ToolLoopConfig{}, []providers.LLMResponse{call, empty}, 2, " \n", 3},
		"twice":            {tools.ToolLoopConfig{FinalAnswer: true}, []providers.LLMResponse{call, empty, empty, answering("done")}, 4, "done", 6},
		"again later":      {tools.ToolLoopConfig{FinalAnswer: true}, []providers.LLMResponse{empty, empty, call, empty, empty, answering("done")}, 6, "done", 12},
		"three times":      {tools.ToolLoopConfig{FinalAnswer: true}, []providers.LLMResponse{call, empty, empty, empty, answering("done")}, 5, "done", 9},
		"to the end":       {tools.ToolLoopConfig{FinalAnswer: true}, []providers.LLMResponse{empty}, 4, " \n", 12},
		"after a tool has": {tools.ToolLoopConfig{FinalAnswer: true, Answered: func() bool { return true }}, []providers.LLMResponse{call, empty}, 2, " \n", 3},
		"before it has":    {tools.ToolLoopConfig{FinalAnswer: true, Answered: func() bool { return false }}, []providers.LLMResponse{empty, answering("done")}, 2, "done", 3},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kept{}
			c.config.Checkpoint = k.keep
			p, res := run(t, c.config, c.replies...)
			if len(p.asked) != c.asked || res.Content != c.content || res.StopReason != tools.StopAnswer || res.Usage.TotalTokens != c.usage {
				t.Errorf("%d requests, %+v", len(p.asked), res)
			}
			spent := 0
			for _, r := range k.records {
				if r.Usage != nil {
					spent += r.Usage.TotalTokens
				}
			}
			if spent != c.usage {
				t.Errorf("the records tell of %d tokens", spent)
			}
			for i, m := range res.Messages[:len(res.Messages)-1] {
				if m.Role == providers.RoleAssistant && len(m.ToolCalls) == 0 || m.Role == providers.RoleUser {
					t.Errorf("message %d is %+v", i, m)
				}
			}
			if last := len(p.asked) - 1; c.asked > 3 && last > 2 && len(p.asked[last]) > len(p.asked[last-1]) {
				word := p.asked[last][len(p.asked[last])-1].Content
				if p.defs[last] != nil || !strings.Contains(word, "no text") || strings.Contains(word, "calls allowed") {
					t.Errorf("the model is asked %q, with %d tools", word, len(p.defs[last]))
				}
			}
		})
	}
}

// A service that stops on the way is asked to go on, with what it has said so
// far, but not for ever.
func TestFieldServerSidePause(t *testing.T) {
	pause := providers.LLMResponse{Content: "searching", FinishReason: providers.FinishPause, Opaque: []byte(`{"anthropic":1}`)}
	p, res := run(t, tools.ToolLoopConfig{}, pause, pause, answering("found"))
	if res.Content != "found" || res.Iterations != 3 || res.StopReason != tools.StopAnswer {
		t.Errorf("got %+v", res)
	}
	last := p.asked[2][len(p.asked[2])-1]
	if last.Role != providers.RoleAssistant || string(last.Opaque) != string(pause.Opaque) {
		t.Errorf("it is sent %+v", last)
	}
	p, res = run(t, tools.ToolLoopConfig{MaxIterations: 30}, pause)
	if len(p.asked) != 11 || res.StopReason != tools.StopMaxIterations {
		t.Errorf("%d requests to one that always pauses, %+v", len(p.asked), res)
	}
	p, res = run(t, tools.ToolLoopConfig{MaxIterations: 5, FinalAnswer: true}, pause, pause, pause, pause, pause, answering("so far"))
	if len(p.asked) != 6 || res.StopReason != tools.StopMaxIterations || res.Content != "so far" {
		t.Errorf("within the bound of rounds: %d requests, %+v", len(p.asked), res)
	}
	half := calling(toolCall("1", "echo", text("x")))
	half.FinishReason = providers.FinishPause
	if _, res = run(t, tools.ToolLoopConfig{}, half, answering("done")); res.Messages[1].Content != "x" || res.Content != "done" {
		t.Errorf("calls in a reply that pauses: %q", outline(res.Messages))
	}
}

// What a model declines to do is not done, and it is not pressed for an answer.
func TestFieldRefusal(t *testing.T) {
	for name, c := range map[string]providers.LLMResponse{
		"refused":  {Content: "I will not.", FinishReason: providers.FinishRefusal, ToolCalls: []providers.ToolCall{toolCall("1", "echo", text("x"))}},
		"filtered": {Content: "I will", FinishReason: providers.FinishContentFilter},
		"in vain":  {FinishReason: providers.FinishRefusal},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kept{}
			p, res := run(t, tools.ToolLoopConfig{FinalAnswer: true, Checkpoint: k.keep}, c)
			if len(p.asked) != 1 || res.StopReason != tools.StopRefused || res.Content != c.Content || len(res.Messages) != 1 || len(res.Messages[0].ToolCalls) != 0 {
				t.Errorf("%d requests, %+v", len(p.asked), res)
			}
			if k.String() != "1 reply " {
				t.Errorf("recorded %s", k)
			}
		})
	}
}

// When the rounds are used up the model gives its answer without tools, asked in
// a way that blames nobody's settings and is no part of the conversation.
func TestFieldMaxIterations(t *testing.T) {
	call := calling(toolCall("1", "echo", text("x")))
	p, res := run(t, tools.ToolLoopConfig{MaxIterations: 2}, call)
	if len(p.asked) != 2 || res.Content != "" || res.Iterations != 2 || res.StopReason != tools.StopMaxIterations {
		t.Errorf("plain: %d requests, %+v", len(p.asked), res)
	}
	late := answering("two of three are done")
	late.ToolCalls = call.ToolCalls // a call it may not make
	p, res = run(t, tools.ToolLoopConfig{MaxIterations: 2, FinalAnswer: true}, call, call, late)
	if len(p.asked) != 3 || res.Content != late.Content || res.Iterations != 3 || res.StopReason != tools.StopMaxIterations {
		t.Errorf("with a final answer: %d requests, %+v", len(p.asked), res)
	}
	asked := p.asked[2][len(p.asked[2])-1]
	if p.defs[2] != nil || asked.Role != providers.RoleUser || !strings.Contains(asked.Content, "left undone") || strings.Contains(asked.Content, "config") {
		t.Errorf("the model is asked %+v", asked)
	}
	for _, m := range res.Messages {
		if m.Role == providers.RoleUser {
			t.Errorf("the history holds %+v", m)
		}
	}
	if last := res.Messages[len(res.Messages)-1]; last.Content != late.Content || len(last.ToolCalls) != 0 {
		t.Errorf("the history ends in %+v", last)
	}
}

type failing struct {
	providers.LLMProvider
	usage *providers.Usage
}

func (f failing) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Usage: f.usage}, errors.New("broken off")
}

// Every request is counted: by round, in total, and by a guess where the
// service does not tell and one is wanted.
func TestFieldUsage(t *testing.T) {
	call, last := calling(written("1", "echo", `{"text":"`+strings.Repeat("x", 388)+`"}`)), answering("done")
	call.Usage = &providers.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15, CacheReadTokens: 4, CacheWriteTokens: 2}
	last.Usage = &providers.Usage{PromptTokens: 20, CompletionTokens: 5, TotalTokens: 25, ReasoningTokens: 3}
	total := providers.Usage{PromptTokens: 30, CompletionTokens: 10, TotalTokens: 40, CacheReadTokens: 4, CacheWriteTokens: 2, ReasoningTokens: 3}
	var told, kept providers.Usage
	config := tools.ToolLoopConfig{
		OnEvent: func(e tools.Event) {
			if e.Usage != nil {
				told.Add(*e.Usage)
			}
		},
		Checkpoint: func(_ context.Context, r tools.Record) error {
			if r.Usage != nil {
				kept.Add(*r.Usage)
			}
			return nil
		},
	}
	_, res := run(t, config, call, last)
	for name, got := range map[string]providers.Usage{"result": res.Usage, "events": told, "records": kept} {
		if diff := cmp.Diff(total, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if call.Usage.TotalTokens != 15 {
		t.Errorf("the provider's own count is now %+v", call.Usage)
	}

	call.Usage, last.Usage = nil, nil
	if _, res = run(t, tools.ToolLoopConfig{}, call, last); res.Usage != (providers.Usage{}) {
		t.Errorf("counted without being told: %+v", res.Usage)
	}
	_, res = run(t, tools.ToolLoopConfig{EstimateUsage: true}, call, last)
	if u := res.Usage; !u.Estimated || u.CompletionTokens < 100 || u.CompletionTokens > 110 || u.PromptTokens < 195 || u.PromptTokens > 215 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("guessed %+v", u)
	}

	broken, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: failing{usage: &total}, MaxIterations: 3}, user("hi"), "test", "1")
	if err == nil || broken.Usage != total {
		t.Errorf("of a request that failed: %+v, %v", broken, err)
	}
}

// What the person has been told by a tool needs no further word of the model.
func TestFieldToolThatAlreadyAnswered(t *testing.T) {
	final := func(result tools.ToolResult) tools.Tool {
		result.Final = true
		return &fake{name: "show", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return &result }}
	}
	for name, c := range map[string]struct {
		tool    tools.Tool
		stop    tools.StopReason
		content string
		asked   int
		answers []string
	}{
		"final":        {final(tools.ToolResult{ForLLM: "shown", ForUser: "the picture"}), "tool:show", "", 1, []string{"x", "shown", "Not run, because the turn ended before it."}},
		"final, quiet": {final(tools.ToolResult{ForLLM: "shown", Silent: true}), "tool:show", "", 1, []string{"x", "shown", "Not run, because the turn ended before it."}},
		"final, wrong": {final(tools.ToolResult{ForLLM: "no picture", IsError: true}), tools.StopAnswer, "done", 2, []string{"x", "no picture", "y"}},
		"loop breaker": {&breaker{fake{name: "show"}}, "tool:show", "ran show", 1, []string{"x", "ran show", "Not run, because the turn ended before it."}},
	} {
		t.Run(name, func(t *testing.T) {
			r := echo()
			r.Register(c.tool)
			k := &kept{}
			p, res := run(t, tools.ToolLoopConfig{Tools: r, FinalAnswer: true, Checkpoint: k.keep},
				calling(toolCall("1", "echo", text("x")), toolCall("2", "show", nil), toolCall("3", "echo", text("y"))), answering("done"))
			if len(p.asked) != c.asked || res.StopReason != c.stop || res.Content != c.content {
				t.Errorf("%d requests, %+v", len(p.asked), res)
			}
			for i, want := range c.answers {
				if got := res.Messages[i+1].Content; got != want {
					t.Errorf("call %d is answered %q, want %q", i, got, want)
				}
			}
			shown := slices.ContainsFunc(k.records, func(r tools.Record) bool { return r.Kind == tools.RecordEnd && r.Result.ForUser == "the picture" })
			if shown != (name == "final") {
				t.Errorf("the record of the result: %v", shown)
			}
		})
	}
}

// A long result reaches the model with its beginning and its end, and nobody
// else hears of that.
func TestFieldResultSize(t *testing.T) {
	for i, long := range []string{strings.Repeat("0123456789", 1000), strings.Repeat("äöü€😀", 500), strings.Repeat("\xff\x80", 3000), strings.Repeat("x", 300)} {
		for limit := 300; limit < 320; limit++ {
			r := tools.NewToolRegistry()
			r.Register(&fake{name: "long", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.UserResult(long) }})
			var shown *tools.ToolResult
			config := tools.ToolLoopConfig{Tools: r, MaxToolResultBytes: limit, OnEvent: func(e tools.Event) {
				if e.Kind == tools.EventToolEnd {
					shown = e.Result
				}
			}}
			p, res := run(t, config, calling(toolCall("1", "long", nil)), answering("done"))
			got := res.Messages[1].Content
			if p.asked[1][2].Content != got || shown.ForUser != long || shown.ForLLM != long {
				t.Errorf("the model reads %q, the person %d bytes", p.asked[1][2].Content, len(shown.ForUser))
			}
			if len(long) <= limit {
				if got != long {
					t.Errorf("a result that fits is now %q", got)
				}
				continue
			}
			head, rest, ok := strings.Cut(got, "\n[")
			_, tail, ok2 := strings.Cut(rest, "]\n")
			if !ok || !ok2 || len(got) > limit || len(got) < limit-20 || !strings.HasPrefix(long, head) || !strings.HasSuffix(long, tail) || len(tail) < 30 {
				t.Errorf("%d bytes: %q", len(got), got)
			}
			if want := fmt.Sprint(len(long)-len(head)-len(tail), " bytes"); !strings.HasPrefix(rest, want) {
				t.Errorf("the notice says %.20q, want %s", rest, want)
			}
			if strings.ToValidUTF8(long, "") == long && strings.ToValidUTF8(got, "") != got {
				t.Errorf("text %d within %d bytes: a character is cut: %q", i, limit, got)
			}
		}
	}
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "long", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return tools.NewToolResult(strings.Repeat("ä", 50))
	}})
	if _, res := run(t, tools.ToolLoopConfig{Tools: r, MaxToolResultBytes: 5}, calling(toolCall("1", "long", nil)), answering("done")); res.Messages[1].Content != "ää" {
		t.Errorf("within 5 bytes: %q", res.Messages[1].Content)
	}
}
