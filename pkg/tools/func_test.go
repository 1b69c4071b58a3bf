package tools_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

type common struct {
	Verbose bool   `json:"verbose,omitempty" description:"Say more"`
	Path    string `json:"path" description:"Hidden by the outer one"`
}

type place struct {
	City string `json:"city" minLength:"2"`
	Zip  int    `json:"zip,omitempty" default:"10115"`
}

type everything struct {
	common
	Path     string            `json:"path" description:"A path"`
	Count    int               `json:"count,omitempty" minimum:"1" maximum:"100" default:"10"`
	Small    int8              `json:"small,omitempty"`
	Size     uint16            `json:"size,omitempty"`
	Ratio    float64           `json:"ratio,omitempty"`
	Mode     string            `json:"mode,omitempty" enum:"fast, slow" default:"slow"`
	Levels   []int             `json:"levels,omitempty" enum:"1,2,3" maxItems:"2" default:"[2]"`
	Tags     map[string]string `json:"tags,omitzero"`
	Home     place             `json:"home,omitzero"`
	Work     *place            `json:"work,omitempty"`
	Places   []place           `json:"places,omitempty"`
	When     time.Time         `json:"when,omitzero"`
	Addr     netip.Addr        `json:"addr,omitzero"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	Any      any               `json:"any,omitempty"`
	Data     []byte            `json:"data,omitempty"`
	Pair     [2]float64        `json:"pair,omitzero"`
	Code     string            `json:"code,omitempty" pattern:"^[A-Z]{3}$" maxLength:"3"`
	Mail     string            `json:"mail,omitempty" format:"email"`
	Skipped  chan int          `json:"-"`
	NoTag    bool
	unlisted int
}

func everythingTool(got *everything) tools.Tool {
	return tools.Func("all", "Takes everything", func(_ context.Context, in everything) *tools.ToolResult {
		*got = in
		return tools.NewToolResult("ok")
	})
}

func TestFuncSchema(t *testing.T) {
	tool := everythingTool(&everything{})
	data, err := json.Marshal(tool.Parameters())
	if err != nil {
		t.Fatal(err)
	}
	var got, want interface{}
	const text = `{"type": "object", "required": ["path", "NoTag"], "properties": {
		"verbose": {"type": "boolean", "description": "Say more"},
		"path": {"type": "string", "description": "A path"},
		"count": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
		"small": {"type": "integer", "minimum": -128, "maximum": 127},
		"size": {"type": "integer", "minimum": 0, "maximum": 65535},
		"ratio": {"type": "number"},
		"mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
		"levels": {"type": "array", "items": {"type": "integer", "enum": [1, 2, 3]}, "maxItems": 2, "default": [2]},
		"tags": {"type": "object", "additionalProperties": {"type": "string"}},
		"home": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "minLength": 2}, "zip": {"type": "integer", "default": 10115}}},
		"work": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "minLength": 2}, "zip": {"type": "integer", "default": 10115}}},
		"places": {"type": "array", "items": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "minLength": 2}, "zip": {"type": "integer", "default": 10115}}}},
		"when": {"type": "string", "format": "date-time"},
		"addr": {"type": "string"},
		"raw": {}, "any": {},
		"data": {"type": "string", "contentEncoding": "base64"},
		"pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
		"code": {"type": "string", "pattern": "^[A-Z]{3}$", "maxLength": 3},
		"mail": {"type": "string", "format": "email"},
		"NoTag": {"type": "boolean"}
	}}`
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := tools.NewToolRegistry().RegisterTool(tool); err != nil {
		t.Error(err)
	}
}

func TestFuncDecodes(t *testing.T) {
	var got everything
	tool := everythingTool(&got)
	args := map[string]interface{}{
		"path": "p", "NoTag": true, "verbose": true, "small": -5, "ratio": 0.5, "tags": map[string]interface{}{"a": "b"},
		"work": map[string]interface{}{"city": "Ulm"}, "places": []interface{}{map[string]interface{}{"city": "Bonn"}},
		"when": "2025-01-02T03:04:05Z", "addr": "10.0.0.1", "raw": map[string]interface{}{"x": 1.0}, "any": []interface{}{1.0},
		"data": "aGk=", "pair": []interface{}{1.0, 2.5}, "code": "ABC", "mail": "a@b.example", "more": "ignored",
	}
	if result := tool.Execute(t.Context(), args); result.IsError {
		t.Fatal(result.ForLLM)
	}
	want := everything{
		common: common{Verbose: true}, Path: "p", NoTag: true, Count: 10, Small: -5, Ratio: 0.5, Mode: "slow", Levels: []int{2},
		Tags: map[string]string{"a": "b"}, Home: place{Zip: 10115}, Work: &place{"Ulm", 10115}, Places: []place{{"Bonn", 10115}},
		When: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), Addr: netip.MustParseAddr("10.0.0.1"), Raw: json.RawMessage(`{"x":1}`), Any: []any{1.0},
		Data: []byte("hi"), Pair: [2]float64{1, 2.5}, Code: "ABC", Mail: "a@b.example",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(everything{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if _, ok := args["count"]; ok {
		t.Error("the caller's arguments were changed")
	}
	_ = got.unlisted
}

func TestFuncRefusesWrongArguments(t *testing.T) {
	tool := everythingTool(&everything{})
	r := tools.NewToolRegistry()
	r.Register(tool)
	wrong := map[string]interface{}{"path": 1.0, "count": 200.0, "mode": "medium", "levels": []interface{}{9.0}, "small": 1000.0, "home": map[string]interface{}{"city": "x"}}
	for name, result := range map[string]*tools.ToolResult{
		"alone":    tool.Execute(t.Context(), wrong),
		"registry": r.Execute(t.Context(), "all", wrong),
	} {
		for _, want := range []string{"NoTag is required", "path: ", "count: ", "mode: ", "levels[0]: ", "small: ", "home.city: "} {
			if !result.IsError || !strings.Contains(result.ForLLM, want) {
				t.Errorf("%s: %q is missing in %s", name, want, result.ForLLM)
			}
		}
	}
	if result := tool.Execute(t.Context(), nil); !result.IsError {
		t.Errorf("nil arguments: %+v", result)
	}
	big := map[string]interface{}{"path": "p", "NoTag": true, "count": 5.0, "any": make(chan int)}
	if result := tool.Execute(t.Context(), big); !result.IsError {
		t.Errorf("a channel went through: %+v", result)
	}
}

// A number a Go integer cannot hold is the model's mistake, not a crash.
func TestFuncNumberOutOfRange(t *testing.T) {
	type input struct {
		N int64 `json:"n"`
	}
	tool := tools.Func("n", "Takes a number", func(context.Context, input) *tools.ToolResult { return tools.NewToolResult("ok") })
	if result := tool.Execute(t.Context(), map[string]interface{}{"n": 1e30}); !result.IsError {
		t.Errorf("got %+v", result)
	}
	if result := tool.Execute(t.Context(), map[string]interface{}{"n": 5.0}); result.IsError {
		t.Errorf("got %+v", result)
	}
}

func TestAsyncFuncAlone(t *testing.T) {
	tool := tools.AsyncFunc("work", "Works", func(ctx context.Context, in taskInput, report tools.AsyncCallback) *tools.ToolResult {
		report(ctx, tools.NewToolResult("nobody hears"))
		return tools.AsyncResult(in.What)
	})
	if result := tool.Execute(t.Context(), what("dig")); result.ForLLM != "dig" {
		t.Errorf("got %+v", result)
	}
	if result := tool.Execute(t.Context(), nil); !result.IsError {
		t.Errorf("got %+v", result)
	}
}

type loop struct {
	Next []loop `json:"next"`
}

func TestFuncRefusesWhatItCannotDescribe(t *testing.T) {
	type (
		duration struct{ D time.Duration }
		channel  struct{ C chan int }
		keys     struct{ M map[int]string }
		number   struct {
			N int `minimum:"few"`
		}
		size struct {
			S string `minLength:"-1"`
		}
		pattern struct {
			S string `pattern:"("`
		}
		def struct {
			N int `default:"many"`
		}
	)
	for name, f := range map[string]func(){
		"text":     func() { tools.Func("t", "d", func(context.Context, string) *tools.ToolResult { return nil }) },
		"duration": func() { tools.Func("t", "d", func(context.Context, duration) *tools.ToolResult { return nil }) },
		"channel":  func() { tools.Func("t", "d", func(context.Context, channel) *tools.ToolResult { return nil }) },
		"keys":     func() { tools.Func("t", "d", func(context.Context, keys) *tools.ToolResult { return nil }) },
		"number":   func() { tools.Func("t", "d", func(context.Context, number) *tools.ToolResult { return nil }) },
		"size":     func() { tools.Func("t", "d", func(context.Context, size) *tools.ToolResult { return nil }) },
		"pattern":  func() { tools.Func("t", "d", func(context.Context, pattern) *tools.ToolResult { return nil }) },
		"default":  func() { tools.Func("t", "d", func(context.Context, def) *tools.ToolResult { return nil }) },
		"loop":     func() { tools.Func("t", "d", func(context.Context, loop) *tools.ToolResult { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			f()
		})
	}
	tools.Func("none", "Takes nothing", func(context.Context, struct{}) *tools.ToolResult { return nil })
}

// FuzzExecute: whatever a model sends, the result is one it can read.
func FuzzExecute(f *testing.F) {
	var got everything
	r := tools.NewToolRegistry()
	r.Register(everythingTool(&got))
	r.Register(&fake{name: "tool", params: seedSchema()})
	f.Add(`{"path": "p", "NoTag": true, "count": 3}`)
	f.Add(`{"path": null, "levels": [1e400], "home": {"city": []}, "when": "x", "any": {"": {}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var args map[string]interface{}
		if json.Unmarshal([]byte(text), &args) != nil {
			t.Skip()
		}
		for _, name := range []string{"all", "tool"} {
			if result := r.Execute(t.Context(), name, args); result.ForLLM == "" || strings.Contains(result.ForLLM, "internal error") {
				t.Errorf("%s: %+v", name, result)
			}
		}
	})
}
