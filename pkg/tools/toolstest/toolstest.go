// Package toolstest is the kit every tool passes, in the manner of
// testing/fstest. A rule each tool has to keep is written here, once:
//
//	func TestReadFile(t *testing.T) {
//		toolstest.Check(t, builtin.NewReadFileTool(dir),
//			toolstest.Args(map[string]interface{}{"path": "a.txt"}))
//	}
package toolstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Option tells Check more about a tool.
type Option func(*kit)

// Args gives arguments the tool accepts, an example each. They are run several
// times over, at once too, so what they do must bear that. Without any, only
// wrong arguments are tried.
func Args(examples ...map[string]interface{}) Option {
	return func(k *kit) { k.examples = append(k.examples, examples...) }
}

// Context gives the context of every call, for what a tool reads from it.
func Context(ctx context.Context) Option { return func(k *kit) { k.ctx = ctx } }

// Secrets names texts that must not come up in anything the model or a person
// reads.
func Secrets(secrets ...string) Option {
	return func(k *kit) { k.secrets = append(k.secrets, secrets...) }
}

// Patience is how long a call may take; 10 seconds unless it is given.
func Patience(d time.Duration) Option { return func(k *kit) { k.patience = d } }

type kit struct {
	tool     tools.Tool
	ctx      context.Context //nolint:containedctx // an option of the kit
	examples []map[string]interface{}
	secrets  []string
	patience time.Duration
}

// conversations is how many call the tool at once.
const conversations = 16

// Check fails t for every rule the tool breaks: a name, description and schema
// a model can use and that never change; a result for whatever it is called
// with, nil, empty and wrong arguments included; no panic; arguments left as
// they were; a prompt return when the context has ended; calls of several
// conversations at once; at most one report of a background task, to the
// conversation that asked; results of the right form.
func Check(t *testing.T, tool tools.Tool, options ...Option) {
	t.Helper()
	k := &kit{tool: tool, ctx: t.Context(), patience: 10 * time.Second}
	for _, o := range options {
		o(k)
	}
	t.Run("identity", k.identity)
	t.Run("schema", k.schema)
	t.Run("wrong arguments", k.wrongArguments)
	t.Run("examples", k.runExamples)
	t.Run("cancelled", k.cancelled)
	t.Run("at once", k.atOnce)
}

func (k *kit) identity(t *testing.T) {
	if err := tools.NewToolRegistry().RegisterTool(k.tool); err != nil {
		t.Error(err)
	}
	if a, b := k.tool.Name(), k.tool.Name(); a != b {
		t.Errorf("Name changes from %q to %q", a, b)
	}
	if text := strings.TrimSpace(k.tool.Description()); len(strings.Fields(text)) < 3 {
		t.Errorf("Description is %q, which tells a model too little", text)
	}
}

func (k *kit) schema(t *testing.T) {
	params := k.tool.Parameters()
	if params["type"] != "object" {
		t.Errorf("Parameters: type is %v, want object", params["type"])
	}
	before := encode(t, tools.ToolToSchema(k.tool))
	for name, p := range properties(t, params) {
		if p["description"] == nil || p["description"] == "" {
			t.Errorf("Parameters: %s has no description", name)
		}
	}
	for _, args := range k.examples {
		k.call(t, k.ctx, args)
	}
	if after := encode(t, tools.ToolToSchema(k.tool)); !bytes.Equal(before, after) {
		t.Errorf("the schema changes:\n%s\n%s", before, after)
	}
}

func (k *kit) wrongArguments(t *testing.T) {
	r := k.registry(t)
	required := len(stringsOf(t, k.tool.Parameters()["required"])) > 0
	for _, args := range []map[string]interface{}{nil, {}} {
		result := k.call(t, k.ctx, args)
		if required && !result.IsError {
			t.Errorf("Execute(%v) without a required argument is no error: %q", args, result.ForLLM)
		}
		if result := k.through(t, r, args); required && !result.IsError {
			t.Errorf("the registry lets %v through without a required argument", args)
		}
	}
	for name, p := range properties(t, k.tool.Parameters()) {
		for _, wrong := range wrongFor(p["type"]) {
			args := map[string]interface{}{}
			if len(k.examples) > 0 {
				args = maps.Clone(k.examples[0])
			}
			args[name] = wrong
			k.call(t, k.ctx, args)
			if result := k.through(t, r, args); !result.IsError {
				t.Errorf("the registry lets %s=%#v through: %q", name, wrong, result.ForLLM)
			}
		}
	}
}

// through runs the tool through a registry that has nobody to report to.
func (k *kit) through(t *testing.T, r *tools.ToolRegistry, args map[string]interface{}) *tools.ToolResult {
	t.Helper()
	return k.wait(t, args, func() *tools.ToolResult { return r.Execute(k.ctx, k.tool.Name(), args) })
}

// wrongFor returns values that are not of a JSON type, and that nobody would
// take for one that was written differently.
func wrongFor(kind interface{}) []interface{} {
	values := map[string]interface{}{
		"string":  "some text, and more",
		"number":  1.5,
		"boolean": true,
		"array":   []interface{}{map[string]interface{}{}},
		"object":  map[string]interface{}{"x": []interface{}{}},
	}
	name, ok := kind.(string)
	if !ok {
		return nil // any or several types
	}
	if name == "array" { // a value alone may be meant as the one element
		return []interface{}{values["string"]}
	}
	delete(values, name)
	return slices.Collect(maps.Values(values))
}

