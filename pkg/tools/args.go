package tools

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Models write "5" where a number is wanted, a list as a text, and null for what
// they have nothing for. fitter makes of such arguments what the schema wants,
// where that can be but one thing and loses nothing, and adds the schema's
// defaults. It changes no value the schema accepts, and never the caller's maps.

// maxFitting bounds the work on one call's arguments, in values looked at: a
// schema of alternatives within alternatives could make much of little.
const maxFitting = 100_000

// node is what fitting needs to know of a schema.
type node struct {
	wants    types
	defaults map[string]interface{} // of properties
}

// types are the types a schema allows.
type types struct{ null, boolean, integer, number, text, list, object bool }

func typesOf(s *jsonschema.Schema) (t types) {
	if s.Types == nil {
		return t
	}
	for _, name := range s.Types.ToStrings() {
		switch name {
		case "null":
			t.null = true
		case "boolean":
			t.boolean = true
		case "integer":
			t.integer = true
		case "number":
			t.number = true
		case "string":
			t.text = true
		case "array":
			t.list = true
		case "object":
			t.object = true
		}
	}
	return t
}

// nodesOf learns what there is to know of a schema and all it refers to.
func nodesOf(root *jsonschema.Schema) map[*jsonschema.Schema]*node {
	nodes := make(map[*jsonschema.Schema]*node)
	walk(root, make(map[*jsonschema.Schema]bool), func(s *jsonschema.Schema) {
		n := &node{wants: typesOf(s)}
		for name, sub := range s.Properties {
			if value, ok := defaultOf(sub); ok {
				if n.defaults == nil {
					n.defaults = make(map[string]interface{})
				}
				n.defaults[name] = value
			}
		}
		if n.wants != (types{}) || n.defaults != nil {
			nodes[s] = n
		}
	})
	return nodes
}

// defaultOf returns a schema's default, unless it contradicts the schema.
func defaultOf(s *jsonschema.Schema) (value interface{}, ok bool) {
	for d, i := s, 0; d != nil && i < 10; d, i = d.Ref, i+1 {
		if d.Default != nil {
			value, ok = exact(cloneSchema(*d.Default))
			return value, ok && s.Validate(value) == nil
		}
	}
	return nil, false
}

// walk visits every schema that says something about a part of the arguments.
func walk(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool, visit func(*jsonschema.Schema)) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	visit(s)
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	items, _ := s.Items.(*jsonschema.Schema)
	first, _ := s.Items.([]*jsonschema.Schema)
	more, _ := s.AdditionalItems.(*jsonschema.Schema)
	for _, sub := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, first,
		[]*jsonschema.Schema{s.Ref, s.If, s.Then, s.Else, additional, items, more, s.Items2020}) {
		walk(sub, seen, visit)
	}
	for _, sub := range s.Properties {
		walk(sub, seen, visit)
	}
	for _, sub := range s.PatternProperties {
		walk(sub, seen, visit)
	}
}

// fitter fits one call's arguments.
type fitter struct {
	nodes map[*jsonschema.Schema]*node
	steps int
}

// fit returns v the way s wants it, and whether that is another value than v.
func (f *fitter) fit(s *jsonschema.Schema, v interface{}) (fitted interface{}, changed bool) {
	if f.steps++; s == nil || s.Bool != nil || f.steps > maxFitting {
		return v, false
	}
	apply := func(sub *jsonschema.Schema) {
		if w, ok := f.fit(sub, v); ok {
			v, changed = w, true
		}
	}
	apply(s.Ref)
	n := f.nodes[s]
	if n != nil && n.wants != (types{}) {
		if w, ok := f.convert(s, n.wants, v); ok {
			v, changed = w, true
		}
	}
	for _, sub := range s.AllOf {
		apply(sub)
	}
	for _, subs := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if w, ok := f.choose(subs, v); ok {
			v, changed = w, true
		}
	}
	switch c := v.(type) {
	case map[string]interface{}:
		if m, ok := f.object(s, n, c); ok {
			v, changed = m, true
		}
	case []interface{}:
		if l, ok := f.array(s, c); ok {
			v, changed = l, true
		}
	}
	return v, changed
}

// choose fits v to one of several forms: the first it has already, or else the
// one it can be given. If there are several of those that differ, it is not
// clear what was meant.
func (f *fitter) choose(forms []*jsonschema.Schema, v interface{}) (fitted interface{}, changed bool) {
	for _, s := range forms {
		if s.Validate(v) == nil {
			return f.fit(s, v)
		}
	}
	for _, s := range forms {
		w, ok := f.fit(s, v)
		if !ok || s.Validate(w) != nil {
			continue
		}
		if changed && !reflect.DeepEqual(fitted, w) {
			return v, false
		}
		fitted, changed = w, true
	}
	return fitted, changed
}

