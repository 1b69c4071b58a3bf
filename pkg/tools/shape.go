package tools

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shape is a Go type seen as a JSON Schema, with what filling in defaults needs.
type shape struct {
	schema map[string]interface{}
	fields map[string]*field // of a struct
	items  *shape            // of a slice or map
	// hasDefaults is whether there is a default anywhere below, creates whether
	// something below is created for its defaults.
	hasDefaults, creates bool
}

type field struct {
	*shape
	def    interface{} // the default, nil if there is none
	create bool        // a missing value is made for the defaults inside it
}

// inputShape describes the input of a tool.
func inputShape(tool string, t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("tools: %s: the input must be a struct, not %s", tool, t))
	}
	b := shapeBuilder{tool: tool}
	return b.structShape(t)
}

// shapeBuilder remembers where it is, for its panics and against recursion.
type shapeBuilder struct {
	tool string
	open []reflect.Type
}

func (b *shapeBuilder) fail(format string, args ...any) {
	panic("tools: " + b.tool + ": " + fmt.Sprintf(format, args...))
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	jsonReader   = reflect.TypeFor[json.Unmarshaler]()
	textReader   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (b *shapeBuilder) shape(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch p := reflect.PointerTo(t); {
	case t == timeType:
		return leaf("string", "format", "date-time")
	case t == durationType:
		b.fail("time.Duration has no JSON form a model could guess: use a number of seconds")
	case p.Implements(jsonReader):
		return &shape{schema: map[string]interface{}{}}
	case p.Implements(textReader):
		return leaf("string")
	}
	switch t.Kind() { //nolint:exhaustive // the rest is refused below
	case reflect.String:
		return leaf("string")
	case reflect.Bool:
		return leaf("boolean")
	case reflect.Float32, reflect.Float64:
		return leaf("number")
	case reflect.Int, reflect.Int64:
		return leaf("integer")
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := int64(1) << (t.Bits() - 1)
		return leaf("integer", "minimum", -limit, "maximum", limit-1)
	case reflect.Uint, reflect.Uint64:
		return leaf("integer", "minimum", 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return leaf("integer", "minimum", 0, "maximum", int64(1)<<t.Bits()-1)
	case reflect.Interface:
		return &shape{schema: map[string]interface{}{}}
	case reflect.Struct:
		return b.structShape(t)
	case reflect.Slice, reflect.Array, reflect.Map:
		return b.container(t)
	}
	b.fail("%s has no JSON form", t)
	return nil
}

func leaf(kind string, more ...interface{}) *shape {
	schema := map[string]interface{}{"type": kind}
	for i := 0; i+1 < len(more); i += 2 {
		schema[more[i].(string)] = more[i+1]
	}
	return &shape{schema: schema}
}

func (b *shapeBuilder) container(t reflect.Type) *shape {
	if t.Kind() == reflect.Map {
		if t.Key().Kind() != reflect.String {
			b.fail("%s: the keys of a map must be texts", t)
		}
		items := b.shape(t.Elem())
		return &shape{
			schema:      map[string]interface{}{"type": "object", "additionalProperties": items.schema},
			items:       items,
			hasDefaults: items.hasDefaults,
			creates:     items.creates,
		}
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return leaf("string", "contentEncoding", "base64")
	}
	items := b.shape(t.Elem())
	s := &shape{
		schema:      map[string]interface{}{"type": "array", "items": items.schema},
		items:       items,
		hasDefaults: items.hasDefaults,
		creates:     items.creates,
	}
	if t.Kind() == reflect.Array {
		s.schema["minItems"], s.schema["maxItems"] = t.Len(), t.Len()
	}
	return s
}

func (b *shapeBuilder) structShape(t reflect.Type) *shape {
	if slices.Contains(b.open, t) {
		b.fail("%s contains itself", t)
	}
	b.open = append(b.open, t)
	defer func() { b.open = b.open[:len(b.open)-1] }()

	s := &shape{fields: map[string]*field{}}
	properties := map[string]interface{}{}
	required := []string{}
	for _, f := range b.structFields(t) {
		fd := b.field(f)
		name, optional := jsonName(f)
		if s.fields[name] != nil {
			continue // an embedded field that an outer one hides
		}
		s.fields[name] = fd
		properties[name] = fd.schema
		if !optional && fd.def == nil {
			required = append(required, name)
		}
		s.hasDefaults = s.hasDefaults || fd.def != nil || fd.hasDefaults
		s.creates = s.creates || fd.create || fd.creates
	}
	s.schema = map[string]interface{}{"type": "object", "properties": properties}
	if len(required) > 0 {
		s.schema["required"] = required
	}
	return s
}

// structFields lists the fields JSON sees, those of embedded structs last.
func (b *shapeBuilder) structFields(t reflect.Type) []reflect.StructField {
	var own, embedded []reflect.StructField
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
		case f.Anonymous && inner.Kind() == reflect.Struct && strings.Split(tag, ",")[0] == "":
			if slices.Contains(b.open[:len(b.open)-1], inner) || inner == t {
				b.fail("%s contains itself", t)
			}
			embedded = append(embedded, b.structFields(inner)...)
		case f.IsExported():
			own = append(own, f)
		}
	}
	return append(own, embedded...)
}

