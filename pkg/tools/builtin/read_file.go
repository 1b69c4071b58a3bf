package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// maxRead is how much text one call returns, in bytes.
const maxRead = 256 << 10

// ReadFileTool reads a text file of the workspace, whole or by lines.
type ReadFileTool struct {
	workspace  Workspace
	extensions []string // nil: any
	maxBytes   int64    // of a file; 0: any
}

// ReadFileOption changes what read_file reads.
type ReadFileOption func(*ReadFileTool)

// WithExtensions has read_file read only files with one of these extensions, for
// example ".txt", or with one of these as their whole name, for example
// "Makefile", in capital or small letters. Without it what is text is read,
// whatever its name.
func WithExtensions(extensions ...string) ReadFileOption {
	return func(t *ReadFileTool) { t.extensions = extensions }
}

// WithMaxFileBytes has read_file read no file that is larger, not even in part.
func WithMaxFileBytes(n int64) ReadFileOption { return func(t *ReadFileTool) { t.maxBytes = n } }

// NewReadFileTool returns the read_file tool.
func NewReadFileTool(workspace Workspace, options ...ReadFileOption) *ReadFileTool {
	t := &ReadFileTool{workspace: workspace}
	for _, o := range options {
		o(t)
	}
	return t
}

// Name returns "read_file".
func (t *ReadFileTool) Name() string { return "read_file" }

// Idempotent is true: reading changes nothing.
func (t *ReadFileTool) Idempotent() bool { return true }

// ParallelSafe is true: reading changes nothing.
func (t *ReadFileTool) ParallelSafe(map[string]any) bool { return true }

// Description tells the model when to use the tool.
func (t *ReadFileTool) Description() string {
	return "Read a text file of this conversation's workspace, the whole of it or a range of lines."
}

// Parameters returns the schema of the arguments.
func (t *ReadFileTool) Parameters() map[string]any {
	start := property("integer", "The first line to read, counted from 1.")
	end := property("integer", "The last line to read, included.")
	start["minimum"], end["minimum"] = 1, 1
	return schema(map[string]any{
		"path":       property("string", "The file, relative to the workspace."),
		"start_line": start,
		"end_line":   end,
	}, "path")
}

// Execute reads the file.
func (t *ReadFileTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	p, problem := local(text(args, "path"))
	if problem != nil {
		return problem
	}
	if refusal := t.refused(p); refusal != nil {
		return refusal
	}
	start, end := integer(args, "start_line"), integer(args, "end_line")
	if start < 0 || end < 0 || end != 0 && end < start {
		return tools.ErrorResult("start_line and end_line count from 1, and end_line is not before start_line.")
	}
	call, _ := tools.CallFrom(ctx)
	root, err := t.workspace.open(call, false)
	if errors.Is(err, fs.ErrNotExist) {
		return fileProblem(p, err)
	}
	if err != nil {
		return noWorkspace(err)
	}
	defer func() { _ = root.Close() }() // nothing was written
	info, problem := plainFile(root, p)
	switch {
	case problem != nil:
		return problem
	case t.maxBytes > 0 && info.Size() > t.maxBytes:
		return tools.ErrorResult(fmt.Sprintf("%q is too large to be read: %s, the most is %s.", p, size(info.Size()), size(t.maxBytes)))
	case info.Size() == 0:
		return tools.SilentResult(fmt.Sprintf("%q is empty.", p))
	}
	f, err := openPlain(root, p, os.O_RDONLY)
	if err != nil {
		return fileProblem(p, err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	return readLines(ctx, f, p, max(start, 1), end)
}

// refused says why a name is not among those that are read.
func (t *ReadFileTool) refused(p string) *tools.ToolResult {
	fits := func(e string) bool { return strings.EqualFold(e, path.Ext(p)) || strings.EqualFold(e, path.Base(p)) }
	if t.extensions == nil || slices.ContainsFunc(t.extensions, fits) {
		return nil
	}
	return tools.ErrorResult(fmt.Sprintf("%q is not read: only files of these kinds are: %s.", p, strings.Join(t.extensions, ", ")))
}

// readLines returns the lines from start to end, both counted from 1 and
// included; end 0 is the last one.
func readLines(ctx context.Context, f io.Reader, p string, start, end int) *tools.ToolResult {
	r := bufio.NewReaderSize(f, 64<<10)
	if head, _ := r.Peek(8 << 10); binary(head) {
		return tools.ErrorResult(fmt.Sprintf("%q is not text and cannot be read.", p))
	}
	var out strings.Builder
	line := 1
	for {
		if err := ctx.Err(); err != nil {
			return tools.ErrorResult("Reading was interrupted.").WithError(err)
		}
		// A chunk is a line or, of one longer than the buffer, a part of it.
		chunk, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return fileProblem(p, err)
		}
		if line >= start {
			if room := maxRead - out.Len(); len(chunk) > room {
				return cut(&out, chunk[:room], line)
			}
			out.Write(chunk)
		}
		if bytes.HasSuffix(chunk, []byte{'\n'}) {
			line++
		}
		if errors.Is(err, io.EOF) || end != 0 && line > end {
			break
		}
	}
	if out.Len() == 0 {
		return tools.ErrorResult(fmt.Sprintf("%q has no line %d: it ends before.", p, start))
	}
	return tools.SilentResult(strings.ToValidUTF8(out.String(), "\uFFFD"))
}

// cut ends the text at the limit and says how to read on.
func cut(out *strings.Builder, rest []byte, line int) *tools.ToolResult {
	whole := out.String()
	next := line
	if whole == "" || !strings.HasSuffix(whole, "\n") {
		// One line alone is longer than the limit: show what fits of it.
		whole += string(rest)
		next = line + 1
	}
	for len(whole) > 0 && !utf8.ValidString(whole[max(len(whole)-utf8.UTFMax, 0):]) && !utf8.RuneStart(whole[len(whole)-1]) {
		whole = whole[:len(whole)-1]
	}
	return tools.SilentResult(fmt.Sprintf("%s\n[%d KiB is the most one call returns. To read on, call again with start_line %d.]",
		strings.ToValidUTF8(whole, "\uFFFD"), maxRead>>10, next))
}

// binary reports whether the beginning of a file is something else than text.
func binary(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	bad, total := 0, 0
	for len(head) >= utf8.UTFMax { // the last rune may be cut
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 {
			bad++
		}
		total++
		head = head[n:]
	}
	return bad*10 > total*3
}
