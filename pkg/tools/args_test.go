package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

const fitSchema = `{"type": "object", "required": ["path"], "properties": {
	"path": {"type": "string"}, "line": {"type": "integer", "minimum": 1}, "ratio": {"type": "number"}, "all": {"type": "boolean"},
	"nothing": {"type": ["integer", "null"]}, "mode": {"type": "string", "enum": ["fast", "normal", "thorough"], "default": "normal"},
	"tags": {"type": "array", "items": {"type": "string"}}, "levels": {"type": "array", "items": {"type": "integer"}},
	"points": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 7}}}},
	"options": {"type": "object", "properties": {"depth": {"type": "integer", "default": 2}, "name": {"type": "string"}}, "additionalProperties": false},
	"more": {"$ref": "#/$defs/more"}, "id": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}]},
	"both": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "list": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
	"one": {"oneOf": [{"type": "integer"}, {"type": "null"}]}, "bad": {"type": "integer", "default": "x"}, "extra": {"type": "object", "additionalProperties": {"type": "number"}},
	"sum": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "integer", "default": 1}}}]}
	}, "patternProperties": {"^x_": {"type": "integer"}}, "$defs": {"more": {"type": "boolean", "default": true}}}`

func schemaOf(t *testing.T, text string) map[string]interface{} {
	t.Helper()
	var schema map[string]interface{}
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// keeper is a tool that keeps what it was called with.
type keeper struct {
	fake
	got map[string]interface{}
}

func (k *keeper) Execute(_ context.Context, args map[string]interface{}) *tools.ToolResult {
	k.got = args
	return tools.NewToolResult("ok")
}

func TestFieldValidationAndRepair(t *testing.T) {
	tool := &keeper{fake: fake{name: "tool", params: schemaOf(t, fitSchema)}}
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(tool); err != nil {
		t.Fatal(err)
	}
	// What is wanted is the difference to the defaults. A text beginning with
	// "!" is what the model is told.
	for args, want := range map[string]string{
		`"line": "5"`:                      `"line": 5`,
		`"line": " 5.0 "`:                  `"line": 5`,
		`"line": 5.0`:                      `"line": 5`,
		`"line": "5.5"`:                    `!line: expected integer, got string "5.5"`,
		`"line": "0"`:                      `!line: expected at least 1, got 0`,
		`"line": "0x5"`:                    `!line: expected integer, got string "0x5"`,
		`"line": "five"`:                   `!line: expected integer, got string "five"`,
		`"line": true`:                     `!line: expected integer, got boolean true`,
		`"line": ""`:                       `!line: expected integer, got string ""`,
		`"line": "1e999"`:                  `!line: expected integer, got string "1e999"`,
		`"line": null`:                     ``,
		`"path": null`:                     `!path: expected string, got null`,
		`"path": 7`:                        `!path: expected string, got number 7`,
		`"ratio": "-1.5e3"`:                `"ratio": -1500`,
		`"ratio": "1e-999"`:                `!ratio: expected number`,
		`"all": "true"`:                    `"all": true`,
		`"all": "False"`:                   `"all": false`,
		`"all": "yes"`:                     `!all: expected boolean, got string "yes"`,
		`"all": 1`:                         `!all: expected boolean, got number 1`,
		`"nothing": null`:                  `"nothing": null`,
		`"nothing": "null"`:                `"nothing": null`,
		`"nothing": "3"`:                   `"nothing": 3`,
		`"mode": "fast"`:                   `"mode": "fast"`,
		`"mode": "FAST"`:                   `!mode: expected one of "fast", "normal", "thorough", got "FAST" (did you mean "fast"?)`,
		`"mode": "torough"`:                `!(did you mean "thorough"?)`,
		`"tags": "[\"a\", \"b\"]"`:         `"tags": ["a", "b"]`,
		`"tags": "['a', 'b']"`:             `"tags": ["a", "b"]`,
		`"tags": "a"`:                      `"tags": ["a"]`,
		`"tags": "a, b"`:                   `!tags: expected array, got string "a, b"`,
		`"tags": ["a", 2]`:                 `!tags[1]: expected string, got number 2`,
		`"levels": 3`:                      `"levels": [3]`,
		`"levels": ["1", 2]`:               `"levels": [1, 2]`,
		`"levels": "[1, \"2\"]"`:           `"levels": [1, 2]`,
		`"points": {"x": 1}`:               `"points": [{"x": 1, "y": 7}]`,
		`"points": "[{'x': '1'}, {}]"`:     `"points": [{"x": 1, "y": 7}, {"y": 7}]`,
		`"options": {}`:                    `"options": {"depth": 2}`,
		`"options": "{\"depth\": \"3\"}"`:  `"options": {"depth": 3}`,
		`"options": {"dept": 3}`:           `!options: unknown argument dept (did you mean "depth"?)`,
		`"options": {"colour": 3}`:         `!options: unknown argument colour (there are depth, name)`,
		`"options": "{\"depth\": 1"`:       `!options: expected object, got string`,
		`"more": "false"`:                  `"more": false`,
		`"id": "5"`:                        `"id": 5`,
		`"id": "true"`:                     `"id": true`,
		`"id": "{\"n\": \"1\"}"`:           `"id": {"n": 1}`,
		`"id": "x"`:                        `!id: matches none of the allowed forms`,
		`"both": "5"`:                      `"both": "5"`,
		`"list": "5"`:                      `!list: matches none of the allowed forms`, // 5, or ["5"]
		`"one": "5"`:                       `"one": 5`,
		`"extra": {"a": "1.5"}`:            `"extra": {"a": 1.5}`,
		`"sum": {"a": "1"}`:                `"sum": {"a": 1, "b": 1}`,
		`"x_1": "1", "unknown": "1"`:       `"x_1": 1, "unknown": "1"`,
		`"line": "12345678901234567890"`:   `"line": 12345678901234567890`,
		`"line": "1", "all": 3, "one": []`: `!all: expected boolean, got number 3; one: matches`,
	} {
		var given, before map[string]interface{}
		text := `{"path": "p", ` + args + `}`
		if json.Unmarshal([]byte(text), &given) != nil || json.Unmarshal([]byte(text), &before) != nil {
			t.Fatal(text)
		}
		tool.got = nil
		result := r.Execute(t.Context(), "tool", given)
		if diff := cmp.Diff(before, given); diff != "" {
			t.Errorf("%s: the caller's arguments were changed: %s", args, diff)
		}
		if told, wrong := strings.CutPrefix(want, "!"); wrong {
			if !result.IsError || !strings.Contains(result.ForLLM, told) || tool.got != nil {
				t.Errorf("%s\ngot  %s\nwant %s", args, result.ForLLM, told)
			}
			continue
		}
		if result.IsError {
			t.Errorf("%s: %s", args, result.ForLLM)
			continue
		}
		expected := `{"path": "p", "mode": "normal", "more": true`
		if want != "" {
			expected += ", " + want
		}
		if diff := cmp.Diff(exactly(t, expected+"}"), exactly(t, tool.got)); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}

	// Everything at once, with what was probably meant, and always in the same
	// words, by which repetitions are known.
	var wrong map[string]interface{}
	if err := json.Unmarshal([]byte(`{"Path": "x", "line": "0", "mode": "quick", "tags": [1], "options": {"depth": "x", "nme": 1}}`), &wrong); err != nil {
		t.Fatal(err)
	}
	want := `Invalid arguments for tool: path is required (you wrote "Path"); line: expected at least 1, got 0; ` +
		`mode: expected one of "fast", "normal", "thorough", got "quick"; options: unknown argument nme (did you mean "name"?); ` +
		`options.depth: expected integer, got string "x"; tags[0]: expected string, got number 1. Correct them and call the tool again.`
	for range 20 {
		if result := r.Execute(t.Context(), "tool", wrong); result.ForLLM != want {
			t.Fatalf("got  %s\nwant %s", result.ForLLM, want)
		}
	}
}

// What a tool does to its arguments is its own affair: the history has what the
// model wrote, also while a tool that was given up still works on them.
func TestArgumentsAreTheToolsOwn(t *testing.T) {
	written := map[string]interface{}{"path": "x", "options": map[string]interface{}{"deep": "y"}}
	given := make(chan map[string]interface{}, 1)
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "tool", run: func(_ context.Context, args map[string]interface{}) *tools.ToolResult {
		given <- args
		return tools.NewToolResult("done")
	}})
	_, res := run(t, tools.ToolLoopConfig{Tools: r}, calling(toolCall("1", "tool", written)), providers.LLMResponse{Content: "done"})
	args := <-given
	if diff := cmp.Diff(written, args); diff != "" {
		t.Error(diff)
	}
	args["mark"] = 1
	delete(args, "path")
	args["options"].(map[string]interface{})["deep"] = "changed"
	want := map[string]interface{}{"path": "x", "options": map[string]interface{}{"deep": "y"}}
	if diff := cmp.Diff(want, res.Messages[0].ToolCalls[0].Arguments); diff != "" {
		t.Error(diff)
	}
}

