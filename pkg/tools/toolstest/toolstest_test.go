package toolstest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/toolstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type input struct {
	Text  string `json:"text" description:"What to say" minLength:"1"`
	Times int    `json:"times,omitempty" description:"How often" minimum:"1" maximum:"9" default:"1"`
}

var example = map[string]interface{}{"text": "hi", "times": 2}

func TestGoodTools(t *testing.T) {
	t.Run("func", func(t *testing.T) {
		toolstest.Check(t, tools.Func("say", "Say some text again.", func(_ context.Context, in input) *tools.ToolResult {
			return tools.NewToolResult(strings.Repeat(in.Text, in.Times))
		}), toolstest.Args(example), toolstest.Secrets("hunter2"))
	})
	t.Run("async", func(t *testing.T) {
		toolstest.Check(t, tools.AsyncFunc("later", "Say some text later.", func(ctx context.Context, in input, report tools.AsyncCallback) *tools.ToolResult {
			tools.Go(ctx, func(ctx context.Context) { report(ctx, tools.NewToolResult(in.Text)) })
			return tools.AsyncResult("started")
		}), toolstest.Args(example))
	})
	t.Run("without examples", func(t *testing.T) {
		toolstest.Check(t, tools.Func("now", "Tell the time now.", func(ctx context.Context, _ struct{}) *tools.ToolResult {
			if _, ok := tools.CallFrom(ctx); !ok && ctx.Value(key{}) == nil {
				return tools.ErrorResult("no context")
			}
			return tools.NewToolResult("noon")
		}), toolstest.Context(context.WithValue(t.Context(), key{}, true)))
	})
}

type key struct{}

// bad is a tool that can be spoilt in every way.
type bad struct {
	name, description string
	params            func() map[string]interface{}
	run               func(ctx context.Context, args map[string]interface{}) *tools.ToolResult
}

func (b *bad) Name() string                       { return b.name }
func (b *bad) Description() string                { return b.description }
func (b *bad) Parameters() map[string]interface{} { return b.params() }
func (b *bad) Execute(ctx context.Context, args map[string]interface{}) *tools.ToolResult {
	return b.run(ctx, args)
}

func schema() map[string]interface{} {
	return map[string]interface{}{"type": "object", "properties": map[string]interface{}{
		"text": map[string]interface{}{"type": "string", "description": "What to say"},
	}}
}

// badTools lists what is wrong with each, and what the kit says to it.
func badTools() map[string]struct {
	tool bad
	want string
} {
	good := func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.NewToolResult("ok") }
	n := 0
	return map[string]struct {
		tool bad
		want string
	}{
		"name":        {bad{"no good", "A tool with a bad name", schema, good}, `the name must be`},
		"description": {bad{"bad", "Bad", schema, good}, `tells a model too little`},
		"undescribed": {bad{"bad", "A tool that is bad", func() map[string]interface{} {
			return map[string]interface{}{"type": "object", "properties": map[string]interface{}{"text": map[string]interface{}{"type": "string"}}}
		}, good}, `text has no description`},
		"schema": {bad{"bad", "A tool that is bad", func() map[string]interface{} { return map[string]interface{}{"type": "array"} }, good}, `want object`},
		"unstable": {bad{"bad", "A tool that is bad", func() map[string]interface{} {
			n++
			s := schema()
			s["title"] = n
			return s
		}, good}, `the schema changes`},
		"nil": {bad{"bad", "A tool that is bad", schema, func(context.Context, map[string]interface{}) *tools.ToolResult { return nil }}, `the result is nil`},
		"panic": {bad{"bad", "A tool that is bad", schema, func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			return tools.NewToolResult(args["text"].(string))
		}}, `panic: interface conversion`},
		"empty": {bad{"bad", "A tool that is bad", schema, func(context.Context, map[string]interface{}) *tools.ToolResult {
			return &tools.ToolResult{}
		}}, `ForLLM is empty`},
		"writes": {bad{"bad", "A tool that is bad", schema, func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			if args != nil {
				args["text"] = "mine"
			}
			return tools.NewToolResult("ok")
		}}, `changes its arguments`},
		"hangs": {bad{"bad", "A tool that is bad", schema, func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
			<-context.WithoutCancel(ctx).Done()
			return nil
		}}, `does not return within`},
		"secret": {bad{"bad", "A tool that is bad", schema, func(context.Context, map[string]interface{}) *tools.ToolResult {
			return tools.UserResult("the password is hunter2")
		}}, `holds a secret`},
		"fails": {bad{"bad", "A tool that is bad", schema, func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
			return tools.ErrorResult("never")
		}}, `fails: never`},
	}
}

const spoilt = "TOOLSTEST_SPOILT"

// TestSpoilt is run by TestBadTools in a process of its own, where it fails.
func TestSpoilt(t *testing.T) {
	c, ok := badTools()[os.Getenv(spoilt)]
	if !ok {
		t.Skip("nothing is spoilt")
	}
	toolstest.Check(t, &c.tool, toolstest.Args(map[string]interface{}{"text": "hi"}), toolstest.Secrets("hunter2"), toolstest.Patience(time.Second))
}

func TestBadTools(t *testing.T) {
	for name, c := range badTools() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSpoilt$")
			cmd.Env = append(os.Environ(), spoilt+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the kit took it:\n%s", out)
			}
			if !regexp.MustCompile(regexp.QuoteMeta(c.want)).Match(out) {
				t.Errorf("the kit does not say %q:\n%s", c.want, out)
			}
		})
	}
}
