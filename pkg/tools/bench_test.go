package tools_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type readInput struct {
	Path      string `json:"path" description:"File to read" minLength:"1"`
	StartLine int    `json:"start_line,omitempty" description:"First line" minimum:"1"`
	Mode      string `json:"mode,omitempty" description:"How" enum:"text,binary" default:"text"`
}

func readTool(name string) tools.Tool {
	return tools.Func(name, "Reads a file", func(_ context.Context, in readInput) *tools.ToolResult {
		return tools.NewToolResult(in.Path)
	})
}

// plainRead is a tool with a hand-written schema.
func plainRead(name string) tools.Tool {
	return &fake{name: name, params: object([]string{"path"}, map[string]interface{}{
		"path":       map[string]interface{}{"type": "string", "description": "File to read", "minLength": 1},
		"start_line": map[string]interface{}{"type": "integer", "description": "First line", "minimum": 1},
		"mode":       map[string]interface{}{"type": "string", "description": "How", "enum": []string{"text", "binary"}},
	}), run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		return tools.NewToolResult(args["path"].(string))
	}}
}

var readArgs = map[string]interface{}{"path": "/tmp/foo", "start_line": float64(3), "mode": "text"}

// fixed is a provider that costs nothing: it calls a tool for some rounds, each
// time otherwise, and may tell its last reply in pieces.
type fixed struct {
	calls  []*providers.LLMResponse
	final  *providers.LLMResponse
	pieces []providers.Delta
	round  int
}

func (f *fixed) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	if f.round < len(f.calls) {
		f.round++
		return f.calls[f.round-1], nil
	}
	f.round = 0
	return f.final, nil
}

func (f *fixed) ChatStream(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	resp, err := f.Chat(ctx, messages, defs, model, options)
	if resp == f.final {
		for _, d := range f.pieces {
			onDelta(d)
		}
	}
	return resp, err
}

const roundsOfBench = 10

func newFixed() *fixed {
	f := &fixed{}
	for i := range roundsOfBench {
		args := map[string]interface{}{"path": "/tmp/foo", "start_line": float64(i + 1), "mode": "text"}
		call := calling(toolCall(fmt.Sprint("call_", i), "read_file", args))
		f.calls = append(f.calls, &call)
	}
	words := strings.Repeat("five words are told here ", 10)
	for word := range strings.FieldsSeq(words) {
		f.pieces = append(f.pieces, providers.Delta{Text: word + " "})
	}
	final := answering(words)
	f.final = &final
	return f
}

// deaf is a log handler that wants everything and keeps nothing.
type deaf struct{ slog.Handler }

func (deaf) Enabled(context.Context, slog.Level) bool { return true }

// costly is the ways to run a loop whose price is watched: a round has one call
// of a tool whose arguments are checked.
func costly() map[string]func() tools.ToolLoopConfig {
	registry := func(tool tools.Tool, more int) *tools.ToolRegistry {
		r := tools.NewToolRegistryWith(tools.Options{Logger: slog.New(deaf{slog.DiscardHandler})})
		r.Register(tool)
		for i := range more {
			r.Register(plainRead(fmt.Sprintf("tool_%d", i)))
		}
		return r
	}
	config := func(r *tools.ToolRegistry, with func(*tools.ToolLoopConfig)) func() tools.ToolLoopConfig {
		return func() tools.ToolLoopConfig {
			c := tools.ToolLoopConfig{Provider: newFixed(), Tools: r, MaxIterations: roundsOfBench + 1}
			if with != nil {
				with(&c)
			}
			return c
		}
	}
	read := registry(readTool("read_file"), 0)
	everything := func(c *tools.ToolLoopConfig) {
		c.FinalAnswer, c.LoopGuard, c.EstimateUsage, c.MaxToolResultBytes, c.ToolTimeout = true, true, true, 1<<16, time.Minute
		c.Stream = func(providers.Delta) {}
		c.OnEvent = func(tools.Event) {}
		c.Middleware = []tools.Middleware{func(next tools.Handler) tools.Handler {
			return func(ctx context.Context, inv *tools.Invocation) *tools.ToolResult { return next(ctx, inv) }
		}}
	}
	return map[string]func() tools.ToolLoopConfig{
		"func":       config(read, nil),
		"quiet":      config(registryOf(readTool("read_file")), nil),
		"plain":      config(registry(plainRead("read_file"), 0), nil),
		"500 tools":  config(registry(readTool("read_file"), 499), nil),
		"guard":      config(read, func(c *tools.ToolLoopConfig) { c.LoopGuard = true }),
		"stream":     config(read, func(c *tools.ToolLoopConfig) { c.Stream = func(providers.Delta) {} }),
		"timeout":    config(read, func(c *tools.ToolLoopConfig) { c.ToolTimeout = time.Minute }),
		"everything": config(read, everything),
		"recorded":   config(read, func(c *tools.ToolLoopConfig) { c.Checkpoint = func(context.Context, tools.Record) error { return nil } }),
	}
}

func registryOf(tool tools.Tool) *tools.ToolRegistry {
	r := tools.NewToolRegistry()
	r.Register(tool)
	return r
}

