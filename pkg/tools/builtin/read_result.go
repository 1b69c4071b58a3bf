package builtin

import (
	"context"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// ReadResultTool reads what was left out of a tool result that is too long to be
// shown whole.
type ReadResultTool struct {
	read func(ctx context.Context, call tools.Call, id string, offset int) *tools.ToolResult
}

// NewReadResultTool returns the read_result tool. read returns the part of the
// result with that id that begins at offset, in bytes, for call and for nobody
// else's conversation; it may run many times at once.
func NewReadResultTool(read func(ctx context.Context, call tools.Call, id string, offset int) *tools.ToolResult) *ReadResultTool {
	return &ReadResultTool{read: read}
}

// Name returns "read_result".
func (t *ReadResultTool) Name() string { return "read_result" }

// Idempotent is true: reading changes nothing.
func (t *ReadResultTool) Idempotent() bool { return true }

// ParallelSafe is true: reading changes nothing.
func (t *ReadResultTool) ParallelSafe(map[string]any) bool { return true }

// Description tells the model when to use the tool.
func (t *ReadResultTool) Description() string {
	return "Read more of an earlier tool result that was too long to be shown whole. " +
		"The notice that stands where something is left out tells the id and the offset."
}

// Parameters returns the schema of the arguments.
func (t *ReadResultTool) Parameters() map[string]any {
	offset := property("integer", "The byte at which to begin, as the notice tells it.")
	offset["minimum"] = 0
	return schema(map[string]any{
		"id":     property("string", "The id of the result, as the notice tells it."),
		"offset": offset,
	}, "id", "offset")
}

// Execute reads a part of the result.
func (t *ReadResultTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	id := text(args, "id")
	if id == "" {
		return tools.ErrorResult("id is required: the notice that stands where something is left out tells it.")
	}
	call, _ := tools.CallFrom(ctx)
	return t.read(ctx, call, id, integer(args, "offset"))
}
