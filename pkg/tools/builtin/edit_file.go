package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// maxEdit is how large a file may be that is edited or appended to, in bytes.
const maxEdit = 4 << 20

// EditFileTool replaces a passage of a text file of the workspace.
type EditFileTool struct {
	workspace Workspace
	seed      maphash.Seed
	locks     [64]sync.Mutex // by file, from reading it to replacing it, so that of two edits none is lost
}

// NewEditFileTool returns the edit_file tool.
func NewEditFileTool(workspace Workspace) *EditFileTool {
	return &EditFileTool{workspace: workspace, seed: maphash.MakeSeed()}
}

// Name returns "edit_file".
func (t *EditFileTool) Name() string { return "edit_file" }

// Description tells the model when to use the tool.
func (t *EditFileTool) Description() string {
	return "Replace a passage of a text file in this conversation's workspace. old must be in the file exactly once, " +
		"so give enough of the lines around it; with all, every place is replaced. Shows what has changed."
}

// Parameters returns the schema of the arguments.
func (t *EditFileTool) Parameters() map[string]any {
	all := property("boolean", "Replace every place where old is found, not just a single one.")
	all["default"] = false
	return schema(map[string]any{
		"path": property("string", "The file, relative to the workspace."),
		"old":  property("string", "The passage as it is now, with its spaces and line breaks."),
		"new":  property("string", "What stands there afterwards; empty removes the passage."),
		"all":  all,
	}, "path", "old", "new")
}

// Execute edits the file: afterwards it has either the old or the new content,
// never a part.
func (t *EditFileTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	p, problem := local(text(args, "path"))
	if problem != nil {
		return problem
	}
	before, _ := args["old"].(string)
	after, ok := args["new"].(string)
	all, _ := args["all"].(bool)
	switch {
	case before == "":
		return tools.ErrorResult("old is required: the passage to replace. A new file is not made by editing: write or append to it.")
	case !ok:
		return tools.ErrorResult(`new is required: what stands there afterwards, "" to remove the passage.`)
	case before == after:
		return tools.ErrorResult("old and new are the same, so there is nothing to change.")
	}
	call, _ := tools.CallFrom(ctx)
	root, err := t.workspace.open(call, false)
	if errors.Is(err, os.ErrNotExist) {
		return fileProblem(p, err)
	}
	if err != nil {
		return noWorkspace(err)
	}
	defer func() { _ = root.Close() }() // what was written is synced
	lock := &t.locks[maphash.String(t.seed, root.Name()+"/"+p)%uint64(len(t.locks))]
	lock.Lock() // of one file alone: a slow disk of one conversation is nobody else's matter
	defer lock.Unlock()
	return edit(root, p, before, after, all)
}

func edit(root *os.Root, p, before, after string, all bool) *tools.ToolResult {
	info, problem := plainFile(root, p)
	if problem != nil {
		return problem
	}
	link, err := root.Lstat(p)
	switch {
	case err != nil:
		return fileProblem(p, err)
	case link.Mode()&os.ModeSymlink != 0: // the new file would take its place
		return tools.ErrorResult(fmt.Sprintf("%q is a link: edit the file it points to.", p))
	case info.Size() > maxEdit:
		return tools.ErrorResult(fmt.Sprintf("%q is too large to be edited: %s, the most is %s.", p, size(info.Size()), size(maxEdit)))
	}
	was, err := readWhole(root, p)
	if err != nil {
		return fileProblem(p, err)
	}
	if binary(was[:min(len(was), 8<<10)]) {
		return tools.ErrorResult(fmt.Sprintf("%q is not text and cannot be edited.", p))
	}
	content := string(was)
	if breaks := strings.Count(content, "\r\n"); breaks > 0 && (breaks == strings.Count(content, "\n") || !strings.Contains(content, before)) {
		before, after = crlf(before), crlf(after)
	}
	at := places(content, before)
	if len(at) == 1 && !all { // it may lie across itself, as "aXa" does in "aXaXa"
		if i := strings.Index(content[at[0]+1:], before); i >= 0 {
			at = append(at, at[0]+1+i)
		}
	}
	switch {
	case len(at) == 0:
		return tools.ErrorResult(notFound(p, content, before))
	case len(at) > 1 && !all:
		return tools.ErrorResult(fmt.Sprintf("%q holds that passage %d times, on lines %s, so nothing was changed. Give more of the lines around the right one, or set all.",
			p, len(at), someLines(content, at)))
	}
	now := strings.ReplaceAll(content, before, after)
	if len(now) > maxEdit {
		return tools.ErrorResult(fmt.Sprintf("The file would become too large: %s, the most is %s.", size(int64(len(now))), size(maxEdit)))
	}
	unchanged := func() error {
		is, err := readWhole(root, p)
		if err == nil && !bytes.Equal(is, was) {
			return errChanged
		}
		return err
	}
	if err := writeWhole(root, p, now, info.Mode().Perm(), unchanged); errors.Is(err, errChanged) {
		return tools.ErrorResult(fmt.Sprintf("%q was changed by somebody else in the meantime, so nothing was done. Read it again.", p)).WithError(err)
	} else if err != nil {
		return fileProblem(p, err)
	}
	return tools.SilentResult(fmt.Sprintf("%q is changed in %s.\n%s", p, count(len(at), "place"), changes(content, before, after, at)))
}