func (k *kit) runExamples(t *testing.T) {
	if len(k.examples) == 0 {
		t.Skip("no examples given")
	}
	r := k.registry(t)
	for _, args := range k.examples {
		if result := k.ask(t, r, "chat", args); result.IsError {
			t.Errorf("the example %v fails: %s", args, result.ForLLM)
		}
	}
}

func (k *kit) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	for _, args := range append(slices.Clone(k.examples), nil) {
		k.call(t, ctx, args)
	}
}

func (k *kit) atOnce(t *testing.T) {
	if len(k.examples) == 0 {
		t.Skip("no examples given")
	}
	r := k.registry(t)
	var wg sync.WaitGroup
	for i := range conversations {
		wg.Go(func() { // a failing ask ends this goroutine alone
			for _, args := range k.examples {
				k.ask(t, r, fmt.Sprintf("chat-%d", i), args)
			}
		})
	}
	wg.Wait()
}

// call runs the tool itself, as a test of its own would.
func (k *kit) call(t *testing.T, ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	before := encode(t, args)
	result := k.wait(t, args, func() *tools.ToolResult { return k.tool.Execute(ctx, args) })
	if after := encode(t, args); !bytes.Equal(before, after) {
		t.Errorf("Execute changes its arguments from %s to %s", before, after)
	}
	k.checkResult(t, result)
	return result
}

// wait runs a call on a goroutine of its own and gives it up when it hangs.
func (k *kit) wait(t *testing.T, args map[string]interface{}, run func() *tools.ToolResult) *tools.ToolResult {
	t.Helper()
	done := make(chan *tools.ToolResult, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- tools.ErrorResult(fmt.Sprintf("panic: %v", p)).WithError(errPanic)
			}
		}()
		done <- run()
	}()
	timer := time.NewTimer(k.patience)
	defer timer.Stop()
	select {
	case result := <-done:
		if result != nil && result.Err == errPanic { //nolint:errorlint // our own, never wrapped
			t.Fatalf("Execute(%v): %s", args, result.ForLLM)
		}
		return result
	case <-timer.C:
		t.Fatalf("Execute(%v) does not return within %s", args, k.patience)
		return nil
	}
}

type panicError struct{}

func (panicError) Error() string { return "panic" }

var errPanic = panicError{}

// ask runs the tool through a registry for a conversation, and waits for what
// it reports later.
func (k *kit) ask(t *testing.T, r *tools.ToolRegistry, chat string, args map[string]interface{}) *tools.ToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, k.patience)
	defer cancel()
	reports := make(chan *tools.ToolResult, 2)
	result := k.wait(t, args, func() *tools.ToolResult {
		return r.ExecuteWithContext(ctx, k.tool.Name(), args, "test", chat, func(ctx context.Context, result *tools.ToolResult) {
			if c, ok := tools.CallFrom(ctx); !ok || c.ChatID != chat {
				t.Errorf("the report of %s comes with the call of %q", chat, c.ChatID)
			}
			reports <- result
		})
	})
	k.checkResult(t, result)
	if !result.Async {
		return result
	}
	select {
	case report := <-reports:
		if report.Async {
			t.Error("the report of a background task is Async itself")
		}
		k.checkResult(t, report)
	case <-ctx.Done():
		t.Errorf("%v: no report within %s", args, k.patience)
	}
	return result
}

// registry returns one with the tool in it, whose background work is over when
// the test is.
func (k *kit) registry(t *testing.T) *tools.ToolRegistry {
	t.Helper()
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(k.tool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), k.patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// checkResult checks the form of a result.
func (k *kit) checkResult(t *testing.T, result *tools.ToolResult) {
	t.Helper()
	if result == nil {
		t.Fatal("the result is nil")
	}
	if result.ForLLM == "" {
		t.Errorf("ForLLM is empty in %+v", result)
	}
	data := encode(t, result)
	var back tools.ToolResult
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&back); err != nil {
		t.Fatalf("the result does not survive JSON: %v", err)
	}
	want := *result
	want.Err = nil
	want.Data, back.Data = nil, nil // its numbers have no Go type there
	if !reflect.DeepEqual(back, want) {
		t.Errorf("the result changes in JSON from %+v to %+v", want, back)
	}
	for _, secret := range k.secrets {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("the result holds a secret: %s", strings.ReplaceAll(string(data), secret, "(secret)"))
		}
	}
}

func encode(t *testing.T, v interface{}) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%v cannot be written as JSON: %v", v, err)
	}
	return data
}

// properties returns the arguments a schema names, whatever Go types it is
// written in.
func properties(t *testing.T, params map[string]interface{}) map[string]map[string]interface{} {
	t.Helper()
	var schema struct {
		Properties map[string]map[string]interface{} `json:"properties"`
	}
	if err := json.Unmarshal(encode(t, params), &schema); err != nil {
		t.Fatalf("Parameters: %v", err)
	}
	return schema.Properties
}

func stringsOf(t *testing.T, v interface{}) []string {
	t.Helper()
	var list []string
	if err := json.Unmarshal(encode(t, v), &list); err != nil {
		t.Fatalf("Parameters: required: %v", err)
	}
	return list
}
