package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// later is an asynchronous tool in the seeds' manner, without shared state.
type later struct {
	after  time.Duration
	result *tools.ToolResult
}

func (later) Name() string                       { return "later" }
func (later) Description() string                { return "answers later" }
func (later) Parameters() map[string]interface{} { return map[string]interface{}{"type": "object"} }
func (later) Execute(context.Context, map[string]interface{}) *tools.ToolResult {
	return tools.ErrorResult("needs a callback")
}

func (l later) ExecuteAsync(ctx context.Context, _ map[string]interface{}, cb tools.AsyncCallback) *tools.ToolResult {
	tools.Go(ctx, func(ctx context.Context) {
		time.Sleep(l.after)
		cb(ctx, l.result)
	})
	return tools.AsyncResult("started")
}

// asksLater calls the tool for a question and answers everything else by echo.
func asksLater(ctx context.Context, m []providers.Message, t []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if lastIsTool(m) {
		return reply("working on it")
	}
	if strings.HasSuffix(m[len(m)-1].Content, "go") {
		return callTool("later", nil)
	}
	return echo(ctx, m, t)
}

func withTool(tool tools.Tool) func(*Config) {
	return func(c *Config) { c.Tools.Register(tool) }
}

func TestAsyncResultComesBackToTheConversationThatAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(asksLater), withTool(later{time.Minute, tools.NewToolResult("42")}))
		for i := range 4 {
			chat := fmt.Sprint(i)
			r.say(r.ch.from(chat, "u"+chat, "go"))
			r.wantTexts(chat, "working on it")
		}
		r.say(r.ch.from("9", "z", "hello")) // somebody else speaks meanwhile
		time.Sleep(2 * time.Minute)
		for i := range 4 {
			r.wantTexts(fmt.Sprint(i), "working on it", "re: [The background task has finished. Give its result to the person who asked for it:]\n42")
		}
		r.wantTexts("9", "re: hello")
		if open, _ := r.store.OpenTasks(t.Context()); len(open) != 0 {
			t.Errorf("%d tasks are still open", len(open))
		}
	})
}

func TestAsyncForUserIsShownWithoutTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(asksLater), withTool(later{time.Second, &tools.ToolResult{ForLLM: "raw", ForUser: "shown"}}))
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(2 * time.Second)
		r.wantTexts("1", "working on it", "shown")
		h, err := r.store.History(t.Context(), "fake:1", 10)
		if err != nil || len(h) != 6 || !strings.Contains(h[4].Message.Content, "raw") || h[5].Message.Content != "shown" {
			t.Errorf("history: %+v, %v", h, err)
		}
	})
}

// A silent result of the background is told to the model and shown to nobody.
func TestSilentAsyncResultIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(asksLater), withTool(later{time.Second, &tools.ToolResult{ForLLM: "raw", ForUser: "never", Silent: true}}))
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(2 * time.Second)
		r.wantTexts("1", "working on it", "re: [The background task has finished. Give its result to the person who asked for it:]\nraw")
	})
}

// A finished result reaches its conversation although the model is down.
func TestAsyncResultWithoutAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if strings.Contains(m[len(m)-1].Content, "has finished") {
				return nil, &providers.Error{Kind: providers.KindUnreachable}
			}
			return asksLater(ctx, m, d)
		})
		r := start(t, model, withTool(later{time.Second, tools.NewToolResult("the result")}))
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(2 * time.Second)
		r.wantTexts("1", "working on it", "the result")
	})
}

// Follow-up upon follow-up ends: the last is delivered without another turn.
func TestHopsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := 0
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if lastIsTool(m) {
				return reply("again")
			}
			turns++
			return callTool("later", nil) // whatever comes, start another one
		})
		r := start(t, model, withTool(later{time.Second, tools.NewToolResult("result")}))
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(time.Hour)
		r.wantTexts("1", "again", "again", "again", "result")
		if turns != maxHops {
			t.Errorf("%d turns, want %d", turns, maxHops)
		}
	})
}

func TestReminderFiresWhereItWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *Gateway
		remind := funcTool(func(ctx context.Context) *tools.ToolResult {
			call, _ := tools.CallFrom(ctx)
			if err := g.Remind(ctx, call, store.Schedule{ID: "r" + call.ChatID, Due: time.Now().Add(5 * time.Second), Text: "stretch " + call.ChatID}); err != nil {
				return tools.ErrorResult(err.Error())
			}
			return tools.SilentResult("set")
		})
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if lastIsTool(m) {
				return reply(m[len(m)-1].Content)
			}
			return callTool("func", map[string]interface{}{})
		})
		r := start(t, model, withTool(remind))
		g = r.Gateway
		r.say(r.ch.from("1", "a", "x"), r.ch.from("2", "b", "x"))
		time.Sleep(4900 * time.Millisecond)
		r.wantTexts("1", "set")
		r.say(r.ch.from("1", "a", "/tasks"))
		synctest.Wait()
		if got := r.ch.texts("1"); !strings.Contains(got[len(got)-1], "stretch 1") || strings.Contains(got[len(got)-1], "stretch 2") {
			t.Errorf("/tasks: %q", got)
		}
		time.Sleep(200 * time.Millisecond)
		r.wantTexts("2", "set", "⏰ stretch 2")
		if got := r.ch.texts("1"); got[len(got)-1] != "⏰ stretch 1" {
			t.Errorf("sent %q", got)
		}
		time.Sleep(time.Hour)
		if n := len(r.ch.texts("2")); n != 2 {
			t.Errorf("the reminder fired again: %d", n)
		}
	})
}

