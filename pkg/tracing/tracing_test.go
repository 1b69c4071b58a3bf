package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded returns a Tracer whose spans stay here.
func recorded(o Options) (*Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return newTracer(o, sdk.WithSpanProcessor(r)), r
}

// tree writes spans as they lie in one another, those beside each other in the
// order of their lines: some of them run at once.
func tree(spans []sdk.ReadOnlySpan) string {
	var under func(parent trace.SpanID, indent string) string
	under = func(parent trace.SpanID, indent string) string {
		var parts []string
		for _, s := range spans {
			if s.Parent().SpanID() != parent {
				continue
			}
			line := s.Name()
			for _, key := range []attribute.Key{toolCallID, errorType} {
				if v := value(s, key); v != "" {
					line += " " + v
				}
			}
			parts = append(parts, indent+line+"\n"+under(s.SpanContext().SpanID(), indent+"  "))
		}
		slices.Sort(parts)
		return strings.Join(parts, "")
	}
	return under(trace.SpanID{}, "")
}

func value(s sdk.ReadOnlySpan, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// about is everything a span says but its ids and times.
func about(s sdk.ReadOnlySpan) string {
	lines := []string{s.Name() + ", " + s.SpanKind().String()}
	for _, a := range s.Attributes() {
		lines = append(lines, fmt.Sprintf("%s: %s", a.Key, a.Value.String()))
	}
	slices.Sort(lines[1:])
	if st := s.Status(); st.Code != codes.Unset {
		lines = append(lines, fmt.Sprintf("%s %q", st.Code, st.Description))
	}
	for _, e := range s.Events() {
		lines = append(lines, fmt.Sprintf("event %s %v", e.Name, e.Attributes))
	}
	return strings.Join(lines, "\n")
}

// named returns the span with that name and, if it is not empty, call id.
func named(t *testing.T, spans []sdk.ReadOnlySpan, name, call string) sdk.ReadOnlySpan {
	t.Helper()
	for _, s := range spans {
		if s.Name() == name && (call == "" || value(s, toolCallID) == call) {
			return s
		}
	}
	t.Fatalf("there is no %s %s in\n%s", name, call, tree(spans))
	return nil
}

// scripted is a model that answers through a function.
type scripted func(messages []providers.Message) (*providers.LLMResponse, error)

func (f scripted) Chat(_ context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	return f(m)
}

func text(s string) *providers.LLMResponse {
	return &providers.LLMResponse{Content: s, FinishReason: providers.FinishStop}
}

func calls(named ...string) *providers.LLMResponse {
	r := &providers.LLMResponse{FinishReason: providers.FinishToolCalls}
	for i, name := range named {
		args := map[string]any{"task": "hush: the parcel", "word": "hush"}
		r.ToolCalls = append(r.ToolCalls, providers.ToolCall{ID: fmt.Sprint("c", i+1), Name: name, Arguments: args})
	}
	return r
}

// tool is a tool that may run beside others.
type tool struct {
	name string
	run  func(ctx context.Context) *tools.ToolResult
}

func (t tool) Name() string                             { return t.name }
func (t tool) Description() string                      { return "Does what the test says." }
func (t tool) Parameters() map[string]interface{}       { return map[string]interface{}{"type": "object"} }
func (t tool) ParallelSafe(map[string]interface{}) bool { return true }

func (t tool) Execute(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
	return t.run(ctx)
}

type noHistory struct{}

func (noHistory) History(context.Context, string, int) ([]store.Entry, error) { return nil, nil }

// house is an agent that is traced.
type house struct {
	agent    *agent.Agent
	tools    *tools.ToolRegistry
	recorder *tracetest.SpanRecorder
	tracer   *Tracer
}

func newHouse(o Options, model providers.LLMProvider) *house {
	h := &house{tools: tools.NewToolRegistry()}
	h.tracer, h.recorder = recorded(o)
	h.tools.Use(h.tracer.Tool)
	h.agent = agent.New(agent.Config{
		Provider: h.tracer.Model("openai", "http://127.0.0.1:11434/v1", model), Model: "qwen3", Tools: h.tools, History: noHistory{},
		MaxIterations: 5, HistoryMessages: 50, Around: h.tracer.Agent, Log: slog.New(slog.DiscardHandler),
	})
	return h
}

// ask runs a turn and waits for what it has left in the background.
func (h *house) ask(t *testing.T) (agent.Outcome, error) {
	t.Helper()
	out, err := h.agent.Run(t.Context(), agent.Turn{
		ID: "turn-1",
		Messages: []bus.InboundMessage{{
			Address: bus.Address{Channel: "telegram", ChatID: "7"}, ID: "m:7:1", SessionKey: "telegram:7", Principal: "telegram:7", Text: "hush: where is it?",
		}},
		AsyncCallback: func(tools.Call) tools.AsyncCallback { return func(context.Context, *tools.ToolResult) {} },
	})
	if err := h.tools.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return out, err
}

// A turn is one trace: its requests and calls lie in it, those that run at once
// too, and sub-agents lie in the call that asked for them, also when they work
// on in the background. Nothing of what is said is in it.
func TestFieldTracing(t *testing.T) {
	usage := providers.Usage{PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120, CacheReadTokens: 60, CacheWriteTokens: 30, ReasoningTokens: 7}
	h := newHouse(Options{}, scripted(func(m []providers.Message) (*providers.LLMResponse, error) {
		var r *providers.LLMResponse
		switch last := m[len(m)-1]; {
		case last.Role == providers.RoleTool && len(m) > 8:
			r = text("hush: it is here")
		case last.Role == providers.RoleTool:
			r = calls("refuse")
			r.ToolCalls[0].ID = "c9"
		case strings.Contains(last.Content, "parcel"):
			r = text("hush: the task is done")
		default:
			r = calls("look", "look", "nothing", "delegate", "spawn")
		}
		u := usage
		r.Usage = &u
		return r, nil
	}))
	// Both calls of look run at the same moment, each in a span of its own.
	var meet sync.WaitGroup
	meet.Add(2)
	var mu sync.Mutex
	inside := map[trace.SpanID]bool{}
	h.tools.Register(tool{"look", func(ctx context.Context) *tools.ToolResult {
		meet.Done()
		meet.Wait()
		mu.Lock()
		defer mu.Unlock()
		inside[trace.SpanContextFromContext(ctx).SpanID()] = true
		return tools.NewToolResult("hush: nothing there")
	}})
	h.tools.Register(tool{"refuse", func(context.Context) *tools.ToolResult {
		return tools.ErrorResult("hush: no").WithError(errors.New("hush: said no"))
	}})
	h.tools.Register(tool{"delegate", func(ctx context.Context) *tools.ToolResult {
		call, _ := tools.CallFrom(ctx)
		return h.agent.RunTask(ctx, call, "hush: the parcel")
	}})
	h.tools.Register(builtin.NewSpawnTool(h.agent.RunTask))

	if out, err := h.ask(t); err != nil || out.Answer != "hush: it is here" {
		t.Fatalf("%+v, %v", out, err)
	}
	spans := h.recorder.Ended()
	want := `invoke_agent dragoman
  chat qwen3
  chat qwen3
  chat qwen3
  execute_tool delegate c4
    invoke_agent dragoman-task
      chat qwen3
  execute_tool look c1
  execute_tool look c2
  execute_tool refuse c9 tool_error
  execute_tool spawn c5
    invoke_agent dragoman-task
      chat qwen3
`
	if diff := cmp.Diff(want, tree(spans)); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
	for _, call := range []string{"c1", "c2"} {
		if !inside[named(t, spans, "execute_tool look", call).SpanContext().SpanID()] {
			t.Errorf("the context of %s did not carry its span", call)
		}
	}
	for _, tc := range []struct{ name, call, want string }{
		{"invoke_agent dragoman", "", `invoke_agent dragoman, internal
dragoman.turn.id: turn-1
dragoman.turn.rounds: 3
dragoman.turn.stop_reason: answer
gen_ai.agent.name: dragoman
gen_ai.conversation.id: telegram:7
gen_ai.operation.name: invoke_agent
gen_ai.usage.cache_creation.input_tokens: 90
gen_ai.usage.cache_read.input_tokens: 180
gen_ai.usage.input_tokens: 300
gen_ai.usage.output_tokens: 60
gen_ai.usage.reasoning.output_tokens: 21`},
		{"chat qwen3", "", `chat qwen3, client
gen_ai.operation.name: chat
gen_ai.provider.name: openai
gen_ai.request.model: qwen3
gen_ai.response.finish_reasons: ["tool_calls"]
gen_ai.usage.cache_creation.input_tokens: 30
gen_ai.usage.cache_read.input_tokens: 60
gen_ai.usage.input_tokens: 100
gen_ai.usage.output_tokens: 20
gen_ai.usage.reasoning.output_tokens: 7
server.address: 127.0.0.1
server.port: 11434`},
		{"execute_tool look", "c1", `execute_tool look, internal
gen_ai.operation.name: execute_tool
gen_ai.tool.call.id: c1
gen_ai.tool.name: look
gen_ai.tool.type: function`},
		{"execute_tool refuse", "c9", `execute_tool refuse, internal
error.type: tool_error
gen_ai.operation.name: execute_tool
gen_ai.tool.call.id: c9
gen_ai.tool.name: refuse
gen_ai.tool.type: function
Error ""`},
		{"execute_tool spawn", "c5", `execute_tool spawn, internal
dragoman.tool.background: true
gen_ai.operation.name: execute_tool
gen_ai.tool.call.id: c5
gen_ai.tool.name: spawn
gen_ai.tool.type: function`},
	} {
		if diff := cmp.Diff(tc.want, about(named(t, spans, tc.name, tc.call))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, s := range spans {
		if strings.Contains(about(s), "hush") {
			t.Errorf("something that was said is in\n%s", about(s))
		}
	}
}

// What fails has an error.type, and the words of the error only with content.
func TestFieldTracingFailures(t *testing.T) {
	const secret = "sk-very-secret"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"busy":    {&providers.Error{Kind: providers.KindRateLimit, Status: 429, Message: "hush " + secret}, "rate_limit"},
		"refused": {fmt.Errorf("hush: %w", &providers.Error{Kind: providers.KindInvalidRequest}), "invalid_request"},
		"late":    {context.DeadlineExceeded, "timeout"},
		"other":   {errors.New("hush " + secret), "_OTHER"},
	} {
		for _, content := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " content ", content), func(t *testing.T) {
				h := newHouse(Options{Content: content, Hide: func(s string) string { return strings.ReplaceAll(s, secret, "***") }},
					scripted(func([]providers.Message) (*providers.LLMResponse, error) { return nil, tc.err }))
				if _, err := h.ask(t); !errors.Is(err, tc.err) {
					t.Fatal(err)
				}
				spans := h.recorder.Ended()
				want := "invoke_agent dragoman " + tc.want + "\n  chat qwen3 " + tc.want + "\n"
				if got := tree(spans); got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
				for _, s := range spans {
					if st := s.Status(); st.Code != codes.Error || (st.Description != "") != content {
						t.Errorf("the status is %+v", st)
					}
					if text := about(s); strings.Contains(text, secret) || strings.Contains(text, "hush") && !content {
						t.Errorf("it tells too much:\n%s", text)
					}
				}
			})
		}
	}
}

