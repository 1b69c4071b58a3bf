package telegram_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// The tests of this file are named in docs/cases.md.

// script is a model.
type script func(ctx context.Context, m []providers.Message) (*providers.LLMResponse, error)

func (f script) Chat(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	return f(ctx, m)
}

func says(text string) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Content: text, FinishReason: providers.FinishStop}, nil
}

func callsTool(name string, args map[string]interface{}) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{FinishReason: providers.FinishToolCalls, ToolCalls: []providers.ToolCall{{ID: "1", Type: "function", Name: name, Arguments: args}}}, nil
}

// lasting is a ledger that outlives its gateway.
type lasting struct{ store.Store }

func (lasting) Close() error { return nil }

// house is a gateway with two bots, in a bubble.
type house struct {
	*testing.T
	bots map[string]*tt.Server // by the channel's name
	nets map[string]*tt.Network
	open func() store.Store // the ledger as the next start finds it

	ledger store.Store
	log    bytes.Buffer // to be read when nothing moves
	stop   func()
}

// inHouses plays a case on each kind of ledger.
func inHouses(t *testing.T, model script, play func(h *house)) {
	t.Helper()
	for _, kind := range []string{"memory", "file"} {
		t.Run(kind, func(t *testing.T) {
			dir, memory := t.TempDir(), mem.New()
			synctest.Test(t, func(t *testing.T) {
				h := &house{T: t, bots: map[string]*tt.Server{}, nets: map[string]*tt.Network{}}
				for _, name := range []string{"tg", "work"} {
					h.bots[name] = tt.New()
					h.nets[name] = tt.Serve(t, h.bots[name])
				}
				h.open = func() store.Store { return lasting{memory} }
				if kind == "file" {
					h.open = func() store.Store {
						s, err := sqlite.Open(dir, sqlite.Options{Durability: sqlite.Fast})
						if err != nil {
							t.Fatal(err)
						}
						return s
					}
				}
				h.start(model)
				defer func() { h.stop() }()
				play(h)
			})
		})
	}
}

func (h *house) start(model script) {
	h.Helper()
	log := slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelError}))
	h.ledger = h.open()
	var list []channels.Channel
	for name := range h.bots {
		cfg := telegram.DefaultConfig()
		cfg.Token, cfg.APIBase, cfg.Rate = config.Secret(tt.Token), "http://telegram.test", telegram.Rate{}
		cfg.AllowUsers = []string{"*"}
		list = append(list, telegram.New(name, cfg, state.New(h.ledger, "channel/"+name), log, telegram.WithTransport(h.nets[name].Transport())))
	}
	registry := tools.NewToolRegistry()
	a := agent.New(agent.Config{Provider: model, Tools: registry, History: h.ledger, MaxIterations: 5, HistoryMessages: 100, Log: log})
	g := gateway.New(gateway.Config{
		Channels: list, Store: h.ledger, Agent: a, Tools: registry, Log: log, Owners: []string{"nobody:1"},
		MaxParallelTurns: 64, TurnTimeout: 5 * time.Minute, Grace: time.Second,
	})
	registry.Register(builtin.NewMessageTool(builtin.WithOutbox(g), builtin.WithReach(func(context.Context, tools.Call, bus.Address) error { return nil })))
	registry.Register(builtin.NewSpawnTool(a.RunTask))
	registry.Register(builtin.NewRemindTool(g, nil, nil))
	registry.Register(tools.Func("show", "shows a text", func(_ context.Context, in struct {
		Text string `json:"text"`
	},
	) *tools.ToolResult {
		return tools.UserResult(in.Text)
	}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.Errorf("Run: %v", err)
		}
	}
	synctest.Wait()
}

// restart ends the gateway and starts another on what is left.
func (h *house) restart(model script) {
	h.Helper()
	h.stop()
	h.start(model)
}

// tell has a person write to a bot: in private, or by its name in a group.
func (h *house) tell(bot string, from tt.User, chat tt.Chat, thread int64, text string) {
	m := tt.Message{From: &from, Chat: chat, MessageThreadID: thread, Text: text}
	switch {
	case strings.HasPrefix(text, "/"):
		m.Entities = []tt.Entity{{Type: "bot_command", Length: len(text)}}
	case chat.ID != from.ID:
		m.Text = "@" + tt.BotName + " " + text
		m.Entities = []tt.Entity{{Type: "mention", Length: len(tt.BotName) + 1}}
	}
	h.bots[bot].Post(m)
}

