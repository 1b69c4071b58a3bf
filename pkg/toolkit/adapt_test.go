package toolkit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/toolkit"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

// panicHandler is a log that panics.
type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(context.Context, slog.Level) bool { panic("in the log") }

func badLogger() *slog.Logger { return slog.New(panicHandler{slog.DiscardHandler}) }

func TestOutcomesThereAndBack(t *testing.T) {
	data := map[string]interface{}{"n": 1}
	for name, tc := range map[string]struct {
		outcome toolkit.ToolResult
		model   string // reads
	}{
		"success":      {toolkit.ToolResult{Success: true, Content: "x", Data: data}, "x"},
		"failure":      {toolkit.ToolResult{Error: "no"}, "no"},
		"with content": {toolkit.ToolResult{Error: "exit status 1", Content: "output", Data: data}, "exit status 1\noutput"},
	} {
		result := toolkit.FromOutcome(tc.outcome)
		if result.ForLLM != tc.model || result.IsError == tc.outcome.Success {
			t.Errorf("%s: the model reads %+v", name, result)
		}
		if back := toolkit.ToOutcome(result); !reflect.DeepEqual(back, tc.outcome) {
			t.Errorf("%s: %+v comes back as %+v", name, tc.outcome, back)
		}
	}
	// What somebody on the way cut out stays out.
	cut := toolkit.FromOutcome(toolkit.ToolResult{Error: "exit status 1", Content: "the secret"})
	cut.ForLLM = "exit status 1\n***"
	if got := toolkit.ToOutcome(cut); got.Content != "" || got.Error != cut.ForLLM {
		t.Errorf("got %+v", got)
	}
	for _, tc := range []struct {
		result *tools.ToolResult
		want   toolkit.ToolResult
	}{
		{nil, toolkit.ToolResult{Error: "The tool failed and did not say why."}},
		{&tools.ToolResult{IsError: true}, toolkit.ToolResult{Error: "The tool failed and did not say why."}},
		{(&tools.ToolResult{IsError: true}).WithError(errDisk), toolkit.ToolResult{Error: errDisk.Error()}},
		{tools.UserResult("x"), toolkit.ToolResult{Success: true, Content: "x"}},
	} {
		if got := toolkit.ToOutcome(tc.result); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v becomes %+v", tc.result, got)
		}
	}
}

// Below this package a failure has one text and its cause; the log gets the
// cause, and not what the model reads.
func TestFailuresBelow(t *testing.T) {
	var log bytes.Buffer
	core := tools.NewToolRegistryWith(tools.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for name, tc := range map[string]struct {
		outcome toolkit.ToolResult
		err     error
		model   string // reads
		log     string // has
	}{
		"cause":   {toolkit.ToolResult{Error: "private"}, errDisk, "private", errDisk.Error()},
		"error":   {toolkit.ToolResult{Error: "private"}, nil, "private", "reported a failure"},
		"content": {toolkit.ToolResult{Content: "private"}, nil, "private", "reported a failure"},
	} {
		log.Reset()
		core.Register(toolkit.Adapt(&fake{name: name, run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
			return tc.outcome, tc.err
		}}))
		result := core.Execute(t.Context(), name, nil)
		if result.ForLLM != tc.model || !result.IsError || tc.err != nil && !errors.Is(result.Err, tc.err) {
			t.Errorf("%s: got %+v", name, result)
		}
		if text := log.String(); !strings.Contains(text, tc.log) || strings.Contains(text, "private") {
			t.Errorf("%s: the log has %s", name, text)
		}
	}
}

// A tool of this package passes the kit of the other.
func TestAdaptedToolsPassTheKit(t *testing.T) {
	schema := map[string]interface{}{
		"type":       "object",
		"properties": map[string]interface{}{"path": map[string]interface{}{"type": "string", "description": "Where"}},
		"required":   []string{"path"},
	}
	toolstest.Check(t, toolkit.Adapt(&fake{name: "find", schema: schema, run: func(_ context.Context, params map[string]interface{}) (toolkit.ToolResult, error) {
		path, ok := params["path"].(string)
		if !ok {
			return toolkit.ToolResult{}, errors.New("path is required")
		}
		return toolkit.ToolResult{Success: true, Content: "found " + path, Data: map[string]interface{}{"lines": 7}}, nil
	}}), toolstest.Args(map[string]interface{}{"path": "a"}))
}

// modest is a tool that says all it can of itself.
type modest struct{ fake }

func (*modest) Idempotent() bool                                { return true }
func (*modest) ParallelSafe(params map[string]interface{}) bool { return params["alone"] == nil }
func (*modest) Timeout() time.Duration                          { return time.Second }