func runCostly(tb testing.TB, ctx context.Context, config tools.ToolLoopConfig) {
	tb.Helper()
	res, err := tools.RunToolLoop(ctx, config, user("hi"), "test", "1")
	if err != nil || res.StopReason != tools.StopAnswer || res.Iterations != roundsOfBench+1 {
		tb.Fatal(res, err)
	}
}

// BenchmarkLoopRound is one round of the loop with one call; what it costs to
// end a loop is spread over ten of them.
func BenchmarkLoopRound(b *testing.B) {
	for name, config := range costly() {
		b.Run(name, func(b *testing.B) {
			ctx := tools.WithMetadata(tools.WithCall(b.Context(), tools.Call{Turn: "t", Principal: "test:1"}), map[string]string{"user_id": "1"})
			c := config()
			b.ReportAllocs()
			for i := 0; i < b.N; i += roundsOfBench {
				runCostly(b, ctx, c)
			}
		})
	}
}

func BenchmarkExecute(b *testing.B) {
	legacy := &contextual{fake: *plainRead("read_file").(*fake)}
	for name, tool := range map[string]tools.Tool{"func": readTool("read_file"), "plain": plainRead("read_file"), "contextual": legacy} {
		b.Run(name, func(b *testing.B) {
			r := tools.NewToolRegistry()
			r.Register(tool)
			b.ReportAllocs()
			for b.Loop() {
				if result := r.ExecuteWithContext(b.Context(), "read_file", readArgs, "test", "1", nil); result.IsError {
					b.Fatal(result)
				}
			}
		})
	}
	b.Run("async", func(b *testing.B) {
		r := tools.NewToolRegistry()
		r.Register(tools.AsyncFunc("work", "Works", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
			report(ctx, tools.NewToolResult("done"))
			return tools.AsyncResult("started")
		}))
		args := what("x")
		b.ReportAllocs()
		for b.Loop() {
			r.ExecuteWithContext(b.Context(), "work", args, "test", "1", func(context.Context, *tools.ToolResult) {})
		}
	})
}

func BenchmarkRegistry500(b *testing.B) {
	fill := func() *tools.ToolRegistry {
		r := tools.NewToolRegistry()
		for i := range 500 {
			r.Register(plainRead(fmt.Sprintf("tool_%d", i)))
		}
		return r
	}
	b.Run("register", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fill()
		}
	})
	r := fill()
	b.Run("definitions", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.ToProviderDefs()
		}
	})
	view := r.View(func(name string) bool { return name != "tool_7" })
	b.Run("execute", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			view.Execute(b.Context(), "tool_250", readArgs)
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		tool := plainRead("tool_3")
		for b.Loop() {
			r.Register(tool)
			view.Count()
		}
	})
}

// TestCostOfARound keeps the price of a round in bounds: 100 allocations, with
// validation and logging, whatever is turned on, unless requests are recorded.
// Time is a benchmark's business.
func TestCostOfARound(t *testing.T) {
	for name, config := range costly() {
		c := config()
		allocs := testing.AllocsPerRun(20, func() { runCostly(t, t.Context(), c) }) / roundsOfBench
		bound := 100.0
		if name == "recorded" {
			bound = 150 // with the fingerprint of a whole request
		}
		if allocs > bound {
			t.Errorf("%s: a round makes %.0f allocations", name, allocs)
		}
		t.Logf("%s: %.1f allocations", name, allocs)
	}
}

// BenchmarkArguments is what checking a call's arguments costs, as they are
// wanted and as they have to be fitted.
func BenchmarkArguments(b *testing.B) {
	property := map[string]interface{}{"type": "object", "properties": map[string]interface{}{
		"n": map[string]interface{}{"type": "integer", "minimum": 0}, "mode": map[string]interface{}{"type": "string", "enum": []string{"a", "b"}, "default": "a"},
		"list": map[string]interface{}{"type": "array", "items": map[string]interface{}{"type": "integer"}},
	}}
	properties := make(map[string]interface{})
	fine, texts := make(map[string]interface{}), make(map[string]interface{})
	for i := range 50 {
		name := fmt.Sprintf("part_%d", i)
		properties[name] = property
		fine[name] = map[string]interface{}{"n": 3.0, "mode": "b", "list": []interface{}{1.0, 2.0, 3.0}}
		texts[name] = map[string]interface{}{"n": "3", "list": "[1, 2, 3]"}
	}
	large := &fake{name: "large", params: object([]string{}, properties)}
	r := tools.NewToolRegistry()
	r.Register(large)
	r.Register(plainRead("small"))
	for _, c := range []struct {
		name, tool string
		args       map[string]interface{}
	}{
		{"small", "small", readArgs},
		{"small/fitted", "small", map[string]interface{}{"path": "/tmp/foo", "start_line": "3", "mode": "text"}},
		{"large", "large", fine},
		{"large/fitted", "large", texts},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if result := r.Execute(b.Context(), c.tool, c.args); result.IsError {
					b.Fatal(result)
				}
			}
		})
	}
}
