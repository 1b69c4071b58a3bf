package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Bounds of one search.
const (
	maxMatches  = 200      // lines that are shown
	maxSearched = 64 << 20 // bytes that are read
	maxFiles    = 20_000   // files and folders that are looked at
	maxPattern  = 1 << 10  // bytes of a query
)

// SearchFilesTool finds lines in the text files of the workspace.
type SearchFilesTool struct{ workspace Workspace }

// NewSearchFilesTool returns the search_files tool.
func NewSearchFilesTool(workspace Workspace) *SearchFilesTool {
	return &SearchFilesTool{workspace: workspace}
}

// Name returns "search_files".
func (t *SearchFilesTool) Name() string { return "search_files" }

// Idempotent is true: looking changes nothing.
func (t *SearchFilesTool) Idempotent() bool { return true }

// ParallelSafe is true: looking changes nothing.
func (t *SearchFilesTool) ParallelSafe(map[string]any) bool { return true }

// Description tells the model when to use the tool.
func (t *SearchFilesTool) Description() string {
	return "Find the lines of this conversation's workspace that hold a text, or match a regular expression. Shows path, line number and line."
}

// Parameters returns the schema of the arguments.
func (t *SearchFilesTool) Parameters() map[string]any {
	folder := property("string", "The folder or file to search, relative to the workspace; all of it is the default.")
	folder["default"] = "."
	isRegexp := property("boolean", "query is a regular expression (RE2), not a plain text.")
	isRegexp["default"] = false
	anyCase := property("boolean", "Capital and small letters are the same.")
	anyCase["default"] = false
	return schema(map[string]any{
		"query":       property("string", "What to look for in each line."),
		"path":        folder,
		"glob":        property("string", "Only files with such a name, for example *.md; with a / it is the path from the workspace."),
		"regexp":      isRegexp,
		"ignore_case": anyCase,
	}, "query")
}

// Execute searches, file by file in the order of their paths.
func (t *SearchFilesTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	s, problem := newSearch(args)
	if problem != nil {
		return problem
	}
	root, p, over := t.workspace.folder(ctx, args)
	if over != nil {
		return over
	}
	defer func() { _ = root.Close() }() // nothing was written
	s.root = root
	err := fs.WalkDir(root.FS(), p, func(name string, d fs.DirEntry, err error) error { return s.visit(ctx, name, d, err) })
	switch {
	case ctx.Err() != nil:
		return tools.ErrorResult("Searching was interrupted.").WithError(context.Cause(ctx))
	case err != nil && !errors.Is(err, fs.SkipAll):
		return fileProblem(p, err)
	}
	return tools.SilentResult(s.result())
}

// search is one run of the tool.
type search struct {
	match *regexp.Regexp
	glob  string // "" is every file
	root  *os.Root

	out           strings.Builder
	lines, files  int // shown; looked at
	large, unread int // left out
	left          int64
	full, tooMany bool
}

func newSearch(args map[string]any) (*search, *tools.ToolResult) {
	query, _ := args["query"].(string)
	glob := text(args, "glob")
	switch {
	case query == "":
		return nil, tools.ErrorResult("query is required: what to look for.")
	case len(query) > maxPattern || len(glob) > maxPattern:
		return nil, tools.ErrorResult(fmt.Sprintf("query and glob are at most %d bytes.", maxPattern))
	case strings.Contains(query, "\n"):
		return nil, tools.ErrorResult("query is looked for in each line by itself: search for one of its lines.")
	}
	if _, err := path.Match(glob, ""); err != nil {
		return nil, tools.ErrorResult(fmt.Sprintf("glob %q cannot be read: write for example *.md, notes/*.txt or report-[0-9].csv.", glob))
	}
	pattern := query
	if is, _ := args["regexp"].(bool); !is {
		pattern = regexp.QuoteMeta(query)
	}
	if is, _ := args["ignore_case"].(bool); is {
		pattern = "(?i)" + pattern
	}
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, tools.ErrorResult(fmt.Sprintf("query is no regular expression that can be used (%v). Correct it, or leave regexp out to look for it as it stands.", err))
	}
	return &search{match: match, glob: glob, left: maxSearched}, nil
}

