package builtin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

// Every tool passes the kit.
func TestKit(t *testing.T) {
	d := newDesk(t)
	d.put(t, "a.txt", "one\ntwo\n")
	everywhere := func(tools.Call) (string, error) { return d.dir, nil }
	ctx := toolstest.Context(d.ctx)
	secret := toolstest.Secrets(d.dir, "the secret")
	t.Run("message", func(t *testing.T) {
		toolstest.Check(t, builtin.NewMessageTool(builtin.WithOutbox(&outbox{})), ctx, toolstest.Args(args{"content": "Hello"}))
	})
	t.Run("spawn", func(t *testing.T) {
		toolstest.Check(t, builtin.NewSpawnTool(func(_ context.Context, _ tools.Call, task string) *tools.ToolResult {
			return tools.NewToolResult("did " + task)
		}), ctx, toolstest.Args(args{"task": "work"}, args{"task": "work", "label": "w"}))
	})
	t.Run("remind", func(t *testing.T) {
		tool := builtin.NewRemindTool(&book{}, nil, func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) })
		toolstest.Check(t, tool, ctx, toolstest.Args(args{"text": "stretch", "delay": "5s"}, args{"action": "list"}))
	})
	t.Run("read_file", func(t *testing.T) {
		toolstest.Check(t, builtin.NewReadFileTool(everywhere), ctx, secret, toolstest.Args(args{"path": "a.txt"}, args{"path": "a.txt", "start_line": 2, "end_line": 2}))
	})
	t.Run("write_file", func(t *testing.T) {
		toolstest.Check(t, builtin.NewWriteFileTool(everywhere), ctx, secret, toolstest.Args(args{"path": "b/c.txt", "content": "x"}))
	})
	t.Run("edit_file", func(t *testing.T) {
		d.put(t, "edited", strings.Repeat("x y\n", 50))
		// All conversations edit one file, one after the other, and a busy disk takes its time.
		toolstest.Check(t, builtin.NewEditFileTool(everywhere), ctx, secret, toolstest.Patience(2*time.Minute), toolstest.Args(args{"path": "edited", "old": "x", "new": "xx", "all": true}))
	})
	t.Run("append_file", func(t *testing.T) {
		toolstest.Check(t, builtin.NewAppendFileTool(everywhere), ctx, secret, toolstest.Args(args{"path": "b/d.txt", "content": "x"}))
	})
	t.Run("search_files", func(t *testing.T) {
		toolstest.Check(t, builtin.NewSearchFilesTool(everywhere), ctx, secret, toolstest.Args(args{"query": "two"}, args{"query": "t.o", "regexp": true, "glob": "*.txt"}))
	})
	t.Run("read_result", func(t *testing.T) {
		tool := builtin.NewReadResultTool(func(_ context.Context, call tools.Call, id string, offset int) *tools.ToolResult {
			return tools.SilentResult(fmt.Sprintf("%s from %d for %s", id, offset, call.ChatID))
		})
		toolstest.Check(t, tool, ctx, toolstest.Args(args{"id": "0123456789ab", "offset": 0}, args{"id": "0123456789ab", "offset": 70000}))
		wantError(t, tool.Execute(during(t, "telegram", "1", "c1"), args{"offset": 1}), "id is required")
		wantOK(t, tool.Execute(during(t, "telegram", "1", "c1"), args{"id": " 0123456789ab", "offset": float64(3)}), "0123456789ab from 3 for 1")
	})
	t.Run("list_dir", func(t *testing.T) {
		toolstest.Check(t, builtin.NewListDirTool(everywhere), ctx, secret, toolstest.Args(args{}, args{"path": "."}))
	})
}
