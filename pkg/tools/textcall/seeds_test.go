package textcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/control"
	"github.com/dragoman-chat/dragoman/pkg/tools/jsontool"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

// The examples of the tool system's architecture: tools that take JSON, calls
// written as text, and an agent made of both.

type CalculatorTool struct{}

var _ jsontool.Tool = (*CalculatorTool)(nil)

func (t *CalculatorTool) Name() string         { return "calculator" }
func (t *CalculatorTool) Description() string  { return "Performs basic arithmetic on two numbers." }
func (t *CalculatorTool) IsLoopBreaking() bool { return false }

func (t *CalculatorTool) Schema() map[string]interface{} {
	return map[string]interface{}{
		"type": "object",
		"properties": map[string]interface{}{
			"operation": map[string]interface{}{
				"type":        "string",
				"description": "The operation to perform",
				"enum":        []string{"add", "subtract", "multiply", "divide"},
			},
			"a": map[string]interface{}{
				"type":        "number",
				"description": "First number",
			},
			"b": map[string]interface{}{
				"type":        "number",
				"description": "Second number",
			},
		},
		"required": []string{"operation", "a", "b"},
	}
}

func (t *CalculatorTool) Execute(_ context.Context, args json.RawMessage) (string, error) {
	var params struct {
		Operation string  `json:"operation"`
		A         float64 `json:"a"`
		B         float64 `json:"b"`
	}
	if err := json.Unmarshal(args, &params); err != nil {
		return "", fmt.Errorf("invalid arguments: %w", err)
	}
	validOps := map[string]bool{
		"add": true, "subtract": true,
		"multiply": true, "divide": true,
	}
	if !validOps[params.Operation] {
		return "", fmt.Errorf("unknown operation: %s", params.Operation)
	}
	if params.Operation == "divide" && params.B == 0 {
		return "", errors.New("cannot divide by zero")
	}
	var result float64
	switch params.Operation {
	case "add":
		result = params.A + params.B
	case "subtract":
		result = params.A - params.B
	case "multiply":
		result = params.A * params.B
	case "divide":
		result = params.A / params.B
	}
	return fmt.Sprintf("%.2f", result), nil
}

func TestCalculatorTool(t *testing.T) {
	tool := &CalculatorTool{}
	tests := []struct {
		name    string
		args    string
		want    string
		wantErr bool
	}{
		{name: "add", args: `{"operation":"add","a":5,"b":3}`, want: "8.00"},
		{name: "divide by zero", args: `{"operation":"divide","a":5,"b":0}`, wantErr: true},
		{name: "unknown operation", args: `{"operation":"root","a":5,"b":0}`, wantErr: true},
		{name: "no JSON", args: `5`, wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tool.Execute(t.Context(), []byte(tt.args))
			if (err != nil) != tt.wantErr {
				t.Errorf("Execute() error = %v, wantErr %v", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("Execute() = %v, want %v", got, tt.want)
			}
		})
	}
}

// DefaultAgent is the architecture's agent in one: its own map of tools, its own
// memory, its own loop.
type DefaultAgent struct {
	provider providers.LLMProvider
	tools    map[string]jsontool.Tool
	registry *jsontool.Registry
	memory   memory
}

type memory []providers.Message

func (m *memory) AddMessage(message providers.Message) { *m = append(*m, message) }

func NewDefaultAgent(provider providers.LLMProvider) *DefaultAgent {
	ag := &DefaultAgent{
		provider: provider,
		tools:    make(map[string]jsontool.Tool),
		registry: jsontool.NewRegistry(),
	}
	ag.tools["task_completion"] = &control.TaskCompletionTool{}
	ag.tools["ask_question"] = &control.AskQuestionTool{}
	ag.tools["converse"] = &control.ConverseTool{}
	return ag
}

func (a *DefaultAgent) RegisterTool(tool jsontool.Tool) error {
	if err := a.registry.RegisterTool(tool); err != nil { // it validates
		return err
	}
	if _, exists := a.tools[tool.Name()]; exists {
		return fmt.Errorf("tool %s exists", tool.Name())
	}
	a.tools[tool.Name()] = tool
	return nil
}

func (a *DefaultAgent) executeTool(ctx context.Context, toolCall textcall.ToolCall) (string, error) {
	tool, exists := a.tools[toolCall.ToolName]
	if !exists {
		return "", fmt.Errorf("tool not found: %s", toolCall.ToolName)
	}
	result, err := tool.Execute(ctx, toolCall.Arguments)
	if err != nil {
		return "", fmt.Errorf("tool execution failed: %w", err)
	}
	return result, nil
}

