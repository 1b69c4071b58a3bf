package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The three tools below are written the way tools were before there was a call
// in the context: fields that setters fill, one instance for all chats.

// whereTool reads in Execute what SetContext has set.
type whereTool struct{ channel, chatID string }

func (*whereTool) Name() string                        { return "where" }
func (*whereTool) Description() string                 { return "Tells which conversation this is." }
func (*whereTool) Parameters() map[string]interface{}  { return objectSchema("token") }
func (t *whereTool) SetContext(channel, chatID string) { t.channel, t.chatID = channel, chatID }
func (t *whereTool) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	before := t.channel + ":" + t.chatID
	time.Sleep(time.Millisecond) // where another chat would overwrite the fields
	if now := t.channel + ":" + t.chatID; now != before {
		return tools.ErrorResult("crossed " + before + " " + now)
	}
	return tools.NewToolResult(fmt.Sprintf("where %s %s", args["token"], before))
}

// laterTool calls back from a goroutine after Execute has returned.
type laterTool struct{ callback tools.AsyncCallback }

func (*laterTool) Name() string                         { return "later" }
func (*laterTool) Description() string                  { return "Reports back later." }
func (*laterTool) Parameters() map[string]interface{}   { return objectSchema("token") }
func (t *laterTool) SetCallback(cb tools.AsyncCallback) { t.callback = cb }
func (t *laterTool) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	go func() {
		time.Sleep(5 * time.Millisecond)
		if t.callback != nil {
			t.callback(ctx, tools.NewToolResult(fmt.Sprintf("later %s", args["token"])))
		}
	}()
	return tools.AsyncResult("started")
}

// bothTool has both setters, and its goroutine reads the fields after Execute
// has returned.
type bothTool struct {
	whereTool
	callback tools.AsyncCallback
}

func (*bothTool) Name() string                         { return "both" }
func (t *bothTool) SetCallback(cb tools.AsyncCallback) { t.callback = cb }
func (t *bothTool) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	go func() {
		time.Sleep(2 * time.Millisecond)
		if t.callback != nil {
			t.callback(ctx, tools.NewToolResult(fmt.Sprintf("both %s %s:%s", args["token"], t.channel, t.chatID)))
		}
	}()
	return tools.AsyncResult("started")
}

func objectSchema(required ...string) map[string]interface{} {
	props := map[string]interface{}{}
	for _, name := range required {
		props[name] = map[string]interface{}{"type": "string"}
	}
	return map[string]interface{}{"type": "object", "properties": props, "required": required}
}

var tokenIn = regexp.MustCompile(`tok-[0-9]+`)

// script is a model that, asked about a token, says something with the message
// tool, calls the three tools, and at the end repeats what they said.
func script(r providerstest.Request) providerstest.Response {
	last := r.Last()
	token := tokenIn.FindString(last.Content)
	if last.Role == providers.RoleTool {
		var results []string
		for i := len(r.Messages) - 1; r.Messages[i].Role == providers.RoleTool; i-- {
			results = append(results, r.Messages[i].Content)
		}
		return providerstest.Text("final " + strings.Join(results, " | "))
	}
	if strings.Contains(last.Content, "has finished") {
		return providerstest.Text("follow-up " + last.Content[strings.LastIndexByte(last.Content, '\n')+1:])
	}
	args := fmt.Sprintf(`{"token":%q}`, token)
	return providerstest.Calls(
		providerstest.Call{Name: "message", Arguments: fmt.Sprintf(`{"content":"said %s"}`, token)},
		providerstest.Call{Name: "where", Arguments: args},
		providerstest.Call{Name: "later", Arguments: args},
		providerstest.Call{Name: "both", Arguments: args},
	)
}

// world is a daemon between fake platforms and a fake model.
type world struct {
	t        *testing.T
	telegram *telegramtest.Server
	discord  *discordtest.Server
	web      string
	app      *app

	mu   sync.Mutex
	seen map[string][]string // by conversation, in order
	more chan struct{}       // 1 slot: seen has grown
}