// exactly decodes JSON, or what was made of it, with all digits.
func exactly(t *testing.T, v interface{}) (out interface{}) {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(data)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Many wrong values make a message that is still read.
func TestComplaintIsBounded(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "tool", params: schemaOf(t, fitSchema)})
	list := make([]interface{}, 10_000)
	for i := range list {
		list[i] = strings.Repeat("x", 1000)
	}
	result := r.Execute(t.Context(), "tool", map[string]interface{}{"path": strings.Repeat("p", 1000), "levels": list, "mode": strings.Repeat("ü", 5000)})
	if !result.IsError || len(result.ForLLM) > 5000 {
		t.Errorf("%d bytes: %s", len(result.ForLLM), result.ForLLM)
	}
}

// loopCall runs one call of a loop, with the arguments as the model wrote them.
func loopCall(t *testing.T, r *tools.ToolRegistry, calls ...providers.ToolCall) (*tools.ToolLoopResult, *script) {
	t.Helper()
	p := &script{replies: []providers.LLMResponse{calling(calls...), answering("done")}}
	res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{Provider: p, Tools: r, MaxIterations: 3}, user("hi"), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	return res, p
}

// What is stored and sent back is what was run, or no arguments at all.
func TestBrokenArgumentsInALoop(t *testing.T) {
	tool := &keeper{fake: fake{name: "tool"}}
	r := tools.NewToolRegistry()
	r.Register(tool)
	for _, tc := range []struct{ wrote, stored, told string }{
		{`{'a': 1,}`, `{"a":1}`, "ok"},
		{`"{\"a\": 1}"`, `{"a": 1}`, "ok"},
		{``, `{}`, "ok"},
		{`null`, `{}`, "ok"},
		{`{"a": 1`, `{}`, "cut off"},
		{`{'a': 1`, `{}`, "cut off"},
		{`{"a": b}`, `{}`, `The arguments are not a JSON object (unexpected 'b' at byte 7). Nothing was run.`},
		{`[1]`, `{}`, "not a JSON object"},
	} {
		tool.got = nil
		call := written("1", "tool", tc.wrote)
		res, p := loopCall(t, r, call)
		if call.Function.Arguments != tc.wrote {
			t.Errorf("%s: the provider's reply was changed", tc.wrote)
		}
		for _, m := range []providers.Message{res.Messages[0], p.asked[1][1]} {
			stored := m.ToolCalls[0]
			data, err := json.Marshal(stored.Arguments)
			if err != nil || stored.Function.Arguments != tc.stored || stored.Arguments == nil || cmp.Diff(exactly(t, tc.stored), exactly(t, string(data))) != "" {
				t.Errorf("%s: %s and %s are stored, %v", tc.wrote, stored.Function.Arguments, data, err)
			}
		}
		if result := res.Messages[1].Content; !strings.Contains(result, tc.told) || (tool.got != nil) != (tc.told == "ok") {
			t.Errorf("%s: ran %v, told %s", tc.wrote, tool.got, result)
		}
	}
	// One that is cut off takes the others of its reply with it.
	tool.got = nil
	res, _ := loopCall(t, r, written("1", "tool", `{"a": 1}`), written("2", "tool", `{'a': `))
	if tool.got != nil || !strings.Contains(res.Messages[1].Content, "cut off") {
		t.Errorf("%+v", res.Messages)
	}
}

