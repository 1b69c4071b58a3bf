package tools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestRegisterReplaces(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	first, second := &fake{name: "a"}, &fake{name: "a"}
	r.Register(first)
	r.Register(second)
	if got, ok := r.Get("a"); !ok || got != tools.Tool(second) || r.Count() != 1 {
		t.Errorf("got %v of %d", got, r.Count())
	}
	if !strings.Contains(log.String(), "tool replaced") {
		t.Errorf("the log says %q", log)
	}
	r.Unregister("a")
	r.Unregister("a")
	if _, ok := r.Get("a"); ok || r.Count() != 0 {
		t.Error("it is still there")
	}
}

func TestReservedNames(t *testing.T) {
	r, log := logged(slog.LevelError)
	mine := &fake{name: "a"}
	r.Register(mine)
	r.Reserve("a", "free")
	r.Register(&fake{name: "a"})
	r.Register(&fake{name: "free"})
	if err := r.RegisterTool(&fake{name: "free"}); err == nil {
		t.Error("RegisterTool took a reserved name")
	}
	r.Unregister("a")
	if got, _ := r.Get("a"); got != tools.Tool(mine) || r.Count() != 1 {
		t.Errorf("got %v, tools %v", got, r.List())
	}
	if n := strings.Count(log.String(), "reserved"); n != 3 {
		t.Errorf("logged %d times: %s", n, log)
	}
}

type shameless struct{ *fake }

func (shameless) Description() string { panic("no") }