// more is what the configuration says beside.
func newWorld(t *testing.T, reply func(providerstest.Request) providerstest.Response, more ...string) *world {
	t.Helper()
	w := &world{t: t, telegram: telegramtest.New(), seen: map[string][]string{}, more: make(chan struct{}, 1)}
	w.discord = discordtest.New(discordtest.Options{OnSend: func(m discordtest.Sent) { w.saw("discord:"+m.ChannelID, m.Content) }})
	w.telegram.OnSend = func(m telegramtest.Sent) {
		chat := fmt.Sprint("telegram:", m.ChatID)
		if m.ThreadID != 0 {
			chat += fmt.Sprint("/", m.ThreadID)
		}
		w.saw(chat, m.Text)
	}
	bot := httptest.NewServer(w.telegram)
	t.Cleanup(bot.Close)
	base, stop, err := w.discord.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	fakeModel := providerstest.NewServer(providerstest.ServerConfig{Reply: reply})
	t.Cleanup(fakeModel.Close)
	model := httptest.NewServer(fakeModel)
	t.Cleanup(model.Close)

	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf(`
data_dir: %s
store: {driver: sqlite}
agent: {turns_per_minute: 0}
models: {main: {provider: openai, base_url: %q, model: fake}}
channels:
  telegram: {token: %q, api_base: %q, allow_users: ["*"], rate: {global_per_sec: 0, per_chat_per_sec: 0, per_group_per_min: 0}}
  discord: {token: %q, api_base: %q, allow_users: ["*"], rate: {global_per_sec: 0, per_chat_per_sec: 0}}
  webchat: {listen: "127.0.0.1:0"}
`, t.TempDir(), model.URL+"/v1", telegramtest.Token, bot.URL, discordtest.Token, base)
	if err := os.WriteFile(file, []byte(text+strings.Join(more, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	w.app, err = newApp(cfg, slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})), appOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// testWriter shows the daemon's log if the test fails.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// run starts the daemon and waits until it is ready. It ends with the test.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.app.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for w.app.gateway.Ready() != nil {
		select {
		case <-tick.C:
		case err := <-done:
			w.t.Fatalf("Run: %v", err)
		case <-deadline:
			w.t.Fatalf("not ready: %v", w.app.gateway.Ready())
		}
	}
	for _, c := range w.app.list {
		if a, ok := c.(interface{ Addr() string }); ok {
			w.web = "http://" + a.Addr()
		}
	}
}

func (w *world) saw(chat, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[chat] = append(w.seen[chat], text)
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// await waits until done accepts what every conversation has seen.
func (w *world) await(done func(seen map[string][]string) bool) {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		w.mu.Lock()
		ok := done(w.seen)
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-w.more:
		case <-deadline:
			w.mu.Lock()
			defer w.mu.Unlock()
			for chat, texts := range w.seen {
				w.t.Logf("%s: %q", chat, texts)
			}
			w.t.Fatal("not everything has come within a minute")
		}
	}
}

// browser opens the web chat and returns how to write there, and its
// conversation.
func (w *world) browser() (chat string, say func(text string)) {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	do := func(ctx context.Context, method, path, body string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, method, w.web+path, strings.NewReader(body))
		if err != nil {
			w.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", w.web)
		resp, err := client.Do(req)
		if err != nil {
			w.t.Errorf("%s %s: %v", method, path, err)
			return nil
		}
		if resp.StatusCode/100 != 2 {
			b, _ := io.ReadAll(resp.Body)
			w.t.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
		}
		return resp
	}
	do(w.t.Context(), http.MethodPost, "/api/session", "{}").Body.Close()
	chat = fmt.Sprintf("web:%p", client)
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	w.t.Cleanup(func() {
		cancel()
		reading.Wait()
		client.CloseIdleConnections()
	})
	stream := do(ctx, http.MethodGet, "/api/events", "")
	reading.Go(func() {
		defer stream.Body.Close()
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			var m struct {
				Role string `json:"role"`
				HTML string `json:"html"`
			}
			if ok && json.Unmarshal(data, &m) == nil && m.Role == providers.RoleAssistant {
				w.saw(chat, m.HTML)
			}
		}
	})
	n := 0
	return chat, func(text string) {
		n++
		do(w.t.Context(), http.MethodPost, "/api/messages", fmt.Sprintf(`{"id":"message-%d","text":%q}`, n, text)).Body.Close()
	}
}

