package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// argChecker fits arguments to a tool's schema and checks them. It compiles the schema
// once, when it is first needed, because compiling costs more than a whole call.
type argChecker struct {
	params map[string]interface{}
	once   sync.Once
	schema *jsonschema.Schema // nil: nothing to check
	nodes  map[*jsonschema.Schema]*node
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
		if c.schema, c.err = compileSchema(c.params); c.err == nil {
			c.nodes = nodesOf(c.schema)
		}
		if c.err != nil && logger != nil {
			logger.Warn("tool schema is not usable, its arguments are not checked", "tool", tool, "err", c.err)
		}
	})
	return c.err
}

// prepare returns the arguments as the schema wants them: those it was given if
// there is nothing to change, which it never does in place. If they do not fit,
// it returns a text for the model that names every violation.
func (c *argChecker) prepare(logger *slog.Logger, tool string, args map[string]interface{}) (fitted map[string]interface{}, wrong string) {
	if err := c.compile(logger, tool); err != nil || c.schema == nil {
		return args, ""
	}
	var instance interface{} = args
	if !plainJSON(instance) {
		decoded, err := throughJSON(instance)
		ok := err == nil
		if ok {
			instance, ok = exact(decoded)
		}
		if !ok {
			return nil, "Invalid arguments for " + tool + ": they are not JSON."
		}
	}
	f := fitter{nodes: c.nodes}
	value, changed := f.fit(c.schema, instance)
	err := c.schema.Validate(value)
	if err != nil && changed && c.schema.Validate(instance) == nil {
		return args, "" // the defaults were too much
	}
	if err != nil {
		return nil, c.complaint(tool, value, err)
	}
	if m, ok := value.(map[string]interface{}); ok && changed {
		return m, ""
	}
	return args, ""
}

// complaint says to the model what is wrong with its arguments.
func (c *argChecker) complaint(tool string, value interface{}, err error) string {
	violation, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return "Invalid arguments for " + tool + ": " + err.Error()
	}
	return "Invalid arguments for " + tool + ": " + violations(c.schema, violation, value) + ". Correct them and call the tool again."
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
		return append([]string{}, v...) // never nil, which would be null in JSON
	default:
		return v
	}
}
