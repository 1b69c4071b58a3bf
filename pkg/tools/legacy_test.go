package tools_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestSettersAsTheSeedsSay(t *testing.T) {
	ctxTool := &contextual{fake: fake{name: "where"}}
	asyncTool := &async{fake: fake{name: "spawn"}}
	r := tools.NewToolRegistry()
	r.Register(ctxTool)
	r.Register(asyncTool)

	r.Execute(t.Context(), "where", nil)
	r.ExecuteWithContext(t.Context(), "where", nil, "test", "", nil)
	r.ExecuteWithContext(t.Context(), "where", nil, "", "1", nil)
	if ctxTool.conversation() != ":" {
		t.Errorf("SetContext was called without a whole conversation: %s", ctxTool.conversation())
	}
	r.ExecuteWithContext(t.Context(), "where", nil, "test", "1", nil)
	if ctxTool.conversation() != "test:1" {
		t.Errorf("the tool was told %s", ctxTool.conversation())
	}
	r.ExecuteWithContext(t.Context(), "spawn", nil, "test", "1", nil)
	if asyncTool.callback != nil {
		t.Error("a call without a callback touched the tool")
	}
	r.ExecuteWithContext(t.Context(), "spawn", nil, "test", "1", func(context.Context, *tools.ToolResult) {})
	if asyncTool.callback == nil {
		t.Error("a call with a callback did not give it to the tool")
	}
}

// metaTool is told the metadata.
type metaTool struct {
	fake
	got map[string]string
}

func (t *metaTool) SetMetadata(m map[string]string) { t.got = m }

func TestMetadataIsAPrivateCopy(t *testing.T) {
	tool := &metaTool{fake: fake{name: "meta"}}
	tool.run = func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		call, _ := tools.CallFrom(ctx)
		return tools.NewToolResult(call.Metadata["user_id"])
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	r.Execute(t.Context(), "meta", nil)
	if tool.got != nil {
		t.Error("SetMetadata was called without metadata")
	}
	mine := map[string]string{"user_id": "7"}
	ctx := tools.WithMetadata(t.Context(), mine)
	mine["user_id"] = "8"
	if got := r.Execute(ctx, "meta", nil).ForLLM; got != "7" {
		t.Errorf("the call holds user %s", got)
	}
	tool.got["user_id"] = "9"
	if got := r.Execute(ctx, "meta", nil).ForLLM; got != "7" || tool.got["user_id"] != "7" {
		t.Errorf("a tool changed the next call's metadata to %s", got)
	}
	base := tools.WithCall(t.Context(), tools.Call{Metadata: map[string]string{"user_id": "5"}})
	if got := r.Execute(base, "meta", nil).ForLLM; got != "5" {
		t.Errorf("the turn's metadata came as %q", got)
	}
}

// decorator hides the setters of what it decorates.
type decorator struct{ tools.Tool }

func (d decorator) Unwrap() tools.Tool { return d.Tool }
func (d decorator) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	result := d.Tool.Execute(ctx, args)
	result.ForLLM = "decorated " + result.ForLLM
	return result
}

func TestSettersAreFoundThroughDecorators(t *testing.T) {
	tool := &contextual{fake: fake{name: "where"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
		return tools.NewToolResult(tool.conversation())
	}
	r := tools.NewToolRegistry()
	r.Register(decorator{decorator{tool}})
	if got := r.ExecuteWithContext(t.Context(), "where", nil, "test", "1", nil).ForLLM; got != "decorated decorated test:1" {
		t.Errorf("got %q", got)
	}
}

func TestDecoratedPerCallTool(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(decorator{tools.PerCall(func() tools.Tool {
		tool := &both{fake: fake{name: "research"}}
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			tool.callback(context.Background(), tools.NewToolResult("report "+tool.chatID))
			return tools.AsyncResult("started " + tool.chatID)
		}
		return tool
	})})
	var report string
	result := r.ExecuteWithContext(t.Context(), "research", nil, "test", "1", func(_ context.Context, result *tools.ToolResult) { report = result.ForLLM })
	if result.ForLLM != "decorated started 1" || report != "report 1" {
		t.Errorf("got %q and %q", result.ForLLM, report)
	}
}