// A panic passes on, and its words stay out.
func TestPanicsAreNotWrittenDown(t *testing.T) {
	tracer, recorder := recorded(Options{})
	through := func(do func()) (p any) {
		defer func() { p = recover() }()
		do()
		return nil
	}
	boom := func() { panic("hush") }
	model := tracer.Model("openai", "", scripted(func([]providers.Message) (*providers.LLMResponse, error) { boom(); return nil, nil }))
	handler := tracer.Tool(func(context.Context, *tools.Invocation) *tools.ToolResult { boom(); return nil })
	for _, do := range []func(){
		func() { _, _ = model.Chat(t.Context(), nil, nil, "qwen3", nil) },
		func() { handler(t.Context(), &tools.Invocation{Call: tools.Call{ID: "c1", Tool: "look"}}) },
	} {
		if p := through(do); p != "hush" {
			t.Errorf("the panic came out as %v", p)
		}
	}
	if got, want := tree(recorder.Ended()), "chat qwen3 panic\nexecute_tool look c1 panic\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, s := range recorder.Ended() {
		if strings.Contains(about(s), "hush") {
			t.Errorf("the panic is in\n%s", about(s))
		}
	}
}

// With content, spans hold what was said in the form of the conventions, without
// secrets.
func TestContent(t *testing.T) {
	h := newHouse(Options{Content: true, Hide: func(s string) string { return strings.ReplaceAll(s, "hush", "***") }},
		scripted(func(m []providers.Message) (*providers.LLMResponse, error) {
			if m[len(m)-1].Role == providers.RoleTool {
				return text("hush: it is here"), nil
			}
			return calls("look"), nil
		}))
	h.tools.Register(tool{"look", func(context.Context) *tools.ToolResult { return tools.NewToolResult("hush: a parcel") }})
	if _, err := h.ask(t); err != nil {
		t.Fatal(err)
	}
	spans := h.recorder.Ended()
	var chats []sdk.ReadOnlySpan
	for _, s := range spans {
		if s.Name() == "chat qwen3" {
			chats = append(chats, s)
		}
	}
	look := named(t, spans, "execute_tool look", "c1")
	call := `{"type":"tool_call","id":"c1","name":"look","arguments":{"task":"***: the parcel","word":"***"}}`
	for _, tc := range []struct {
		span sdk.ReadOnlySpan
		key  attribute.Key
		want string
	}{
		{chats[0], inputMessages, `[{"role":"user","parts":[{"type":"text","content":"***: where is it?"}]}]`},
		{chats[0], outputMessages, `[{"role":"assistant","parts":[` + call + `],"finish_reason":"tool_calls"}]`},
		{chats[1], inputMessages, `[{"role":"user","parts":[{"type":"text","content":"***: where is it?"}]},` +
			`{"role":"assistant","parts":[` + call + `]},` +
			`{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","result":"***: a parcel"}]}]`},
		{chats[1], outputMessages, `[{"role":"assistant","parts":[{"type":"text","content":"***: it is here"}],"finish_reason":"stop"}]`},
		{look, toolArguments, `{"task":"***: the parcel","word":"***"}`},
		{look, toolResult, "***: a parcel"},
	} {
		if got := value(tc.span, tc.key); got != tc.want {
			t.Errorf("%s is\n%s, want\n%s", tc.key, got, tc.want)
		}
	}
	if s := value(chats[0], systemText); !strings.HasPrefix(s, `[{"type":"text","content":"You are`) {
		t.Errorf("the system message is %s", s)
	}
}