// jsonName returns a field's name in JSON and whether it may be missing.
func jsonName(f reflect.StructField) (name string, optional bool) {
	parts := strings.Split(f.Tag.Get("json"), ",")
	name = parts[0]
	if name == "" {
		name = f.Name
	}
	return name, slices.Contains(parts[1:], "omitempty") || slices.Contains(parts[1:], "omitzero")
}

// field describes a field with its tags.
func (b *shapeBuilder) field(f reflect.StructField) *field {
	s := b.shape(f.Type)
	// The schema of a type is made anew for each field, so tags may be added.
	fd := &field{shape: s, create: f.Type.Kind() == reflect.Struct && s.hasDefaults}
	if text, ok := f.Tag.Lookup("description"); ok {
		s.schema["description"] = text
	}
	if text, ok := f.Tag.Lookup("enum"); ok {
		b.enum(f, s, text)
	}
	for _, key := range []string{"minimum", "maximum"} {
		if text, ok := f.Tag.Lookup(key); ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				b.fail("%s: %s:%q is no number", f.Name, key, text)
			}
			s.schema[key] = n
		}
	}
	for _, key := range []string{"minLength", "maxLength", "minItems", "maxItems"} {
		if text, ok := f.Tag.Lookup(key); ok {
			n, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				b.fail("%s: %s:%q is no size", f.Name, key, text)
			}
			s.schema[key] = int(n)
		}
	}
	if text, ok := f.Tag.Lookup("pattern"); ok {
		if _, err := regexp.Compile(text); err != nil {
			b.fail("%s: pattern: %v", f.Name, err)
		}
		s.schema["pattern"] = text
	}
	if text, ok := f.Tag.Lookup("format"); ok {
		s.schema["format"] = text
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		fd.def = b.value(f, s, text)
		s.schema["default"] = fd.def
	}
	return fd
}

func (b *shapeBuilder) enum(f reflect.StructField, s *shape, text string) {
	target := s
	if s.schema["type"] == "array" {
		target = s.items
	}
	var values []interface{}
	for v := range strings.SplitSeq(text, ",") {
		values = append(values, b.value(f, target, strings.TrimSpace(v)))
	}
	target.schema["enum"] = values
}

// value reads a value in a tag: texts as they are, the rest as JSON.
func (b *shapeBuilder) value(f reflect.StructField, s *shape, text string) interface{} {
	if s.schema["type"] == "string" {
		return text
	}
	var v interface{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.fail("%s: %q is no %v", f.Name, text, s.schema["type"])
	}
	return v
}

// fill returns v with the structs that are missing in it, as far as there are
// defaults for what is in them: in Go they are there in any case. v is not
// changed, and has the other defaults already.
func (s *shape) fill(v interface{}) interface{} {
	if !s.creates {
		return v
	}
	switch v := v.(type) {
	case map[string]interface{}:
		filled := maps.Clone(v)
		if s.items != nil {
			for k, e := range v {
				filled[k] = s.items.fill(e)
			}
		}
		for name, f := range s.fields {
			if e, ok := v[name]; ok {
				filled[name] = f.fill(e)
			} else if f.create {
				filled[name] = f.fresh()
			}
		}
		return filled
	case []interface{}:
		filled := make([]interface{}, len(v))
		for i, e := range v {
			filled[i] = s.items.fill(e)
		}
		return filled
	default:
		return v
	}
}

// fresh returns a struct that holds nothing but defaults.
func (s *shape) fresh() map[string]interface{} {
	m := make(map[string]interface{})
	for name, f := range s.fields {
		switch {
		case f.def != nil:
			m[name] = f.def
		case f.create:
			m[name] = f.fresh()
		}
	}
	return m
}
