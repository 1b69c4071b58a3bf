package tools

import (
	"context"
	"reflect"
	"slices"
)

// Invocation is one call of a tool on its way through the middleware.
type Invocation struct {
	Call Call // for whom, and which; a copy, so that changing it changes nothing
	Tool Tool // what is called, as it was registered
	// Args are the arguments. On the way in they are as the model wrote them, not
	// checked yet; once next has returned they are what the tool was given. The
	// map is shared with the history: to change something, put another map here.
	Args map[string]interface{}

	given map[string]interface{} // what Args was; the same map still is what the model wrote
	state *callState
	entry *entry
	cb    AsyncCallback
}

// Handler runs a call and returns its result, which is never nil when it is the
// next of a Middleware. Results may be shared: to change one, return another.
type Handler func(ctx context.Context, inv *Invocation) *ToolResult

// Middleware stands around the calls of tools: to allow and refuse them, to
// count, trace or limit them. It returns a Handler that calls next, as often as
// it likes but one at a time, with the Invocation it was given and ctx or a
// context made from it, which the tool then gets; or that answers in the tool's
// place. Arguments that it has changed are checked like the model's. It runs on
// the goroutine of the call, for any number of calls at once; next blocks until the
// tool has returned, and panics only because of another Middleware.
//
// A Middleware that panics or returns nil has refused the call, so a rule that
// breaks lets nothing through. Calls of unknown tools do not reach it.
type Middleware func(next Handler) Handler

// Use puts middleware around the calls of all tools, also of those in views and
// of those registered later. The first is the outermost; what is used later
// stands within. Each is asked for its Handler now, and again when more are
// used; where that is nil no call gets through. Calls that have begun are not
// affected.
func (r *ToolRegistry) Use(middleware ...Middleware) {
	c := r.core
	c.mu.Lock()
	defer c.mu.Unlock()
	c.middleware = append(c.middleware, middleware...)
	c.chain.Store(new(wrap(c.middleware, runInvocation)))
}

// wrap builds a chain; nil if there is nothing to put around h.
func wrap(middleware []Middleware, h Handler) Handler {
	if len(middleware) == 0 {
		return nil
	}
	for _, m := range slices.Backward(middleware) {
		if m != nil {
			h = m(h)
		}
		if m == nil || h == nil {
			h = refuse
		}
	}
	return h
}

// refuse stands where a rule should have been.
func refuse(context.Context, *Invocation) *ToolResult { return nil }

// handler is the registry's middleware, nil for none.
func (c *core) handler() Handler {
	if chain := c.chain.Load(); chain != nil {
		return *chain
	}
	return nil
}

// throughRegistry is what a loop's own middleware stands around.
func throughRegistry(ctx context.Context, inv *Invocation) *ToolResult {
	if h := inv.state.core.handler(); h != nil {
		return h(ctx, inv)
	}
	return runInvocation(ctx, inv)
}

// runInvocation is the innermost Handler.
func runInvocation(ctx context.Context, inv *Invocation) *ToolResult {
	if inv.state == nil {
		panic("tools: a middleware must pass on the Invocation it was given")
	}
	if stateFrom(ctx) != inv.state {
		ctx = context.WithValue(ctx, callKeyType{}, inv.state) // the middleware has made a context of its own
	}
	if !sameMap(inv.Args, inv.given) {
		inv.state.raw = ""
	}
	result := inv.state.core.guarded(ctx, inv.entry, inv.state, inv.Args, inv.cb)
	if inv.state.args != nil {
		inv.Args, inv.given = inv.state.args, inv.state.args
	}
	return result
}

// handle runs a call through the middleware, if there is any.
func (c *core) handle(ctx context.Context, e *entry, call *callState, args map[string]interface{}, cb AsyncCallback) (result *ToolResult) {
	h := call.via
	if h == nil {
		h = c.handler()
	}
	if h == nil {
		return c.guarded(ctx, e, call, args, cb)
	}
	defer func() {
		if p := recover(); p != nil {
			result = c.panicked(ctx, call, p)
		}
	}()
	inv := &Invocation{Call: call.Call, Tool: e.tool, Args: args, given: args, state: call, entry: e, cb: cb}
	if result = h(ctx, inv); result == nil {
		return noResult(e.name)
	}
	return result
}

// sameMap reports whether two maps are one.
func sameMap(a, b map[string]interface{}) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
