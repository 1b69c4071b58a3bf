package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Workspace tells the folder in which a call may work with files. It need not
// exist.
type Workspace func(call tools.Call) (dir string, err error)

// Tool runs commands for the model.
type Tool struct {
	name      string
	wall      *Wall
	workspace Workspace
	allow     func(principal string) bool // nil: everybody
	programs  programs                    // nil: a shell reads the command
}

// NewExecTool returns the exec tool. allow says for whom a command may be run,
// by Call.Principal; it is asked at every call, from any goroutine, and nil
// allows nobody. With commands no shell is there: only these programs are run,
// and an error says which of them cannot be in such a list, or is not on the
// machine. log hears of those that may start others.
func NewExecTool(wall *Wall, workspace Workspace, allow func(principal string) bool, commands []string, log *slog.Logger) (*Tool, error) {
	if wall == nil || workspace == nil {
		return nil, errors.New("sandbox: exec needs a wall and a workspace")
	}
	if allow == nil {
		allow = func(string) bool { return false }
	}
	t := &Tool{name: "exec", wall: wall, workspace: workspace, allow: allow}
	if len(commands) == 0 {
		return t, nil
	}
	var err error
	if t.programs, err = newPrograms(commands, log); err != nil {
		return nil, fmt.Errorf("sandbox: commands: %w", err)
	}
	return t, nil
}

// NewExecOffer returns a tool that tells the model what NewExecTool's would whose
// wall has that time limit (0: the default), and refuses every call. It needs
// neither a wall nor the programs, and touches nothing.
func NewExecOffer(limit time.Duration, commands []string) *Tool {
	t := &Tool{name: "exec", wall: &Wall{limits: Limits{Time: limit}.orDefault()}, allow: func(string) bool { return false }}
	for _, name := range commands {
		if t.programs == nil {
			t.programs = programs{}
		}
		t.programs[name] = ""
	}
	return t
}

// NewExecuteBash returns the tool execute_bash, for programs that run tools
// themselves and decide themselves who may. wall must not be nil.
func NewExecuteBash(wall *Wall, workspace Workspace) *Tool {
	return &Tool{name: "execute_bash", wall: wall, workspace: workspace}
}

// Name returns "exec" or "execute_bash".
func (t *Tool) Name() string { return t.name }

// Timeout implements tools.TimeoutTool: the sandbox ends every command itself.
func (t *Tool) Timeout() time.Duration { return 0 }

// Description tells the model when to use the tool.
func (t *Tool) Description() string {
	what := "Run a shell command (bash, where there is one), pipes included, in this conversation's workspace."
	if t.programs != nil {
		what = "Run one program in this conversation's workspace, without a shell: no pipes, variables or wildcards. There are " + strings.Join(t.programs.names(), ", ") + "."
	}
	return fmt.Sprintf("%s It may write to the workspace only, gets no input and ends after %s at the latest with all it has started.", what, t.wall.limits.Time)
}

// Parameters returns the schema of the arguments.
func (t *Tool) Parameters() map[string]any {
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"command":           map[string]any{"type": "string", "description": "The command."},
			"working_directory": map[string]any{"type": "string", "description": "The folder to run it in, relative to the workspace; the workspace itself is the default."},
		},
		"required": []string{"command"},
	}
}

// longest is the most bytes of a command; the kernel takes 128 KiB.
const longest = 100_000

// Execute runs a command and blocks until nothing of it is left. Any number may
// run at once.
func (t *Tool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	call, _ := tools.CallFrom(ctx)
	if t.allow != nil && !t.allow(call.Principal) {
		return tools.ErrorResult("Commands are forbidden for the person this is done for. Do not try again; only whoever runs the bot can change that.").
			WithError(errors.New("not among those commands are run for"))
	}
	command, _ := args["command"].(string)
	argv, refusal := t.argv(command)
	if refusal != nil {
		return refusal
	}
	root, err := t.workspace(call)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err == nil {
		err = os.MkdirAll(root, 0o700)
	}
	if err != nil {
		return nothingRun(err)
	}
	asked, _ := args["working_directory"].(string)
	dir, refusal := within(root, asked)
	if refusal != nil {
		return refusal
	}
	outcome, err := t.wall.Run(ctx, Command{Args: argv, Workspace: root, Dir: dir})
	if err != nil {
		return nothingRun(err)
	}
	return result(outcome)
}

