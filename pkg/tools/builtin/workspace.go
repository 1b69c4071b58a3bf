package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Workspace tells the directory in which a call may work with files. It need
// not exist: it is made when something is first written there.
type Workspace func(call tools.Call) (dir string, err error)

// open returns the call's root. Without create a missing directory is
// fs.ErrNotExist.
func (w Workspace) open(call tools.Call, create bool) (*os.Root, error) {
	if w == nil {
		return nil, errors.New("builtin: no workspace is configured")
	}
	dir, err := w(call)
	if err != nil {
		return nil, fmt.Errorf("builtin: workspace: %w", err)
	}
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("builtin: make the workspace: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("builtin: open the workspace: %w", err)
	}
	return root, nil
}

// folder opens the call's root for looking at what its path names, the whole
// workspace if it names nothing. over is the result if there is nothing to look at.
func (w Workspace) folder(ctx context.Context, args map[string]any) (root *os.Root, p string, over *tools.ToolResult) {
	p, over = local(cmp.Or(text(args, "path"), "."))
	if over != nil {
		return nil, p, over
	}
	call, _ := tools.CallFrom(ctx)
	root, err := w.open(call, false)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p == ".":
		over = emptyDir(p) // nothing has been written yet
	case errors.Is(err, fs.ErrNotExist):
		over = fileProblem(p, err)
	case err != nil:
		over = noWorkspace(err)
	}
	return root, p, over
}

// noWorkspace is the result when the workspace cannot be opened. The model
// learns no path of the machine.
func noWorkspace(err error) *tools.ToolResult {
	return tools.ErrorResult("The workspace cannot be opened at the moment, so nothing was done.").WithError(err)
}

// local checks a path the model wrote and returns it in its shortest form.
// os.Root would stop it at the border too; this says why, on every platform in
// the same words.
func local(p string) (string, *tools.ToolResult) {
	refuse := func(why string) (string, *tools.ToolResult) {
		return "", tools.ErrorResult(fmt.Sprintf("%q is refused: %s", p, why)).WithError(errors.New("path refused: " + why))
	}
	switch {
	case p == "":
		return "", tools.ErrorResult("path is required: name a file of the workspace.")
	case len(p) > 1024:
		return "", tools.ErrorResult("path is too long: the most is 1024 bytes.")
	case strings.ContainsRune(p, 0):
		return refuse("it holds a zero byte.")
	case strings.ContainsRune(p, '\\'):
		return refuse("write / between folders.")
	case p[0] == '/', p[0] == '~', len(p) > 1 && p[1] == ':':
		return refuse("only paths inside the workspace are allowed, relative to it, for example notes/today.md.")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return refuse("\"..\" is not allowed, the workspace cannot be left.")
		}
		if device(part) {
			return refuse(part + " is the name of a device on some systems.")
		}
	}
	return path.Clean(p), nil
}

// device reports whether Windows takes a name for a device, whatever its
// extension.
func device(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base, _, _ = strings.Cut(base, ":")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	if rest, ok := strings.CutPrefix(base, "COM"); ok {
		return deviceNumber(rest)
	}
	rest, ok := strings.CutPrefix(base, "LPT")
	return ok && deviceNumber(rest)
}

func deviceNumber(s string) bool {
	return len([]rune(s)) == 1 && strings.ContainsAny(s, "123456789¹²³")
}

// plainFile describes a file that can be opened without waiting for anybody, or
// says why it cannot: opening a pipe would wait for its other end.
func plainFile(root *os.Root, p string) (os.FileInfo, *tools.ToolResult) {
	info, err := root.Stat(p)
	switch {
	case err != nil:
		return nil, fileProblem(p, err)
	case info.IsDir():
		return nil, tools.ErrorResult(fmt.Sprintf("%q is a folder: name a file in it.", p))
	case !info.Mode().IsRegular():
		return nil, tools.ErrorResult(fmt.Sprintf("%q is not a plain file and is not touched.", p))
	}
	return info, nil
}

// openPlain opens a file that was a plain one a moment ago. A command of the same
// workspace may have put a pipe in its place since: that is not waited for, and
// refused.
func openPlain(root *os.Root, p string, flag int) (*os.File, error) {
	f, err := root.OpenFile(p, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("builtin: open: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotPlain
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("builtin: open: %w", err), f.Close())
	}
	return f, nil
}

var errNotPlain = errors.New("not a plain file")

// fileProblem turns an error of os.Root into a sentence. The error itself may
// name a path of the machine and goes to the log only.
func fileProblem(p string, err error) *tools.ToolResult {
	var why string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "does not exist. List its folder to see what there is."
	case errors.Is(err, fs.ErrPermission):
		why = "may not be used: permission denied."
	case errors.Is(err, fs.ErrExist):
		why = "cannot be made: a file is where a folder would have to be."
	case strings.Contains(err.Error(), "escapes"):
		why = "leads out of the workspace and is refused."
	default:
		why = "cannot be used: it is not a plain file or folder of the workspace, or the disk refuses."
	}
	return tools.ErrorResult(fmt.Sprintf("%q %s", p, why)).WithError(err)
}
