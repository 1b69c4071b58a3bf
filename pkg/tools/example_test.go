package tools_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type weatherInput struct {
	City string `json:"city" description:"Where"`
	Days int    `json:"days,omitempty" description:"How many days ahead" minimum:"1" maximum:"7" default:"1"`
}

func weather() tools.Tool {
	return tools.Func("weather", "Tell the weather forecast for a city.", func(_ context.Context, in weatherInput) *tools.ToolResult {
		return tools.NewToolResult(fmt.Sprintf("%s in %d day(s): sunny", in.City, in.Days))
	})
}

func ExampleFunc() {
	registry := tools.NewToolRegistry()
	registry.Register(weather())

	fmt.Println(registry.Execute(context.Background(), "weather", map[string]interface{}{"city": "Ulm"}).ForLLM)
	fmt.Println(registry.Execute(context.Background(), "weather", map[string]interface{}{"days": 9}).ForLLM)
	// Output:
	// Ulm in 1 day(s): sunny
	// Invalid arguments for weather: city is required; days: expected at most 7, got 9. Correct them and call the tool again.
}

// parrot is a model that calls a tool and repeats what it said.
type parrot struct{}

func (parrot) Chat(_ context.Context, messages []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	last := messages[len(messages)-1]
	if last.Role == providers.RoleTool {
		return &providers.LLMResponse{Content: "I hear: " + last.Content}, nil
	}
	city := strings.TrimPrefix(last.Content, "Weather in ")
	return &providers.LLMResponse{ToolCalls: []providers.ToolCall{
		{ID: "1", Name: "weather", Arguments: map[string]interface{}{"city": city}},
	}}, nil
}

func ExampleRunToolLoop() {
	registry := tools.NewToolRegistry()
	registry.Register(weather())
	question := []providers.Message{{Role: providers.RoleUser, Content: "Weather in Ulm"}}

	result, err := tools.RunToolLoop(context.Background(), tools.ToolLoopConfig{
		Provider: parrot{}, Tools: registry, MaxIterations: 5,
	}, question, "telegram", "12345")
	fmt.Println(result.Content, err)
	fmt.Println(result.Iterations, "rounds,", len(result.Messages), "messages for the history")
	// Output:
	// I hear: Ulm in 1 day(s): sunny <nil>
	// 2 rounds, 3 messages for the history
}

func ExampleAsyncFunc() {
	registry := tools.NewToolRegistry()
	registry.Register(tools.AsyncFunc("research", "Research a topic in the background.",
		func(ctx context.Context, in taskInput, report tools.AsyncCallback) *tools.ToolResult {
			tools.Go(ctx, func(ctx context.Context) {
				call, _ := tools.CallFrom(ctx)
				report(ctx, tools.NewToolResult("found "+in.What+" for "+call.Channel+":"+call.ChatID))
			})
			return tools.AsyncResult("started")
		}))

	reports := make(chan string)
	result := registry.ExecuteWithContext(context.Background(), "research", map[string]interface{}{"what": "gold"}, "telegram", "12345",
		func(_ context.Context, result *tools.ToolResult) { reports <- result.ForLLM })
	fmt.Println(result.ForLLM)
	fmt.Println(<-reports)
	// Output:
	// started
	// found gold for telegram:12345
}

// A tool written with setters serves many conversations at once when every call
// has an instance of its own.
func ExamplePerCall() {
	registry := tools.NewToolRegistry()
	registry.Register(tools.PerCall(func() tools.Tool {
		tool := &contextual{fake: fake{name: "where"}}
		tool.run = func(context.Context, map[string]interface{}) *tools.ToolResult {
			return tools.NewToolResult("in " + tool.chatID)
		}
		return tool
	}))
	fmt.Println(registry.ExecuteWithContext(context.Background(), "where", nil, "telegram", "1", nil).ForLLM)
	fmt.Println(registry.ExecuteWithContext(context.Background(), "where", nil, "telegram", "2", nil).ForLLM)
	// Output:
	// in 1
	// in 2
}

func ExampleToolRegistry_View() {
	registry := tools.NewToolRegistry()
	registry.Register(weather())
	registry.Register(&fake{name: "spawn"})
	sub := registry.View(func(name string) bool { return name != "spawn" })
	fmt.Println(registry.List(), sub.List())
	// Output:
	// [spawn weather] [weather]
}
