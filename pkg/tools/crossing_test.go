package tools_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// contextual keeps the conversation in its fields, as a legacy tool does.
type contextual struct {
	fake
	channel, chatID string
}

func (t *contextual) SetContext(channel, chatID string) { t.channel, t.chatID = channel, chatID }

// async keeps its callback in a field and reads it on its goroutine.
type async struct {
	fake
	callback tools.AsyncCallback
	sets     int
}

func (t *async) SetCallback(cb tools.AsyncCallback) { t.callback = cb; t.sets++ }

// both is a tool with both: its goroutine reads the conversation after Execute
// has returned.
type both struct {
	fake
	channel, chatID string
	callback        tools.AsyncCallback
}

func (t *both) SetContext(channel, chatID string)  { t.channel, t.chatID = channel, chatID }
func (t *both) SetCallback(cb tools.AsyncCallback) { t.callback = cb }
func (t *both) conversation() string               { return t.channel + ":" + t.chatID }
func (t *contextual) conversation() string         { return t.channel + ":" + t.chatID }
func say(args map[string]interface{}) (chat, n string) {
	return args["chat"].(string), args["n"].(string)
}

const (
	chats    = 64
	messages = 20
)

// everyChat calls f for 20 messages in each of 64 conversations at once.
func everyChat(t *testing.T, f func(chat, n string)) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for c := range chats {
		wg.Go(func() {
			<-start
			for n := range messages {
				f(fmt.Sprintf("chat-%d", c), fmt.Sprint(n))
			}
		})
	}
	close(start)
	wg.Wait()
}

func TestContextualToolNeverCrosses(t *testing.T) {
	tool := &contextual{fake: fake{name: "where"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
		before := tool.conversation()
		if after := tool.conversation(); before != after {
			return tools.ErrorResult("it changed")
		}
		return tools.NewToolResult(before)
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	everyChat(t, func(chat, _ string) {
		if got := r.ExecuteWithContext(t.Context(), "where", nil, "test", chat, nil).ForLLM; got != "test:"+chat {
			t.Errorf("%s was answered in %s", chat, got)
		}
	})
}

// inbox collects what async tools report, by conversation.
type inbox struct {
	t  *testing.T
	mu sync.Mutex
	in map[string][]string
	wg sync.WaitGroup
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	return &inbox{t: t, in: map[string][]string{}}
}

func (i *inbox) callback(chat string) tools.AsyncCallback {
	i.wg.Add(1)
	return func(_ context.Context, result *tools.ToolResult) {
		defer i.wg.Done()
		i.mu.Lock()
		defer i.mu.Unlock()
		i.in[chat] = append(i.in[chat], result.ForLLM)
	}
}

// check expects every conversation to have its own messages, each once.
func (i *inbox) check() {
	i.t.Helper()
	i.wg.Wait()
	for c := range chats {
		chat := fmt.Sprintf("chat-%d", c)
		seen := map[string]int{}
		for _, text := range i.in[chat] {
			seen[text]++
		}
		for n := range messages {
			if want := fmt.Sprintf("%s/%d", chat, n); seen[want] != 1 {
				i.t.Errorf("%s came %d times", want, seen[want])
			}
		}
		if len(seen) != messages {
			i.t.Errorf("%s got %v", chat, i.in[chat])
		}
	}
}

func TestAsyncToolNeverCrosses(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early=%v", early), func(t *testing.T) {
			tool := &async{fake: fake{name: "spawn"}}
			tool.run = func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
				go func() {
					chat, n := say(args)
					if tool.callback != nil {
						tool.callback(ctx, tools.NewToolResult(chat+"/"+n))
					}
				}()
				return tools.AsyncResult("started")
			}
			r := tools.NewToolRegistryWith(tools.Options{InstallAtRegister: early})
			r.Register(tool)
			in := newInbox(t)
			everyChat(t, func(chat, n string) {
				ctx, cancel := context.WithCancel(t.Context())
				result := r.ExecuteWithContext(ctx, "spawn", map[string]interface{}{"chat": chat, "n": n}, "test", chat, in.callback(chat))
				cancel() // the turn ends before its task
				if !result.Async {
					t.Errorf("not started: %s", result.ForLLM)
				}
			})
			in.check()
			if tool.sets != 1 {
				t.Errorf("SetCallback was called %d times", tool.sets)
			}
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestToolWithBothNeverCrosses(t *testing.T) {
	tool := &both{fake: fake{name: "research"}}
	tool.run = func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		go func() {
			_, n := say(args)
			chat := strings.TrimPrefix(tool.conversation(), "test:")
			tool.callback(ctx, tools.NewToolResult(chat+"/"+n))
		}()
		return tools.AsyncResult("started")
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	in := newInbox(t)
	everyChat(t, func(chat, n string) {
		result := r.ExecuteWithContext(t.Context(), "research", map[string]interface{}{"chat": chat, "n": n}, "test", chat, in.callback(chat))
		if !result.Async {
			t.Errorf("not started: %s", result.ForLLM)
		}
	})
	in.check()
}

func TestPerCallToolNeverCrosses(t *testing.T) {
	var running, most atomic.Int32
	r := tools.NewToolRegistry()
	r.Register(tools.PerCall(func() tools.Tool {
		tool := &both{fake: fake{name: "research"}}
		tool.run = func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			go func() {
				_, n := say(args)
				chat := strings.TrimPrefix(tool.conversation(), "test:")
				running.Add(-1)
				tool.callback(context.Background(), tools.NewToolResult(chat+"/"+n)) // its own context even
			}()
			return tools.AsyncResult("started")
		}
		return tool
	}))
	in := newInbox(t)
	everyChat(t, func(chat, n string) {
		if result := r.ExecuteWithContext(t.Context(), "research", map[string]interface{}{"chat": chat, "n": n}, "test", chat, in.callback(chat)); !result.Async {
			t.Errorf("not started: %s", result.ForLLM)
		}
	})
	in.check()
	t.Logf("up to %d at once", most.Load())
}

// A tool that reports with a context of its own may lose reports as long as it
// is not known to, but they never go to another conversation.
func TestReportWithoutContextNeverCrosses(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known=%v", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { reportWithoutContext(t, known) })
		})
	}
}

