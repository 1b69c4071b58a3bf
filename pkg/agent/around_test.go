package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type aroundKey struct{}

type lost struct{}

func (lost) History(context.Context, string, int) ([]store.Entry, error) { return nil, errLost }

var errLost = errors.New("the disk is gone")

// Around hears of turns and of sub-agents within them, however they end, and
// what it puts into the context is there.
func TestAround(t *testing.T) {
	var heard []string
	r := tools.NewToolRegistry()
	a := New(Config{
		Tools: r, History: past{}, MaxIterations: 5, HistoryMessages: 50,
		Around: func(ctx context.Context, call tools.Call) (context.Context, func(Outcome, error)) {
			within, _ := ctx.Value(aroundKey{}).(string)
			name := fmt.Sprintf("%s of %s for %s within %q", call.Turn[:4], call.SessionKey, call.Principal, within)
			heard = append(heard, name)
			return context.WithValue(ctx, aroundKey{}, call.Turn[:4]), func(out Outcome, err error) {
				heard = append(heard, fmt.Sprintf("%s: %d rounds, %s, %d tokens, %v", call.Turn[:4], out.Rounds, out.StopReason, out.Usage.TotalTokens, err != nil))
			}
		},
		Provider: model(func(m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			resp := text("fine")
			switch m[len(m)-1].Content {
			case "fail":
				return nil, &providers.Error{Kind: providers.KindOverloaded}
			case "delegate":
				resp = &providers.LLMResponse{ToolCalls: []providers.ToolCall{{ID: "c1", Name: "delegate", Arguments: map[string]any{}}}}
			}
			resp.Usage = &providers.Usage{TotalTokens: 10}
			return resp, nil
		}),
	})
	r.Register(tools.Func("delegate", "Hands on.", func(ctx context.Context, _ struct{}) *tools.ToolResult {
		call, _ := tools.CallFrom(ctx)
		return a.RunTask(ctx, call, "do it")
	}))
	run := func(id, text string) error {
		_, err := a.Run(t.Context(), Turn{ID: id, Messages: []bus.InboundMessage{message(text)}})
		return err
	}
	if err := run("one.", "delegate"); err != nil {
		t.Fatal(err)
	}
	if err := run("two.", "fail"); providers.KindOf(err) != providers.KindOverloaded {
		t.Fatal(err)
	}
	a.cfg.History = lost{}
	if err := run("six.", "hi"); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	want := []string{
		`one. of telegram:7 for telegram:7 within ""`,
		`one. of telegram:7 for telegram:7 within "one."`, // the sub-agent, whose turn has a longer name
		`one.: 1 rounds, answer, 10 tokens, false`,
		`one.: 2 rounds, answer, 20 tokens, false`,
		`two. of telegram:7 for telegram:7 within ""`,
		`two.: 0 rounds, error, 0 tokens, true`,
		`six. of telegram:7 for telegram:7 within ""`,
		`six.: 0 rounds, , 0 tokens, true`,
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard\n%q, want\n%q", heard, want)
	}
}