// object fits the properties of v, and adds what has a default.
func (f *fitter) object(s *jsonschema.Schema, n *node, v map[string]interface{}) (fitted map[string]interface{}, changed bool) {
	fitted = v
	own := func() {
		if !changed {
			fitted, changed = maps.Clone(v), true
		}
	}
	for name, value := range v {
		sub := property(s, name)
		if sub == nil {
			continue
		}
		if value == nil && !slices.Contains(s.Required, name) && s.Properties[name] != nil && sub.Validate(nil) != nil {
			own()
			delete(fitted, name) // null for what is left out
			continue
		}
		if w, ok := f.fit(sub, value); ok {
			own()
			fitted[name] = w
		}
	}
	if n == nil {
		return fitted, changed
	}
	for name, value := range n.defaults {
		if _, ok := fitted[name]; !ok {
			own()
			fitted[name] = cloneSchema(value)
		}
	}
	return fitted, changed
}

// property returns the schema of a property, nil if nothing is said about it or
// several are that match patterns.
func property(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if sub := s.Properties[name]; sub != nil {
		return sub
	}
	var found *jsonschema.Schema
	for pattern, sub := range s.PatternProperties {
		if pattern.MatchString(name) {
			if found != nil {
				return nil
			}
			found = sub
		}
	}
	if found == nil {
		found, _ = s.AdditionalProperties.(*jsonschema.Schema)
	}
	return found
}

func (f *fitter) array(s *jsonschema.Schema, v []interface{}) (fitted []interface{}, changed bool) {
	fitted = v
	for i, value := range v {
		w, ok := f.fit(item(s, i), value)
		if !ok {
			continue
		}
		if !changed {
			fitted, changed = slices.Clone(v), true
		}
		fitted[i] = w
	}
	return fitted, changed
}

// item returns the schema of an element, nil if nothing is said about it.
func item(s *jsonschema.Schema, i int) *jsonschema.Schema {
	first, rest := s.PrefixItems, s.Items2020
	switch items := s.Items.(type) { // before 2020
	case *jsonschema.Schema:
		rest = items
	case []*jsonschema.Schema:
		first = items
		rest, _ = s.AdditionalItems.(*jsonschema.Schema)
	}
	if i < len(first) {
		return first[i]
	}
	return rest
}

// convert makes a value of a type that s wants of one it does not want.
func (f *fitter) convert(s *jsonschema.Schema, wants types, v interface{}) (converted interface{}, ok bool) {
	if n, ok := v.(json.Number); ok && wants.integer && !wants.number {
		return withoutPoint(n)
	}
	if wants.accept(v) {
		return v, false
	}
	if text, ok := v.(string); ok {
		if w, ok := wants.read(strings.TrimSpace(text)); ok {
			return w, true
		}
	}
	if wants.list && v != nil && f.single(s, v) {
		return []interface{}{v}, true
	}
	return v, false
}

// accept reports whether v is of one of the types.
func (t types) accept(v interface{}) bool {
	switch v := v.(type) {
	case nil:
		return t.null
	case bool:
		return t.boolean
	case string:
		return t.text
	case map[string]interface{}:
		return t.object
	case []interface{}:
		return t.list
	case float64:
		return t.number || t.integer && v == math.Trunc(v)
	default: // the other numbers
		return t.number || t.integer
	}
}

// read reads a text as what is wanted instead of one.
func (t types) read(text string) (v interface{}, ok bool) {
	switch {
	case text == "":
		return nil, false
	case t.boolean && (strings.EqualFold(text, "true") || strings.EqualFold(text, "false")):
		return strings.EqualFold(text, "true"), true
	case t.null && text == "null":
		return nil, true
	case t.object && text[0] == '{', t.list && text[0] == '[':
		return readNested(text)
	case t.number || t.integer:
		if !json.Valid([]byte(text)) {
			return nil, false
		}
		n, ok := exactNumber(json.Number(text))
		return n, ok && (t.number || isWhole(n))
	}
	return nil, false
}

// readNested reads an object or a list that was written as a text.
func readNested(text string) (v interface{}, ok bool) {
	if !json.Valid([]byte(text)) {
		var err error
		if text, err = repairJSON(text); err != nil {
			return nil, false
		}
	}
	if v, ok = decodeNumbers(text); !ok {
		return nil, false
	}
	return exact(v)
}

// single reports whether v can only be meant as the one element of a list: one
// that the list takes, and no text that may be a list itself.
func (f *fitter) single(s *jsonschema.Schema, v interface{}) bool {
	sub := item(s, 0)
	if n := f.nodes[sub]; n == nil || !n.wants.accept(v) || sub.Validate(v) != nil {
		return false
	}
	text, ok := v.(string)
	return !ok || text != "" && !strings.ContainsAny(text, ",;|\n[]{}")
}