func reportWithoutContext(t *testing.T, known bool) {
	t.Helper()
	tool := &async{fake: fake{name: "spawn"}}
	tool.run = func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		go func() {
			time.Sleep(time.Millisecond)
			tool.callback(context.Background(), tools.NewToolResult(args["chat"].(string)))
		}()
		return tools.AsyncResult("started")
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	var lost, busy, right atomic.Int32
	call := func(chat, n string) {
		result := r.ExecuteWithContext(t.Context(), "spawn", map[string]interface{}{"chat": chat, "n": n}, "test", chat, func(_ context.Context, result *tools.ToolResult) {
			switch {
			case result.IsError:
				lost.Add(1)
			case result.ForLLM == chat:
				right.Add(1)
			default:
				t.Errorf("%s got what %s asked for", chat, result.ForLLM)
			}
		})
		if result.IsError {
			busy.Add(1)
		}
	}
	if known {
		call("first", "0")
		time.Sleep(time.Second)
		right.Store(0)
	}
	everyChat(t, call)
	time.Sleep(time.Hour) // every ticket has run out
	synctest.Wait()
	t.Logf("%d right, %d given up, %d refused as busy", right.Load(), lost.Load(), busy.Load())
	if total := lost.Load() + busy.Load() + right.Load(); total != chats*messages {
		t.Errorf("of %d calls %d had an outcome", chats*messages, total)
	}
	if known && right.Load() != chats*messages {
		t.Error("reports of a tool that is known for it were lost")
	}
}

func TestSoleReportWithoutContextIsDelivered(t *testing.T) {
	tool := &async{fake: fake{name: "spawn"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
		go tool.callback(context.Background(), tools.NewToolResult("done"))
		return tools.AsyncResult("started")
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	for range 5 {
		got := make(chan *tools.ToolResult, 1)
		r.ExecuteWithContext(t.Context(), "spawn", nil, "test", "a", func(ctx context.Context, result *tools.ToolResult) {
			if call, ok := tools.CallFrom(ctx); !ok || call.ChatID != "a" {
				t.Errorf("reported for %+v", call)
			}
			got <- result
		})
		if result := <-got; result.ForLLM != "done" {
			t.Errorf("got %q", result.ForLLM)
		}
	}
}
