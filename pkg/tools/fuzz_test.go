package tools

import (
	"encoding/json"
	"reflect"
	"testing"
)

// fuzzSchemas use what fitting knows about.
var fuzzSchemas = []string{
	`{"type": "object", "required": ["path"], "properties": {
		"path": {"type": "string", "minLength": 1}, "line": {"type": "integer", "minimum": 1}, "ratio": {"type": "number", "default": 0.5},
		"all": {"type": "boolean", "default": false}, "mode": {"enum": ["fast", "slow"], "default": "fast"},
		"tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
		"rows": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
		"options": {"type": "object", "properties": {"depth": {"type": ["integer", "null"], "default": 1}, "when": {"type": "string", "format": "date-time"}}, "additionalProperties": false}}}`,
	`{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
		"value": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]},
		"left": {"$ref": "#/$defs/tree"}, "right": {"oneOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
		"depth": {"type": "integer", "default": 0}}, "additionalProperties": {"type": "number"}}}}`,
	`{"allOf": [{"properties": {"a": {"type": "integer", "default": 3}}}, {"properties": {"a": {"type": "number"}, "b": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}}}],
		"patternProperties": {"^x": {"type": "object"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}`,
	`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"l": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "boolean"}},
		"m": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["integer", "array"]}}}}}}`,
}

func FuzzArguments(f *testing.F) {
	var checkers []*argChecker
	for _, text := range fuzzSchemas {
		var params map[string]interface{}
		if err := json.Unmarshal([]byte(text), &params); err != nil {
			f.Fatal(err)
		}
		c := newArgChecker(params)
		if err := c.compile(nil, "fuzz"); err != nil {
			f.Fatal(err)
		}
		checkers = append(checkers, c)
	}
	for i, text := range []string{
		`{"path": "a", "line": "5", "ratio": "0.5", "all": "True", "tags": "['a', 'b']", "rows": "[[\"1\"]]", "options": "{\"depth\": null, \"when\": null}"}`,
		`{"path": null, "line": 12345678901234567890, "tags": "one", "rows": [1], "options": {"depht": 2}}`,
		`{"value": "5", "left": "{}", "right": "null", "x": "1e3"}`,
		`{"value": [{"value": {"value": true}}], "left": {"left": {"left": "{'value': 1.0}"}}}`,
		`{"a": "3", "b": ["1", "true", false], "x": "{}"}`,
		`{"b": "1"}`,
		`{"l": ["1", 2, "true"], "m": {"n": "[1]"}}`,
	} {
		f.Add(text, uint8(i/2), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, text string, which uint8, raw bool) {
		args, object, err := readArguments(text)
		if err != nil {
			return
		}
		if v, ok := decodeNumbers(object); ok && raw {
			args, _ = v.(map[string]interface{})
		}
		c := checkers[int(which)%len(checkers)]
		before, _ := json.Marshal(args)
		fitted, wrong := c.prepare(nil, "fuzz", args)
		if after, _ := json.Marshal(args); string(after) != string(before) {
			t.Fatalf("the caller's %s became %s", before, after)
		}
		if wrong != "" {
			if len(wrong) > maxComplaint+100 {
				t.Fatalf("%d bytes of complaint", len(wrong))
			}
			return
		}
		if err := c.schema.Validate(fitted); err != nil {
			t.Fatalf("%s became %v: %v", before, fitted, err)
		}
		if again, wrong := c.prepare(nil, "fuzz", fitted); wrong != "" || !sameMap(again, fitted) {
			t.Fatalf("%s became %v and then %v: %s", before, fitted, again, wrong)
		}
		if c.schema.Validate(args) == nil && !extends(fitted, args) {
			t.Fatalf("%s was fine and became %v", before, fitted)
		}
	})
}

// extends reports whether v is w with nothing but defaults added.
func extends(v, w interface{}) bool {
	switch w := w.(type) {
	case map[string]interface{}:
		m, ok := v.(map[string]interface{})
		for key, e := range w {
			ok = ok && extends(m[key], e)
		}
		return ok
	case []interface{}:
		l, ok := v.([]interface{})
		ok = ok && len(l) == len(w)
		for i := range w {
			ok = ok && extends(l[i], w[i])
		}
		return ok
	case json.Number: // 5.0 as an integer
		n, ok := v.(json.Number)
		a, _ := w.Float64()
		b, _ := n.Float64()
		return ok && a == b
	}
	return reflect.DeepEqual(v, w)
}
