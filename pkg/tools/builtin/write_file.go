package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

const (
	// maxWrite is how large a file one call writes, in bytes.
	maxWrite = 1 << 20
	// partial marks files that were never finished; list_dir leaves them out.
	partial = ".dragoman-partial-"
)

// WriteFileTool writes a text file of the workspace.
type WriteFileTool struct{ workspace Workspace }

// NewWriteFileTool returns the write_file tool.
func NewWriteFileTool(workspace Workspace) *WriteFileTool {
	return &WriteFileTool{workspace: workspace}
}

// Name returns "write_file".
func (t *WriteFileTool) Name() string { return "write_file" }

// Idempotent is true: the same text in the same file.
func (t *WriteFileTool) Idempotent() bool { return true }

// Description tells the model when to use the tool.
func (t *WriteFileTool) Description() string {
	return "Write a text file in this conversation's workspace. It replaces a file of that name; folders on the way are made."
}

// Parameters returns the schema of the arguments.
func (t *WriteFileTool) Parameters() map[string]any {
	return schema(map[string]any{
		"path":    property("string", "The file, relative to the workspace."),
		"content": property("string", "The whole new content."),
	}, "path", "content")
}

// Execute writes the file: afterwards it has either the old or the new content,
// never a part.
func (t *WriteFileTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	p, problem := local(text(args, "path"))
	if problem != nil {
		return problem
	}
	content, ok := args["content"].(string)
	switch {
	case !ok:
		return tools.ErrorResult("content is required: write the whole text of the file.")
	case len(content) > maxWrite:
		return tools.ErrorResult(fmt.Sprintf("content is too large: %d bytes, the most is %d. Write several files.", len(content), maxWrite))
	case p == ".":
		return tools.ErrorResult("path is a folder: name a file in it.")
	}
	call, _ := tools.CallFrom(ctx)
	root, err := t.workspace.open(call, true)
	if err != nil {
		return noWorkspace(err)
	}
	defer func() { _ = root.Close() }() // what was written is synced
	if info, err := root.Lstat(p); err == nil && info.IsDir() {
		return tools.ErrorResult(fmt.Sprintf("%q is a folder: choose another name.", p))
	}
	if err := writeWhole(root, p, content, 0o600, nil); err != nil {
		return fileProblem(p, err)
	}
	return tools.SilentResult(fmt.Sprintf("%q is written, %d bytes.", p, len(content)))
}

// writeWhole writes beside the file and renames, so that a crash leaves no
// half of it. ready, unless nil, has the last word before that.
func writeWhole(root *os.Root, p, content string, mode os.FileMode, ready func() error) error {
	dir := path.Dir(p)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("builtin: make folders: %w", err)
	}
	temp := path.Join(dir, partial+rand.Text()[:10])
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("builtin: create: %w", err)
	}
	_, err = f.WriteString(content)
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && ready != nil {
		err = ready()
	}
	if err == nil {
		err = root.Rename(temp, p)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("builtin: write: %w", err), root.Remove(temp))
	}
	return nil
}