// What a tool says of itself counts below, and Get gives the tool back.
func TestAdaptedToolsSpeakForThemselves(t *testing.T) {
	plain, said := toolkit.Adapt(&fake{name: "plain"}), toolkit.Adapt(&modest{fake{name: "modest"}})
	if _, ok := tools.As[tools.TimeoutTool](plain); ok {
		t.Error("a tool that says nothing of its time has one")
	}
	for tool, want := range map[tools.Tool]bool{plain: false, said: true} {
		again, _ := tools.As[tools.IdempotentTool](tool)
		beside, _ := tools.As[tools.ParallelSafe](tool)
		if again.Idempotent() != want || beside.ParallelSafe(nil) != want || beside.ParallelSafe(map[string]interface{}{"alone": true}) {
			t.Errorf("%s does not speak for itself", tool.Name())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		slow := &modest{fake{name: "modest", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			<-ctx.Done()
			return toolkit.ToolResult{}, context.Cause(ctx)
		}}}
		r := registry(t, slow)
		result, err := r.Execute(t.Context(), toolkit.ToolRequest{Name: "modest"})
		if !errors.Is(err, context.DeadlineExceeded) || result.Metadata.ExecutionTime != time.Second {
			t.Errorf("got %+v, %v", result, err)
		}
		if got, _ := r.Get("modest"); got != toolkit.Tool(slow) {
			t.Errorf("got %v", got)
		}
	})
}

// scripted is a model that calls a tool and then answers with its result.
type scripted struct{ tool string }

func (s scripted) Chat(_ context.Context, messages []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	if last := messages[len(messages)-1]; last.Role == providers.RoleTool {
		return &providers.LLMResponse{Content: last.Content, FinishReason: providers.FinishStop}, nil
	}
	return &providers.LLMResponse{ToolCalls: []providers.ToolCall{{ID: "1", Name: s.tool}}, FinishReason: providers.FinishToolCalls}, nil
}

// One registry serves requests and models, with tools of both kinds.
func TestOneRegistryForBoth(t *testing.T) {
	core := tools.NewToolRegistry()
	r := toolkit.Over(core)
	if err := r.Register(&fake{name: "ours", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		return toolkit.ToolResult{Content: "output", Error: "exit status 1"}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	answer, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: scripted{"ours"}, Tools: core, MaxIterations: 2},
		[]providers.Message{{Role: providers.RoleUser, Content: "go"}}, "test", "1")
	if err != nil || answer.Content != "exit status 1\noutput" {
		t.Errorf("the model reads %+v, %v", answer, err)
	}

	core.Register(tools.Func("theirs", "Belongs to the other package", func(_ context.Context, in struct {
		City string `json:"city"`
	},
	) *tools.ToolResult {
		return tools.NewToolResult("rain in " + in.City)
	}))
	theirs, ok := r.Get("theirs")
	if !ok || theirs.Name() != "theirs" || theirs.JSONSchema()["type"] != "object" {
		t.Fatalf("got %v, %v", theirs, ok)
	}
	result, err := theirs.Execute(t.Context(), map[string]interface{}{"city": "Bergen"})
	if err != nil || result.Content != "rain in Bergen" || result.Metadata.ToolName != "theirs" {
		t.Errorf("got %+v, %v", result, err)
	}
	if result, err := theirs.Execute(t.Context(), nil); result.Success || err == nil {
		t.Errorf("the arguments are not checked: %+v, %v", result, err)
	}
}

// legacy is a tool of package tools that keeps the conversation in a field.
type legacy struct{ chat string }

func (*legacy) Name() string                       { return "legacy" }
func (*legacy) Description() string                { return "Says in which chat it is" }
func (*legacy) Parameters() map[string]interface{} { return nil }
func (l *legacy) SetContext(_, chatID string)      { l.chat = chatID }
func (l *legacy) Execute(context.Context, map[string]interface{}) *tools.ToolResult {
	return tools.NewToolResult(l.chat)
}

func TestConversationsOfABatchDoNotCross(t *testing.T) {
	core := tools.NewToolRegistry()
	core.Register(&legacy{})
	reqs := make([]toolkit.ToolRequest, 64)
	for i := range reqs {
		id := strconv.Itoa(i)
		reqs[i] = toolkit.ToolRequest{ID: id, Name: "legacy", Channel: "test", ChatID: id}
	}
	batch, err := toolkit.Over(core).ExecuteBatch(t.Context(), reqs)
	if err != nil || len(batch.Results) != len(reqs) {
		t.Fatal(batch.Errors, err)
	}
	for id, result := range batch.Results {
		if result.Content != id {
			t.Errorf("the request of %s was run for %q", id, result.Content)
		}
	}
}

// The outcome of a tool that works in the background is that of its work.
func TestBackgroundWorkIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := tools.NewToolRegistry()
		core.Register(tools.AsyncFunc("slow", "Works in the background", func(ctx context.Context, _ struct{}, report tools.AsyncCallback) *tools.ToolResult {
			tools.Go(ctx, func(ctx context.Context) {
				select {
				case <-time.After(time.Minute):
					report(ctx, tools.NewToolResult("done"))
				case <-ctx.Done():
				}
			})
			return tools.AsyncResult("started")
		}))
		r := toolkit.Over(core)
		if result, err := r.Execute(t.Context(), toolkit.ToolRequest{Name: "slow"}); result.Content != "done" || err != nil || result.Metadata.ExecutionTime != time.Minute {
			t.Errorf("got %+v, %v", result, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result, err := r.Execute(ctx, toolkit.ToolRequest{Name: "slow"})
		if result.Success || !errors.Is(err, context.DeadlineExceeded) || result.Metadata.ExecutionTime != time.Second {
			t.Errorf("got %+v, %v", result, err)
		}
		if err := core.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
