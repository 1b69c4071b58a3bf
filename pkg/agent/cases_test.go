package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests of this file are named in docs/cases.md.

// talker is a conversation with a strict model API, kept in a ledger.
type talker struct {
	*testing.T
	agent  *Agent
	ledger store.Store
	turns  int
}

// onLedgers plays a case on each kind of ledger. What the API refuses is an
// error.
func onLedgers(t *testing.T, reply func(providerstest.Request) providerstest.Response, play func(c *talker)) {
	t.Helper()
	file, err := sqlite.Open(t.TempDir(), sqlite.Options{Durability: sqlite.Fast})
	if err != nil {
		t.Fatal(err)
	}
	for name, ledger := range map[string]store.Store{"memory": mem.New(), "file": file} {
		t.Run(name, func(t *testing.T) {
			api := providerstest.NewServer(providerstest.ServerConfig{Reply: reply})
			provider, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", Transport: api.Transport(), MaxAttempts: 1, AttemptTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			registry := tools.NewToolRegistry()
			registry.Register(tools.Func("note", "notes a text", func(_ context.Context, in struct {
				Text string `json:"text"`
			},
			) *tools.ToolResult {
				return tools.NewToolResult("noted " + in.Text)
			}))
			play(&talker{T: t, ledger: ledger, agent: New(Config{
				Provider: provider, Model: "m", Tools: registry, History: ledger, MaxIterations: 5, HistoryMessages: 500, Log: slog.New(slog.DiscardHandler),
			})})
			api.Close()
			if refused := api.Refusals(); len(refused) > 0 {
				t.Errorf("the API refused: %q", refused)
			}
			if err := ledger.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

const talkSession = "telegram:7"

// say asks a question and keeps what comes of it, as the gateway does.
func (c *talker) say(ctx context.Context, text string) (answer string) {
	c.Helper()
	c.turns++
	id := fmt.Sprint("turn", c.turns)
	out, err := c.agent.Run(ctx, Turn{ID: id, Messages: []bus.InboundMessage{message(text)}})
	c.keep(out.History)
	if err != nil {
		return Apology(err)
	}
	return out.Answer
}

func (c *talker) keep(history []store.Entry) {
	c.Helper()
	if _, err := c.ledger.Apply(context.WithoutCancel(c.Context()), store.Tx{History: history}); err != nil {
		c.Fatal(err)
	}
}

// notes is a model that for "use" calls the tool, and otherwise repeats.
func notes(r providerstest.Request) providerstest.Response {
	last := r.Last()
	if last.Content == "use" {
		return providerstest.Calls(providerstest.Call{Name: "note", Arguments: `{"text":"it"}`})
	}
	return providerstest.Text("re: " + last.Content)
}

// garbled is an assistant's message with a call whose arguments are no object.
func garbled(id, arguments string) providers.Message {
	m := calls(id)
	m.ToolCalls[0].Type = "function"
	m.ToolCalls[0].Function = &providers.FunctionCall{Name: "tool", Arguments: arguments}
	return m
}

// damages are stored histories that a model's API refuses.
var damages = map[string]messages{
	"call without result":            {person("q"), calls("1")},
	"call without result, long ago":  {person("q"), calls("1"), person("p"), answer("a")},
	"one of two results":             {person("q"), calls("1", "2"), result("2", "r"), answer("a")},
	"result without call":            {person("q"), result("1", "r"), answer("a")},
	"result without call, at first":  {result("1", "r"), answer("a"), person("q"), answer("b")},
	"empty ids":                      {person("q"), calls("", ""), result("", "r"), result("", "s"), answer("a")},
	"the same id twice":              {person("q"), calls("1"), result("1", "r"), answer("a"), person("p"), calls("1"), result("1", "s"), answer("b")},
	"arguments that are no object":   {person("q"), garbled("1", `[1,`), result("1", "r"), answer("a")},
	"arguments within a string":      {person("q"), garbled("1", `"{\"a\":1}"`), result("1", "r"), answer("a")},
	"an empty answer":                {person("q"), answer("")},
	"a result before its call":       {person("q"), result("1", "r"), calls("1"), answer("a")},
	"another message in between":     {person("q"), calls("1"), person("p"), result("1", "r"), answer("a")},
	"a turn that broke off":          {person("q"), calls("1"), result("1", "r"), calls("2", "3")},
	"an answer without any question": {answer("a"), answer("b")},
}

// A conversation whose stored history an API would refuse goes on: it is mended
// before every request, so that nobody is answered by an error for ever.
func TestCaseDamagedHistoryGoesOn(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			onLedgers(t, notes, func(c *talker) {
				var history []store.Entry
				for _, m := range damage {
					history = append(history, store.Entry{Session: talkSession, Turn: "old", Message: m, Time: time.Now()})
				}
				c.keep(history)
				for text, want := range map[string]string{"hello": "re: hello", "use": "re: noted it", "thanks": "re: thanks"} {
					if got := c.say(c.Context(), text); got != want {
						c.Errorf("%s was answered %q", text, got)
					}
				}
			})
		})
	}
}

// Whatever a model's answer is broken in, and wherever it breaks off, there is a
// word for the person and the conversation goes on.
func TestCaseBrokenAnswersLeaveAValidHistory(t *testing.T) {
	whole := func(call string) string {
		return `{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[` + call + `]}}]}`
	}
	broken := map[string]providerstest.Response{
		"cut":     {Content: "half an answer", Cut: true},
		"hang":    {Hang: true}, // until the person stops it
		"empty":   {},
		"page":    {Status: 200, Body: "<html>"},
		"half":    {Status: 200, Body: whole(`{"id":"1","type":"function","function":{"name":"note","arg`)},
		"no id":   {Status: 200, Body: whole(`{"id":"","type":"function","function":{"name":"note","arguments":"{\"text\":\"x\"}"}}`)},
		"no name": providerstest.Calls(providerstest.Call{Arguments: "{}"}),
		"unknown": providerstest.Calls(providerstest.Call{Name: "made_up", Arguments: "{}"}),
		"twins":   providerstest.Calls(providerstest.Call{ID: "1", Name: "note", Arguments: `{"text":"x"}`}, providerstest.Call{ID: "1", Name: "note", Arguments: `{"text":"y"}`}),
		"length":  {ToolCalls: []providerstest.Call{{Name: "note", Arguments: `{"text":`}}, FinishReason: providers.FinishLength},
	}
	for _, arguments := range []string{`[1]`, `["text","x"]`, `"{\"text\":\"x\"}"`, `{'text':'x'}`, `{"text":`, ``, `null`, `7`, `{"text":{}}`, "{\"text\":\"\x00\"}"} {
		broken["arguments "+arguments] = providerstest.Calls(providerstest.Call{Name: "note", Arguments: arguments})
	}
	model := func(r providerstest.Request) providerstest.Response {
		if reply, ok := broken[r.Last().Content]; ok {
			return reply
		}
		return notes(r)
	}
	onLedgers(t, model, func(c *talker) {
		for _, text := range slices.Sorted(maps.Keys(broken)) {
			ctx, stop := context.WithCancelCause(c.Context())
			if text == "hang" {
				time.AfterFunc(10*time.Millisecond, func() { stop(ErrStopped) })
			}
			got := c.say(ctx, text)
			stop(nil)
			if text != "empty" && got == "" { // which the gateway has a word for
				c.Errorf("%s was answered by nothing", text)
			}
			if strings.HasPrefix(text, "arguments") && !strings.HasPrefix(got, "re: ") {
				c.Errorf("%s: the model was not told: %q", text, got)
			}
			if got := c.say(c.Context(), "next"); got != "re: next" {
				c.Errorf("after %s: %q", text, got)
			}
		}
	})
}
