package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

var errOverflow = &providers.Error{Kind: providers.KindContextOverflow, Status: 400}

// tight is a model that reads a number of tokens and no more. It calls the tool
// once, then answers.
func tight(window int) *asked {
	p := &asked{}
	p.answer = func(n int) (*providers.LLMResponse, error) {
		m := p.requests[n-1]
		if Tokens(m) > window {
			return nil, fmt.Errorf("asking: %w", errOverflow)
		}
		if m[len(m)-1].Role == providers.RoleTool {
			return text("done"), nil
		}
		return &providers.LLMResponse{ToolCalls: calls("1").ToolCalls, Usage: &providers.Usage{TotalTokens: 3}}, nil
	}
	return p
}

func try(t *testing.T, p providers.LLMProvider, c *Compactor) (ran *int, a attempt) {
	t.Helper()
	ran = new(int)
	registry := tools.NewToolRegistry()
	registry.Register(tools.Func("tool", "x", func(context.Context, struct{}) *tools.ToolResult {
		*ran++
		return tools.NewToolResult(strings.Repeat("result ", 500))
	}))
	a = attempt{
		loop:     tools.ToolLoopConfig{Provider: p, Tools: registry, MaxIterations: 5},
		governor: Governor{MaxTokens: 100_000}, compactor: c, past: talk(20),
		messages: func(past []store.Entry) []providers.Message {
			return append(append(messages{system("s")}, Past(past)...), person("go on"))
		},
	}
	return ran, a
}

func TestOverflowIsCompactedAndTriedOnce(t *testing.T) {
	past := talk(20)
	whole := entryTokens(past)
	for name, tc := range map[string]struct {
		window      int
		compactor   *Compactor
		requests    int // of the turn's model
		wantSummary bool
		wantErr     bool
	}{
		"fits":                    {whole * 2, &Compactor{}, 2, false, false},
		"before the first reply":  {whole * 3 / 4, &Compactor{}, 3, true, false},
		"after a tool":            {whole + 100, &Compactor{}, 3, true, false},
		"without a compactor":     {whole + 100, nil, 3, false, false},
		"nothing to summarise":    {whole + 100, &Compactor{KeepTurns: 20}, 3, false, false},
		"still too long":          {50, &Compactor{}, 2, true, true},
		"summarised by the model": {whole + 100, &Compactor{Provider: always(text("They like tea."), nil)}, 3, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := tight(tc.window)
			ran, a := try(t, p, tc.compactor)
			var records []string
			a.loop.Checkpoint = func(_ context.Context, r tools.Record) error {
				records = append(records, fmt.Sprintf("%s %d", r.Kind, r.Round))
				return nil
			}
			res, summary, err := a.run(t.Context())
			if Overflowed(err) != tc.wantErr || err != nil && !tc.wantErr || (summary != nil) != tc.wantSummary || len(p.requests) != tc.requests {
				t.Fatalf("%+v, %v, %v after %d requests", res, summary, err, len(p.requests))
			}
			if summary != nil && (summary.Keep != 8 || summary.Session != "s") {
				t.Errorf("summary %+v", summary)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff([]string{"reply 1", "begin 1", "end 1", "reply 2"}, records); diff != "" {
				t.Errorf("records: %s", diff)
			}
			if *ran != 1 || len(res.Messages) != 3 || res.Content != "done" || res.Iterations != 2 || res.Usage.TotalTokens != 3 {
				t.Errorf("%+v", res)
			}
			last := p.requests[len(p.requests)-1]
			for i, r := range p.requests {
				if refused := Tokens(r); refused > tc.window && Tokens(p.requests[i+1]) > refused/2 {
					t.Errorf("the second attempt has %d tokens after %d", Tokens(p.requests[i+1]), refused)
				}
			}
			if tc.wantSummary != isSummary(&last[1]) {
				t.Errorf("begins %.80q", last[1].Content)
			}
			if err := anthropicRules(last); err != nil {
				t.Error(err)
			}
		})
	}
}