// seen is what each conversation was sent, in order.
func (h *house) seen() map[string][]string {
	synctest.Wait()
	seen := map[string][]string{}
	for name, bot := range h.bots {
		for _, m := range bot.Sent() {
			at := name + ":" + address(m.ChatID, m.ThreadID).ChatID
			seen[at] = append(seen[at], m.Text)
		}
	}
	return seen
}

// word is the last one of a text.
func word(text string) string { return text[strings.LastIndexAny(text, " \n")+1:] }

// Whatever is sent into a topic goes there: every part of a long answer, what
// tools say, results, reminders, apologies, answers to commands and the typing
// sign; in a group and in a private chat with topics, also after a restart and
// although another topic spoke last.
func TestCaseTopicsKeepTheirReplies(t *testing.T) {
	calls := map[string]map[string]interface{}{
		"message": {"content": "said"}, "show": {"text": "shown"}, "spawn": {"task": "dig"}, "remind": {"text": "tea", "delay": "1m"},
	}
	model := func(_ context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		time.Sleep(time.Second)
		last := m[len(m)-1]
		switch text := word(last.Content); {
		case last.Role == providers.RoleTool:
			return says("final")
		case strings.Contains(last.Content, "has finished"):
			return says("result " + text)
		case text == "dig": // the sub-agent's task
			return says("42")
		case calls[text] != nil:
			return callsTool(text, calls[text])
		case text == "long":
			return says(strings.Repeat("lengthy ", 700))
		case text == "fail":
			return nil, &providers.Error{Kind: providers.KindOverloaded}
		}
		return says("re: " + word(last.Content))
	}
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		ada := bot.AddUser("Ada", "ada")
		ask := map[string]func(text string){}
		topic := func(chat tt.Chat) string {
			thread := bot.AddTopic(chat.ID)
			at := "tg:" + address(chat.ID, thread).ChatID
			ask[at] = func(text string) { h.tell("tg", ada, chat, thread, text) }
			return at
		}
		forum, private := bot.AddGroup("forum", true), bot.Private(ada)
		busy, newer := []string{topic(forum), topic(private)}, []string{topic(forum), topic(private)}
		for _, text := range []string{"remind", "message", "show", "spawn", "long", "fail", "/help"} {
			for _, at := range busy {
				ask[at](text)
			}
			time.Sleep(5 * time.Second)
		}
		for _, at := range newer {
			ask[at]("hello")
		}
		time.Sleep(5 * time.Second)
		h.restart(model)
		time.Sleep(time.Minute)
		seen := h.seen()
		if len(seen) != len(ask) {
			h.Errorf("sent to %d places, want %d: %q", len(seen), len(ask), seen)
		}
		for _, at := range busy {
			all := strings.Join(seen[at], "|")
			for want, n := range map[string]int{"said": 1, "shown": 1, "final": 4, "result 42": 1, "⏰ tea": 1, "too busy to answer": 1, "/undo": 1, "lengthy": 700} {
				if strings.Count(all, want) != n {
					h.Errorf("%s was sent %q, want %q in it %d times", at, seen[at], want, n)
				}
			}
		}
		for _, at := range newer {
			if !slices.Equal(seen[at], []string{"re: hello"}) {
				h.Errorf("%s was sent %q", at, seen[at])
			}
		}
		for _, a := range bot.Actions() {
			if ask["tg:"+address(a.ChatID, a.ThreadID).ChatID] == nil {
				h.Errorf("typing sign in %d, topic %d", a.ChatID, a.ThreadID)
			}
		}
		if len(bot.Actions()) == 0 {
			h.Error("no typing sign")
		}
	})
}

// formats are long texts made of the words w0000, w0001 and so on.
var formats = map[string]func(word string) string{
	"plain":  func(w string) string { return w + " some " },
	"signs":  func(w string) string { return w + "<&>\"&amp;" },
	"emoji":  func(w string) string { return w + "😀👩‍👩‍👧" },
	"marked": func(w string) string { return "**" + w + "** and [x" + w[1:] + "](https://example.org/" + w[1:] + ") " },
	"list":   func(w string) string { return "- `" + w + "` is one\n" },
	"table":  func(w string) string { return "| " + w + " | of a table |\n" },
	"code":   func(w string) string { return w + " := 1\n" },
}

func formatted(name string) string {
	text := map[string]string{"table": "| a | b |\n|---|---|\n", "code": "```go\n"}[name]
	for i := range 1200 {
		text += formats[name](fmt.Sprintf("w%04d", i))
	}
	if name == "code" {
		text += "```"
	}
	return text
}

