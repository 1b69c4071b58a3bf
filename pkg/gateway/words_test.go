package gateway

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// However a turn ends, the person reads something about it, once.
func TestEveryTurnEndsInAWord(t *testing.T) {
	ends := func(content, finish string, calls ...providers.ToolCall) fakeModel {
		return func(context.Context, []providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
			return &providers.LLMResponse{Content: content, FinishReason: finish, ToolCalls: calls}, nil
		}
	}
	round := 0
	circles := "I went round in circles with that and stopped. Please ask for less at once, or in other words."
	for name, c := range map[string]struct {
		model  fakeModel
		result *tools.ToolResult
		want   []string
		asked  int // how often the model is, 0: whatever
	}{
		"empty":           {ends("", providers.FinishStop), nil, []string{"I have no answer to that. Please ask me in other words."}, 4},
		"invisible":       {ends("\u200b \n", providers.FinishStop), nil, []string{"I have no answer to that. Please ask me in other words."}, 0},
		"refused":         {ends("", providers.FinishRefusal), nil, []string{"I cannot answer that. Please ask me something else, or in other words."}, 1},
		"refused, kindly": {ends("I would rather not.", providers.FinishRefusal), nil, []string{"I would rather not."}, 1},
		"thoughts only":   {ends("", providers.FinishLength), nil, []string{"My answer grew too long before it said anything. Please ask for less at once, or in smaller steps."}, 2},
		"cut off":         {ends("It began in", providers.FinishLength), nil, []string{"It began in\n\n" + agent.CutOff}, 1},
		"in a circle":     {ends("", "", providers.ToolCall{ID: "1", Name: "func"}), tools.SilentResult("nothing"), []string{circles}, 9},
		"too many rounds": {func(context.Context, []providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
			round++
			return callTool("func", map[string]interface{}{"n": round})
		}, tools.SilentResult("nothing"), []string{circles}, 13},
		"a tool has said it": {ends("", "", providers.ToolCall{ID: "1", Name: "func"}), &tools.ToolResult{ForLLM: "shown", ForUser: "the picture", Final: true}, []string{"the picture"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
					asked++
					return c.model(ctx, m, d)
				})
				r := start(t, nil, func(cfg *Config) {
					cfg.Tools.Register(funcTool(func(context.Context) *tools.ToolResult { return c.result }))
					cfg.Agent = agent.New(agent.Config{Provider: model, Model: "m", Tools: cfg.Tools, History: cfg.Store, MaxIterations: 12, HistoryMessages: 50, Log: cfg.Log})
				})
				r.say(r.ch.from("1", "a", "hi"))
				r.wantTexts("1", c.want...)
				if asked != c.asked && c.asked > 0 {
					t.Errorf("the model was asked %d times, want %d", asked, c.asked)
				}
			})
		})
	}
}

// A model that has said it all with the message tool is not pressed for words.
func TestNothingMoreToSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var r *rig
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			asked++
			if lastIsTool(m) {
				return reply("")
			}
			return callTool("func", nil)
		})
		r = start(t, model, func(cfg *Config) {
			cfg.Tools.Register(funcTool(func(ctx context.Context) *tools.ToolResult {
				call, _ := tools.CallFrom(ctx)
				out := quoting(r.ch.from("1", "a", ""), call.Key(), "said already")
				if _, err := r.PublishOutbound(ctx, out); err != nil {
					return tools.ErrorResult(fmt.Sprint(err))
				}
				return tools.SilentResult("sent")
			}))
		})
		r.say(r.ch.from("1", "a", "hi"))
		r.wantTexts("1", "said already")
		if asked != 2 {
			t.Errorf("the model was asked %d times, want 2", asked)
		}
	})
}

// What a tool has for the person is sent at once, before the answer, unless it
// is silent: that wins over everything else the result says.
func TestForUserIsSentAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		result *tools.ToolResult
		want   []string
	}{
		"shown":                     {&tools.ToolResult{ForLLM: "raw", ForUser: "the picture"}, []string{"the picture", "model read: raw"}},
		"shown of a failure":        {&tools.ToolResult{ForLLM: "raw", ForUser: "it failed", IsError: true}, []string{"it failed", "model read: raw"}},
		"nothing to show":           {&tools.ToolResult{ForLLM: "raw"}, []string{"model read: raw"}},
		"silent":                    {&tools.ToolResult{ForLLM: "raw", ForUser: "the picture", Silent: true}, []string{"model read: raw"}},
		"silent, and it has failed": {&tools.ToolResult{ForLLM: "raw", ForUser: "it failed", Silent: true, IsError: true}, []string{"model read: raw"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
					if lastIsTool(m) {
						return reply("model read: " + m[len(m)-1].Content)
					}
					return callTool("func", nil)
				})
				r := start(t, model, withTool(funcTool(func(context.Context) *tools.ToolResult { return c.result })))
				r.say(r.ch.from("1", "a", "hi"))
				r.wantTexts("1", c.want...)
			})
		})
	}
}
