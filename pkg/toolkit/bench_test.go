package toolkit_test

import (
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// BenchmarkExecute tells what a request costs over the call below it.
func BenchmarkExecute(b *testing.B) {
	core := tools.NewToolRegistry()
	r := toolkit.Over(core)
	if err := r.Register(&fake{name: "read_file", schema: object([]string{"path"}, "path")}); err != nil {
		b.Fatal(err)
	}
	params := map[string]interface{}{"path": "a"}
	b.Run("core", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if result := core.Execute(b.Context(), "read_file", params); result.IsError {
				b.Fatal(result)
			}
		}
	})
	plain := toolkit.ToolRequest{Name: "read_file", Parameters: params}
	full := toolkit.ToolRequest{ID: "1", Name: "read_file", Parameters: params, Context: b.Context()}
	watched := toolkit.WithProgress(b.Context(), make(chan toolkit.ProgressUpdate))
	for name, req := range map[string]toolkit.ToolRequest{"request": plain, "request with everything": full} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			if req.ID != "" {
				ctx = watched
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Execute(ctx, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("async", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if result := <-r.ExecuteAsync(b.Context(), plain); !result.Success {
				b.Fatal(result)
			}
		}
	})
	b.Run("batch of 10", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.ExecuteBatch(b.Context(), slices.Repeat([]toolkit.ToolRequest{plain}, 10)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
