package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

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

// fixed is a provider that costs nothing: it calls a tool for n rounds.
type fixed struct {
	rounds      int
	call, final *providers.LLMResponse
}

func (f *fixed) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	if f.rounds--; f.rounds >= 0 {
		return f.call, nil
	}
	return f.final, nil
}

// BenchmarkLoopRound is one round of the loop with one call; what it costs to
// end a loop is spread over ten of them.
func BenchmarkLoopRound(b *testing.B) {
	for name, tool := range map[string]tools.Tool{"func": readTool("read_file"), "plain": plainRead("read_file")} {
		b.Run(name, func(b *testing.B) {
			r := tools.NewToolRegistry()
			r.Register(tool)
			call, final := calling(toolCall("call_1", "read_file", readArgs)), answering("done")
			ctx := tools.WithMetadata(tools.WithCall(b.Context(), tools.Call{Turn: "t", Principal: "test:1"}), map[string]string{"user_id": "1"})
			messages := user("hi")
			b.ReportAllocs()
			const rounds = 10
			for i := 0; i < b.N; i += rounds {
				p := &fixed{rounds: rounds, call: &call, final: &final}
				res, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: rounds + 1}, messages, "test", "1")
				if err != nil || res.Content != "done" {
					b.Fatal(res, err)
				}
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

// TestCostOfARound keeps the price of a round in bounds: 100 allocations,
// validation included.
func TestCostOfARound(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(readTool("read_file"))
	call, final := calling(toolCall("call_1", "read_file", readArgs)), answering("done")
	allocs := testing.AllocsPerRun(100, func() {
		p := &fixed{rounds: 1, call: &call, final: &final}
		if _, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 2}, nil, "test", "1"); err != nil {
			t.Error(err)
		}
	})
	if allocs > 100 {
		t.Errorf("a loop with one round of tools makes %.0f allocations", allocs)
	}
	if _, err := json.Marshal(r.ToProviderDefs()); err != nil {
		t.Error(err)
	}
}