// A reminder that came due while the daemon was down fires at the next start.
func TestDueReminderFiresAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		at := bus.Address{Channel: "fake", ChatID: "1"}
		if _, err := r.store.Apply(t.Context(), store.Tx{Schedules: []store.Schedule{{ID: "s", Address: at, SessionKey: at.String(), Due: time.Now().Add(time.Hour), Text: "tea"}}}); err != nil {
			t.Fatal(err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		again.wantTexts("1", "⏰ tea")
	})
}

func TestInterruptedTaskSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		at := bus.Address{Channel: "fake", ChatID: "1"}
		tasks := []store.Task{
			{ID: "t1", Tool: "spawn", Label: "count sheep", Address: at, SessionKey: at.String(), State: store.TaskPending},
			{ID: "t2", Tool: "spawn", Address: at, SessionKey: at.String(), State: store.TaskDone, Hops: maxHops, Result: &bus.FollowUp{Task: "t2", ForLLM: "finished"}},
		}
		if _, err := r.store.Apply(t.Context(), store.Tx{Tasks: tasks}); err != nil {
			t.Fatal(err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		synctest.Wait()
		got := strings.Join(again.ch.texts("1"), "\n")
		if !strings.Contains(got, "interrupted by a restart and did not finish: count sheep") || !strings.Contains(got, "finished") || len(again.ch.texts("1")) != 2 {
			t.Errorf("after the restart: %q", got)
		}
	})
}

// Whatever happens to a channel, the others go on and readiness tells.
func TestChannelFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := newFakeChannel("bad")
		starts := 0
		bad.run = func(ctx context.Context, _ bus.Inbox) error {
			starts++
			switch starts {
			case 1:
				panic("adapter bug")
			case 2:
				return errors.New("broken")
			}
			<-ctx.Done()
			return nil
		}
		r := start(t, fakeModel(echo), func(c *Config) { c.Channels = append(c.Channels, bad) })
		synctest.Wait()
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "bad") {
			t.Errorf("a channel that fell over passes for working: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if err := r.Ready(); err != nil || starts != 3 {
			t.Errorf("after %d starts: %v", starts, err)
		}
	})
}

// A wrong setup ends the daemon when it has just been started, and only takes
// the one channel down later.
func TestWrongSetup(t *testing.T) {
	for _, after := range []time.Duration{time.Second, setupWindow + time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := newFakeChannel("bad")
				bad.run = func(ctx context.Context, _ bus.Inbox) error {
					select {
					case <-time.After(after):
						return fmt.Errorf("the token is wrong: %w", channels.ErrSetup)
					case <-ctx.Done():
						return nil
					}
				}
				r := start(t, fakeModel(echo), func(c *Config) { c.Channels = append(c.Channels, bad) })
				r.wantErr = channels.ErrSetup
				time.Sleep(after + time.Second)
				synctest.Wait()
				err := r.Ready()
				if err == nil || !strings.Contains(err.Error(), "token is wrong") {
					t.Errorf("the channel passes for working: %v", err)
				}
				r.say(r.ch.from("1", "a", "hello"))
				synctest.Wait()
				alive := len(r.ch.texts("1")) == 1
				if want := after > setupWindow; alive != want {
					t.Errorf("the other channel works: %t, want %t", alive, want)
				}
			})
		})
	}
}

// A task the person has stopped is over: nothing comes of it any more, and no
// restart brings it up.
func TestStoppedTaskStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(asksLater), withTool(later{time.Minute, tools.NewToolResult("42")}))
		r.say(r.ch.from("1", "a", "go"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "/stop"))
		r.wantTexts("1", "working on it", "Stopped: 1 background task.")
		time.Sleep(time.Hour)
		r.wantTexts("1", "working on it", "Stopped: 1 background task.")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		again.wantTexts("1")
	})
}

// A person who looks at the past of a conversation finds in their role what they
// said, and nothing that came by itself.
func TestWhatCameByItselfIsSaidByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(asksLater), withTool(later{time.Minute, tools.NewToolResult("42")}))
		at := bus.Address{Channel: "fake", ChatID: "1"}
		due := store.Schedule{ID: "s", Address: at, SessionKey: at.String(), Due: time.Now(), Text: "tea"}
		if _, err := r.store.Apply(t.Context(), store.Tx{Schedules: []store.Schedule{due}}); err != nil {
			t.Fatal(err)
		}
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		entries, err := r.store.History(t.Context(), at.String(), 100)
		if err != nil {
			t.Fatal(err)
		}
		said, events := []string{}, 0
		for _, e := range entries {
			switch {
			case SaidByNobody(e):
				events++
			case e.Message.Role == providers.RoleUser:
				said = append(said, e.Message.Content)
			}
		}
		if events != 2 || len(said) != 1 || said[0] != "go" {
			t.Errorf("the person said %q, and %d things came by themselves, want 2", said, events)
		}
	})
}