func (a *DefaultAgent) run(ctx context.Context, input string) (string, error) {
	a.memory.AddMessage(providers.Message{Role: providers.RoleUser, Content: input})
	for {
		resp, err := a.provider.Chat(ctx, a.memory, nil, "m", nil)
		if err != nil {
			return "", err
		}
		calls, rest, err := textcall.Parse(resp.Content)
		if err != nil || len(calls) == 0 {
			return rest, err
		}
		a.memory.AddMessage(providers.Message{Role: providers.RoleAssistant, Content: resp.Content})
		for i, toolCall := range calls {
			result, err := a.executeTool(ctx, toolCall)
			if err != nil {
				return "", err
			}
			if a.tools[toolCall.ToolName].IsLoopBreaking() {
				return result, nil
			}
			a.memory.AddMessage(providers.Message{Role: providers.RoleTool, Content: "Result: " + result, ToolCallID: fmt.Sprint(len(a.memory), i)})
		}
	}
}

// texts gives one text after the other.
type texts []string

func (s *texts) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	return &providers.LLMResponse{Content: next, FinishReason: providers.FinishStop}, nil
}

const multiply = `<tool>
{
  "server_name": "local",
  "tool_name": "calculator",
  "arguments": {
    "operation": "multiply",
    "a": 15,
    "b": 23
  }
}
</tool>`

const complete = `<tool>{"server_name":"local","tool_name":"task_completion","arguments":{"result":"15 times 23 is 345."}}</tool>`

func TestSeedAgent(t *testing.T) {
	agent := NewDefaultAgent(&texts{multiply, complete})
	calculator := &CalculatorTool{}
	if err := agent.RegisterTool(calculator); err != nil {
		t.Fatal(err)
	}
	if err := agent.RegisterTool(calculator); err == nil {
		t.Error("the name is taken twice")
	}
	if err := agent.RegisterTool(&control.ConverseTool{}); err == nil {
		t.Error("a built-in tool is replaced")
	}
	got, err := agent.run(t.Context(), "15 * 23?")
	if err != nil || got != "15 times 23 is 345." {
		t.Errorf("got %q, %v", got, err)
	}
	if m := agent.memory[2]; m.Content != "Result: 345.00" || agent.memory[1].Content != multiply {
		t.Errorf("remembered %+v", agent.memory)
	}
	for want, c := range map[string]textcall.ToolCall{
		"tool not found: sqrt":                         call("sqrt", "{}"),
		"tool execution failed: cannot divide by zero": call("calculator", `{"operation":"divide","a":1,"b":0}`),
	} {
		if _, err := agent.executeTool(t.Context(), c); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The same without a loop of one's own.
func TestSeedAgentWithTheLoop(t *testing.T) {
	core := tools.NewToolRegistry()
	if err := control.Install(core); err != nil {
		t.Fatal(err)
	}
	if err := jsontool.Over(core).RegisterTool(&CalculatorTool{}); err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(multiply, "multiply", "power", 1)
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
		Provider: textcall.Wrap(&texts{wrong, multiply, complete}), Tools: core, MaxIterations: 10,
	}, []providers.Message{says("15 * 23?")}, "test", "1")
	if err != nil || res.Content != "15 times 23 is 345." || res.StopReason != "tool:task_completion" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := res.Messages[1].Content; !strings.Contains(got, `expected one of "add", "subtract", "multiply", "divide"`) {
		t.Errorf("the model reads %q", got) // the registry checks, before the tool is run
	}
	if got := res.Messages[3].Content; got != "345.00" {
		t.Errorf("the result is %q", got)
	}
}

// example is a tool whose Execute is one of the architecture's.
type example struct {
	name    string
	execute func(ctx context.Context, args json.RawMessage) (string, error)
}

func (e *example) Name() string                   { return e.name }
func (e *example) Description() string            { return "Shows how " + e.name + " works." }
func (e *example) Schema() map[string]interface{} { return map[string]interface{}{"type": "object"} }
func (e *example) IsLoopBreaking() bool           { return false }
func (e *example) Execute(ctx context.Context, args json.RawMessage) (string, error) {
	return e.execute(ctx, args)
}

// execute runs an example through a registry.
func execute(t *testing.T, ctx context.Context, name, args string, f func(ctx context.Context, args json.RawMessage) (string, error)) (string, error) {
	t.Helper()
	r := jsontool.NewRegistry()
	if err := r.RegisterTool(&example{name, f}); err != nil {
		t.Fatal(err)
	}
	return r.Execute(ctx, name, json.RawMessage(args))
}

