package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// An answer that has to have a form gets a second chance, told all that is wrong
// with the first; a caller always knows whether it fits.
func TestFieldStructuredOutput(t *testing.T) {
	schema := object([]string{"city", "days"}, map[string]interface{}{
		"city": map[string]interface{}{"type": "string", "enum": []string{"Bonn", "Ulm"}},
		"days": map[string]interface{}{"type": "integer", "minimum": 1},
	})
	good, bad := `{"city":"Bonn","days":2}`, `{"city":"Rome","days":0}`
	for name, c := range map[string]struct {
		max     int
		answers []string
		asked   int
		stop    tools.StopReason
		content string
	}{
		"at once":             {5, []string{good}, 1, tools.StopAnswer, good},
		"in a block of code":  {5, []string{"```json\n" + good + "\n```\n"}, 1, tools.StopAnswer, good},
		"repaired":            {5, []string{bad, good}, 2, tools.StopAnswer, good},
		"text, then repaired": {5, []string{"In Bonn, for two days.", good}, 2, tools.StopAnswer, good},
		"never":               {5, []string{bad, "sorry"}, 2, tools.StopInvalidOutput, "sorry"},
		"no room to repair":   {1, []string{bad}, 1, tools.StopInvalidOutput, bad},
		"half a block":        {5, []string{"```json\n" + good, good}, 2, tools.StopAnswer, good},
	} {
		t.Run(name, func(t *testing.T) {
			var replies []providers.LLMResponse
			for _, a := range c.answers {
				replies = append(replies, answering(a))
			}
			p, res := run(t, tools.ToolLoopConfig{OutputSchema: schema, MaxIterations: c.max}, replies...)
			if len(p.asked) != c.asked || res.StopReason != c.stop || res.Content != c.content {
				t.Errorf("%d requests, %+v", len(p.asked), res)
			}
			if (c.stop == tools.StopAnswer) != json.Valid([]byte(res.Content)) && c.max > 1 {
				t.Errorf("%s with %s", res.StopReason, res.Content)
			}
			if c.asked < 2 {
				return
			}
			told := p.asked[1][len(p.asked[1])-1]
			if told.Role != providers.RoleUser || !strings.Contains(told.Content, `"minimum":1`) {
				t.Errorf("the model is told %+v", told)
			}
			if c.answers[0] == bad && (!strings.Contains(told.Content, "city") || !strings.Contains(told.Content, "days")) {
				t.Errorf("not all violations are told: %s", told.Content)
			}
		})
	}

	p := &script{replies: []providers.LLMResponse{answering(good)}}
	_, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, MaxIterations: 2, OutputSchema: map[string]interface{}{"type": 7}}, user("hi"), "test", "1")
	if err == nil || len(p.asked) != 0 {
		t.Errorf("a schema that is none: %v after %d requests", err, len(p.asked))
	}
}

// A caller may end the loop by what it has come to, and have each request its
// own way.
func TestFieldStopConditionsAndStepPrep(t *testing.T) {
	call := calling(toolCall("1", "echo", text("x")))
	call.Content, call.Usage = "working", &providers.Usage{TotalTokens: 30}
	var seen []int
	p, res := run(t, tools.ToolLoopConfig{FinalAnswer: true, StopWhen: func(steps []tools.Step) bool {
		spent := 0
		for i, s := range steps {
			spent += s.Usage.TotalTokens
			if s.Round != i+1 || len(s.Messages) != 2 || s.Messages[1].Content != "x" || s.Finish != providers.FinishToolCalls {
				t.Errorf("step %d is %+v", i, s)
			}
		}
		seen = append(seen, len(steps))
		return spent >= 80
	}}, call)
	if len(p.asked) != 3 || res.StopReason != tools.StopCondition || res.Content != "working" || fmt.Sprint(seen) != "[1 2 3]" {
		t.Errorf("%d requests, %+v, asked with %v steps", len(p.asked), res, seen)
	}

	asked := &modelScript{script: script{replies: []providers.LLMResponse{
		calling(toolCall("1", "echo", text("x"))), calling(toolCall("2", "echo", text("y")), toolCall("3", "quiet", nil)), answering("done"),
	}}}
	all := echo()
	k := &kept{}
	config := tools.ToolLoopConfig{
		Provider: asked, Model: "big", Tools: all, MaxIterations: 5, LLMOptions: map[string]any{"a": 1}, Checkpoint: k.keep,
		PrepareStep: func(_ context.Context, r *tools.Request) error {
			if r.Round != 2 {
				return nil
			}
			r.Model, r.Options = "small", map[string]any{"b": 2}
			r.Tools = r.Tools.View(func(name string) bool { return name == "quiet" })
			r.Messages = append(r.Messages, user("be quick")...)
			return nil
		},
	}
	res, err := tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1")
	if err != nil || res.Content != "done" {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff([]string{"big map[a:1]", "small map[b:2]", "big map[a:1]"}, asked.models); diff != "" {
		t.Error(diff)
	}
	if n := []int{len(asked.defs[0]), len(asked.defs[1]), len(asked.defs[2])}; fmt.Sprint(n) != "[3 1 3]" {
		t.Errorf("offered %v tools", n)
	}
	if m := asked.asked[1]; m[len(m)-1].Content != "be quick" || len(asked.asked[2]) != 6 || len(res.Messages) != 6 {
		t.Errorf("asked %q and then %q", outline(m), outline(asked.asked[2]))
	}
	if got := res.Messages[3].Content; !strings.Contains(got, "not found") {
		t.Errorf("a tool that was not offered answers %q", got)
	}
	for i, r := range k.records {
		if r.Kind == tools.RecordReply && r.Round == 2 {
			digest := providers.ToolsDigest(asked.defs[1])
			if where := providers.Deviation(r.Request, asked.asked[1], digest, "small", map[string]any{"b": 2}); where != "" {
				t.Errorf("record %d: %s", i, where)
			}
		}
	}

	no := errors.New("over budget")
	config.PrepareStep = func(context.Context, *tools.Request) error { return no }
	if res, err = tools.RunToolLoop(t.Context(), config, user("hi"), "test", "1"); !errors.Is(err, no) || len(asked.asked) != 3 || res.StopReason != tools.StopError {
		t.Errorf("%+v, %v", res, err)
	}
}

// modelScript is a script that keeps the models and options it was asked with.
type modelScript struct {
	script
	models []string
}

func (m *modelScript) Chat(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	m.models = append(m.models, fmt.Sprint(model, " ", options))
	return m.script.Chat(ctx, messages, defs, model, options)
}