// One instance under two names has one lock.
func TestInstanceUnderTwoNames(t *testing.T) {
	tool := &contextual{fake: fake{name: "where"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
		return tools.NewToolResult(tool.conversation())
	}
	r := tools.NewToolRegistry()
	r.Register(tool)
	tool.name = "whereto"
	r.Register(tool)
	r.Register(named{decorator{tool}, "whither"})
	if r.Count() != 3 {
		t.Fatalf("registered %v", r.List())
	}
	names := r.List()
	everyChat(t, func(chat, n string) {
		name := names[len(chat+n)%3]
		got := strings.TrimPrefix(r.ExecuteWithContext(t.Context(), name, nil, "test", chat, nil).ForLLM, "decorated ")
		if got != "test:"+chat {
			t.Errorf("%s was answered in %s", chat, got)
		}
	})
}

type named struct {
	decorator
	name string
}

func (n named) Name() string { return n.name }

// notComparable has no identity; it must register and run all the same.
type notComparable struct {
	fake map[string]string
}

func (notComparable) Name() string                       { return "odd" }
func (notComparable) Description() string                { return "A tool that is a map" }
func (notComparable) Parameters() map[string]interface{} { return nil }
func (n notComparable) SetContext(channel, chatID string) {
	n.fake["at"] = channel + ":" + chatID
}

func (n notComparable) Execute(context.Context, map[string]interface{}) *tools.ToolResult {
	return tools.NewToolResult(n.fake["at"])
}

func TestToolWithoutIdentity(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(notComparable{fake: map[string]string{}})
	everyChat(t, func(chat, _ string) {
		if got := r.ExecuteWithContext(t.Context(), "odd", nil, "test", chat, nil).ForLLM; got != "test:"+chat {
			t.Errorf("%s was answered in %s", chat, got)
		}
	})
	r.Unregister("odd")
}

// A tool that runs a loop in which it is called again does not wait for itself,
// and has its own conversation back afterwards.
func TestNestedCallThroughTheSameTool(t *testing.T) {
	r := tools.NewToolRegistry()
	tool := &contextual{fake: fake{name: "where"}}
	tool.run = func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		depth := args["depth"].(int)
		mine := tool.conversation()
		if depth > 0 {
			inner := fmt.Sprintf("inner-%d", depth)
			got := r.ExecuteWithContext(ctx, "where", map[string]interface{}{"depth": depth - 1}, "test", inner, nil).ForLLM
			if got != "test:"+inner {
				t.Errorf("the nested call worked for %s, not for %s", got, inner)
			}
		}
		if now := tool.conversation(); now != mine {
			t.Errorf("after the nested call %s became %s", mine, now)
		}
		return tools.NewToolResult(mine)
	}
	r.Register(tool)
	everyChat(t, func(chat, _ string) {
		if got := r.ExecuteWithContext(t.Context(), "where", map[string]interface{}{"depth": 2}, "test", chat, nil).ForLLM; got != "test:"+chat {
			t.Errorf("%s was answered in %s", chat, got)
		}
	})
}

// A context kept after the call is over no longer opens the lock.
func TestStaleHoldDoesNotOpenTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &contextual{fake: fake{name: "where"}}
		kept := make(chan context.Context, 1)
		block := make(chan struct{})
		tool.run = func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
			if args["block"] != nil {
				<-block
			}
			kept <- ctx
			return tools.NewToolResult(tool.conversation())
		}
		r.Register(tool)
		r.ExecuteWithContext(t.Context(), "where", nil, "test", "a", nil)
		stale := <-kept
		go r.ExecuteWithContext(t.Context(), "where", map[string]interface{}{"block": true}, "test", "b", nil)
		synctest.Wait()
		done := make(chan string, 1)
		go func() {
			done <- r.ExecuteWithContext(stale, "where", nil, "test", "c", nil).ForLLM
		}()
		synctest.Wait()
		select {
		case got := <-done:
			t.Fatalf("ran while b had the instance: %s", got)
		default:
		}
		close(block)
		<-kept
		<-kept
		if got := <-done; got != "test:c" {
			t.Errorf("got %s", got)
		}
	})
}

func TestBusyToolAnswersAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := logged(slog.LevelWarn)
		tool := &contextual{fake: fake{name: "slow"}}
		release := make(chan struct{})
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			<-release
			return tools.NewToolResult("done")
		}
		r.Register(tool)
		go r.ExecuteWithContext(t.Context(), "slow", nil, "test", "a", nil)
		synctest.Wait()

		var slots atomic.Int32
		slots.Store(1)
		ctx := tools.WithYield(t.Context(), func() func(context.Context) error {
			slots.Add(-1)
			return func(context.Context) error { slots.Add(1); return nil }
		})
		began := time.Now()
		answer := make(chan *tools.ToolResult)
		go func() { answer <- r.ExecuteWithContext(ctx, "slow", nil, "test", "b", nil) }()
		synctest.Wait()
		if slots.Load() != 0 {
			t.Error("the waiter keeps its slot")
		}
		result := <-answer
		if took := time.Since(began); took != 10*time.Second || !result.IsError || !strings.Contains(result.ForLLM, "busy") {
			t.Errorf("after %s: %+v", took, result)
		}
		if slots.Load() != 1 {
			t.Error("the waiter has not taken its slot back")
		}
		if s := r.Stats(); s.LegacyWaits != 1 || s.LegacyWait != 10*time.Second || s.LegacyBusy != 1 {
			t.Errorf("stats are %+v", s)
		}
		if !strings.Contains(log.String(), "PerCall") {
			t.Errorf("nobody told the operator about PerCall: %s", log)
		}
		close(release)
	})
}

func TestWaiterLeavesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &contextual{fake: fake{name: "slow"}}
		release := make(chan struct{})
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			<-release
			return tools.NewToolResult("done")
		}
		r.Register(tool)
		go r.ExecuteWithContext(t.Context(), "slow", nil, "test", "a", nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		result := r.ExecuteWithContext(ctx, "slow", nil, "test", "b", nil)
		if took := time.Since(began); took != time.Second || !result.IsError {
			t.Errorf("after %s: %+v", took, result)
		}
		close(release)
		synctest.Wait()
		if result := r.ExecuteWithContext(t.Context(), "slow", nil, "test", "c", nil); result.ForLLM != "done" {
			t.Errorf("the lock is lost: %+v", result)
		}
	})
}

// A slot that cannot be had again ends the call, and the instance is free.
func TestSlotLostWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tools.NewToolRegistry()
		tool := &contextual{fake: fake{name: "slow"}}
		release := make(chan struct{})
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			<-release
			return tools.NewToolResult("done")
		}
		r.Register(tool)
		go r.ExecuteWithContext(t.Context(), "slow", nil, "test", "a", nil)
		synctest.Wait()
		ctx := tools.WithYield(t.Context(), func() func(context.Context) error {
			return func(context.Context) error { return context.Canceled }
		})
		go func() {
			time.Sleep(time.Second)
			close(release)
		}()
		if result := r.ExecuteWithContext(ctx, "slow", nil, "test", "b", nil); !result.IsError {
			t.Errorf("ran without a slot: %+v", result)
		}
		if result := r.ExecuteWithContext(t.Context(), "slow", nil, "test", "c", nil); result.ForLLM != "done" {
			t.Errorf("the lock is lost: %+v", result)
		}
	})
}

func TestPanicGivesTheInstanceBack(t *testing.T) {
	r, log := logged(slog.LevelDebug)
	tool := &both{fake: fake{name: "bad"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult { panic("secret detail") }
	r.Register(tool)
	for range 3 {
		for _, cb := range []tools.AsyncCallback{nil, func(context.Context, *tools.ToolResult) { t.Error("called back") }} {
			result := r.ExecuteWithContext(t.Context(), "bad", nil, "test", "a", cb)
			if !result.IsError || strings.Contains(result.ForLLM, "secret") {
				t.Errorf("the model reads %q", result.ForLLM)
			}
		}
	}
	if !strings.Contains(log.String(), "legacy_test.go") {
		t.Error("the log has no stack")
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStaleConversationIsLogged(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	tool := &contextual{fake: fake{name: "where"}}
	r.Register(tool)
	r.ExecuteWithContext(t.Context(), "where", nil, "test", "1", nil)
	r.Execute(t.Context(), "where", nil)
	if !strings.Contains(log.String(), "earlier call") {
		t.Errorf("the log says %q", log)
	}
}
