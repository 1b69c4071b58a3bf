package toolkit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tools "github.com/dragoman-chat/dragoman/pkg/toolkit"
	coretools "github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// The examples of the API reference, each made into a program, under the name
// the text gives the package.

// The contract, name by name. A signature that changes stops compiling here.
type (
	seedTool interface {
		Name() string
		Description() string
		JSONSchema() map[string]interface{}
		Execute(ctx context.Context, params map[string]interface{}) (tools.ToolResult, error)
	}
	seedRegistry interface {
		Register(tool tools.Tool) error
		Unregister(name string)
		Get(name string) (tools.Tool, bool)
		List() []string
	}
	seedRunner interface {
		Execute(ctx context.Context, req tools.ToolRequest) (tools.ToolResult, error)
		ExecuteAsync(ctx context.Context, req tools.ToolRequest) <-chan tools.ToolResult
		ExecuteBatch(ctx context.Context, reqs []tools.ToolRequest) (tools.BatchResult, error)
		RegisterBuiltinTools() error
	}
)

var (
	_ tools.Tool           = seedTool(nil)
	_ seedTool             = tools.Tool(nil)
	_ seedRegistry         = (*tools.Registry)(nil)
	_ seedRunner           = (*tools.Registry)(nil)
	_ error                = tools.ToolError{}
	_ tools.ToolOutcome    = tools.ToolResult{}
	_ tools.ProgressUpdate = struct {
		ToolID   string
		Progress float64
		Message  string
		Status   tools.ProgressStatus
	}{}
	_ func() *tools.Registry = tools.NewRegistry
)

// inWorkspace moves the test to a folder with the files.
func inWorkspace(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What the results look like as JSON: the tags of the text, and nothing else.
func TestSeedDataTypes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	result := tools.ToolResult{Success: true, Content: "x", Metadata: tools.ToolMetadata{
		ExecutionTime: 7, StartTime: at, EndTime: at, ToolName: "read_file", Parameters: map[string]interface{}{"path": "a"},
	}}
	const text = `{"success":true,"content":"x","metadata":{"execution_time":7,"start_time":"2026-01-02T03:04:05Z",` +
		`"end_time":"2026-01-02T03:04:05Z","tool_name":"read_file","parameters":{"path":"a"}}}`
	for want, v := range map[string]any{
		text: result,
		`{"name":"read_file","parameters":{"path":"a"}}`: tools.ToolRequest{
			Name: "read_file", Parameters: map[string]interface{}{"path": "a"}, Context: t.Context(),
		},
		`{"results":{"r":` + text + `},"errors":{"r":"read_file: no"},"start_time":"2026-01-02T03:04:05Z","end_time":"2026-01-02T03:04:05Z","duration":9}`: tools.BatchResult{
			Results: map[string]tools.ToolResult{"r": result}, Errors: map[string]error{"r": tools.ToolError{ToolName: "read_file", Message: "no"}},
			StartTime: at, EndTime: at, Duration: 9,
		},
	} {
		data, err := json.Marshal(v)
		if err != nil || string(data) != want {
			t.Errorf("got %s, %v, want %s", data, err, want)
		}
	}
}

// builtinTools is a registry with the built-in tools, execute_bash among them.
func builtinTools(t *testing.T) *tools.Registry {
	t.Helper()
	registry := tools.NewRegistry()
	if err := registry.RegisterBuiltinTools(); err != nil {
		t.Fatal(err)
	}
	if _, ok := registry.Get("execute_bash"); !ok {
		sandboxtest.Missing(t, "there is no execute_bash, since commands cannot be confined here")
	}
	return registry
}

func TestSeedUsage(t *testing.T) {
	inWorkspace(t, map[string]string{"config.json": "{}\n"})
	registry := builtinTools(t)

	req := tools.ToolRequest{
		Name: "execute_bash",
		Parameters: map[string]interface{}{
			"command": "ls -la",
		},
	}

	result, err := registry.Execute(context.Background(), req)
	if !result.Success || err != nil {
		t.Fatalf("got %+v, %v", result, err)
	}
	if out := fmt.Sprintf("Output: %s", result.Content); !strings.Contains(out, "config.json") || !strings.Contains(out, "total") {
		t.Errorf("printed %q", out)
	}
	if err := registry.RegisterBuiltinTools(); err == nil {
		t.Error("the tools were registered twice")
	}
}