// visit looks at one entry of the workspace. A link is not followed.
func (s *search) visit(ctx context.Context, name string, d fs.DirEntry, err error) error {
	if ctx.Err() != nil {
		return fs.SkipAll
	}
	if s.files++; s.files > maxFiles {
		s.tooMany = true
		return fs.SkipAll
	}
	if err != nil {
		return s.unreadable(err)
	}
	if !d.Type().IsRegular() || !s.wanted(name) {
		return nil
	}
	info, err := d.Info()
	switch {
	case err != nil:
		return s.unreadable(err)
	case info.Size() > maxEdit:
		s.large++
		return nil
	case info.Size() > s.left:
		s.tooMany = true
		return fs.SkipAll
	}
	s.left -= info.Size()
	if err := s.file(ctx, name); err != nil {
		return s.unreadable(err)
	}
	if s.full {
		return fs.SkipAll
	}
	return nil
}

// unreadable passes over an entry, unless it is the very one that was named.
func (s *search) unreadable(err error) error {
	if s.files == 1 {
		return err
	}
	s.unread++
	return nil
}

func (s *search) wanted(name string) bool {
	if strings.HasPrefix(path.Base(name), partial) {
		return false
	}
	if s.glob == "" {
		return true
	}
	if !strings.Contains(s.glob, "/") {
		name = path.Base(name)
	}
	ok, _ := path.Match(s.glob, name) // the pattern was tried before
	return ok
}

func (s *search) file(ctx context.Context, name string) error {
	f, err := openPlain(s.root, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	r := bufio.NewReaderSize(io.LimitReader(f, maxEdit), 64<<10)
	if head, _ := r.Peek(8 << 10); binary(head) {
		return nil
	}
	for line := 1; ctx.Err() == nil; line++ {
		content, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("builtin: read: %w", err)
		}
		content = strings.TrimRight(content, "\r\n")
		if at := s.match.FindStringIndex(content); at != nil && (content != "" || err == nil) {
			if s.lines == maxMatches || s.out.Len() > maxRead/4 {
				s.full = true
				return nil
			}
			s.lines++
			fmt.Fprintf(&s.out, "%s:%d: %s\n", name, line, around(content, at))
		}
		if err != nil {
			return nil // the end of the file
		}
	}
	return nil
}

// around is a line as it is shown: of a very long one, what is around the match.
func around(line string, at []int) string {
	const most = 300
	if len(line) <= most {
		return strings.ToValidUTF8(line, "\uFFFD")
	}
	from := max(0, min(at[0]-most/3, len(line)-most))
	text := strings.ToValidUTF8(line[from:from+most], "")
	if from > 0 {
		text = "..." + text
	}
	if from+most < len(line) {
		text += "..."
	}
	return text
}

// result is what was found, and what was left out.
func (s *search) result() string {
	var notes []string
	if s.full {
		notes = append(notes, fmt.Sprintf("There is more: only the first %s are shown. Narrow the search with path, glob or a longer query.", count(s.lines, "line")))
	}
	if s.tooMany {
		notes = append(notes, "There are too many files to search them all at once: narrow the search with path.")
	}
	if s.large > 0 {
		notes = append(notes, fmt.Sprintf("%s larger than %s not searched.", count(s.large, "file"), size(maxEdit)))
	}
	if s.unread > 0 {
		notes = append(notes, fmt.Sprintf("%s could not be read.", count(s.unread, "file")))
	}
	text := s.out.String()
	if text == "" {
		text = "Nothing was found.\n"
	}
	for _, n := range notes {
		text += "[" + n + "]\n"
	}
	return strings.TrimSuffix(text, "\n")
}
