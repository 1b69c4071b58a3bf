package toolkit

import (
	"fmt"
	"os"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// RegisterBuiltinTools adds read_file, which reads text files below the
// directory the program is in now, and nothing outside of it.
func (r *Registry) RegisterBuiltinTools() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("toolkit: built-in tools: %w", err)
	}
	return r.core.RegisterTool(builtin.NewReadFileTool(func(tools.Call) (string, error) { return dir, nil }))
}