var errChanged = errors.New("builtin: the file has changed meanwhile")

// readWhole reads a file of at most maxEdit bytes.
func readWhole(root *os.Root, p string) ([]byte, error) {
	f, err := openPlain(root, p, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	if err != nil {
		return nil, fmt.Errorf("builtin: read: %w", err)
	}
	return data, nil
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// places returns where a passage begins, without overlaps.
func places(content, passage string) []int {
	var at []int
	for from := 0; ; {
		i := strings.Index(content[from:], passage)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(passage)
	}
}

// someLines names the lines of the first few places.
func someLines(content string, at []int) string {
	const most = 10
	numbers := make([]string, 0, most)
	for _, i := range at[:min(len(at), most)] {
		numbers = append(numbers, fmt.Sprint(lineOf(content, i)))
	}
	if len(at) > most {
		numbers = append(numbers, "...")
	}
	return strings.Join(numbers, ", ")
}

// lineOf is the number of the line, from 1, that holds a byte.
func lineOf(content string, at int) int { return 1 + strings.Count(content[:at], "\n") }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// notFound says that a passage is not there, and what comes closest to it.
func notFound(p, content, passage string) string {
	said := fmt.Sprintf("%q does not hold that passage, so nothing was changed. It has to be there to the letter, spaces and line breaks included.", p)
	wanted := ""
	for line := range strings.SplitSeq(passage, "\n") {
		if wanted = strings.TrimSpace(line); wanted != "" {
			break
		}
	}
	if line, text := closest(content, wanted); line > 0 {
		said += fmt.Sprintf(" The closest to its first line is line %d:\n%s", line, text)
	}
	return said
}

// closest finds the line of a text that is most like wanted; 0 if none is much
// like it.
func closest(content, wanted string) (number int, text string) {
	const looked, enough = 20_000, 0.5
	best, n := enough, 0
	pairs := bigrams(wanted)
	for line := range strings.SplitSeq(content, "\n") {
		if n++; n > looked {
			break
		}
		line = strings.TrimRight(line, "\r")
		if like := alike(pairs, bigrams(strings.TrimSpace(line))); like > best {
			best, number, text = like, n, line
		}
	}
	return number, shown(text)
}

// bigrams returns the pairs of neighbouring bytes of the beginning of s, sorted.
func bigrams(s string) []uint16 {
	s = s[:min(len(s), 200)]
	pairs := make([]uint16, 0, len(s))
	for i := 1; i < len(s); i++ {
		pairs = append(pairs, uint16(s[i-1])<<8|uint16(s[i]))
	}
	slices.Sort(pairs)
	return pairs
}

// alike is how much two texts have in common, 0 to 1: the Sørensen-Dice
// coefficient of their bigrams.
func alike(a, b []uint16) float64 {
	total := len(a) + len(b)
	if total == 0 {
		return 0
	}
	common := 0
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			common++
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return 2 * float64(common) / float64(total)
}

// changes shows the first of the places in the manner of a unified diff: the
// lines that are replaced, one before and one after them.
func changes(content, before, after string, at []int) string {
	const mostPlaces, mostBytes = 5, 6 << 10
	var b strings.Builder
	for n, i := range at {
		if n == mostPlaces || b.Len() > mostBytes {
			fmt.Fprintf(&b, "[%s more, changed alike.]\n", count(len(at)-n, "place"))
			break
		}
		from, to := wholeLines(content, i, i+len(before))
		fmt.Fprintf(&b, "@@ line %d @@\n", lineOf(content, from))
		if from > 0 {
			start := strings.LastIndexByte(content[:from-1], '\n') + 1
			marked(&b, " ", content[start:from])
		}
		marked(&b, "-", content[from:to])
		marked(&b, "+", content[from:i]+after+content[i+len(before):to])
		if to < len(content) {
			end := strings.IndexByte(content[to:], '\n')
			if end < 0 {
				end = len(content) - to - 1
			}
			marked(&b, " ", content[to:to+end+1])
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wholeLines widens a range to the lines it touches, the last line break
// included.
func wholeLines(content string, from, to int) (start, end int) {
	start = strings.LastIndexByte(content[:from], '\n') + 1
	if to > start && content[to-1] == '\n' {
		return start, to
	}
	if i := strings.IndexByte(content[to:], '\n'); i >= 0 {
		return start, to + i + 1
	}
	return start, len(content)
}

// marked writes lines with a mark before each, not too many of them.
func marked(b *strings.Builder, mark, lines string) {
	const most = 40
	if lines == "" {
		return
	}
	n := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\n"), "\n") {
		if n++; n > most {
			fmt.Fprintf(b, "%s[more lines]\n", mark)
			return
		}
		fmt.Fprintf(b, "%s%s\n", mark, shown(strings.TrimSuffix(line, "\r")))
	}
}

// shown is a line as the model sees it: a very long one is cut.
func shown(line string) string {
	const most = 300
	if len(line) > most {
		line = line[:most] + "..."
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}
