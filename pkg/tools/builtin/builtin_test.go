package builtin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// during is a context within a call from a conversation.
func during(t *testing.T, channel, chat, id string) context.Context {
	t.Helper()
	return tools.WithCall(t.Context(), tools.Call{Turn: "turn-" + chat, Round: 1, ID: id, Channel: channel, ChatID: chat, Principal: channel + ":7"})
}

type args = map[string]any

// outbox keeps what is published.
type outbox struct {
	mu   sync.Mutex
	sent []bus.OutboundMessage
	err  error
	hang bool
}

func (o *outbox) PublishOutbound(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	o.mu.Lock()
	o.sent = append(o.sent, m)
	hang, err := o.hang, o.err
	o.mu.Unlock()
	if hang {
		<-ctx.Done()
		return bus.Receipt{}, bus.ErrQueued
	}
	return bus.Receipt{MessageID: "1"}, err
}

func (o *outbox) all() []bus.OutboundMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]bus.OutboundMessage(nil), o.sent...)
}

// wantOK checks that a result is for the model only, and holds the words.
func wantOK(t *testing.T, r *tools.ToolResult, words ...string) {
	t.Helper()
	if r.IsError || !r.Silent {
		t.Errorf("result %+v, want a silent success", r)
	}
	wantWords(t, r, words...)
}

func wantError(t *testing.T, r *tools.ToolResult, words ...string) {
	t.Helper()
	if !r.IsError {
		t.Errorf("result %+v, want an error", r)
	}
	wantWords(t, r, words...)
}

func wantWords(t *testing.T, r *tools.ToolResult, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.ForLLM, w) {
			t.Errorf("result %q, want %q in it", r.ForLLM, w)
		}
	}
}

// The registry as an embedder uses it, with a message tool nobody connected.
func TestRegistryWithMessageTool(t *testing.T) {
	registry := tools.NewToolRegistry()
	registry.Register(builtin.NewMessageTool())
	tool, ok := registry.Get("message")
	if !ok || tool.Name() != "message" {
		t.Fatalf("Get gave %v, %v", tool, ok)
	}
	if names := registry.List(); len(names) != 1 || names[0] != "message" || registry.Count() != 1 {
		t.Errorf("List gave %v, Count %d", names, registry.Count())
	}
	if lines := registry.GetSummaries(); len(lines) != 1 || !strings.HasPrefix(lines[0], "- `message` - Send a message") {
		t.Errorf("GetSummaries gave %q", lines)
	}
	for _, def := range registry.GetDefinitions() {
		f, ok := def["function"].(map[string]any)
		if !ok || def["type"] != "function" || f["name"] != "message" || f["description"] == "" || f["parameters"] == nil {
			t.Errorf("GetDefinitions gave %v", def)
		}
	}
	if defs := registry.ToProviderDefs(); len(defs) != 1 || defs[0].Function.Name != "message" {
		t.Errorf("ToProviderDefs gave %v", defs)
	}
	wantError(t, registry.Execute(t.Context(), "message", args{"content": "Hello"}), "no outbox")
	wantError(t, registry.Execute(t.Context(), "exec", args{}), "exec")
}

func TestRegistryDeliversHello(t *testing.T) {
	var box outbox
	registry := tools.NewToolRegistry()
	registry.Register(builtin.NewMessageTool(builtin.WithOutbox(&box)))
	wantOK(t, registry.ExecuteWithContext(t.Context(), "message", args{"content": "Hello"}, "telegram", "123", nil), "already seen")
	sent := box.all()
	if len(sent) != 1 || sent[0].Text != "Hello" || sent[0].Address != (bus.Address{Channel: "telegram", ChatID: "123"}) {
		t.Fatalf("sent %+v", sent)
	}
	if n := len(sent[0].Key); n == 0 || n > 25 {
		t.Errorf("key %q has %d characters, want 1 to 25", sent[0].Key, n)
	}
	wantError(t, registry.ExecuteWithContext(t.Context(), "message", args{}, "telegram", "123", nil), "content")
}