var wordIn = regexp.MustCompile(`w\d{4}`)

// A text that is longer than a message may be arrives whole and in order, on
// whatever way it comes and however it is marked up, and nothing that Telegram
// refuses is tried.
func TestCaseLongTextsArriveWhole(t *testing.T) {
	model := func(_ context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		time.Sleep(time.Second)
		last := m[len(m)-1]
		way, format, _ := strings.Cut(last.Content, " ")
		switch {
		case last.Role == providers.RoleTool:
			return says("final")
		case strings.Contains(last.Content, "has finished"): // so that the result is shown as it is
			return nil, &providers.Error{Kind: providers.KindUnreachable}
		case way == "answer":
			return says(formatted(format))
		case way == "message":
			return callsTool("message", map[string]interface{}{"content": formatted(format)})
		case way == "show":
			return callsTool("show", map[string]interface{}{"text": formatted(format)})
		}
		return callsTool("spawn", map[string]interface{}{"task": "answer " + format})
	}
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		want := wordIn.FindAllString(formatted("plain"), -1)
		for format := range formats {
			for _, way := range []string{"answer", "message", "show", "task"} {
				ada := bot.AddUser("Ada", "ada")
				h.tell("tg", ada, bot.Private(ada), 0, way+" "+format)
				time.Sleep(time.Minute)
				got := h.seen()[fmt.Sprint("tg:", ada.ID)]
				all := strings.Join(got, "")
				if found := wordIn.FindAllString(all, -1); !slices.Equal(found, want) || len(got) < 2 || strings.Contains(all, "could not be delivered") {
					h.Errorf("%s, %s: %d of %d words in %d messages", way, format, len(found), len(want), len(got))
				}
			}
		}
		if tried, taken := bot.Requests("sendMessage"), len(bot.Sent()); tried != taken {
			h.Errorf("%d of %d messages were refused", tried-taken, tried)
		}
	})
}

// Each conversation has its own history: the same person with two bots, whose
// ids are the same, two persons with one bot, a group and its topics; also after
// a restart.
func TestCaseEveryConversationHasItsOwnHistory(t *testing.T) {
	model := func(_ context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		var said []string
		for _, x := range m {
			if x.Role == providers.RoleUser {
				said = append(said, word(x.Content))
			}
		}
		return says(strings.Join(said, "+"))
	}
	inHouses(t, model, func(h *house) {
		ask := map[string]func(text string){}
		place := func(name string, u tt.User, chat tt.Chat, thread int64) {
			ask[name+":"+address(chat.ID, thread).ChatID] = func(text string) { h.tell(name, u, chat, thread, text) }
		}
		bot, work := h.bots["tg"], h.bots["work"]
		ada, twin, bob := bot.AddUser("Ada", "ada"), work.AddUser("Ada", "ada"), bot.AddUser("Bob", "")
		if ada.ID != twin.ID {
			h.Fatal("the two bots know Ada by different ids")
		}
		place("tg", ada, bot.Private(ada), 0)
		place("work", twin, work.Private(twin), 0)
		place("tg", bob, bot.Private(bob), 0)
		forum := bot.AddGroup("forum", true)
		for _, thread := range []int64{0, bot.AddTopic(forum.ID), bot.AddTopic(forum.ID)} {
			place("tg", ada, forum, thread)
		}
		want := map[string][]string{}
		for at, say := range ask {
			say("one@" + at)
			want[at] = []string{"one@" + at, "one@" + at + "+two@" + at}
		}
		time.Sleep(time.Minute)
		h.restart(model)
		for at, say := range ask {
			say("two@" + at)
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff(want, h.seen()); diff != "" {
			h.Error(diff)
		}
	})
}

// The message tool that writes elsewhere leaves the answer here alone, whatever
// the two have in common, and conversations that write to each other at the same
// time are not mistaken for one another. A topic is named like any conversation.
func TestCaseMessageElsewhereKeepsTheAnswerHere(t *testing.T) {
	model := func(ctx context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		call, _ := tools.CallFrom(ctx)
		text, last := "the same words from "+call.ChatID, m[len(m)-1]
		if last.Role == providers.RoleTool {
			return says(text)
		}
		return callsTool("message", map[string]interface{}{"content": text, "chat_id": word(last.Content)})
	}
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		forum, want := bot.AddGroup("forum", true), map[string][]string{}
		for range 16 {
			u, thread := bot.AddUser("Ada", ""), bot.AddTopic(forum.ID)
			private, topic := fmt.Sprint(u.ID), address(forum.ID, thread).ChatID
			h.tell("tg", u, bot.Private(u), 0, topic)
			h.tell("tg", u, forum, thread, private)
			both := []string{"the same words from " + private, "the same words from " + topic}
			slices.Sort(both)
			want["tg:"+private], want["tg:"+topic] = both, both
		}
		time.Sleep(time.Minute)
		got := h.seen()
		for _, texts := range got {
			slices.Sort(texts)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			h.Error(diff)
		}
	})
}