func nothingRun(err error) *tools.ToolResult {
	return tools.ErrorResult("The sandbox cannot be used at the moment, so nothing was run.").WithError(err)
}

// argv is what a command runs, or why it is not run.
func (t *Tool) argv(command string) ([]string, *tools.ToolResult) {
	switch {
	case strings.TrimSpace(command) == "":
		return nil, tools.ErrorResult("command is required: write the command to run.")
	case len(command) > longest:
		return nil, tools.ErrorResult(fmt.Sprintf("command is too long: the most is %d bytes. Write a script with write_file and run that.", longest))
	case strings.ContainsRune(command, 0):
		return nil, tools.ErrorResult("command holds a zero byte.")
	}
	if why := forbidden(command); why != "" {
		return nil, tools.ErrorResult("This is forbidden: " + why).WithError(errors.New("forbidden command"))
	}
	argv, err := shell(command)
	if t.programs != nil {
		argv, err = t.programs.args(command)
	}
	if err != nil {
		return nil, tools.ErrorResult("Nothing was run: " + err.Error() + ".").WithError(err)
	}
	return argv, nil
}

var (
	becoming = regexp.MustCompile("(?:^|[;&|(`\n])\\s*(?:sudo|su|doas|pkexec)(?:\\s|$)")
	deleting = regexp.MustCompile(`(?:^|[^\w.-])rm\s+(?:-\S+\s+)+/\*?(?:\s|[;&|)]|$)`)
)

// forbidden says at once what the wall would let fail in a way that is hard to
// understand. It is a courtesy to the model and guards nothing: everything it
// does not find is stopped by the wall.
func forbidden(command string) string {
	switch {
	case becoming.MatchString(command):
		return "nobody else's rights are to be had here, so sudo, su, doas and pkexec are of no use. Run the command itself."
	case deleting.MatchString(command):
		return "of the machine's files nothing can be deleted. Name files of the workspace."
	}
	return ""
}

// within checks a folder the model names and returns it relative to the
// workspace. The model may have seen the workspace's full path.
func within(root, asked string) (string, *tools.ToolResult) {
	asked = strings.TrimSpace(asked)
	for _, whole := range []string{inside, root} {
		if rest, ok := strings.CutPrefix(asked, whole); ok && (rest == "" || rest[0] == '/') {
			asked = strings.TrimLeft(rest, "/")
			break
		}
	}
	if asked == "" {
		return "", nil
	}
	dir := path.Clean(asked)
	if !filepath.IsLocal(dir) {
		return "", tools.ErrorResult(fmt.Sprintf("The working_directory %q is forbidden: name a folder of the workspace, relative to it.", asked)).
			WithError(errors.New("working directory refused"))
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", nothingRun(err)
	}
	defer func() { _ = r.Close() }() // nothing was written
	if info, err := r.Stat(dir); err != nil || !info.IsDir() {
		return "", tools.ErrorResult(fmt.Sprintf("The working_directory %q does not exist in the workspace, or is no folder.", asked)).WithError(err)
	}
	return dir, nil
}

// result tells the model how a command ended.
func result(o Outcome) *tools.ToolResult {
	text := o.Output
	if text == "" {
		text = "(no output)"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	took := o.Took.Round(10 * time.Millisecond)
	how := ""
	switch {
	case o.Ended == nil && o.Status == 0:
		return tools.SilentResult(fmt.Sprintf("%s[exit status 0, %s]", text, took))
	case o.Ended == nil:
		o.Ended = fmt.Errorf("exit status %d", o.Status)
		how = fmt.Sprintf("[exit status %d, %s]", o.Status, took)
	case errors.Is(o.Ended, ErrMemory), errors.Is(o.Ended, ErrProcesses):
		how = fmt.Sprintf("[killed after %s with all it had started: it %v]", took, o.Ended)
	case errors.Is(o.Ended, ErrTime), errors.Is(o.Ended, context.DeadlineExceeded):
		how = fmt.Sprintf("[timed out after %s and was killed with all it had started]", took)
	default:
		how = fmt.Sprintf("[cancelled after %s, and killed with all it had started]", took)
	}
	return tools.ErrorResult(text + how).WithError(o.Ended)
}
