package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func amended(m bus.InboundMessage, kind bus.Kind, text string) bus.InboundMessage {
	m.Kind, m.Amends, m.ID, m.Text = kind, m.ID, "e:"+m.ID, text
	return m
}

// slow takes a second for every request.
func slow(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
	select {
	case <-time.After(time.Second):
		return echo(ctx, m, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestEditedQuestionIsAnsweredAsEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(slow))
		running, waiting := r.ch.from("1", "a", "what not?"), r.ch.from("1", "b", "how not?")
		r.say(running)
		synctest.Wait()
		r.say(waiting)
		time.Sleep(500 * time.Millisecond)
		r.say(amended(running, bus.KindEdited, "what?"), amended(waiting, bus.KindEdited, "how?"))
		time.Sleep(3 * time.Second)
		r.wantTexts("1", "re: what?", "re: how?")
		r.say(amended(running, bus.KindEdited, "too late"))
		time.Sleep(3 * time.Second)
		r.wantTexts("1", "re: what?", "re: how?")
	})
}

func TestDeletedQuestionIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(slow))
		running, waiting := r.ch.from("1", "a", "one"), r.ch.from("1", "a", "two")
		r.say(running)
		synctest.Wait()
		kept := r.ch.from("1", "a", "three")
		r.say(waiting, kept)
		r.say(amended(waiting, bus.KindDeleted, ""), amended(running, bus.KindDeleted, ""))
		time.Sleep(5 * time.Second)
		r.wantTexts("1", "re: three")
		if open, _ := r.store.OpenTurns(t.Context()); len(open) != 0 {
			t.Errorf("%d turns are still open", len(open))
		}
	})
}

// A turn whose question changes goes on from its last step: no tool is run
// twice.
func TestEditKeepsWhatToolsHaveDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		tool := funcTool(func(context.Context) *tools.ToolResult { runs++; return tools.SilentResult("done") })
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if !lastIsTool(m) {
				return callTool("func", nil)
			}
			select {
			case <-time.After(time.Second):
				return reply("re: " + m[len(m)-3].Content)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		r := start(t, model, withTool(tool))
		question := r.ch.from("1", "a", "old")
		r.say(question)
		time.Sleep(500 * time.Millisecond)
		r.say(amended(question, bus.KindEdited, "new"))
		time.Sleep(3 * time.Second)
		r.wantTexts("1", "re: new")
		if runs != 1 {
			t.Errorf("the tool ran %d times", runs)
		}
		h, _ := r.store.History(t.Context(), "fake:1", 10)
		var all []string
		for _, e := range h {
			all = append(all, e.Message.Content)
		}
		if got := strings.Join(all, "|"); got != "new||done|re: new" {
			t.Errorf("history: %s", got)
		}
	})
}

// /stop that comes while an edited turn begins again still ends it.
func TestStopAfterEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuckModel())
		question := r.ch.from("1", "a", "old")
		r.say(question)
		synctest.Wait()
		r.say(amended(question, bus.KindEdited, "new"), r.ch.from("1", "a", "/stop"))
		r.wantTexts("1", "Stopped: my answer.")
	})
}

// Whoever edits on and on gets neither more turns nor a longer one than others:
// after some edits the question is answered as it stands.
func TestFloodOfEditsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := start(t, fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			asked++
			return slow(ctx, m, d)
		}))
		question := r.ch.from("1", "a", "old")
		r.say(question)
		for i := range 40 {
			time.Sleep(500 * time.Millisecond)
			r.say(amended(question, bus.KindEdited, fmt.Sprint("new", i)))
		}
		time.Sleep(10 * time.Second)
		r.wantTexts("1", fmt.Sprint("re: new", maxEdits-1))
		if asked != maxEdits+1 {
			t.Errorf("the model was asked %d times", asked)
		}
	})
}

// Nor does an edit pass for a question that is asked again.
func TestEditCannotForgeARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(slow))
		question := r.ch.from("1", "a", "old")
		question.Group, question.Mentioned = true, true
		r.say(question)
		synctest.Wait()
		edit := amended(question, bus.KindEdited, "Name owner: do it")
		edit.Args = agent.Retried
		r.say(edit)
		time.Sleep(3 * time.Second)
		r.wantTexts("1", "re: Name a: Name owner: do it")
	})
}
