package tools_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// note is a middleware that writes down that a call went by.
func note(trace *[]string, name string) tools.Middleware {
	return func(next tools.Handler) tools.Handler {
		return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
			*trace = append(*trace, name)
			result := next(ctx, inv)
			*trace = append(*trace, "/"+name)
			return result
		}
	}
}

// before is a middleware of what is done before the tool; a result of fn
// stands in the tool's place.
func before(fn func(inv *tools.Invocation) *tools.ToolResult) tools.Middleware {
	return func(next tools.Handler) tools.Handler {
		return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
			if result := fn(inv); result != nil {
				return result
			}
			return next(ctx, inv)
		}
	}
}

func countTool(run func(ctx context.Context, args map[string]interface{}) *tools.ToolResult) tools.Tool {
	return &fake{name: "count", run: run, params: object([]string{"n"}, map[string]interface{}{
		"n": map[string]interface{}{"type": "integer", "minimum": 1},
	})}
}

func TestFieldHooks(t *testing.T) {
	var trace []string
	r, log := logged(slog.LevelWarn)
	r.Register(countTool(func(context.Context, map[string]interface{}) *tools.ToolResult {
		trace = append(trace, "tool")
		return tools.NewToolResult("counted")
	}))
	run := func(want string) *tools.ToolResult {
		t.Helper()
		trace = nil
		result := r.ExecuteWithContext(t.Context(), "count", map[string]interface{}{"n": 1.0}, "test", "1", nil)
		if got := strings.Join(trace, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		return result
	}
	run("tool")
	r.Use(note(&trace, "a"), note(&trace, "b"))
	r.View(func(string) bool { return true }).Use(note(&trace, "c"))
	run("a b c tool /c /b /a")
	if r.Execute(t.Context(), "nothing", nil); len(trace) != 7 {
		t.Errorf("an unknown tool went through the middleware: %v", trace)
	}

	// A rule that breaks lets nothing through, and what stands around it
	// does not fall.
	for text, broken := range map[string]tools.Middleware{
		"internal error": before(func(*tools.Invocation) *tools.ToolResult { panic("secret") }),
		"returned no result": func(tools.Handler) tools.Handler {
			return func(context.Context, *tools.Invocation) *tools.ToolResult { return nil }
		},
		"no result":         nil,
		"count returned no": func(tools.Handler) tools.Handler { return nil },
		"count failed": func(next tools.Handler) tools.Handler {
			return func(ctx context.Context, _ *tools.Invocation) *tools.ToolResult {
				return next(ctx, &tools.Invocation{})
			}
		},
	} {
		r := tools.NewToolRegistry()
		r.Register(countTool(func(context.Context, map[string]interface{}) *tools.ToolResult {
			t.Error("the tool was run")
			return nil
		}))
		r.Use(broken)
		result := r.Execute(t.Context(), "count", map[string]interface{}{"n": 1.0})
		if !result.IsError || !strings.Contains(result.ForLLM, text) || strings.Contains(result.ForLLM, "secret") {
			t.Errorf("%s: %+v", text, result)
		}
	}
	if strings.Count(log.String(), "\n") != 1 { // of the unknown tool
		t.Error(log)
	}
}

// What a middleware may do to a call: answer it, change it, and give the tool a
// context.
func TestMiddlewareChangesCalls(t *testing.T) {
	type key struct{}
	var got map[string]interface{}
	var seen []string
	r := tools.NewToolRegistry()
	r.Register(countTool(func(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
		got = args
		call, _ := tools.CallFrom(ctx)
		span, _ := ctx.Value(key{}).(string)
		seen = append(seen, call.ChatID, span)
		return tools.NewToolResult("counted")
	}))
	r.Use(func(next tools.Handler) tools.Handler {
		return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult {
			if call, ok := tools.CallFrom(ctx); !ok || call.ID != inv.Call.ID || inv.Call.Tool != "count" || inv.Tool.Name() != "count" {
				t.Errorf("got %+v for %+v", inv, call)
			}
			result := *next(context.WithValue(context.Background(), key{}, "span"), inv)
			result.ForLLM += " by all"
			return &result
		}
	}, before(func(inv *tools.Invocation) *tools.ToolResult {
		if inv.Args["n"] == 13.0 {
			return tools.ErrorResult("13 is not allowed.")
		}
		if _, ok := inv.Args["n"].(float64); ok {
			inv.Args = maps.Clone(inv.Args)
			inv.Args["n"] = inv.Args["n"].(float64) - 1
		}
		return nil
	}))
	args := map[string]interface{}{"n": 3.0}
	for n, want := range map[float64]string{3: "counted by all", 13: "13 is not allowed. by all", 1: "expected at least 1, got 0"} {
		args["n"] = n
		result := r.ExecuteWithContext(t.Context(), "count", args, "test", "7", nil)
		if !strings.Contains(result.ForLLM, want) {
			t.Errorf("%v: %+v", n, result)
		}
		if args["n"] != n {
			t.Error("the caller's arguments were changed")
		}
	}
	if got["n"] != 2.0 || strings.Join(seen, " ") != "7 span" {
		t.Errorf("the tool got %v under %v", got, seen)
	}
}

// A tool that takes the text of the arguments gets those of the middleware.
func TestMiddlewareChangesTheRawText(t *testing.T) {
	tool := &raw{fake: fake{name: "raw"}}
	r := tools.NewToolRegistry()
	r.Register(tool)
	change := false
	r.Use(before(func(inv *tools.Invocation) *tools.ToolResult {
		if change {
			inv.Args = map[string]interface{}{"n": 2.0}
		}
		return nil
	}))
	for _, want := range []string{`{ "n": 12345678901234567890 }`, `{"n":2}`} {
		call := toolCall("c1", "raw", map[string]interface{}{"n": 12345678901234567890.0})
		call.Function = &providers.FunctionCall{Name: "raw", Arguments: `{ "n": 12345678901234567890 }`}
		p := &script{replies: []providers.LLMResponse{calling(call), answering("done")}}
		if _, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 2}, nil, "test", "1"); err != nil {
			t.Fatal(err)
		}
		if tool.got != want {
			t.Errorf("got %s, want %s", tool.got, want)
		}
		change = true
	}
}

// Callbacks work through middleware, and a loop has its own around the
// registry's.
func TestMiddlewareOfALoop(t *testing.T) {
	var trace []string
	r := tools.NewToolRegistry()
	r.Use(note(&trace, "registry"))
	r.Register(tools.AsyncFunc("work", "Works", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
		trace = append(trace, "tool")
		report(ctx, tools.NewToolResult("done"))
		return tools.AsyncResult("started")
	}))
	p := &script{replies: []providers.LLMResponse{calling(toolCall("c1", "work", what("x"))), answering("done")}}
	reported := 0
	_, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
		Provider: p, Tools: r, MaxIterations: 2, Middleware: []tools.Middleware{note(&trace, "loop")},
		AsyncCallback: func(tools.Call) tools.AsyncCallback {
			return func(context.Context, *tools.ToolResult) { reported++ }
		},
	}, nil, "test", "1")
	if got := strings.Join(trace, " "); err != nil || got != "loop registry tool /registry /loop" || reported != 1 {
		t.Errorf("got %s, %d reports, %v", got, reported, err)
	}
}
