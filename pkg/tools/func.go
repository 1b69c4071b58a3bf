package tools

import (
	"context"
	"encoding/json"
	"reflect"
)

// Func makes a tool of a function. The schema comes from In, a struct, whose
// fields are described by tags:
//
//	type Input struct {
//		Path  string   `json:"path" description:"File to read"`
//		Limit int      `json:"limit,omitempty" minimum:"1" maximum:"500" default:"100"`
//		Mode  string   `json:"mode,omitempty" enum:"text,binary"`
//		Tags  []string `json:"tags,omitempty" maxItems:"5"`
//	}
//
// A field is required unless its json tag has omitempty or omitzero, or it has a
// default. The tags are description, enum (separated by commas; of a slice: of
// its items), default (other than for texts: JSON), minimum, maximum, minLength,
// maxLength, minItems, maxItems, pattern and format. Fields may be texts,
// numbers, booleans, structs, slices, maps with text keys, pointers to these,
// time.Time (RFC 3339), anything that reads itself from text, and any.
//
// Arguments are checked in full before fn is called, with or without a
// registry; what is wrong with them becomes one ErrorResult that lists it all.
// The tool has no state, so any number of calls may run at once: fn has to bear
// that. Func panics if In cannot be described, which is a mistake in the program.
func Func[In any](name, description string, fn func(ctx context.Context, in In) *ToolResult) Tool {
	return &funcTool[In]{funcBase: newFuncBase(name, description, reflect.TypeFor[In]()), fn: fn}
}

// AsyncFunc is Func for a tool that can work in the background: fn starts the
// work, by means of Go, and returns an AsyncResult at once; report is to be
// called with the outcome, once. Without anybody to report to, report does
// nothing.
func AsyncFunc[In any](name, description string, fn func(ctx context.Context, in In, report AsyncCallback) *ToolResult) Tool {
	return &asyncFuncTool[In]{funcBase: newFuncBase(name, description, reflect.TypeFor[In]()), fn: fn}
}

// funcBase is what does not depend on the function.
type funcBase struct {
	name, description string
	shape             *shape
	args              *argChecker
}

func newFuncBase(name, description string, in reflect.Type) funcBase {
	s := inputShape(name, in)
	return funcBase{name: name, description: description, shape: s, args: newArgChecker(s.schema)}
}

func (b *funcBase) Name() string                       { return b.name }
func (b *funcBase) Description() string                { return b.description }
func (b *funcBase) Parameters() map[string]interface{} { return b.shape.schema }

// ownArgs gives the registry the checker that this tool would use itself.
func (b *funcBase) ownArgs() *argChecker { return b.args }

// decode reads args into in, and checks them unless the registry has. It returns
// nil, or what the model has to know.
func (b *funcBase) decode(ctx context.Context, args map[string]interface{}, in any) *ToolResult {
	if args == nil {
		args = map[string]interface{}{}
	}
	if call := stateFrom(ctx); call == nil || call.checker != b.args || !sameMap(call.args, args) {
		var wrong string
		if args, wrong = b.args.prepare(nil, b.name, args); wrong != "" {
			return ErrorResult(wrong).WithError(errBadArgs)
		}
	}
	data, err := json.Marshal(b.shape.fill(args))
	if err == nil {
		err = json.Unmarshal(data, in)
	}
	if err != nil {
		return ErrorResult("Invalid arguments for " + b.name + ": " + err.Error() + ".").WithError(err)
	}
	return nil
}

type funcTool[In any] struct {
	funcBase
	fn func(context.Context, In) *ToolResult
}

func (t *funcTool[In]) Execute(ctx context.Context, args map[string]interface{}) *ToolResult {
	var in In
	if wrong := t.decode(ctx, args, &in); wrong != nil {
		return wrong
	}
	return t.fn(ctx, in)
}

type asyncFuncTool[In any] struct {
	funcBase
	fn func(context.Context, In, AsyncCallback) *ToolResult
}

func (t *asyncFuncTool[In]) Execute(ctx context.Context, args map[string]interface{}) *ToolResult {
	return t.ExecuteAsync(ctx, args, func(context.Context, *ToolResult) {})
}

func (t *asyncFuncTool[In]) ExecuteAsync(ctx context.Context, args map[string]interface{}, cb AsyncCallback) *ToolResult {
	var in In
	if wrong := t.decode(ctx, args, &in); wrong != nil {
		return wrong
	}
	return t.fn(ctx, in, cb)
}