func TestSeedValidation(t *testing.T) {
	search := func(_ context.Context, args json.RawMessage) (string, error) {
		var params struct {
			Query      string `json:"query"`
			MaxResults int    `json:"max_results"`
		}
		if err := json.Unmarshal(args, &params); err != nil {
			return "", fmt.Errorf("invalid arguments: %w", err)
		}
		if len(params.Query) == 0 {
			return "", errors.New("query cannot be empty")
		}
		if params.MaxResults < 1 || params.MaxResults > 10 {
			return "", errors.New("maxResults must be between 1 and 10")
		}
		return "Search found 3 results: [Article 1], [Article 2], [Article 3]", nil
	}
	for args, want := range map[string]string{
		`{}`:                              "tool execution failed: query cannot be empty",
		`{"query":"go","max_results":11}`: "tool execution failed: maxResults must be between 1 and 10",
		`{"query":"go","max_results":3}`:  "",
	} {
		got, err := execute(t, t.Context(), "web_search", args, search)
		if want == "" && (err != nil || !strings.HasPrefix(got, "Search found 3 results")) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s gives %q, %v", args, got, err)
		}
	}
}

func TestSeedContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	api := func(ctx context.Context, _ json.RawMessage) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return "", err
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		return resp.Status, nil
	}
	if got, err := execute(t, t.Context(), "api", "{}", api); got != "200 OK" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := execute(t, ctx, "api", "{}", api); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSeedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(work time.Duration) func(context.Context, json.RawMessage) (string, error) {
			return func(ctx context.Context, _ json.RawMessage) (string, error) {
				ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				result := make(chan string, 1)
				go func() {
					time.Sleep(work)
					result <- "slow work done"
				}()
				select {
				case r := <-result:
					return r, nil
				case <-ctx.Done():
					return "", errors.New("tool execution timeout")
				}
			}
		}
		if got, err := execute(t, t.Context(), "slow", "{}", slow(29*time.Second)); got != "slow work done" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := execute(t, t.Context(), "slow", "{}", slow(time.Minute)); err == nil || err.Error() != "tool execution failed: tool execution timeout" {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestSeedResources(t *testing.T) {
	filename := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(filename, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	size := func(context.Context, json.RawMessage) (string, error) {
		file, err := os.Open(filename)
		if err != nil {
			return "", err
		}
		defer file.Close() //nolint:errcheck // it was only read
		info, err := file.Stat()
		if err != nil {
			return "", err
		}
		return fmt.Sprint(info.Size(), " bytes"), nil
	}
	if got, err := execute(t, t.Context(), "file_size", "{}", size); got != "5 bytes" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSeedWhitelist(t *testing.T) {
	command := func(_ context.Context, args json.RawMessage) (string, error) {
		var params struct {
			Command string `json:"command"`
		}
		if err := json.Unmarshal(args, &params); err != nil {
			return "", err
		}
		allowed := map[string]bool{
			"ls":  true,
			"pwd": true,
		}
		if !allowed[params.Command] {
			return "", fmt.Errorf("command not allowed: %s", params.Command)
		}
		return "ran " + params.Command, nil
	}
	if got, err := execute(t, t.Context(), "command", `{"command":"ls"}`, command); got != "ran ls" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := execute(t, t.Context(), "command", `{"command":"rm"}`, command); err == nil || err.Error() != "tool execution failed: command not allowed: rm" {
		t.Errorf("got %v", err)
	}
}

func sanitizeInput(input string) string {
	safe := regexp.MustCompile(`[^a-zA-Z0-9\s\-_.]`)
	return safe.ReplaceAllString(input, "")
}

func TestSeedSanitizing(t *testing.T) {
	if got := sanitizeInput("a-b_c.txt; rm $HOME"); got != "a-b_c.txt rm HOME" {
		t.Errorf("got %q", got)
	}
}

type RateLimitedTool struct {
	example
	limiter *rate.Limiter
}

func (t *RateLimitedTool) Execute(ctx context.Context, args json.RawMessage) (string, error) {
	if err := t.limiter.Wait(ctx); err != nil {
		return "", fmt.Errorf("rate limit: %w", err)
	}
	return t.execute(ctx, args)
}

func TestSeedRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := func(context.Context, json.RawMessage) (string, error) { return "worked", nil }
		tool := &RateLimitedTool{example{"limited", work}, rate.NewLimiter(rate.Every(time.Minute), 1)}
		r := jsontool.NewRegistry()
		if err := r.RegisterTool(tool); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 2 {
			if got, err := r.Execute(t.Context(), "limited", nil); got != "worked" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the second call waited %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Execute(ctx, "limited", nil); err == nil || !strings.HasPrefix(err.Error(), "tool execution failed: rate limit: ") {
			t.Errorf("got %v", err)
		}
	})
}

func TestSeedNames(t *testing.T) {
	r := jsontool.NewRegistry()
	for _, name := range []string{"calculator", "web_search", "send_email", "read_file", "tool1", "helper", "do_thing"} {
		if err := r.RegisterTool(&example{name: name}); err != nil {
			t.Error(err)
		}
	}
	var names []string
	for _, tool := range r.GetTools() {
		names = append(names, tool.Name())
	}
	if diff := cmp.Diff([]string{"calculator", "do_thing", "helper", "read_file", "send_email", "tool1", "web_search"}, names); diff != "" {
		t.Error(diff)
	}
}
