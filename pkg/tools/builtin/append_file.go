package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// AppendFileTool adds to the end of a text file of the workspace.
type AppendFileTool struct{ workspace Workspace }

// NewAppendFileTool returns the append_file tool.
func NewAppendFileTool(workspace Workspace) *AppendFileTool {
	return &AppendFileTool{workspace: workspace}
}

// Name returns "append_file".
func (t *AppendFileTool) Name() string { return "append_file" }

// Description tells the model when to use the tool.
func (t *AppendFileTool) Description() string {
	return "Add text to the end of a file in this conversation's workspace, exactly as given: begin or end it with a line break where one is wanted. " +
		"A file that does not exist is made."
}

// Parameters returns the schema of the arguments.
func (t *AppendFileTool) Parameters() map[string]any {
	return schema(map[string]any{
		"path":    property("string", "The file, relative to the workspace."),
		"content": property("string", "The text to add."),
	}, "path", "content")
}

// Execute appends to the file. If that fails half-way the file is as it was.
func (t *AppendFileTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	p, problem := local(text(args, "path"))
	if problem != nil {
		return problem
	}
	content, _ := args["content"].(string)
	switch {
	case content == "":
		return tools.ErrorResult("content is required: the text to add.")
	case len(content) > maxWrite:
		return tools.ErrorResult(fmt.Sprintf("content is too large: %d bytes, the most is %d. Add it in parts.", len(content), maxWrite))
	case p == ".":
		return tools.ErrorResult("path is a folder: name a file in it.")
	}
	call, _ := tools.CallFrom(ctx)
	root, err := t.workspace.open(call, true)
	if err != nil {
		return noWorkspace(err)
	}
	defer func() { _ = root.Close() }() // what was written is synced
	var had int64
	info, problem := plainFile(root, p)
	switch {
	case problem == nil:
		had = info.Size()
	case !errors.Is(problem.Err, fs.ErrNotExist):
		return problem
	}
	if had+int64(len(content)) > maxEdit {
		return tools.ErrorResult(fmt.Sprintf("%q would become too large: the most is %s. Begin another file.", p, size(maxEdit)))
	}
	now, err := addTo(root, p, content)
	if err != nil {
		return fileProblem(p, err)
	}
	return tools.SilentResult(fmt.Sprintf("%d bytes are added to %q, which now has %s.", len(content), p, size(now)))
}

// addTo appends and returns how large the file is then.
func addTo(root *os.Root, p, content string) (now int64, err error) {
	if err := root.MkdirAll(path.Dir(p), 0o700); err != nil {
		return 0, fmt.Errorf("builtin: make folders: %w", err)
	}
	f, err := openPlain(root, p, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, errors.Join(fmt.Errorf("builtin: append: %w", err), f.Close())
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("builtin: append: %w", err), f.Truncate(info.Size()), f.Close())
	}
	return info.Size() + int64(len(content)), f.Close()
}
