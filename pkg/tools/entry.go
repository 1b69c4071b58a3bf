package tools

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// entry is what the registry knows about a tool, found out once.
type entry struct {
	name string
	tool Tool
	def  providers.ToolDefinition
	args *argChecker

	raw bool // takes the text of the arguments

	perCall  bool          // instances are made per call; the setters below are nil
	executor AsyncExecutor // takes its callback with the call
	canAsync bool          // may report back later
	repeats  bool          // may be run twice for one call
	breaks   bool          // ends the loop
	beside   ParallelSafe  // nil: its calls run alone
	ttl      time.Duration // 0: the registry's
	timed    bool          // has a timeout of its own
	timeout  time.Duration

	// The legacy setters, wherever in a chain of decorators they are, and the
	// instances they belong to.
	ctxTool   ContextualTool
	metaTool  MetadataAwareTool
	asyncTool AsyncTool
	lock      *instance // nil: no setters, no lock
	async     *instance // of asyncTool
}

// newEntry reads a tool. A tool whose methods panic is refused, like nil.
func newEntry(tool Tool) (e *entry, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, fmt.Errorf("tools: register: %T panics when it is asked what it is: %v", tool, p)
		}
	}()
	if tool == nil {
		return nil, errors.New("tools: register: nil tool")
	}
	e = &entry{name: tool.Name(), tool: tool}
	if e.name == "" {
		return nil, fmt.Errorf("tools: register: %T has no name", tool)
	}
	params, _ := cloneSchema(tool.Parameters()).(map[string]interface{})
	if params == nil {
		params = map[string]interface{}{"type": "object", "properties": map[string]interface{}{}}
	}
	e.def = providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
		Name: e.name, Description: tool.Description(), Parameters: params,
	}}
	if t, ok := tool.(interface{ ownArgs() *argChecker }); ok {
		e.args = t.ownArgs()
	} else {
		e.args = newArgChecker(params)
	}
	if t, ok := As[interface {
		Tool
		AsyncTTL() time.Duration
	}](tool); ok {
		e.ttl = t.AsyncTTL()
	}
	if t, ok := As[IdempotentTool](tool); ok {
		e.repeats = t.Idempotent()
	}
	e.classify()
	return e, nil
}

// classify finds out which of the optional interfaces a tool has.
func (e *entry) classify() {
	if p, ok := As[PerCallTool](e.tool); ok {
		e.perCall = true
		fresh := p.ForCall()
		_, e.raw = fresh.(RawExecutor)
		e.breaks = breaksLoop(fresh)
		e.limitBy(fresh)
		e.beside, _ = As[ParallelSafe](fresh)
		_, executor := fresh.(AsyncExecutor)
		_, async := As[AsyncTool](fresh)
		e.canAsync = executor || async
		return
	}
	_, e.raw = e.tool.(RawExecutor)
	e.breaks = breaksLoop(e.tool)
	e.limitBy(e.tool)
	e.ctxTool, _ = As[ContextualTool](e.tool)
	e.metaTool, _ = As[MetadataAwareTool](e.tool)
	// Only the outermost tool's own ExecuteAsync counts: calling that of a
	// decorated one would go around the decorator.
	if e.executor, _ = e.tool.(AsyncExecutor); e.executor == nil {
		e.asyncTool, _ = As[AsyncTool](e.tool)
	}
	e.canAsync = e.executor != nil || e.asyncTool != nil
	if !e.hasSetters() && !e.breaks {
		e.beside, _ = As[ParallelSafe](e.tool)
	}
}

func (e *entry) limitBy(tool Tool) {
	if t, ok := As[TimeoutTool](tool); ok {
		e.timed, e.timeout = true, t.Timeout()
	}
}

func breaksLoop(tool Tool) bool {
	t, ok := As[LoopBreaker](tool)
	return ok && t.IsLoopBreaking()
}

// hasSetters reports whether the tool keeps something about a call in itself.
func (e *entry) hasSetters() bool {
	return e.ctxTool != nil || e.metaTool != nil || e.asyncTool != nil
}

// holdsUntilDone reports whether the instance is taken until the callback: its
// goroutine may read the conversation from the instance.
func (e *entry) holdsUntilDone() bool {
	return e.canAsync && (e.ctxTool != nil || e.metaTool != nil)
}

// strict says what RegisterTool has against the tool.
func (e *entry) strict() error {
	if !legalName(e.name) {
		return errors.New("the name must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
	}
	if e.def.Function.Description == "" {
		return errors.New("the description is empty")
	}
	if t, ok := e.def.Function.Parameters["type"]; ok && t != "object" {
		return fmt.Errorf("the schema must be of type object, not %v", t)
	}
	return e.args.compile(nil, e.name)
}

func legalName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// setterTool returns the innermost tool in a chain of decorators that has a
// setter. Whatever decorates it shares its lock.
func setterTool(tool Tool) Tool {
	var innermost Tool
	for tool != nil {
		switch tool.(type) {
		case ContextualTool, MetadataAwareTool, AsyncTool:
			innermost = tool
		}
		u, ok := tool.(interface{ Unwrap() Tool })
		if !ok {
			break
		}
		tool = u.Unwrap()
	}
	return innermost
}

// adopt gives the entry the instances it needs; c.mu is held. One instance may
// be registered under several names or in several decorators.
func (c *core) adopt(e *entry) {
	if !e.hasSetters() {
		return
	}
	e.lock = c.instanceOf(setterTool(e.tool))
	if e.asyncTool == nil {
		return
	}
	e.async = c.instanceOf(e.asyncTool)
}

// installEarly gives a legacy AsyncTool its callback before its first call.
func (c *core) installEarly(e *entry) {
	if e.async == nil || !c.options.InstallAtRegister {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.logger.Error("tool panics in SetCallback", "tool", e.name, "err", fmt.Errorf("%v", p))
		}
	}()
	e.async.install(e.asyncTool)
}

func (c *core) instanceOf(tool Tool) *instance {
	// A tool that is not comparable, such as a struct with a map in it, has no
	// identity to be found by.
	if !reflect.ValueOf(tool).Comparable() {
		return newInstance(c, tool)
	}
	in := c.instances[tool]
	if in == nil {
		in = newInstance(c, tool)
		c.instances[tool] = in
	}
	in.refs++
	return in
}

// release gives back what adopt took; c.mu is held.
func (c *core) release(e *entry) {
	for _, in := range []*instance{e.lock, e.async} {
		if in == nil {
			continue
		}
		if in.refs--; in.refs <= 0 && in.forgettable() && reflect.ValueOf(in.key).Comparable() {
			delete(c.instances, in.key)
		}
	}
}
