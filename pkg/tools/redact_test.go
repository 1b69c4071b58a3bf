package tools_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// A secret that a tool has come across reaches neither the history, nor the
// person, nor the log, nor the report of background work.
func TestFieldSecrets(t *testing.T) {
	const secret = "hunter2hunter2"
	log := &logBuffer{}
	r := tools.NewToolRegistryWith(tools.Options{
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Redact: func(text string) string { return strings.ReplaceAll(text, secret, "***") },
	})
	cause := errors.New("refused: " + secret)
	shared := tools.UserResult("The password is " + secret)
	tell := func(result *tools.ToolResult) func(context.Context, map[string]interface{}) *tools.ToolResult {
		return func(context.Context, map[string]interface{}) *tools.ToolResult { return result }
	}
	r.Register(&fake{name: "both", run: tell(shared)})
	r.Register(&fake{name: "error", run: tell(tools.ErrorResult("It says " + secret).WithError(cause))})
	r.Register(&fake{name: "cause", run: tell((&tools.ToolResult{IsError: true}).WithError(cause))})
	r.Register(tools.AsyncFunc("work", "Works", func(ctx context.Context, _ taskInput, report tools.AsyncCallback) *tools.ToolResult {
		report(ctx, shared)
		return tools.AsyncResult("started " + secret)
	}))
	reported := ""
	var shown []string
	p := &script{replies: []providers.LLMResponse{
		calling(toolCall("1", "both", nil), toolCall("2", "error", nil), toolCall("3", "cause", nil), toolCall("4", "work", what("x"))), answering("done"),
	}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
		Provider: p, Tools: r, MaxIterations: 3,
		AsyncCallback: func(tools.Call) tools.AsyncCallback {
			return func(_ context.Context, result *tools.ToolResult) { reported = result.ForLLM + result.ForUser }
		},
		OnEvent: func(e tools.Event) {
			if e.Result != nil {
				shown = append(shown, e.Result.ForUser)
				if e.Result.Err != nil && !errors.Is(e.Result.Err, cause) {
					t.Errorf("the cause is lost in %v", e.Result.Err)
				}
			}
		},
	}, nil, "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"The password is ***", "It says ***", "refused: ***", "started ***"} {
		if got := res.Messages[i+1].Content; got != want {
			t.Errorf("the history has %q, want %q", got, want)
		}
	}
	if reported != "The password is ***The password is ***" || shown[0] != "The password is ***" {
		t.Errorf("reported %q, shown %q", reported, shown)
	}
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "refused: ***") {
		t.Errorf("logged %s", log)
	}
	if shared.ForLLM != "The password is "+secret {
		t.Error("the tool's own result was changed")
	}
	// Nothing to hide: the very same result.
	plain := tools.NewToolResult("nothing")
	r.Register(&fake{name: "plain", run: tell(plain)})
	if r.Execute(t.Context(), "plain", nil) != plain {
		t.Error("a result without secrets was copied")
	}
}
