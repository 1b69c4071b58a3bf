package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// The tests of this file are named in docs/cases.md.

// mortal is a ledger whose process ends at a write: that one and all after it
// are not written.
type mortal struct {
	store.Store
	kill func()

	mu     sync.Mutex
	writes int // until then; negative: never
}

var errKilled = errors.New("killed")

func (m *mortal) lives() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writes > 0 {
		m.writes--
		return true
	}
	if m.writes == 0 {
		m.kill()
	}
	return m.writes != 0
}

func (m *mortal) killed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes == 0
}

func (m *mortal) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if !m.lives() {
		return store.Result{}, errKilled
	}
	return m.Store.Apply(ctx, tx)
}

func (m *mortal) Post(tx store.Tx) {
	if m.lives() {
		m.Store.Post(tx)
	}
}

// lasting is a ledger in memory that outlives its process.
type lasting struct{ store.Store }

func (lasting) Close() error { return nil }

// house is a gateway in a bubble between Telegram, Discord and a strict fake
// model. It can be killed, and started again on what is left.
type house struct {
	*testing.T
	telegram *telegramtest.Server
	network  *telegramtest.Network // Telegram's
	discord  *discordtest.Server
	base     string // Discord's
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	model    *providerstest.Server
	open     func() store.Store // the ledger as the next start finds it
	wrap     func(channels.Channel) channels.Channel

	ledger *mortal
	stop   func()
	log    bytes.Buffer // to be read when nothing runs

	mu      sync.Mutex
	counted map[string]int // runs of the tool count by conversation
}

// inHouses plays a case on each kind of ledger.
func inHouses(t *testing.T, reply func(providerstest.Request) providerstest.Response, play func(h *house)) {
	t.Helper()
	for _, kind := range []string{"memory", "file"} {
		t.Run(kind, func(t *testing.T) { inHouse(t, kind, reply, play) })
	}
}

func inHouse(t *testing.T, kind string, reply func(providerstest.Request) providerstest.Response, play func(h *house)) {
	t.Helper()
	dir, memory := t.TempDir(), mem.New()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // Discord's ids hold no time before 2015
		h := &house{
			T: t, telegram: telegramtest.New(), discord: discordtest.New(discordtest.Options{}),
			model: providerstest.NewServer(providerstest.ServerConfig{Reply: reply}), counted: map[string]int{},
			wrap: func(c channels.Channel) channels.Channel { return c },
		}
		h.network = telegramtest.Serve(t, h.telegram)
		var stop func()
		h.base, h.dial, stop = h.discord.Pipe()
		t.Cleanup(stop)
		t.Cleanup(h.model.Close)
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
		play(h)
		if h.stop != nil {
			h.end()
		}
		if refused := h.model.Refusals(); len(refused) > 0 {
			t.Errorf("the model's API refused: %q", refused)
		}
		if t.Failed() {
			t.Log(h.log.String())
		}
	})
}