// The promise of the house: 64 conversations on four kinds of channel at once,
// each with the message tool, a follow-up, and tools that keep the conversation
// in their fields, and every word in the conversation that asked.
func TestEverythingInTheRightConversation(t *testing.T) {
	w := newWorld(t, script)
	w.app.tools.Register(&whereTool{})
	w.app.tools.Register(&laterTool{})
	w.app.tools.Register(&bothTool{})
	w.app.tools.LimitAsync(tasksPerChat, 1000)
	w.run()

	asks := map[string]func(text string){}
	guild := w.discord.AddGuild("guild")
	group := w.telegram.AddGroup("group", true)
	for i := range 16 {
		u := w.telegram.AddUser(fmt.Sprint("T", i), fmt.Sprint("tele", i))
		asks[fmt.Sprint("telegram:", u.ID)] = func(text string) {
			w.telegram.Post(telegramtest.Message{From: &u, Chat: w.telegram.Private(u), Text: text})
		}
		topic := w.telegram.AddTopic(group.ID)
		asks[fmt.Sprint("telegram:", group.ID, "/", topic)] = func(text string) {
			text = "@" + telegramtest.BotName + " " + text
			w.telegram.Post(telegramtest.Message{
				From: &u, Chat: group, MessageThreadID: topic, Text: text,
				Entities: []telegramtest.Entity{{Type: "mention", Offset: 0, Length: len(telegramtest.BotName) + 1}},
			})
		}
		d := w.discord.AddUser(fmt.Sprint("disc", i), fmt.Sprint("D", i))
		channel := w.discord.AddChannel(guild, fmt.Sprint("channel-", i))
		asks["discord:"+channel] = func(text string) {
			w.discord.Say(channel, d, discordtest.Mention(w.discord.Bot())+" "+text)
		}
		chat, say := w.browser()
		asks[chat] = say
	}

	tokens := map[string]string{}
	var asking sync.WaitGroup
	n := 0
	for chat, ask := range asks {
		n++
		token := fmt.Sprint("tok-", 1000+n)
		tokens[chat] = token
		asking.Go(func() { ask("please use the tools for " + token) })
	}
	asking.Wait()

	const each = 4 // said, final, and the two follow-ups
	w.await(func(seen map[string][]string) bool {
		for chat := range asks {
			if len(seen[chat]) < each {
				return false
			}
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) != len(asks) {
		t.Errorf("%d conversations were written to, %d had asked", len(w.seen), len(asks))
	}
	for chat, texts := range w.seen {
		token := tokens[chat]
		all := strings.Join(texts, "\n")
		for _, want := range []string{"said " + token, "final", "where " + token + " " + prefix(chat), "follow-up later " + token, "follow-up both " + token + " " + prefix(chat)} {
			if !strings.Contains(all, want) {
				t.Errorf("%s was not sent %q but %q", chat, want, texts)
			}
		}
		for _, found := range tokenIn.FindAllString(all, -1) {
			if found != token {
				t.Errorf("%s (%s) was sent the token of another conversation: %q", chat, token, texts)
			}
		}
		if len(texts) != each || !strings.Contains(texts[0], "said") {
			t.Errorf("%s was sent %q", chat, texts)
		}
	}
}

// prefix is how a tool sees a conversation; the id of a web chat is a hash that
// the page does not tell.
func prefix(chat string) string {
	if strings.HasPrefix(chat, "web:") {
		return "webchat:"
	}
	return chat
}
