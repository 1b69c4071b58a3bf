package agent

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// What a principal is not offered is kept from their turns and from the helpers
// of these.
func TestToolsForNarrowsTurnsAndTasks(t *testing.T) {
	registry := tools.NewToolRegistry()
	for _, name := range []string{"look", "run"} {
		registry.Register(tools.Func(name, "A tool.", func(context.Context, struct{}) *tools.ToolResult { return tools.NewToolResult("done") }))
	}
	few := registry.View(func(name string) bool { return name != "run" })
	var offered []string
	a := New(Config{
		Provider: model(func(_ []providers.Message, defs []providers.ToolDefinition) (*providers.LLMResponse, error) {
			offered = nil
			for _, d := range defs {
				offered = append(offered, d.Function.Name)
			}
			return text("ok"), nil
		}),
		Tools: registry, History: past(nil), MaxIterations: 5, HistoryMessages: 50, Log: slog.New(slog.DiscardHandler),
		ToolsFor: func(principal string) *tools.ToolRegistry {
			if principal == "telegram:7" {
				return registry
			}
			return few
		},
	})
	for principal, want := range map[string][]string{"telegram:7": {"look", "run"}, "telegram:8": {"look"}, "": {"look"}} {
		m := message("go")
		m.Principal = principal
		if _, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{m}}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(offered, want) {
			t.Errorf("a turn of %q is offered %v, want %v", principal, offered, want)
		}
		a.RunTask(t.Context(), tools.Call{Channel: "telegram", ChatID: "7", Principal: principal}, "help")
		if !slices.Equal(offered, want) {
			t.Errorf("a helper of %q is offered %v, want %v", principal, offered, want)
		}
	}
}