// A reminder that comes due while its conversation is busy, and that Telegram
// then refuses for a while, is shown once, and counts as sent only when it is.
func TestCaseReminderWhileBusy(t *testing.T) {
	model := func(_ context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		time.Sleep(time.Second)
		if last := m[len(m)-1]; word(last.Content) != "remind" {
			return says("re: " + word(last.Content))
		}
		return callsTool("remind", map[string]interface{}{"text": "tea", "delay": "1s"})
	}
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		ada := bot.AddUser("Ada", "ada")
		say := func(text string) { h.tell("tg", ada, bot.Private(ada), 0, text) }
		say("remind")
		time.Sleep(1500 * time.Millisecond)
		say("busy") // the reminder comes due in this turn
		time.Sleep(time.Second)
		bot.Throttle(ada.ID, 30*time.Second)
		time.Sleep(20 * time.Second)
		unsent, err := h.ledger.Unsent(h.Context())
		if err != nil || len(h.seen()[fmt.Sprint("tg:", ada.ID)])+len(unsent) != 3 || len(unsent) == 0 {
			h.Errorf("%d messages are unsent, %v; sent %q", len(unsent), err, h.seen())
		}
		say("more")
		time.Sleep(time.Minute)
		all := strings.Join(h.seen()[fmt.Sprint("tg:", ada.ID)], "|")
		if strings.Count(all, "⏰ tea") != 1 || strings.Count(all, "|") != 3 {
			h.Errorf("sent %q", all)
		}
		if unsent, err := h.ledger.Unsent(h.Context()); err != nil || len(unsent) > 0 {
			h.Errorf("still unsent: %v, %v", unsent, err)
		}
	})
}

// A turn that ends with a text ends in a message or in an error in the log.
// There is no third way, and no message is tried for ever.
func TestCaseUndeliverableIsLogged(t *testing.T) {
	model := func(context.Context, []providers.Message) (*providers.LLMResponse, error) { return says("an answer") }
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		ada := bot.AddUser("Ada", "ada")
		bot.Block(ada.ID)
		h.tell("tg", ada, bot.Private(ada), 0, "hello")
		time.Sleep(time.Hour)
		unsent, err := h.ledger.Unsent(h.Context())
		if n := bot.Requests("sendMessage"); err != nil || len(unsent) > 0 || n != 2 { // the answer, and a note in its place
			h.Errorf("%d messages are unsent, %v, after %d attempts", len(unsent), err, n)
		}
		if log := h.log.String(); strings.Count(log, "message cannot be delivered, given up") != 2 || !strings.Contains(log, "blocked by the user") {
			h.Errorf("the log does not tell: %s", log)
		}
	})
}

// deaf is a network on which requests get lost for as long as it is told, as on
// a machine that has slept or changed its Wi-Fi.
type deaf struct {
	http.RoundTripper
	is atomic.Bool
}

func (d *deaf) RoundTrip(req *http.Request) (*http.Response, error) {
	if d.is.Load() {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return d.RoundTripper.RoundTrip(req)
}

// A connection on which nothing comes any more is noticed, readiness tells, and
// the poll goes on when the network is back.
func TestCaseDeadConnectionIsNoticed(t *testing.T) {
	bubble(t, "deaf", func(t *testing.T) {
		b := newBench(t)
		ada := b.s.AddUser("Ada", "ada")
		network := &deaf{RoundTripper: b.net.Transport()}
		telegram.WithTransport(network)(b.ch)
		b.run()
		b.post(ada, "one")
		network.is.Store(true)
		b.post(ada, "two") // is on its way already
		time.Sleep(2 * time.Minute)
		if b.ch.Health() == nil {
			t.Error("healthy although nothing was heard for two minutes")
		}
		b.post(ada, "three")
		network.is.Store(false)
		time.Sleep(time.Minute)
		if err := b.ch.Health(); err != nil {
			t.Errorf("Health = %v", err)
		}
		if got := b.in.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("got %q", got)
		}
	})
}
