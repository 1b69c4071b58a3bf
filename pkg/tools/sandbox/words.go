package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// programs are the only ones that may be run, by their names, where the operator
// has made a list. No shell is there then.
type programs map[string]string

var errSyntax = errors.New("shell syntax refused")

// wrappers run whatever program they are given. A list with one of them in it
// would be no list.
var wrappers = []string{
	"ash", "bash", "busybox", "chroot", "chrt", "csh", "dash", "doas", "env", "eval", "exec", "expect", "fish", "flock", "ionice", "ksh",
	"ld.so", "nice", "nohup", "nsenter", "parallel", "pkexec", "prlimit", "rbash", "runuser", "screen", "script", "setarch", "setpriv",
	"setsid", "sh", "ssh", "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "taskset", "tcsh", "time", "timeout", "tmux", "toybox",
	"unshare", "watch", "xargs", "zsh",
}

// hosts run other programs if they are told so: by an option, a script, or a file
// of the workspace.
var hosts = []string{
	"apt", "awk", "cargo", "cmake", "docker", "ed", "emacs", "ex", "find", "gawk", "gdb", "gcc", "git", "go", "java", "less", "lua", "make",
	"man", "mawk", "more", "nano", "nawk", "node", "npm", "npx", "perl", "php", "pip", "podman", "python", "python3", "rsync", "ruby",
	"sed", "split", "sqlite3", "tar", "tclsh", "vi", "view", "vim", "wget", "zip",
}

// options are those by which a host is told so on the command line, refused as
// they stand and with "=" and a value. Short ones that may be joined to others
// are not all found; what they start is behind the same wall.
var options = map[string][]string{
	"find": {"-exec", "-execdir", "-ok", "-okdir"},
	"tar": {
		"-I", "-F", "--checkpoint-action", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script",
		"--rmt-command", "--rsh-command",
	},
	"git":   {"-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "-x", "--exec", "--extcmd", "--open-files-in-pager", "-O"},
	"rsync": {"-e", "--rsh", "--rsync-path"},
	"split": {"--filter"},
	"zip":   {"-TT", "--unzip-command"},
	"wget":  {"--use-askpass"},
}

// CheckCommands returns an error about names that cannot be in a list of programs
// on any machine.
func CheckCommands(names []string) error {
	for _, name := range names {
		if slices.Contains(wrappers, name) {
			return fmt.Errorf("%s runs any program it is given, so that a list with it in it allows everything: take it out, or have no list", name)
		}
	}
	return nil
}

// newPrograms finds the programs of a list.
func newPrograms(names []string, log *slog.Logger) (programs, error) {
	if err := CheckCommands(names); err != nil {
		return nil, err
	}
	list := make(programs, len(names))
	for _, name := range names {
		file, err := lookPath(name)
		if err != nil {
			return nil, err
		}
		// A shell under another name; busybox goes by the name it is called by.
		target, err := filepath.EvalSymlinks(file)
		if base := filepath.Base(target); err == nil && slices.Contains(wrappers, base) && base != "busybox" && base != "toybox" {
			return nil, fmt.Errorf("%s is %s, which runs any program it is given: take it out of the list", name, base)
		}
		list[name] = file
		if slices.Contains(hosts, name) {
			log.Warn("a program of tools.exec.commands can start others that are not in the list; they stay in the sandbox", "program", name)
		}
	}
	return list, list.prove()
}

// prove has the list refuse what it has to.
func (p programs) prove() error {
	for name := range p {
		for _, text := range []string{
			name + " x && touch y", name + " x | " + name, name + " x; " + name, name + " $(" + name + ")", name + " `" + name + "`",
			name + " > y", name + " x\n" + name, name + " &", "./" + name, p[name], "X=1 " + name, "sh -c " + name,
		} {
			if args, err := p.args(text); err == nil {
				return fmt.Errorf("the list of commands does not hold: %q would run %q", text, args)
			}
		}
	}
	return nil
}

// args returns what a text runs. Anything a shell would do more with than split
// it into words is an error, whose text the model reads.
func (p programs) args(text string) ([]string, error) {
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("command is required: write a program and its arguments")
	}
	name := words[0]
	file, ok := p[name]
	if !ok {
		return nil, fmt.Errorf("the program %q is forbidden; allowed are %s", name, strings.Join(p.names(), ", "))
	}
	for _, w := range words[1:] {
		for _, o := range options[name] {
			if rest, found := strings.CutPrefix(w, o); found && (rest == "" || rest[0] == '=' || len(o) == 2) {
				return nil, fmt.Errorf("the option %s of %s is forbidden, because it runs other programs", o, name)
			}
		}
	}
	return append([]string{file}, words[1:]...), nil
}

func (p programs) names() []string {
	names := make([]string, 0, len(p))
	for name := range p {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// split knows words, and quotes around them in which everything stands for
// itself, and nothing else.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	within := false // a word, which may be empty
	var quote rune
	for _, r := range text {
		switch {
		case r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\t':
			return nil, fmt.Errorf("%w: only one line of plain text is run", errSyntax)
		case quote != 0 && r == quote:
			quote = 0
		case quote == '"' && strings.ContainsRune("$`\\!", r):
			return nil, fmt.Errorf("%w: %q means something to a shell even between double quotes, and there is no shell here; use single quotes", errSyntax, r)
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, within = r, true
		case r == ' ' || r == '\t':
			if within {
				words = append(words, word.String())
				word.Reset()
				within = false
			}
		case plain(r):
			word.WriteRune(r)
			within = true
		default:
			return nil, fmt.Errorf("%w: there is no shell here, so %q is not allowed outside of quotes; run one program with its arguments", errSyntax, r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%w: a quote is not closed", errSyntax)
	}
	if within {
		words = append(words, word.String())
	}
	return words, nil
}

// plain reports whether a character stands for itself in every shell.
func plain(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./,:=@%+", r)
}
