package tools_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// seedSchema has every kind of parameter of the schema guide, in Go literals.
func seedSchema() map[string]interface{} {
	return object([]string{"path", "count"}, map[string]interface{}{
		"path":    map[string]interface{}{"type": "string", "minLength": 2, "maxLength": 20},
		"count":   map[string]interface{}{"type": "integer", "minimum": 1, "maximum": 100},
		"ratio":   map[string]interface{}{"type": "number", "minimum": 0.0, "exclusiveMaximum": 1.5},
		"enabled": map[string]interface{}{"type": "boolean", "default": false},
		"mode":    map[string]interface{}{"type": "string", "enum": []string{"fast", "normal"}},
		"tags":    map[string]interface{}{"type": "array", "items": map[string]interface{}{"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 2},
		"options": map[string]interface{}{"type": "object", "properties": map[string]interface{}{
			"timeout": map[string]interface{}{"type": "integer"},
			"when":    map[string]interface{}{"type": "string", "format": "date-time"},
		}, "required": []string{"timeout"}},
		"strict": map[string]interface{}{"type": "object", "additionalProperties": false},
		"either": map[string]interface{}{"anyOf": []interface{}{
			map[string]interface{}{"type": "string"},
			map[string]interface{}{"type": "integer", "minimum": 5},
		}},
	})
}

func TestArgumentsAreChecked(t *testing.T) {
	r := tools.NewToolRegistry()
	if err := r.RegisterTool(&fake{name: "tool", params: seedSchema()}); err != nil {
		t.Fatal(err)
	}
	fine := `"path": "ab", "count": 3`
	for _, c := range []struct{ args, want string }{
		{`{` + fine + `}`, ""},
		{`{` + fine + `, "count": 3.0, "ratio": 0.5, "enabled": true, "mode": "fast", "tags": ["a"], "options": {"timeout": 1, "more": [null]}, "unknown": {}}`, ""},
		{`{}`, "path is required; count is required"},
		{`{"path": 7, "count": "x"}`, `path: expected string, got number 7`},
		{`{"path": 7, "count": "x"}`, `count: expected integer, got string "x"`},
		{`{"path": "a", "count": 0}`, "path: expected at least 2 characters, got 1"},
		{`{"path": "` + strings.Repeat("a", 21) + `", "count": 101}`, "count: expected at most 100, got 101"},
		{`{` + fine + `, "count": 1.5}`, "count: expected integer, got number 1.5"},
		{`{` + fine + `, "ratio": 1.5}`, "ratio: expected less than 1.5, got 1.5"},
		{`{` + fine + `, "mode": "slow"}`, `mode: expected one of "fast", "normal", got "slow"`},
		{`{` + fine + `, "tags": ["a", 2]}`, `tags[1]: expected string, got number 2`},
		{`{` + fine + `, "tags": ["A", "b", "c"]}`, `tags: expected at most 2 items, got 3`},
		{`{` + fine + `, "tags": ["A"]}`, `tags[0]: expected a text that matches ^[a-z]+$, got "A"`},
		{`{` + fine + `, "options": {}}`, `options.timeout is required`},
		{`{` + fine + `, "options": {"timeout": 1, "when": "tomorrow"}}`, `options.when: `},
		{`{` + fine + `, "strict": {"a": 1}}`, `strict: unknown argument a`},
		{`{` + fine + `, "either": 3}`, `either: matches none of the allowed forms (either: expected string, got number 3, or either: expected at least 5, got 3)`},
		{`{"path": null, "count": 1}`, `path: expected string, got null.`},
		{`{"path": "` + strings.Repeat("ü", 500) + `", "count": 1}`, `path: expected at most 20 characters, got 500`},
	} {
		var args map[string]interface{}
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			t.Fatal(err)
		}
		result := r.Execute(t.Context(), "tool", args)
		if result.IsError != (c.want != "") || !strings.Contains(result.ForLLM, c.want) {
			t.Errorf("%s\ngot  %s\nwant %s", c.args, result.ForLLM, c.want)
		}
		if c.want != "" && !strings.HasPrefix(result.ForLLM, "Invalid arguments for tool: ") {
			t.Errorf("%s: %s", c.args, result.ForLLM)
		}
	}
}

// Go code may pass Go values.
func TestArgumentsInGoTypes(t *testing.T) {
	r := tools.NewToolRegistry()
	r.Register(&fake{name: "tool", params: seedSchema()})
	fine := map[string]interface{}{"path": "ab", "count": 3, "tags": []string{"a"}, "ratio": float32(0.5), "options": map[string]int{"timeout": 1}}
	if result := r.Execute(t.Context(), "tool", fine); result.IsError {
		t.Error(result.ForLLM)
	}
	fine["count"] = json.Number("4")
	if result := r.Execute(t.Context(), "tool", fine); result.IsError {
		t.Error(result.ForLLM)
	}
	for name, wrong := range map[string]interface{}{"tags": []string{"A"}, "path": make(chan int), "count": uint8(200)} {
		args := map[string]interface{}{"path": "ab", "count": 3, name: wrong}
		if result := r.Execute(t.Context(), "tool", args); !result.IsError {
			t.Errorf("%s: %v went through", name, wrong)
		}
	}
}

func TestUnusableSchema(t *testing.T) {
	r, log := logged(slog.LevelWarn)
	r.Register(&fake{name: "odd", params: map[string]interface{}{"type": 7}})
	r.Register(&fake{name: "empty", params: map[string]interface{}{}})
	for _, name := range []string{"odd", "odd", "empty"} {
		if result := r.Execute(t.Context(), name, map[string]interface{}{"x": 1}); result.IsError {
			t.Errorf("%s: %+v", name, result)
		}
	}
	if n := strings.Count(log.String(), "schema is not usable"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
}

// An empty list of required arguments, nil or not, is one: null is no JSON
// Schema, and the tool would go unchecked.
func TestNothingRequired(t *testing.T) {
	for _, required := range [][]string{nil, {}} {
		r, log := logged(slog.LevelWarn)
		r.Register(&fake{name: "tool", params: object(required, map[string]interface{}{"n": map[string]interface{}{"type": "integer"}})})
		result := r.Execute(t.Context(), "tool", map[string]interface{}{"n": "x"})
		if !result.IsError || strings.Contains(log.String(), "not usable") {
			t.Errorf("%#v: %+v %s", required, result, log)
		}
	}
}
