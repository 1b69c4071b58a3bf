package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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
