package tools

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const (
	maxComplaint = 4 << 10 // bytes of all violations together
	maxGot       = 60      // bytes of a wrong value that are repeated
	maxOffered   = 10      // names that are offered in place of a wrong one
)

// violations names all that is wrong with a value, in the order of the places
// where it is: where, what was expected, what was there.
func violations(s *jsonschema.Schema, e *jsonschema.ValidationError, value interface{}) string {
	r := reporter{root: s, value: value}
	return shorten(strings.Join(r.report(nil, e), "; "), maxComplaint)
}

type reporter struct {
	root  *jsonschema.Schema
	value interface{}
}

// report appends a phrase for each leaf of e.
func (r *reporter) report(out []string, e *jsonschema.ValidationError) []string {
	// Properties are checked in no order.
	slices.SortStableFunc(e.Causes, func(a, b *jsonschema.ValidationError) int {
		return slices.Compare(a.InstanceLocation, b.InstanceLocation)
	})
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) > 0 {
			var forms []string
			for _, c := range e.Causes {
				forms = append(forms, strings.Join(r.report(nil, c), " and "))
			}
			return append(out, place(at)+"matches none of the allowed forms ("+strings.Join(forms, ", or ")+")")
		}
	case *kind.Required:
		for _, name := range k.Missing {
			out = append(out, path(append(slices.Clip(at), name))+" is required"+r.misspelt(e, name))
		}
		return out
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties {
			out = append(out, place(at)+"unknown argument "+strings.Trim(got(name), `"`)+r.offer(e, name))
		}
		return out
	}
	if len(e.Causes) == 0 {
		return append(out, place(at)+r.phrase(e))
	}
	for _, c := range e.Causes {
		out = r.report(out, c)
	}
	return out
}

// phrase says what was expected and what was there.
func (r *reporter) phrase(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		text := "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
		if k.Got != "null" {
			text += " " + got(valueAt(r.value, e.InstanceLocation))
		}
		return text
	case *kind.Enum:
		return enumPhrase(k)
	case *kind.Const:
		return "expected " + got(k.Want) + ", got " + got(k.Got)
	case *kind.Minimum:
		return "expected at least " + number(k.Want) + ", got " + number(k.Got)
	case *kind.Maximum:
		return "expected at most " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMinimum:
		return "expected more than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMaximum:
		return "expected less than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.MinLength:
		return fmt.Sprintf("expected at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("expected at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("expected at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("expected at most %d items, got %d", k.Want, k.Got)
	case *kind.Pattern:
		return "expected a text that matches " + k.Want + ", got " + got(k.Got)
	case *kind.Format:
		return "expected the format " + k.Want + ", got " + got(k.Got)
	default:
		return e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	}
}

func enumPhrase(k *kind.Enum) string {
	wants := make([]string, len(k.Want))
	var names []string
	for i, w := range k.Want {
		wants[i] = got(w)
		if name, ok := w.(string); ok {
			names = append(names, name)
		}
	}
	text := "expected one of " + strings.Join(wants, ", ") + ", got " + got(k.Got)
	if name, ok := k.Got.(string); ok {
		if near := meant(name, names, 1); len(near) > 0 {
			text += " (did you mean " + got(near[0]) + "?)"
		}
	}
	return text
}

// misspelt names the unknown property that a missing one may have become.
func (r *reporter) misspelt(e *jsonschema.ValidationError, missing string) string {
	object, _ := valueAt(r.value, e.InstanceLocation).(map[string]interface{})
	known := r.properties(e)
	var unknown []string
	for name := range object {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if near := meant(missing, unknown, 1); len(near) > 0 {
		return " (you wrote " + got(near[0]) + ")"
	}
	return ""
}

// offer names what may stand in place of an unknown property.
func (r *reporter) offer(e *jsonschema.ValidationError, unknown string) string {
	known := r.properties(e)
	if near := meant(unknown, known, 1); len(near) > 0 {
		return " (did you mean " + got(near[0]) + "?)"
	}
	switch {
	case len(known) == 0:
		return ""
	case len(known) > maxOffered:
		known = append(known[:maxOffered], "...")
	}
	return " (there are " + strings.Join(known, ", ") + ")"
}

// properties returns the names an object may have where e is, sorted.
func (r *reporter) properties(e *jsonschema.ValidationError) []string {
	var names []string
	walk(r.root, make(map[*jsonschema.Schema]bool), func(s *jsonschema.Schema) {
		if s.Location == e.SchemaURL {
			for name := range s.Properties {
				names = append(names, name)
			}
		}
	})
	slices.Sort(names)
	return names
}

// path writes a place the way one would in code: options.tags[2].
func path(location []string) string {
	var b strings.Builder
	for _, part := range location {
		if _, err := strconv.Atoi(part); err == nil && b.Len() > 0 {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}

func place(location []string) string {
	if len(location) == 0 {
		return ""
	}
	return path(location) + ": "
}

// valueAt returns what the model sent at a place.
func valueAt(v interface{}, location []string) interface{} {
	for _, part := range location {
		switch c := v.(type) {
		case map[string]interface{}:
			v = c[part]
		case []interface{}:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(c) {
				return nil
			}
			v = c[i]
		default:
			return nil
		}
	}
	return v
}

func got(v interface{}) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprintf("%T", v)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) > maxGot {
		return text[:edge(text, maxGot)] + "..."
	}
	return text
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