// start starts a process that ends at the given write; negative: never.
func (h *house) start(writes int) {
	h.Helper()
	h.down(false)
	h.ledger = &mortal{Store: h.open(), writes: writes, kill: func() { h.down(true) }}
	log := slog.New(slog.NewTextHandler(&h.log, nil))
	provider, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", Transport: h.model.Transport(), MaxAttempts: 1})
	if err != nil {
		h.Fatal(err)
	}
	list := h.channels(log)
	registry := tools.NewToolRegistryWith(tools.Options{Logger: log, InstallAtRegister: true})
	a := agent.New(agent.Config{
		Provider: provider, Model: "m", Tools: registry, History: h.ledger, MaxIterations: 5, HistoryMessages: 100, Log: log,
		Governor: agent.ForWindow(32000),
	})
	g := gateway.New(gateway.Config{
		Channels: list, Store: h.ledger, Agent: a, Tools: registry, Log: log, Owners: []string{"nobody:1"},
		MaxParallelTurns: 64, TurnTimeout: 5 * time.Minute, Grace: time.Second,
	})
	registry.Register(builtin.NewMessageTool(builtin.WithOutbox(g), builtin.WithReach(func(context.Context, tools.Call, bus.Address) error { return nil })))
	registry.Register(builtin.NewSpawnTool(a.RunTask))
	registry.Register(builtin.NewRemindTool(g, nil, nil))
	registry.Register(tools.Func("count", "counts", func(ctx context.Context, _ struct{}) *tools.ToolResult {
		call, _ := tools.CallFrom(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.counted[call.Channel+":"+call.ChatID]++
		return tools.NewToolResult("counted")
	}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, errKilled) {
			h.Errorf("Run: %v", err)
		}
	}
	time.Sleep(10 * time.Second) // connected
}

func (h *house) channels(log *slog.Logger) []channels.Channel {
	everybody := channels.Gate{AllowUsers: []string{"*"}, Groups: "mention"}
	tg := telegram.DefaultConfig()
	tg.Token, tg.APIBase, tg.Gate, tg.Rate = telegramtest.Token, "http://telegram.test", everybody, telegram.Rate{}
	dc := discord.DefaultConfig()
	dc.Token, dc.APIBase, dc.Gate = discordtest.Token, h.base, everybody
	return []channels.Channel{
		h.wrap(telegram.New("telegram", tg, state.New(h.ledger, "channel/telegram"), log, telegram.WithTransport(h.network.Transport()))),
		h.wrap(discord.New("discord", dc, state.New(h.ledger, "channel/discord"), log, discord.WithDialer(h.dial))),
	}
}

func (h *house) down(down bool) {
	h.network.SetDown(down)
	h.discord.SetDown(down)
}

func (h *house) end() {
	h.stop()
	h.stop = nil
}

// tell has a person write to the bot on Telegram, in private.
func (h *house) tell(from telegramtest.User, text string) {
	h.telegram.Post(telegramtest.Message{From: &from, Chat: h.telegram.Private(from), Text: text})
}

// seen is what each conversation was sent, in order.
func (h *house) seen() map[string][]string {
	synctest.Wait()
	seen := map[string][]string{}
	for _, m := range h.telegram.Sent() {
		at := fmt.Sprint("telegram:", m.ChatID)
		seen[at] = append(seen[at], m.Text)
	}
	for _, m := range h.discord.Sent() {
		at := "discord:" + m.ChannelID
		seen[at] = append(seen[at], m.Content)
	}
	return seen
}

// nothingLeft says that the ledger holds nothing that is still to be done.
func (h *house) nothingLeft() {
	h.Helper()
	synctest.Wait()
	lanes, err := h.ledger.Lanes(h.Context())
	turns, err2 := h.ledger.OpenTurns(h.Context())
	tasks, err3 := h.ledger.OpenTasks(h.Context())
	unsent, err4 := h.ledger.Unsent(h.Context())
	if err := errors.Join(err, err2, err3, err4); err != nil || len(lanes)+len(turns)+len(tasks)+len(unsent) > 0 {
		h.Errorf("still open: %v, %v, %v, %v, %v", lanes, turns, tasks, unsent, err)
	}
}

// busy is a model that for "go" uses every tool there is, with the same id for
// all calls, and otherwise repeats the last word of each line.
func busy(r providerstest.Request) providerstest.Response {
	last := r.Last()
	switch {
	case last.Role == providers.RoleTool && r.Messages[len(r.Messages)-2].Role == providers.RoleTool:
		return providerstest.Calls(providerstest.Call{ID: "x", Name: "remind", Arguments: `{"action":"list"}`})
	case last.Role == providers.RoleTool:
		return providerstest.Text("final")
	case last.Content == "dig": // the sub-agent's task
		return providerstest.Response{Content: "42", Delay: 2 * time.Second}
	case strings.Contains(last.Content, "has finished"):
		return providerstest.Text("result " + last.Content[strings.LastIndexByte(last.Content, '\n')+1:])
	case strings.HasSuffix(last.Content, "go"):
		return providerstest.Calls(
			providerstest.Call{ID: "x", Name: "count", Arguments: `{}`},
			providerstest.Call{ID: "x", Name: "spawn", Arguments: `{"task":"dig"}`},
			providerstest.Call{ID: "x", Name: "remind", Arguments: `{"text":"tea","delay":"20s"}`},
			providerstest.Call{ID: "x", Name: "message", Arguments: `{"content":"said"}`},
		)
	}
	lines := strings.Split(last.Content, "\n")
	for i, line := range lines {
		lines[i] = line[strings.LastIndexByte(line, ' ')+1:]
	}
	return providerstest.Response{Content: "re: " + strings.Join(lines, " "), Delay: time.Second}
}

// Wherever in a turn with every kind of tool the process is killed, and once
// more while it recovers, the conversation comes to its end: every text once (or
// again where it had been accepted without a receipt, which the log says; not on
// Discord, where it is recognised or found), no tool twice that was not
// made for it, a result or the news that there is none, and a history that the
// model's API accepts.
func TestCaseKilledAtEveryWrite(t *testing.T) {
	for kind, step := range map[string]int{"memory": 1, "file": 8} { // files take their time
		t.Run(kind, func(t *testing.T) {
			n := 0
			for again := true; again; n += step {
				t.Run(strconv.Itoa(n), func(t *testing.T) {
					inHouse(t, kind, busy, func(h *house) { again = h.killedAt(n) })
				})
			}
			if n < 25 {
				t.Errorf("all was over after %d writes", n)
			}
		})
	}
}

func (h *house) killedAt(n int) (killed bool) {
	ada := h.telegram.AddUser("Ada", "ada")
	ann := h.discord.AddUser("ann", "Ann")
	channel := h.discord.AddChannel(h.discord.AddGuild("guild"), "general")
	say := func(text string) {
		h.tell(ada, text)
		h.discord.Say(channel, ann, discordtest.Mention(h.discord.Bot())+" "+text)
		time.Sleep(time.Minute)
	}
	h.start(-1)
	say("hello")
	h.end()
	h.start(n)
	say("go")
	h.end()
	killed = h.ledger.killed()
	outage := time.Duration((n+n/8)%2) * 20 * time.Minute // 20 is longer than Discord recognises a repetition
	time.Sleep(outage)
	h.start(n)
	time.Sleep(time.Minute)
	h.end()
	time.Sleep(outage)
	h.start(-1)
	time.Sleep(time.Minute)
	say("now")
	h.nothingLeft()
	h.end()
	twice := strings.Contains(h.log.String(), "may_appear_twice=true")
	for chat, texts := range h.seen() {
		once := slices.Compact(slices.Sorted(slices.Values(texts)))
		result := slices.IndexFunc(once, func(s string) bool { return s == "result 42" || strings.HasSuffix(s, "did not finish: dig") })
		if result < 0 {
			h.Errorf("%s never heard of the task: %q", chat, texts)
			continue
		}
		once = slices.Delete(once, result, result+1)
		if want := []string{"final", "re: hello", "re: now", "said", "⏰ tea"}; !slices.Equal(once, want) || texts[len(texts)-1] != "re: now" {
			h.Errorf("%s was sent %q", chat, texts)
		}
		if doubled := len(texts) - 6; doubled > 0 && (!twice || strings.HasPrefix(chat, "discord")) {
			h.Errorf("%s saw something twice: %q", chat, texts)
		}
		if h.counted[chat] > 1 {
			h.Errorf("%s: the tool ran %d times", chat, h.counted[chat])
		}
	}
	if len(h.seen()) != 2 {
		h.Errorf("sent %v", h.seen())
	}
	return killed
}

// What has been answered is not answered again, however the platforms repeat it
// and however the daemon is restarted; not even if it has forgotten how far it
// had come.
func TestCaseNothingIsAnsweredTwice(t *testing.T) {
	inHouses(t, busy, func(h *house) {
		ada, ann := h.telegram.AddUser("Ada", "ada"), h.discord.AddUser("ann", "Ann")
		dm := h.discord.AddDM(ann)
		h.start(-1)
		for i := range 5 {
			h.tell(ada, fmt.Sprint(i))
			h.discord.Say(dm, ann, fmt.Sprint(i))
			time.Sleep(10 * time.Second)
		}
		before := h.seen()
		for range 3 {
			h.telegram.SetNextUpdateID(100) // as after a quiet week
			h.telegram.Redeliver()
			h.discord.Redeliver()
			h.discord.DropSockets()
			time.Sleep(time.Minute)
			cursors := []store.Fact{{Key: fmt.Sprint("channel/telegram/cursor/", telegramtest.BotID)}, {Key: "channel/discord/last/" + dm, Value: "1"}}
			if _, err := h.ledger.Apply(h.Context(), store.Tx{Facts: cursors}); err != nil {
				h.Fatal(err)
			}
			h.end()
			h.telegram.Redeliver()
			h.start(-1)
			time.Sleep(time.Minute)
		}
		if diff := cmp.Diff(before, h.seen()); diff != "" || len(before["discord:"+dm]) != 5 {
			h.Errorf("answered %q, then %s", before, diff)
		}
	})
}

// What is written while a bot is away, because the daemon is down or because the
// platform is, is answered afterwards: all of it, once, in order.
func TestCaseWrittenInAGapIsAnswered(t *testing.T) {
	gaps := map[string]func(h *house, meanwhile func()){
		"restart": func(h *house, meanwhile func()) {
			h.end()
			meanwhile()
			h.start(-1)
		},
		"outage": func(h *house, meanwhile func()) {
			h.down(true)
			meanwhile()
			h.down(false)
		},
		"lost session": func(h *house, meanwhile func()) {
			h.down(true)
			h.discord.ForgetSessions()
			meanwhile()
			h.down(false)
		},
	}
	for name, gap := range gaps {
		t.Run(name, func(t *testing.T) {
			inHouses(t, busy, func(h *house) {
				ada, ann := h.telegram.AddUser("Ada", "ada"), h.discord.AddUser("ann", "Ann")
				dm := h.discord.AddDM(ann)
				n := 0
				say := func() {
					for range 2 {
						n++
						h.tell(ada, fmt.Sprint(n, "!"))
						h.discord.Say(dm, ann, fmt.Sprint(n, "!"))
						time.Sleep(10 * time.Second)
					}
				}
				h.start(-1)
				for range 3 {
					say()
					gap(h, func() { say(); time.Sleep(5 * time.Minute) })
				}
				time.Sleep(10 * time.Minute) // connected again
				h.nothingLeft()
				var want []string
				for i := range n {
					want = append(want, fmt.Sprint(i+1, "!"))
				}
				seen := h.seen()
				for _, at := range []string{fmt.Sprint("telegram:", ada.ID), "discord:" + dm} {
					got := numberIn.FindAllString(strings.Join(seen[at], " "), -1)
					if !slices.Equal(got, want) {
						h.Errorf("%s was sent %q", at, seen[at])
					}
				}
			})
		})
	}
}

var numberIn = regexp.MustCompile(`\d+!`)

// flaky is a channel that fails a minute after each of its first starts.
type flaky struct {
	channels.Channel
	failures int
}

func (f *flaky) Run(ctx context.Context, in bus.Inbox) error {
	if f.failures == 0 {
		return f.Channel.Run(ctx, in)
	}
	f.failures--
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(f.Channel.Run(ctx, in), errors.New("failed"))
}

// A channel that is started anew n times hears each message once: nothing of its
// earlier lives listens any more.
func TestCaseRestartedChannelHearsOnce(t *testing.T) {
	const failures = 5
	inHouse(t, "memory", busy, func(h *house) {
		h.wrap = func(c channels.Channel) channels.Channel { return &flaky{c, failures} }
		ada, ann := h.telegram.AddUser("Ada", "ada"), h.discord.AddUser("ann", "Ann")
		dm := h.discord.AddDM(ann)
		h.start(-1)
		var want []string
		for i := range 30 * failures {
			want = append(want, fmt.Sprint(i, "!"))
			h.tell(ada, want[i])
			h.discord.Say(dm, ann, want[i])
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		seen := h.seen()
		for _, at := range []string{fmt.Sprint("telegram:", ada.ID), "discord:" + dm} {
			if got := numberIn.FindAllString(strings.Join(seen[at], " "), -1); !slices.Equal(got, want) {
				h.Errorf("%s was sent %q", at, seen[at])
			}
		}
		h.end()
		if n := strings.Count(h.log.String(), "channel failed"); n != 2*failures || strings.Contains(h.log.String(), "another program") {
			h.Errorf("%d failures\n%s", n, h.log.String())
		}
	})
}
