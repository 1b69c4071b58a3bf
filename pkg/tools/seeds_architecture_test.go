package tools_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The examples of the architecture reference in one program: a tool with all of
// the optional interfaces, the reference's schema, and its way to log.

type searchTool struct {
	channel, chatID string
	metadata        map[string]string
	callback        tools.AsyncCallback
}

var (
	_ tools.ContextualTool    = (*searchTool)(nil)
	_ tools.MetadataAwareTool = (*searchTool)(nil)
	_ tools.AsyncTool         = (*searchTool)(nil)
)

func (*searchTool) Name() string        { return "search_index" }
func (*searchTool) Description() string { return "Search the index for a query" }

func (*searchTool) Parameters() map[string]interface{} {
	return map[string]interface{}{
		"type": "object",
		"properties": map[string]interface{}{
			"query": map[string]interface{}{
				"type":        "string",
				"description": "Search query",
			},
			"limit": map[string]interface{}{
				"type":        "integer",
				"description": "Max results to return",
			},
			"action": map[string]interface{}{
				"type": "string",
				"enum": []string{"start", "stop", "status"},
			},
		},
		"required": []string{"query"},
	}
}

func (t *searchTool) SetContext(channel, chatID string)        { t.channel, t.chatID = channel, chatID }
func (t *searchTool) SetMetadata(metadata map[string]string)   { t.metadata = metadata }
func (t *searchTool) SetCallback(callback tools.AsyncCallback) { t.callback = callback }

func (t *searchTool) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	logger.InfoCF("mytool", "Something happened", map[string]interface{}{
		"key": args["query"],
	})
	switch args["action"] {
	case "status":
		return tools.SilentResult(fmt.Sprintf("%s:%s, message %s", t.channel, t.chatID, t.metadata["message_id"]))
	case "stop":
		err := errors.New("nothing runs")
		logger.ErrorCF("mytool", "Something failed", map[string]interface{}{
			"error": err.Error(),
		})
		return tools.ErrorResult("There is nothing to stop.").WithError(err)
	case "start":
		go func() {
			logger.DebugCF("mytool", "working", map[string]interface{}{"chat": t.chatID})
			t.callback(ctx, tools.UserResult("found in "+t.chatID))
		}()
		return tools.AsyncResult("searching")
	default:
		return tools.NewToolResult("nothing to do")
	}
}

func TestSeedArchitectureTool(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })

	r := tools.NewToolRegistry()
	if err := r.RegisterTool(&searchTool{}); err != nil {
		t.Fatal(err)
	}
	metadata := map[string]string{
		"thread_id": "42", "message_id": "7", "user_id": "9", "username": "ada",
		"first_name": "Ada", "is_group": "true", "is_forum_topic": "true",
	}
	ctx := tools.WithMetadata(t.Context(), metadata)
	run := func(action string, cb tools.AsyncCallback) *tools.ToolResult {
		return r.ExecuteWithContext(ctx, "search_index", map[string]interface{}{"query": "q", "action": action}, "telegram", "-100/42", cb)
	}
	want := &tools.ToolResult{ForLLM: "telegram:-100/42, message 7", Silent: true}
	if diff := cmp.Diff(want, run("status", nil)); diff != "" {
		t.Error(diff)
	}
	if result := run("stop", nil); !result.IsError || result.Err == nil {
		t.Errorf("got %+v", result)
	}
	if result := run("pause", nil); !strings.Contains(result.ForLLM, `expected one of "start", "stop", "status"`) {
		t.Errorf("got %+v", result)
	}
	done := make(chan *tools.ToolResult, 1)
	if result := run("start", func(_ context.Context, result *tools.ToolResult) { done <- result }); !result.Async {
		t.Errorf("got %+v", result)
	}
	if result := <-done; result.ForUser != "found in -100/42" {
		t.Errorf("got %+v", result)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"Something happened", "Something failed"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log has no %q: %s", line, log.String())
		}
	}
}
