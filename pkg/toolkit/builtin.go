package toolkit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
)

// What read_file reads here.
const maxFileBytes = 10 << 20

// extensions are those of text files, and names of some that have none. Names
// such as .env or id_rsa are not among them.
var extensions = []string{
	"Dockerfile", "LICENSE", "Makefile", "README", ".bash", ".c", ".cc", ".cfg", ".conf", ".cpp", ".cs", ".css", ".csv", ".diff", ".dockerfile",
	".go", ".gradle", ".graphql", ".h", ".hpp", ".html", ".ini", ".java", ".js", ".json", ".jsonl", ".jsx", ".kt",
	".less", ".log", ".lua", ".markdown", ".md", ".mod", ".patch", ".php", ".pl", ".properties", ".proto", ".py",
	".r", ".rb", ".rs", ".rst", ".scala", ".scss", ".sh", ".sql", ".sum", ".svg", ".swift", ".tex", ".tf", ".toml",
	".ts", ".tsv", ".tsx", ".txt", ".vue", ".xml", ".yaml", ".yml", ".zsh",
}

// maxTrial is how long it may take to find out whether there is a sandbox.
const maxTrial = 20 * time.Second

// RegisterBuiltinTools adds read_file, search_files, edit_file, append_file and
// execute_bash. They work in the directory the program is in now, and nowhere
// else: read_file and its like cannot leave it, and execute_bash runs commands
// behind the wall of package sandbox. Where that finds none there is no execute_bash,
// which the log of the registry says, or, if it has none, slog's default; so look with Get before relying
// on it. Whoever runs the tools decides who may: these ask nobody. It blocks
// while the wall is tried, for a fraction of a second.
func (r *Registry) RegisterBuiltinTools() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("toolkit: built-in tools: %w", err)
	}
	here := func(tools.Call) (string, error) { return dir, nil }
	list := []tools.Tool{
		builtin.NewReadFileTool(here, builtin.WithExtensions(extensions...), builtin.WithMaxFileBytes(maxFileBytes)),
		builtin.NewSearchFilesTool(here),
		builtin.NewEditFileTool(here),
		builtin.NewAppendFileTool(here),
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTrial)
	defer cancel()
	log := r.core.Logger()
	if wall, err := sandbox.Find(ctx, sandbox.Options{Log: log}); err == nil {
		list = append(list, sandbox.NewExecuteBash(wall, here))
	} else {
		if !log.Enabled(ctx, slog.LevelWarn) {
			log = slog.Default() // a registry that logs nothing must not hide this
		}
		log.WarnContext(ctx, "execute_bash is not there, since commands cannot be confined here", "err", err)
	}
	for _, t := range list {
		if err := r.core.RegisterTool(t); err != nil {
			return fmt.Errorf("toolkit: built-in tools: %w", err)
		}
	}
	return nil
}
