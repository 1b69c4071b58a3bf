//go:build failpoint

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// countFile is the environment variable that names the file count_once writes.
const countFile = "DRAGOMAN_COUNT_FILE"

// The tools of this build. It is made to be killed, and needs one that must not
// be run twice: those of the release may all be.
func init() {
	toolTypes = append(toolTypes, func(*app) tools.Tool {
		return tools.Func("count_once", "Count something.", countOnce)
	})
}

type countInput struct {
	What string `json:"what" description:"What is counted."`
}

// countOnce adds a line to the file: whose call it was, by which process, and
// for what.
func countOnce(ctx context.Context, in countInput) *tools.ToolResult {
	call, _ := tools.CallFrom(ctx)
	f, err := os.OpenFile(os.Getenv(countFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return tools.ErrorResult(err.Error())
	}
	_, err = fmt.Fprintf(f, "%s %d %s\n", call.Key(), os.Getpid(), in.What)
	if err := f.Close(); err != nil {
		return tools.ErrorResult(err.Error())
	}
	if err != nil {
		return tools.ErrorResult(err.Error())
	}
	return tools.NewToolResult("counted")
}