// A summary that does not come costs a turn some of its time, not its answer.
func TestOverflowDoesNotWaitForASummary(t *testing.T) {
	for _, limit := range []time.Duration{0, 5 * time.Minute, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, limit)
			}
			defer cancel()
			p := tight(entryTokens(talk(20)) + 100)
			_, a := try(t, p, &Compactor{Provider: hanging{}})
			began := time.Now()
			res, summary, err := a.run(ctx)
			if err != nil || res.Content != "done" || summary == nil || !strings.HasPrefix(summary.Text, digestHead) {
				t.Errorf("%+v, %v, %v", res, summary, err)
			}
			if took := time.Since(began); took > maxSummaryTime || limit > 0 && took > limit/2 {
				t.Errorf("it took %s of %s", took, limit)
			}
		})
	}
}

// hanging is a model that never answers.
type hanging struct{}

func (hanging) Chat(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The model that has just refused a conversation for its length is asked for its
// summary in less.
func TestOverflowSummaryFitsTheModel(t *testing.T) {
	window := entryTokens(talk(20)) / 2
	p := tight(window)
	summaries := &asked{answer: func(int) (*providers.LLMResponse, error) { return text("They like tea."), nil }}
	_, a := try(t, p, &Compactor{Provider: summaries, Input: 100_000})
	_, summary, err := a.run(t.Context())
	if err != nil || summary == nil || summary.Text != "They like tea." {
		t.Errorf("%v, %v", summary, err)
	}
	for _, r := range summaries.requests {
		if n := Tokens(r); n > window*5/4 { // half of what was sent, which was a little more than twice the window
			t.Errorf("the summary was asked for in %d tokens of %d", n, window)
		}
	}
}

// A conversation that is one giant turn cannot be summarised; it is cut.
func TestOverflowOfOneGiantTurn(t *testing.T) {
	giant := []store.Entry{{Session: "s", Turn: "1", Message: person("q")}}
	for i := range 40 {
		id := fmt.Sprint("id", i)
		giant = append(giant, store.Entry{Session: "s", Turn: "1", Message: calls(id)}, store.Entry{Session: "s", Turn: "1", Message: result(id, strings.Repeat("👩‍👩‍👧", 400))})
	}
	p := tight(entryTokens(giant) * 2 / 3)
	c := &Compactor{Provider: always(text("x"), nil), Trigger: 1, Entries: 1}
	_, a := try(t, p, c)
	a.past = giant
	res, summary, err := a.run(t.Context())
	if err != nil || res.Content != "done" || summary != nil || c.Due(giant) {
		t.Errorf("%+v, %v, %v, due %t", res, summary, err, c.Due(giant))
	}
	for _, r := range p.requests {
		if err := requestRules(r); err != nil {
			t.Error(err)
		}
	}
}

func TestOverflowIsNoOtherError(t *testing.T) {
	for _, err := range []error{errors.New("x"), &providers.Error{Kind: providers.KindInvalidRequest}} {
		p := always(nil, err)
		_, a := try(t, p, &Compactor{})
		if _, summary, got := a.run(t.Context()); !errors.Is(got, err) || summary != nil || len(p.requests) != 1 {
			t.Errorf("%v, %v after %d requests", summary, got, len(p.requests))
		}
	}
	if Overflowed(nil) || !Overflowed(fmt.Errorf("x: %w", errOverflow)) {
		t.Error("Overflowed")
	}
}

// A turn that had its answer when the process ended does not ask for it again.
func TestAnswerIsTakenFromTheJournal(t *testing.T) {
	for rounds, want := range map[int]tools.StopReason{2: tools.StopAnswer, 6: tools.StopMaxIterations} {
		p := tight(1 << 20)
		_, a := try(t, p, nil)
		a.loop.Rounds = rounds
		a.messages = func([]store.Entry) []providers.Message {
			return messages{person("q"), calls("1"), result("1", "r"), answer("the answer")}
		}
		res, _, err := a.run(t.Context())
		if err != nil || res.Content != "the answer" || res.Iterations != rounds || res.StopReason != want || len(res.Messages) != 0 || len(p.requests) != 0 {
			t.Errorf("%+v, %v after %d requests", res, err, len(p.requests))
		}
	}
}