// A number of 20 digits stays the number it is.
func TestLargeNumbers(t *testing.T) {
	const account = `12345678901234567`
	type input struct {
		Account int64 `json:"account"`
		Limit   int   `json:"limit,omitempty" default:"3"`
	}
	var in input
	var text string
	params := schemaOf(t, `{"type": "object", "properties": {"account": {"type": "integer"}, "n": {"type": "integer"}, "limit": {"type": "integer", "default": 3}}}`)
	kept, rawTool := &keeper{fake: fake{name: "kept", params: params}}, &raw{fake: fake{name: "raw", params: params}}
	r := tools.NewToolRegistry()
	r.Register(kept)
	r.Register(rawTool)
	r.Register(tools.Func("func", "Takes a number", func(_ context.Context, i input) *tools.ToolResult {
		in = i
		return tools.NewToolResult("ok")
	}))
	for arguments, want := range map[string]string{
		`{"n": 1, "limit": 2, "account": ` + account + `}`:     `{"n": 1, "limit": 2, "account": ` + account + `}`,
		`{"n": 1.0, "account": ` + account + `}`:               `{"account":` + account + `,"limit":3,"n":1}`,
		`{"n": "1", "limit": 2, "account": "` + account + `"}`: `{"account":` + account + `,"limit":2,"n":1}`,
	} {
		var lossy map[string]interface{}
		if err := json.Unmarshal([]byte(arguments), &lossy); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"kept", "raw", "func"} {
			call := written("1", name, arguments)
			call.Arguments = lossy
			loopCall(t, r, call)
		}
		text = fmt.Sprint(kept.got["account"])
		if text != account || in.Account != 12345678901234567 || rawTool.got != want {
			t.Errorf("%s: kept %s, func %+v, raw %s", arguments, text, in, rawTool.got)
		}
	}
	kept.got = nil
	r.Execute(t.Context(), "kept", map[string]interface{}{"account": json.Number("1e999999999")})
	if kept.got != nil {
		t.Error("a number beyond all measure went through")
	}
}