func TestMessageTargets(t *testing.T) {
	only42 := builtin.WithReach(func(_ context.Context, call tools.Call, target bus.Address) error {
		if call.Principal != "telegram:7" {
			return errors.New("only an owner may write elsewhere")
		}
		if target.ChatID != "42" {
			return errors.New("nobody is there")
		}
		return nil
	})
	cases := map[string]struct {
		args    args
		opts    []builtin.MessageOption
		want    string // where it goes, "" for nowhere
		words   string
		nowhere bool // the call belongs to no conversation
	}{
		"here by default":        {args: args{"content": "x"}, want: "telegram:1", words: "already seen"},
		"here by name":           {args: args{"content": "x", "channel": "telegram", "chat_id": "1"}, want: "telegram:1"},
		"here by channel":        {args: args{"content": "x", "channel": "telegram"}, want: "telegram:1"},
		"other channel, no id":   {args: args{"content": "x", "channel": "discord"}, opts: []builtin.MessageOption{only42}, words: "chat_id is required"},
		"elsewhere unreachable":  {args: args{"content": "x", "chat_id": "42"}, words: "cannot be reached"},
		"elsewhere allowed":      {args: args{"content": "x", "chat_id": "42"}, opts: []builtin.MessageOption{only42}, want: "telegram:42", words: "telegram:42"},
		"elsewhere refused":      {args: args{"content": "x", "channel": "discord", "chat_id": "43"}, opts: []builtin.MessageOption{only42}, words: "nobody is there"},
		"other channel in full":  {args: args{"content": "x", "channel": "discord", "chat_id": "42"}, opts: []builtin.MessageOption{only42}, want: "discord:42"},
		"no conversation":        {args: args{"content": "x"}, nowhere: true, words: "belongs to no conversation"},
		"no conversation, id":    {args: args{"content": "x", "chat_id": "42"}, nowhere: true, words: "channel is required"},
		"nothing to say":         {args: args{"content": " \n"}, words: "content is required"},
		"reach sees who asks":    {args: args{"content": "x", "channel": "telegram", "chat_id": "42"}, opts: []builtin.MessageOption{only42}, nowhere: true, words: "only an owner"},
		"topic is a chat itself": {args: args{"content": "x", "chat_id": "1/5"}, words: "cannot be reached"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var box outbox
			ctx := during(t, "telegram", "1", "c1")
			if c.nowhere {
				ctx = t.Context()
			}
			tool := builtin.NewMessageTool(append(c.opts, builtin.WithOutbox(&box))...)
			r := tool.Execute(ctx, c.args)
			sent := box.all()
			if c.want == "" {
				wantError(t, r, c.words)
				if len(sent) != 0 {
					t.Errorf("sent %v", sent)
				}
				return
			}
			wantOK(t, r, c.words)
			if len(sent) != 1 || sent[0].String() != c.want {
				t.Errorf("sent %v, want one to %s", sent, c.want)
			}
		})
	}
}

func TestMessageTellsTheOutcome(t *testing.T) {
	box := &outbox{err: errors.New("the platform says no")}
	r := builtin.NewMessageTool(builtin.WithOutbox(box)).Execute(during(t, "telegram", "1", "c1"), args{"content": "x"})
	wantError(t, r, "Not delivered", "the platform says no")
	if r.Err == nil {
		t.Error("the log is not told why")
	}
	box = &outbox{hang: true}
	ctx, cancel := context.WithCancel(during(t, "telegram", "1", "c1"))
	cancel()
	wantOK(t, builtin.NewMessageTool(builtin.WithOutbox(box)).Execute(ctx, args{"content": "x"}), "Queued")
}

func TestMessageKeysFollowTheCall(t *testing.T) {
	var box outbox
	tool := builtin.NewMessageTool(builtin.WithOutbox(&box))
	tool.Execute(during(t, "telegram", "1", "c1"), args{"content": "x"})
	tool.Execute(during(t, "telegram", "1", "c1"), args{"content": "x"})
	tool.Execute(during(t, "telegram", "1", "c2"), args{"content": "x"})
	tool.Execute(during(t, "telegram", "2", "c1"), args{"content": "x"})
	for range 2 { // outside of a turn nothing is the same call twice
		tool.Execute(tools.WithCall(t.Context(), tools.Call{Channel: "telegram", ChatID: "1"}), args{"content": "x"})
	}
	keys := make(map[string]int)
	for _, m := range box.all() {
		keys[m.Key]++
	}
	if len(keys) != 5 || keys[box.all()[0].Key] != 2 {
		t.Errorf("keys %v, want five, the first of them twice", keys)
	}
}

func TestManyConversationsShareOneMessageTool(t *testing.T) {
	var box outbox
	registry := tools.NewToolRegistry()
	registry.Register(builtin.NewMessageTool(builtin.WithOutbox(&box)))
	var wg sync.WaitGroup
	for i := range 64 {
		chat := strings.Repeat("x", i+1)
		wg.Go(func() {
			for range 20 {
				registry.ExecuteWithContext(t.Context(), "message", args{"content": chat}, "telegram", chat, nil)
			}
		})
	}
	wg.Wait()
	sent := box.all()
	if len(sent) != 64*20 {
		t.Fatalf("sent %d, want %d", len(sent), 64*20)
	}
	for _, m := range sent {
		if m.ChatID != m.Text {
			t.Fatalf("a message of %q went to %q", m.Text, m.ChatID)
		}
	}
}