// What RegisterBuiltinTools adds, also where commands cannot be confined: then
// there is all but execute_bash, and the log says why.
func TestBuiltinTools(t *testing.T) {
	inWorkspace(t, nil)
	var log bytes.Buffer
	core := coretools.NewToolRegistryWith(coretools.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	registry := tools.Over(core)
	if err := registry.RegisterBuiltinTools(); err != nil {
		t.Fatal(err)
	}
	want := []string{"append_file", "edit_file", "execute_bash", "read_file", "search_files"}
	if _, ok := registry.Get("execute_bash"); !ok {
		want = slices.Delete(want, 2, 3)
		if !strings.Contains(log.String(), "execute_bash is not there") || !strings.Contains(log.String(), "err=") {
			t.Errorf("the log says %q", log.String())
		}
	}
	if got := registry.List(); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	if err := registry.RegisterBuiltinTools(); err == nil || !strings.Contains(err.Error(), "read_file") {
		t.Errorf("the second time it says %v", err)
	}
}

// Pipes work, and a command is confined to the directory.
func TestSeedBash(t *testing.T) {
	inWorkspace(t, map[string]string{"a/b.txt": "one\ntwo\n"})
	registry := builtinTools(t)
	run := func(params map[string]interface{}) tools.ToolResult {
		t.Helper()
		result, err := registry.Execute(t.Context(), tools.ToolRequest{Name: "execute_bash", Parameters: params})
		if (err == nil) != result.Success {
			t.Fatalf("got %+v with the error %v", result, err)
		}
		return result
	}
	for command, want := range map[string]string{
		"printf 'a\\nb\\nc\\n' | wc -l": "3",
		"cat a/b.txt | tail -n 1":       "two",
		"echo $((6*7)) && echo after":   "42\nafter",
		"ls -la | grep -c ' a$'":        "1",
	} {
		if r := run(map[string]interface{}{"command": command}); !r.Success || !strings.Contains(r.Content, want) {
			t.Errorf("%s gave %+v, want %q", command, r, want)
		}
	}
	if r := run(map[string]interface{}{"command": "cat b.txt", "working_directory": "a"}); !r.Success || !strings.Contains(r.Content, "one\ntwo") {
		t.Errorf("got %+v", r)
	}
	if r := run(map[string]interface{}{"command": "ls", "working_directory": "../.."}); r.Success {
		t.Errorf("outside of the directory: %+v", r)
	}
	if r := run(map[string]interface{}{"command": "exit 3"}); r.Success && !strings.Contains(r.Content, "3") || !strings.Contains(r.Content+r.Error, "3") {
		t.Errorf("the exit status is not told: %+v", r)
	}
}

// A command that takes too long is ended, with all it has started.
func TestSeedBashTimeout(t *testing.T) {
	inWorkspace(t, nil)
	if sandbox.DefaultLimits().Time != 30*time.Second {
		t.Errorf("a command may take %v", sandbox.DefaultLimits().Time)
	}
	wall, err := sandbox.Find(t.Context(), sandbox.Options{Limits: sandbox.Limits{Time: 3 * time.Second}})
	if err != nil {
		sandboxtest.Missing(t, err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	core := coretools.NewToolRegistry()
	core.Register(sandbox.NewExecuteBash(wall, func(coretools.Call) (string, error) { return dir, nil }))
	result, err := tools.Over(core).Execute(t.Context(), tools.ToolRequest{
		Name: "execute_bash", Parameters: map[string]interface{}{"command": "echo begun; sleep 1000 & sleep 1000"},
	})
	if err == nil || result.Success || !strings.Contains(result.Error, "timed out") || !strings.Contains(result.Error+result.Content, "begun") {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestSeedSecurityViolation(t *testing.T) {
	inWorkspace(t, nil)
	registry, ctx := builtinTools(t), t.Context()
	params := map[string]interface{}{
		"command": "sudo rm -rf /", // forbidden command
	}
	req := tools.ToolRequest{Name: "execute_bash", Parameters: params}

	result, err := registry.Execute(ctx, req)
	// result.Success will be false
	// result.Error will contain security violation message
	if result.Success || !strings.Contains(result.Error, "forbidden") {
		t.Errorf("got %+v", result)
	}
	if failed := toolError(t, err); failed.ToolName != "execute_bash" {
		t.Errorf("got %+v", failed)
	}
}

func TestSeedBatchExecution(t *testing.T) {
	inWorkspace(t, map[string]string{"config.json": "{}", "b.txt": "two"})
	registry, ctx := builtinTools(t), t.Context()

	requests := []tools.ToolRequest{
		{Name: "read_file", Parameters: map[string]interface{}{"path": "config.json"}},
		{Name: "execute_bash", Parameters: map[string]interface{}{"command": "ls -la"}},
	}

	batchResult, err := registry.ExecuteBatch(ctx, requests)
	if err != nil || len(batchResult.Errors) != 0 || len(batchResult.Results) != 2 {
		t.Fatalf("got %+v, %v", batchResult, err)
	}
	if a, b := batchResult.Results["read_file"].Content, batchResult.Results["execute_bash"].Content; a != "{}" || !strings.Contains(b, "b.txt") {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestSeedProgressTracking(t *testing.T) {
	registry := tools.NewRegistry()
	if err := registry.Register(&fake{name: "steps"}); err != nil {
		t.Fatal(err)
	}
	updates := make(chan tools.ProgressUpdate, 10)
	if _, err := registry.Execute(tools.WithProgress(t.Context(), updates), tools.ToolRequest{Name: "steps"}); err != nil {
		t.Fatal(err)
	}
	want := []tools.ProgressUpdate{{ToolID: "steps", Status: tools.ProgressStarted}, {ToolID: "steps", Progress: 1.0, Status: tools.ProgressCompleted}}
	for _, w := range want {
		if got := <-updates; got != w {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
}

func TestSeedProviderFormats(t *testing.T) {
	registry := tools.NewRegistry()
	if err := registry.RegisterBuiltinTools(); err != nil {
		t.Fatal(err)
	}
	for provider, key := range map[string]string{"openai": `"parameters":{`, "anthropic": `"input_schema":{`, "ollama": `"parameters":{`} {
		definitions, err := registry.GetDefinitions(provider)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(definitions)
		if err != nil || !strings.Contains(string(data), key) || !strings.Contains(string(data), `"name":"read_file"`) {
			t.Errorf("%s gets %s, %v", provider, data, err)
		}
	}
	if _, err := registry.GetDefinitions("smoke signals"); err == nil {
		t.Error("an unknown provider is no error")
	}
}

func TestSeedToolNotFound(t *testing.T) {
	registry := tools.NewRegistry()
	result, err := registry.Execute(t.Context(), tools.ToolRequest{Name: "nonexistent"})
	// err will be ToolError with "tool not found" message
	// result.Success will be false
	failed := toolError(t, err)
	if failed.ToolName != "nonexistent" || failed.Message != "tool not found" || failed.Error() != "nonexistent: tool not found" {
		t.Errorf("got %+v, %q", failed, failed)
	}
	if result.Success || !strings.Contains(result.Error, "not found") || result.Metadata.ToolName != "nonexistent" {
		t.Errorf("got %+v", result)
	}
}

func TestSeedParameterValidation(t *testing.T) {
	inWorkspace(t, nil)
	registry := builtinTools(t)
	// Missing required parameter
	result, err := registry.Execute(t.Context(), tools.ToolRequest{
		Name:       "execute_bash",
		Parameters: map[string]interface{}{}, // missing "command"
	})
	// result.Success will be false
	// result.Error will contain validation message
	if result.Success || !strings.Contains(result.Error, "command is required") {
		t.Errorf("got %+v", result)
	}
	if failed := toolError(t, err); failed.Cause == nil {
		t.Errorf("got %+v", failed)
	}
}

// The texts of read_file for what is not there, what is empty and a range of
// lines, counted from 1 and with both ends.
func TestSeedReadFile(t *testing.T) {
	inWorkspace(t, map[string]string{"empty.txt": "", "lines.txt": "one\ntwo\nthree\nfour\n"})
	registry := tools.NewRegistry()
	if err := registry.RegisterBuiltinTools(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		params map[string]interface{}
		fails  bool
		says   string
	}{
		"missing":          {map[string]interface{}{"path": "none.txt"}, true, "does not exist"},
		"empty":            {map[string]interface{}{"path": "empty.txt"}, false, "is empty"},
		"range":            {map[string]interface{}{"path": "lines.txt", "start_line": 2, "end_line": 3}, false, "two\nthree\n"},
		"one line":         {map[string]interface{}{"path": "lines.txt", "start_line": 4, "end_line": 4}, false, "four\n"},
		"line 0":           {map[string]interface{}{"path": "lines.txt", "start_line": 0}, true, "start_line"},
		"outside":          {map[string]interface{}{"path": "../secret"}, true, "refused"},
		"outside, by root": {map[string]interface{}{"path": "/etc/passwd"}, true, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := registry.Execute(t.Context(), tools.ToolRequest{Name: "read_file", Parameters: tc.params})
			if result.Success == tc.fails || (err != nil) != tc.fails {
				t.Fatalf("got %+v, %v", result, err)
			}
			if text := result.Content + result.Error; !strings.Contains(text, tc.says) || name == "range" && text != tc.says {
				t.Errorf("got %q, want %q", text, tc.says)
			}
		})
	}
}

func TestSeedToolErrorUnwraps(t *testing.T) {
	cause := errors.New("the disk is full")
	var err error = tools.ToolError{ToolName: "write", Message: "cannot write", Cause: cause}
	if !errors.Is(err, cause) || err.Error() != "write: cannot write (the disk is full)" {
		t.Errorf("got %v", err)
	}
	var failed tools.ToolError
	if !errors.As(fmt.Errorf("outer: %w", err), &failed) || failed.Cause != cause { //nolint:errorlint // the very same
		t.Errorf("got %+v", failed)
	}
}