func TestRegisterToolIsStrict(t *testing.T) {
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(&fake{name: "Ok-1_b"}); err != nil {
		t.Error(err)
	}
	if err := r.RegisterTool(readTool("read_file")); err != nil {
		t.Error(err)
	}
	for name, tool := range map[string]tools.Tool{
		"nil":            nil,
		"typed nil":      (*fake)(nil),
		"no name":        &fake{},
		"space":          &fake{name: "a b"},
		"dot":            &fake{name: "a.b"},
		"umlaut":         &fake{name: "ä"},
		"long":           &fake{name: strings.Repeat("a", 65)},
		"taken":          &fake{name: "Ok-1_b"},
		"no description": undescribed{&fake{name: "a"}},
		"panics":         shameless{&fake{name: "a"}},
		"not an object":  &fake{name: "a", params: map[string]interface{}{"type": "string"}},
		"no schema":      &fake{name: "a", params: map[string]interface{}{"type": "object", "properties": map[string]interface{}{"x": map[string]interface{}{"type": "strong"}}}},
		"no JSON":        &fake{name: "a", params: map[string]interface{}{"type": "object", "x": make(chan int)}},
		"reads files":    &fake{name: "a", params: map[string]interface{}{"type": "object", "properties": map[string]interface{}{"x": map[string]interface{}{"$ref": "file:///etc/passwd"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.RegisterTool(tool); err == nil {
				t.Error("it was taken")
			}
			r.Register(tool) // must not panic
		})
	}
}

type undescribed struct{ *fake }

func (undescribed) Description() string { return "" }

func TestExport(t *testing.T) {
	r := tools.NewToolRegistry()
	if r.Count() != 0 || len(r.List()) != 0 || len(r.GetDefinitions()) != 0 || len(r.ToProviderDefs()) != 0 || len(r.GetSummaries()) != 0 {
		t.Error("a new registry is not empty")
	}
	for _, name := range []string{"zeta", "alpha", "mid-dle"} {
		r.Register(plainRead(name))
	}
	r.Register(&fake{name: "bare"})
	if got := r.List(); !slices.Equal(got, []string{"alpha", "bare", "mid-dle", "zeta"}) {
		t.Errorf("List: %v", got)
	}
	if got := r.GetSummaries()[0]; got != "- `alpha` - Fakes alpha for a test" {
		t.Errorf("GetSummaries: %q", got)
	}
	encode := func(v interface{}) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first, firstDefs := encode(r.ToProviderDefs()), encode(r.GetDefinitions())
	var a, b interface{}
	if err := errors.Join(json.Unmarshal(first, &a), json.Unmarshal(firstDefs, &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the two forms differ: %s", diff)
	}
	for range 100 {
		r.Register(plainRead("zeta")) // the list is made anew
		if got := encode(r.ToProviderDefs()); !bytes.Equal(got, first) {
			t.Fatalf("the definitions change:\n%s\n%s", first, got)
		}
		if got := encode(r.GetDefinitions()); !bytes.Equal(got, firstDefs) {
			t.Fatalf("the definitions change:\n%s\n%s", first, got)
		}
	}
	const bare = `{"type":"function","function":{"name":"bare","description":"Fakes bare for a test","parameters":{"properties":{},"type":"object"}}}`
	if got := encode(r.ToProviderDefs()[1]); string(got) != bare {
		t.Errorf("a tool without a schema is %s", got)
	}
}

// The schema is read once: what a tool does to its map later reaches no request.
func TestSchemaIsReadOnce(t *testing.T) {
	required := []string{"path"}
	tool := &fake{name: "a", params: object(required, map[string]interface{}{"path": map[string]interface{}{"type": "string"}})}
	r := tools.NewToolRegistry()
	r.Register(tool)
	tool.params["properties"].(map[string]interface{})["path"].(map[string]interface{})["type"] = "integer"
	required[0] = "other"
	delete(tool.params, "type")
	got, err := json.Marshal(r.ToProviderDefs()[0].Function.Parameters)
	if err != nil || string(got) != `{"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, ok := r.GetDefinitions()[0]["function"].(map[string]interface{})["parameters"].(map[string]interface{})["required"].([]string); !ok {
		t.Error("the schema lost its Go types")
	}
}

func TestViews(t *testing.T) {
	r := tools.NewToolRegistry()
	for _, name := range []string{"message", "spawn", "read_file"} {
		r.Register(&fake{name: name})
	}
	asked := 0
	sub := r.View(func(name string) bool { asked++; return name != "spawn" })
	if got := sub.List(); !slices.Equal(got, []string{"message", "read_file"}) {
		t.Errorf("the view has %v", got)
	}
	before := asked
	sub.ToProviderDefs()
	sub.Execute(t.Context(), "message", nil)
	if asked != before {
		t.Errorf("the filter was asked %d times more", asked-before)
	}
	if result := sub.Execute(t.Context(), "spawn", nil); !errors.Is(result.Err, tools.ErrNotFound) || strings.Contains(result.ForLLM, "spawn,") {
		t.Errorf("the view ran a hidden tool: %+v", result)
	}
	if _, ok := sub.Get("spawn"); ok {
		t.Error("the view gets a hidden tool")
	}
	r.Register(&fake{name: "late"})
	if _, ok := sub.Get("late"); !ok {
		t.Error("the view does not follow")
	}
	subsub := sub.View(func(name string) bool { return name != "message" })
	if got := subsub.List(); !slices.Equal(got, []string{"late", "read_file"}) {
		t.Errorf("the view of the view has %v", got)
	}
	if got := r.View(nil).View(nil).Count(); got != 4 {
		t.Errorf("a view of everything has %d", got)
	}
	r.Unregister("late")
	if subsub.Count() != 1 || len(subsub.GetDefinitions()) != 1 || len(subsub.GetSummaries()) != 1 {
		t.Error("the view of the view does not follow")
	}
}

func TestExecuteFailures(t *testing.T) {
	r, log := logged(slog.LevelDebug)
	r.Register(&fake{name: "nothing", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return nil }})
	r.Register(&fake{name: "panics", run: func(context.Context, map[string]interface{}) *tools.ToolResult { panic("secret detail") }})
	r.Register(&fake{name: "args", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		args["x"] = 1 // nil would panic
		return tools.NewToolResult("fine")
	}})
	for _, name := range []string{"nothing", "panics", "unknown"} {
		result := r.Execute(t.Context(), name, nil)
		if result == nil || !result.IsError || result.ForLLM == "" || result.Err == nil || strings.Contains(result.ForLLM, "secret") {
			t.Errorf("%s: %+v", name, result)
		}
	}
	if result := r.Execute(t.Context(), "args", nil); result.ForLLM != "fine" {
		t.Errorf("nil arguments: %+v", result)
	}
	if !strings.Contains(log.String(), "registry_test.go") {
		t.Error("the log has no stack of the panic")
	}
}

// unspoken is an error that ends whoever asks for its text, if it is nil.
type unspoken struct{ text string }

func (u *unspoken) Error() string { return u.text }

// A nil pointer in an error is a slip of the tool's, not the end of the loop.
func TestErrorWithoutAText(t *testing.T) {
	for name, options := range map[string]tools.Options{"plain": {}, "redacting": {Redact: strings.ToUpper}} {
		t.Run(name, func(t *testing.T) {
			r := tools.NewToolRegistryWith(options)
			r.Register(&fake{name: "tool", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
				return (&tools.ToolResult{IsError: true}).WithError((*unspoken)(nil))
			}})
			_, res := run(t, tools.ToolLoopConfig{Tools: r}, calling(toolCall("1", "tool", nil)), providers.LLMResponse{Content: "done"})
			if res.Content != "done" || !strings.Contains(strings.ToLower(res.Messages[1].Content), "no text") {
				t.Errorf("%+v", res)
			}
		})
	}
}

func TestUnknownToolAmongMany(t *testing.T) {
	r := tools.NewToolRegistry()
	for i := range 100 {
		r.Register(&fake{name: fmt.Sprintf("tool_%d", i)})
	}
	r.Register(&fake{name: "weather_now"})
	if got := r.Execute(t.Context(), "weather", nil).ForLLM; !strings.Contains(got, "weather_now") || len(got) > 1000 {
		t.Errorf("the model reads %q", got)
	}
}

func TestLogs(t *testing.T) {
	r, log := logged(slog.LevelDebug)
	r.Register(&fake{name: "good"})
	r.Register(&fake{name: "bad", run: func(context.Context, map[string]interface{}) *tools.ToolResult {
		return tools.ErrorResult("the model's words").WithError(errors.New("the cause"))
	}})
	r.Register(&fake{name: "later", run: func(context.Context, map[string]interface{}) *tools.ToolResult { return tools.AsyncResult("started") }})
	ctx := tools.WithCall(t.Context(), tools.Call{Turn: "t1"})
	for _, name := range []string{"good", "bad", "later"} {
		r.ExecuteWithContext(ctx, name, nil, "test", "1", nil)
	}
	for _, want := range []string{
		`level=DEBUG msg="tool start" tool=good channel=test chat_id=1 turn_id=t1`,
		`level=DEBUG msg="tool end" tool=good channel=test chat_id=1 turn_id=t1 iteration=0 duration=`,
		`level=WARN msg="tool failed" tool=bad`,
		`err="the cause"`,
		`level=DEBUG msg="tool started a background task" tool=later`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	quiet, log := logged(slog.LevelWarn)
	tool, _ := r.Get("bad")
	quiet.Register(tool)
	quiet.Execute(t.Context(), "bad", nil)
	if strings.Contains(log.String(), "words") {
		t.Errorf("what the model reads is logged: %s", log)
	}
}

func TestCallIdentity(t *testing.T) {
	r := tools.NewToolRegistry()
	var calls []tools.Call
	r.Register(&fake{name: "who", run: func(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
		call, ok := tools.CallFrom(ctx)
		if !ok {
			t.Error("there is no call")
		}
		calls = append(calls, call)
		return tools.NewToolResult("ok")
	}})
	if _, ok := tools.CallFrom(t.Context()); ok {
		t.Error("there is a call outside of one")
	}
	r.Execute(t.Context(), "who", nil)
	r.ExecuteWithContext(tools.WithCall(t.Context(), tools.Call{ID: "mine", Turn: "t", SenderID: "9"}), "who", nil, "test", "1", nil)
	if c := calls[0]; c.ID == "" || c.Tool != "who" || c.Channel != "" {
		t.Errorf("a bare call is %+v", c)
	}
	if c := calls[1]; c.ID != "mine" || c.Turn != "t" || c.SenderID != "9" || c.Channel != "test" || c.ChatID != "1" {
		t.Errorf("a turn's call is %+v", c)
	}
	if calls[0].Key() == calls[1].Key() || len(calls[0].Key()) > 25 {
		t.Errorf("keys %s and %s", calls[0].Key(), calls[1].Key())
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	r := tools.NewToolRegistry()
	view := r.View(func(name string) bool { return name != "hidden" })
	r.Register(&fake{name: "stays"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			tool := &contextual{fake: fake{name: fmt.Sprintf("t%d", i)}}
			for range 100 {
				r.Register(tool)
				_ = r.RegisterTool(&fake{name: "hidden"})
				if result := view.ExecuteWithContext(t.Context(), "stays", nil, "test", "1", nil); result.IsError {
					t.Errorf("%+v", result)
				}
				view.ExecuteWithContext(t.Context(), tool.name, nil, "test", "1", nil)
				_, _, _ = view.List(), view.ToProviderDefs(), r.GetSummaries()
				r.Unregister(tool.name)
				r.Unregister("hidden")
			}
		})
	}
	wg.Wait()
	if got := view.List(); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("left: %v", got)
	}
}

func TestAs(t *testing.T) {
	tool := &contextual{fake: fake{name: "where"}}
	if got, ok := tools.As[tools.ContextualTool](decorator{decorator{tool}}); !ok || got != tools.ContextualTool(tool) {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := tools.As[tools.AsyncTool](decorator{tool}); ok {
		t.Error("found what is not there")
	}
	if _, ok := tools.As[tools.AsyncTool](nil); ok {
		t.Error("found something in nil")
	}
}