func TestFieldEmptyArgsHint(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(readTool("read_file"))
	r.Register(&fake{name: "free"})
	for _, arguments := range []string{``, `{}`, `null`, ` `} {
		res, _ := loopCall(t, r, written("1", "read_file", arguments), written("2", "free", arguments))
		first, second := res.Messages[1].Content, res.Messages[2].Content
		if !strings.Contains(first, "path is required") || !strings.Contains(first, "your output was probably cut off") {
			t.Errorf("%q: %s", arguments, first)
		}
		if second != "ran free" {
			t.Errorf("%q: %s", arguments, second)
		}
	}
	if result := r.Execute(t.Context(), "read_file", map[string]interface{}{"mode": "text"}); strings.Contains(result.ForLLM, "cut off") {
		t.Error(result.ForLLM)
	}
}

func TestFieldUnknownTool(t *testing.T) {
	r := tools.NewToolRegistry()
	for _, name := range []string{"read_file", "write_file", "list_dir", "web_search"} {
		r.Register(&fake{name: name})
	}
	for name, want := range map[string]string{
		"readfile":    `Tool "readfile" not found. Did you mean read_file? Available tools: list_dir, read_file, web_search, write_file.`,
		"Read-File":   "Did you mean read_file?",
		"raed_file":   "Did you mean read_file",
		"search":      "Did you mean web_search?",
		"send_money":  `Tool "send_money" not found. Available tools: list_dir,`,
		"functions.x": `not found. Available tools`,
	} {
		if result := r.Execute(t.Context(), name, nil); !result.IsError || !strings.Contains(result.ForLLM, want) {
			t.Errorf("%s: %s", name, result.ForLLM)
		}
	}
	// A view tells nothing of what it does not show.
	view := r.View(func(name string) bool { return name != "read_file" })
	if result := view.Execute(t.Context(), "read_file", nil); strings.Contains(strings.TrimPrefix(result.ForLLM, `Tool "read_file"`), "read_file") {
		t.Error(result.ForLLM)
	}
	for i := range 500 {
		r.Register(&fake{name: fmt.Sprintf("tool_%d", i)})
	}
	result := r.Execute(t.Context(), "file_read"+strings.Repeat("x", 10_000), nil)
	if len(result.ForLLM) > 1000 || !strings.Contains(result.ForLLM, "Some of the 504 available tools: ") {
		t.Error(result.ForLLM)
	}
	if result := r.Execute(t.Context(), "tool_477x", nil); !strings.Contains(result.ForLLM, "Did you mean tool_477 or tool_47 or tool_4?") {
		t.Error(result.ForLLM)
	}
	// The loop goes on.
	res, _ := loopCall(t, r, written("1", "raed_file", `{}`))
	if res.Content != "done" || !strings.Contains(res.Messages[1].Content, "read_file") {
		t.Errorf("%+v", res)
	}
}
