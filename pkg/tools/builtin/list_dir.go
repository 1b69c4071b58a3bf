package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

const (
	maxShown  = 500    // entries one call returns
	maxListed = 20_000 // entries one call looks at
)

// ListDirTool lists a folder of the workspace.
type ListDirTool struct{ workspace Workspace }

// NewListDirTool returns the list_dir tool.
func NewListDirTool(workspace Workspace) *ListDirTool { return &ListDirTool{workspace: workspace} }

// Name returns "list_dir".
func (t *ListDirTool) Name() string { return "list_dir" }

// Idempotent is true: looking changes nothing.
func (t *ListDirTool) Idempotent() bool { return true }

// ParallelSafe is true: looking changes nothing.
func (t *ListDirTool) ParallelSafe(map[string]any) bool { return true }

// Description tells the model when to use the tool.
func (t *ListDirTool) Description() string {
	return "List the files and folders of this conversation's workspace, or of a folder in it, with their sizes."
}

// Parameters returns the schema of the arguments.
func (t *ListDirTool) Parameters() map[string]any {
	p := property("string", "The folder, relative to the workspace; the workspace itself is the default.")
	p["default"] = "."
	return schema(map[string]any{"path": p})
}

// Execute lists the folder, sorted by name.
func (t *ListDirTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	root, p, over := t.workspace.folder(ctx, args)
	if over != nil {
		return over
	}
	defer func() { _ = root.Close() }() // nothing was written
	info, err := root.Stat(p)
	if err != nil {
		return fileProblem(p, err)
	}
	if !info.IsDir() {
		return tools.ErrorResult(fmt.Sprintf("%q is a file: use read_file.", p))
	}
	names, more, err := readNames(root, p)
	if err != nil {
		return fileProblem(p, err)
	}
	if len(names) == 0 {
		return emptyDir(p)
	}
	return tools.SilentResult(listing(root, p, names, more))
}

func emptyDir(p string) *tools.ToolResult {
	if p == "." {
		return tools.SilentResult("The workspace is empty.")
	}
	return tools.SilentResult(fmt.Sprintf("%q is empty.", p))
}

// readNames returns the names in a folder, sorted; more says that it holds
// even more than were looked at.
func readNames(root *os.Root, p string) (names []string, more bool, err error) {
	f, err := root.Open(p)
	if err != nil {
		return nil, false, fmt.Errorf("builtin: open: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	names, err = f.Readdirnames(maxListed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("builtin: list: %w", err)
	}
	more = len(names) == maxListed
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, partial) })
	slices.Sort(names)
	return names, more, nil
}

func listing(root *os.Root, p string, names []string, more bool) string {
	var b strings.Builder
	for _, name := range names[:min(len(names), maxShown)] {
		info, err := root.Lstat(path.Join(p, name))
		switch {
		case err != nil: // gone meanwhile
			continue
		case info.IsDir():
			fmt.Fprintf(&b, "%s/\n", name)
		case info.Mode()&fs.ModeSymlink != 0:
			fmt.Fprintf(&b, "%s (link)\n", name)
		default:
			fmt.Fprintf(&b, "%s (%s)\n", name, size(info.Size()))
		}
	}
	switch left := len(names) - maxShown; {
	case more:
		fmt.Fprintf(&b, "[There is much more: only the first %d of over %d entries are shown.]\n", maxShown, maxListed)
	case left > 0:
		fmt.Fprintf(&b, "[%d more entries are not shown.]\n", left)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// size is a number of bytes as people write it.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
