package toolkit_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a tool made of a function.
type fake struct {
	name   string
	schema map[string]interface{}
	run    func(ctx context.Context, params map[string]interface{}) (toolkit.ToolResult, error)
}

func (f *fake) Name() string                       { return f.name }
func (f *fake) Description() string                { return "Fakes " + f.name + " for a test" }
func (f *fake) JSONSchema() map[string]interface{} { return f.schema }
func (f *fake) Execute(ctx context.Context, params map[string]interface{}) (toolkit.ToolResult, error) {
	if f.run == nil {
		return good("ran " + f.name), nil
	}
	return f.run(ctx, params)
}

func good(content string) toolkit.ToolResult {
	return toolkit.ToolResult{Success: true, Content: content}
}

// registry returns one with the tools in it.
func registry(tb testing.TB, all ...toolkit.Tool) *toolkit.Registry {
	tb.Helper()
	r := toolkit.NewRegistry()
	for _, tool := range all {
		if err := r.Register(tool); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

func object(required []string, names ...string) map[string]interface{} {
	properties := map[string]interface{}{}
	for _, n := range names {
		properties[n] = map[string]interface{}{"type": "string"}
	}
	schema := map[string]interface{}{"type": "object", "properties": properties}
	if required != nil {
		schema["required"] = required
	}
	return schema
}

// toolError fails unless err is a ToolError, on the value.
func toolError(t *testing.T, err error) toolkit.ToolError {
	t.Helper()
	failed, ok := errors.AsType[toolkit.ToolError](err)
	if !ok {
		t.Fatalf("%T is no ToolError: %v", err, err)
	}
	return failed
}
