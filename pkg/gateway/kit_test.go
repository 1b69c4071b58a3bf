package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeChannel is a platform in memory: what it is told to say goes in, what is
// sent to it is recorded in order.
type fakeChannel struct {
	name string
	gate channels.Gate

	mu      sync.Mutex
	sent    []bus.OutboundMessage
	typed   []bus.Address
	failing func(m bus.OutboundMessage, try int) error // nil: everything succeeds
	tries   map[string]int
	limit   int
	run     func(ctx context.Context, in bus.Inbox) error
	next    int
}

func newFakeChannel(name string) *fakeChannel {
	return &fakeChannel{name: name, gate: channels.Gate{AllowUsers: []string{"*"}}, tries: map[string]int{}}
}

func (f *fakeChannel) Name() string { return f.name }

func (f *fakeChannel) Run(ctx context.Context, in bus.Inbox) error {
	if f.run != nil {
		return f.run(ctx, in)
	}
	<-ctx.Done()
	return nil
}

func (f *fakeChannel) Send(_ context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries[m.Key]++
	if f.failing != nil {
		if err := f.failing(m, f.tries[m.Key]); err != nil {
			return bus.Receipt{}, err
		}
	}
	f.sent = append(f.sent, m)
	return bus.Receipt{MessageID: fmt.Sprint(len(f.sent)), Time: time.Now()}, nil
}

func (f *fakeChannel) Gate() channels.Gate { return f.gate }

func (f *fakeChannel) Typing(_ context.Context, to bus.Address) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.typed = append(f.typed, to)
	return nil
}

func (f *fakeChannel) TextLimit() (int, func(string) int) {
	if f.limit == 0 {
		return 1 << 20, func(s string) int { return len(s) }
	}
	return f.limit, func(s string) int { return len(s) }
}

func (f *fakeChannel) typing() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.typed)
}

// texts returns what was sent to a chat, in order.
func (f *fakeChannel) texts(chat string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.sent {
		if m.ChatID == chat {
			out = append(out, m.Text)
		}
	}
	return out
}

// from is a direct message to the fake platform.
func (f *fakeChannel) from(chat, user, text string) bus.InboundMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	m := bus.InboundMessage{
		Address: bus.Address{Channel: f.name, ChatID: chat},
		ID:      fmt.Sprintf("m:%s:%d", chat, f.next), MessageID: fmt.Sprint(f.next),
		Sender: bus.Sender{ID: user, Name: "Name " + user, Username: "user" + user},
		Kind:   bus.KindMessage, Text: text, Time: time.Now(),
	}
	if strings.HasPrefix(text, "/") {
		m.Command, m.Args, _ = strings.Cut(text[1:], " ")
	}
	return m
}

// fakeModel answers through a function.
type fakeModel func(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition) (*providers.LLMResponse, error)

func (f fakeModel) Chat(ctx context.Context, m []providers.Message, t []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	return f(ctx, m, t)
}

func reply(text string) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Content: text, FinishReason: providers.FinishStop}, nil
}

func callTool(name string, args map[string]interface{}) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{FinishReason: providers.FinishToolCalls, ToolCalls: []providers.ToolCall{
		{ID: "call_1", Type: "function", Name: name, Arguments: args},
	}}, nil
}

// echo answers "re: " and the last message.
func echo(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
	return reply("re: " + m[len(m)-1].Content)
}

func lastIsTool(m []providers.Message) bool { return m[len(m)-1].Role == providers.RoleTool }

// rig is a running gateway.
type rig struct {
	*Gateway
	t     *testing.T
	ch    *fakeChannel
	store store.Store
	stop  func() error

	wantErr error // what Run is to return
}

// keep is a store that outlives the gateway on it.
type keep struct{ store.Store }

func (keep) Close() error { return nil }

// start runs a gateway with one fake channel called "fake" until the test, or
// stop, ends it. It belongs into a synctest bubble.
func start(t *testing.T, model providers.LLMProvider, change ...func(*Config)) *rig {
	t.Helper()
	ch := newFakeChannel("fake")
	cfg := Config{
		Channels: []channels.Channel{ch}, Store: keep{mem.New()}, Tools: tools.NewToolRegistry(),
		Log: slog.New(slog.DiscardHandler), MaxParallelTurns: 1024, TurnTimeout: 5 * time.Minute, Grace: 10 * time.Second,
		Owners: []string{"fake:owner"},
	}
	for _, f := range change {
		f(&cfg)
	}
	if cfg.Agent == nil {
		cfg.Agent = agent.New(agent.Config{
			Provider: model, Model: "m", Tools: cfg.Tools, History: cfg.Store, MaxIterations: 5, HistoryMessages: 50, Log: cfg.Log,
		})
	}
	g := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r := &rig{Gateway: g, t: t, ch: ch, store: cfg.Store}
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); !errors.Is(err, r.wantErr) {
			t.Errorf("Run: %v, want %v", err, r.wantErr)
		}
	})
	<-g.started
	return r
}

// funcTool is a tool called "func".
type funcTool func(ctx context.Context) *tools.ToolResult

func (funcTool) Name() string                       { return "func" }
func (funcTool) Description() string                { return "does what the test says" }
func (funcTool) Parameters() map[string]interface{} { return map[string]interface{}{"type": "object"} }

func (f funcTool) Execute(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
	return f(ctx)
}

func (r *rig) say(m ...bus.InboundMessage) {
	r.t.Helper()
	if err := r.PublishInbound(r.t.Context(), bus.Batch{Messages: m}); err != nil {
		r.t.Fatalf("PublishInbound: %v", err)
	}
}

// wantTexts compares what a chat has been sent, once nothing moves any more.
func (r *rig) wantTexts(chat string, want ...string) {
	r.t.Helper()
	synctest.Wait()
	got := r.ch.texts(chat)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.t.Errorf("chat %s was sent\n%q\nwant\n%q", chat, got, want)
	}
}

// laneCount is how many conversations are alive.
func (r *rig) alive() (int, int) {
	synctest.Wait()
	r.lanes.mu.Lock()
	defer r.lanes.mu.Unlock()
	r.senders.mu.Lock()
	defer r.senders.mu.Unlock()
	return len(r.lanes.m), len(r.senders.m)
}
