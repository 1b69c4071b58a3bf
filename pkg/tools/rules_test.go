package tools_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Rules of docs/tool-rules.md that no other test is about.

// talker is a tool with all of the setters, which tells in what order it hears
// of things.
type talker struct {
	fake
	heard []string
}

func (t *talker) SetContext(channel, chatID string) {
	t.heard = append(t.heard, "context "+channel+":"+chatID)
}

func (t *talker) SetMetadata(m map[string]string) {
	t.heard = append(t.heard, "metadata "+m["user_id"])
}

func (t *talker) SetCallback(tools.AsyncCallback) { t.heard = append(t.heard, "callback") }

// A tool is told the conversation before each call, and everything before
// Execute.
func TestSettersComeFirst(t *testing.T) {
	r := tools.NewToolRegistry()
	tool := &talker{fake: fake{name: "talker"}}
	tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
		tool.heard = append(tool.heard, "execute")
		return tools.NewToolResult("ok")
	}
	r.Register(tool)
	for i, chat := range []string{"1", "2", "2"} {
		tool.heard = nil
		ctx := tools.WithMetadata(t.Context(), map[string]string{"user_id": chat})
		r.ExecuteWithContext(ctx, "talker", nil, "test", chat, func(context.Context, *tools.ToolResult) {})
		want := []string{"context test:" + chat, "metadata " + chat, "execute"}
		if i == 0 { // one callback serves all calls
			want = slices.Insert(want, 0, "callback")
		}
		if diff := cmp.Diff(want, tool.heard); diff != "" {
			t.Errorf("for %s: %s", chat, diff)
		}
	}
}

func TestToolWithBothIsWarnedOf(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	r.Register(&both{fake: fake{name: "research"}})
	if !strings.Contains(log.String(), "PerCall") || !strings.Contains(log.String(), "tool=research") {
		t.Errorf("the log says %q", log)
	}
}

// The loop goes on while a tool works in the background, and gives the tool no
// callback unless it has one itself.
func TestLoopDoesNotWaitForTheBackground(t *testing.T) {
	for _, callback := range []bool{false, true} {
		t.Run(fmt.Sprint("callback ", callback), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { loopAndBackground(t, callback) })
		})
	}
}

func loopAndBackground(t *testing.T, callback bool) {
	t.Helper()
	r := tools.NewToolRegistry()
	tool := &async{fake: fake{name: "spawn"}}
	tool.run = func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		go func() {
			time.Sleep(time.Minute)
			if tool.callback != nil {
				tool.callback(ctx, tools.NewToolResult("found"))
			}
		}()
		return tools.AsyncResult("started")
	}
	r.Register(tool)
	config := tools.ToolLoopConfig{Tools: r}
	reports := make(chan *tools.ToolResult, 1)
	if callback {
		config.AsyncCallback = func(tools.Call) tools.AsyncCallback { return reporting(reports) }
	}
	began := time.Now()
	_, res := run(t, config, calling(toolCall("1", "spawn", nil)), answering("I am on it"))
	if time.Since(began) != 0 || res.Content != "I am on it" || res.Messages[1].Content != "started" || (tool.sets > 0) != callback {
		t.Errorf("after %v, with %d callbacks: %+v", time.Since(began), tool.sets, res)
	}
	time.Sleep(time.Hour)
	if len(reports) == 1 != callback {
		t.Fatalf("%d reports", len(reports))
	}
	if callback {
		if result := <-reports; result.ForLLM != "found" {
			t.Errorf("reported %+v", result)
		}
	}
}

// What a model passes reaches the tool as it is, one call by one; the loop has no
// opinion of its own about it.
func TestLoopPassesArgumentsOn(t *testing.T) {
	var got []map[string]interface{}
	r := tools.NewToolRegistry()
	schema := object([]string{"a"}, map[string]interface{}{"a": map[string]interface{}{"type": "string"}})
	for name, params := range map[string]map[string]interface{}{"loose": nil, "strict": schema} {
		r.Register(&fake{name: name, params: params, run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			got = append(got, args)
			return tools.NewToolResult("ok")
		}})
	}
	args := map[string]interface{}{"a": "x", "more": []interface{}{1.5, nil, map[string]interface{}{"deep": true}}}
	_, res := run(t, tools.ToolLoopConfig{Tools: r}, calling(toolCall("1", "loose", args), toolCall("2", "strict", args), toolCall("3", "strict", nil)), answering("done"))
	if diff := cmp.Diff([]map[string]interface{}{args, args}, got); diff != "" {
		t.Error(diff)
	}
	// It is the registry that refuses, in the same words as without a loop.
	if want := r.Execute(t.Context(), "strict", nil).ForLLM; !strings.Contains(want, "a is required") || !strings.HasPrefix(res.Messages[3].Content, strings.TrimSuffix(want, ".")) {
		t.Errorf("the loop says %q, the registry %q", res.Messages[3].Content, want)
	}
}

// A tool that replaces another under its name has its calls from then on; there
// is no other way from a name to a tool.
func TestLoopFindsToolsByName(t *testing.T) {
	r := tools.NewToolRegistry()
	told := func(what string) tools.Tool {
		return &fake{name: "tell", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
			r.Register(&fake{name: "tell"})
			return tools.NewToolResult(what)
		}}
	}
	r.Register(told("first"))
	p, res := run(t, tools.ToolLoopConfig{Tools: r}, calling(toolCall("1", "tell", nil), toolCall("2", "tell", nil)), answering("done"))
	if got := fmt.Sprint(res.Messages[1].Content, ", ", res.Messages[2].Content); got != "first, ran tell" {
		t.Errorf("got %s", got)
	}
	if len(p.defs[0]) != 1 || p.defs[0][0].Function.Name != "tell" {
		t.Errorf("the model sees %+v", p.defs[0])
	}
}
