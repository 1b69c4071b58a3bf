package builtin

import (
	"context"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// SpawnTool hands a task to a sub-agent that works in the background; its
// result comes back to the conversation that asked.
type SpawnTool struct {
	run func(ctx context.Context, call tools.Call, task string) *tools.ToolResult
}

// NewSpawnTool returns the spawn tool. run does the task for call and returns
// what came of it; it is called on a goroutine of its own, ends when its ctx
// does, and may run many times at once.
func NewSpawnTool(run func(ctx context.Context, call tools.Call, task string) *tools.ToolResult) *SpawnTool {
	return &SpawnTool{run: run}
}

// Name returns "spawn".
func (t *SpawnTool) Name() string { return "spawn" }

// Idempotent is true: the call names the task.
func (t *SpawnTool) Idempotent() bool { return true }

// Description tells the model when to use the tool.
func (t *SpawnTool) Description() string {
	return "Start a task in the background, done by a helper that has the same tools but does not see this conversation. " +
		"Use it for work that takes long, so that the person can go on talking. The result comes back to this conversation by itself."
}

// Parameters returns the schema of the arguments.
func (t *SpawnTool) Parameters() map[string]any {
	return schema(map[string]any{
		"task":  property("string", "What to do, with everything the helper needs to know."),
		"label": property("string", "The task in a few words, for the list of running tasks."),
	}, "task")
}

// Execute does the task at once and returns its result. It is used where there
// is no conversation to come back to.
func (t *SpawnTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	task, problem := t.task(args)
	if problem != nil {
		return problem
	}
	call, _ := tools.CallFrom(ctx)
	return t.work(ctx, call, task)
}

// ExecuteAsync starts the task and returns at once; cb takes the result.
func (t *SpawnTool) ExecuteAsync(ctx context.Context, args map[string]any, cb tools.AsyncCallback) *tools.ToolResult {
	task, problem := t.task(args)
	if problem != nil {
		return problem
	}
	label := text(args, "label")
	if label == "" {
		label = brief(task)
	}
	call, _ := tools.CallFrom(ctx)
	tools.Go(ctx, func(ctx context.Context) { cb(ctx, t.work(ctx, call, task)) })
	return tools.AsyncResult("Started in the background: " + label +
		". The result will come back to this conversation by itself: tell the person so, and do not start it again.")
}

func (t *SpawnTool) task(args map[string]any) (string, *tools.ToolResult) {
	task := text(args, "task")
	switch {
	case task == "":
		return "", tools.ErrorResult("task is required: say what is to be done.")
	case t.run == nil:
		return "", tools.ErrorResult("Nothing was started: background work is not available here.")
	}
	return task, nil
}

func (t *SpawnTool) work(ctx context.Context, call tools.Call, task string) *tools.ToolResult {
	if result := t.run(ctx, call, task); result != nil {
		return result
	}
	return tools.ErrorResult("The task ended without a result.")
}

// brief shortens a task to a label.
func brief(task string) string {
	const most = 60
	if utf8.RuneCountInString(task) <= most {
		return task
	}
	return string([]rune(task)[:most-1]) + "…"
}
