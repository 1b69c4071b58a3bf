package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// argChecker checks arguments against a tool's schema. It compiles the schema
// once, when it is first needed, because compiling costs more than a whole call.
type argChecker struct {
	params map[string]interface{}
	once   sync.Once
	schema *jsonschema.Schema // nil: nothing to check
	err    error
}

func newArgChecker(params map[string]interface{}) *argChecker { return &argChecker{params: params} }

// compile returns why the schema cannot be used. A tool with such a schema
// still works, unchecked.
func (c *argChecker) compile(logger *slog.Logger, tool string) error {
	c.once.Do(func() {
		if len(c.params) == 0 {
			return
		}
		c.schema, c.err = compileSchema(c.params)
		if c.err != nil && logger != nil {
			logger.Warn("tool schema is not usable, its arguments are not checked", "tool", tool, "err", c.err)
		}
	})
	return c.err
}

// check returns every violation in one sentence for the model, or "".
func (c *argChecker) check(logger *slog.Logger, tool string, args map[string]interface{}) string {
	if err := c.compile(logger, tool); err != nil || c.schema == nil {
		return ""
	}
	var instance interface{} = args
	if !plainJSON(instance) {
		var err error
		if instance, err = throughJSON(instance); err != nil {
			return "Invalid arguments for " + tool + ": they are not JSON: " + err.Error()
		}
	}
	err := c.schema.Validate(instance)
	if err == nil {
		return ""
	}
	violation, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return "Invalid arguments for " + tool + ": " + err.Error()
	}
	return "Invalid arguments for " + tool + ": " + strings.Join(violations(nil, violation, instance), "; ") +
		". Correct them and call the tool again."
}

// schemaURL names a schema within its own compiler; nothing is ever loaded.
const schemaURL = "tool:///parameters"

// noLoader refuses references to other documents: a schema may come from
// elsewhere, and must not make us read files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("references to other documents are not allowed: %s", url)
}

func compileSchema(params map[string]interface{}) (*jsonschema.Schema, error) {
	doc, err := throughJSON(params)
	if err != nil {
		return nil, fmt.Errorf("schema is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return schema, nil
}

// throughJSON turns Go values such as []string into what JSON decodes to.
func throughJSON(v interface{}) (interface{}, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

// plainJSON reports whether v holds only what JSON decodes to, which is all the
// validator understands.
func plainJSON(v interface{}) bool {
	switch v := v.(type) {
	case nil, bool, string, float64, json.Number, int, int64:
		return true
	case map[string]interface{}:
		for _, e := range v {
			if !plainJSON(e) {
				return false
			}
		}
		return true
	case []interface{}:
		for _, e := range v {
			if !plainJSON(e) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// violations appends a phrase for each leaf of e: where, what was expected,
// what was there.
func violations(out []string, e *jsonschema.ValidationError, args interface{}) []string {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) > 0 {
			var forms []string
			for _, c := range e.Causes {
				forms = append(forms, strings.Join(violations(nil, c, args), " and "))
			}
			return append(out, place(e.InstanceLocation)+"matches none of the allowed forms ("+strings.Join(forms, ", or ")+")")
		}
	}
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			out = violations(out, c, args)
		}
		return out
	}
	if k, ok := e.ErrorKind.(*kind.Required); ok {
		for _, name := range k.Missing {
			out = append(out, path(append(slices.Clip(e.InstanceLocation), name))+" is required")
		}
		return out
	}
	return append(out, place(e.InstanceLocation)+phrase(e, args))
}

// phrase says what was expected and what was there.
func phrase(e *jsonschema.ValidationError, args interface{}) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got + " " + got(valueAt(args, e.InstanceLocation))
	case *kind.Enum:
		wants := make([]string, len(k.Want))
		for i, w := range k.Want {
			wants[i] = got(w)
		}
		return "expected one of " + strings.Join(wants, ", ") + ", got " + got(k.Got)
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
	case *kind.AdditionalProperties:
		return "unknown argument " + strings.Join(k.Properties, ", ")
	default:
		return e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	}
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

// maxGot bounds how much of a wrong value is repeated to the model, in bytes.
const maxGot = 60

func got(v interface{}) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%T", v)
	}
	if len(data) > maxGot {
		return strings.ToValidUTF8(string(data[:maxGot]), "") + "..."
	}
	return string(data)
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// cloneSchema copies a schema and keeps its Go types, so that later changes of
// the tool's own maps do not reach requests in flight.
func cloneSchema(v interface{}) interface{} {
	switch v := v.(type) {
	case map[string]interface{}:
		if v == nil {
			return v
		}
		m := make(map[string]interface{}, len(v))
		for k, e := range v {
			m[k] = cloneSchema(e)
		}
		return m
	case []interface{}:
		if v == nil {
			return v
		}
		s := make([]interface{}, len(v))
		for i, e := range v {
			s[i] = cloneSchema(e)
		}
		return s
	case []string:
		return append([]string(nil), v...)
	default:
		return v
	}
}