type streaming struct{ scripted }

func (s streaming) ChatStream(_ context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	for _, piece := range []string{"a", "b", "c"} {
		onDelta(providers.Delta{Text: piece})
	}
	return s.scripted(m)
}

func (streaming) Check(context.Context) error { return errNotNow }

var errNotNow = errors.New("not now")

// A model that is traced can do what it could before, and its first piece is
// timed.
func TestModelKeepsWhatItCan(t *testing.T) {
	tracer, recorder := recorded(Options{})
	says := scripted(func([]providers.Message) (*providers.LLMResponse, error) { return text("abc"), nil })
	if _, ok := tracer.Model("openai", "", says).(providers.Checker); ok {
		t.Error("a model that cannot be checked became one that can")
	}
	p := tracer.Model("openai", "https://api.example", streaming{says})
	if c, ok := p.(providers.Checker); !ok || !errors.Is(c.Check(t.Context()), errNotNow) {
		t.Error("the model cannot be checked any more")
	}
	var pieces []string
	resp, err := providers.Stream(t.Context(), p, nil, nil, "m", nil, func(d providers.Delta) { pieces = append(pieces, d.Text) })
	if err != nil || resp.Content != "abc" || strings.Join(pieces, " ") != "a b c" {
		t.Errorf("%v, %v, in pieces %q", resp, err, pieces)
	}
	span := named(t, recorder.Ended(), "chat m", "")
	if value(span, firstChunk) == "" || value(span, "server.address") != "api.example" || value(span, "server.port") != "" {
		t.Errorf("it says\n%s", about(span))
	}
}

// A turn that is not sampled makes no spans.
func TestUnsampled(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := newTracer(Options{Content: true}, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(0))), sdk.WithSpanProcessor(recorder))
	ctx, over := tracer.Agent(t.Context(), tools.Call{Turn: "t"})
	if _, err := tracer.Model("openai", "", scripted(func([]providers.Message) (*providers.LLMResponse, error) { return text("a"), nil })).Chat(ctx, nil, nil, "m", nil); err != nil {
		t.Error(err)
	}
	tracer.Tool(func(context.Context, *tools.Invocation) *tools.ToolResult { return tools.NewToolResult("") })(ctx, &tools.Invocation{})
	over(agent.Outcome{}, nil)
	if n := len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans, want none", n)
	}
}
