package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"time"
)

var (
	errBusy       = errors.New("tool is busy")
	errNilResult  = errors.New("tool returned no result")
	errBadArgs    = errors.New("arguments do not match the schema")
	errTooMany    = errors.New("too many background tasks")
	errClosing    = errors.New("registry is shutting down")
	errReturned   = errors.New("the call has returned")
	errExpired    = errors.New("the background task took too long")
	errCancelled  = errors.New("the background task was cancelled")
	errNoInstance = errors.New("tool made no instance")
)

// Execute runs a tool by name without conversation and callback. Within
// another call's context the tool works for that call's conversation.
func (r *ToolRegistry) Execute(ctx context.Context, name string, args map[string]interface{}) *ToolResult {
	return r.ExecuteWithContext(ctx, name, args, "", "", nil)
}

// ExecuteWithContext runs a tool by name for a conversation and blocks until it
// returns. args may be nil. The result is never nil: an unknown tool, wrong
// arguments, a panic and a missing result all come back as results that say so
// to the model.
//
// asyncCallback, unless nil, is called at most once, from any goroutine, with
// the outcome of a background task: if the result is not Async it is never
// called after ExecuteWithContext returned. Its context carries the values of
// the call and is not cancelled.
func (r *ToolRegistry) ExecuteWithContext(ctx context.Context, name string, args map[string]interface{}, channel, chatID string, asyncCallback AsyncCallback) *ToolResult {
	return r.run(ctx, r.table().byName[name], r.newCall(ctx, name, channel, chatID), args, asyncCallback)
}

// newCall makes the state of a call that no loop asks for.
func (r *ToolRegistry) newCall(ctx context.Context, name, channel, chatID string) *callState {
	call := newCallState(ctx, channel, chatID)
	call.core, call.Tool = r.core, name
	if id, ok := nestedID(ctx); ok {
		call.ID = id
	} else if call.ID == "" {
		call.ID = newCallID()
	}
	return call
}

// run is the one way a tool is executed. e is nil for an unknown name.
func (r *ToolRegistry) run(ctx context.Context, e *entry, call *callState, args map[string]interface{}, cb AsyncCallback) *ToolResult {
	if e == nil {
		r.core.stats.unknown.Add(1)
		result := r.notFound(call.Tool)
		r.core.logEnd(ctx, call, result, 0)
		return result
	}
	if args == nil {
		args = map[string]interface{}{}
	}
	call.Label = e.label(args)
	ctx = context.WithValue(ctx, callKeyType{}, call)
	began := time.Now()
	if r.core.logger.Enabled(ctx, slog.LevelDebug) {
		r.core.logger.LogAttrs(ctx, slog.LevelDebug, "tool start", call.attrs()...)
	}
	result := r.core.redacted(r.core.handle(ctx, e, call, args, cb))
	r.core.logEnd(ctx, call, result, time.Since(began))
	return result
}

// guarded runs a tool and turns a panic or a missing result into a result.
func (c *core) guarded(ctx context.Context, e *entry, call *callState, args map[string]interface{}, cb AsyncCallback) (result *ToolResult) {
	defer func() {
		if p := recover(); p != nil {
			result = c.panicked(ctx, call, p)
		}
	}()
	args, wrong := c.prepare(e, call, args)
	if wrong != "" {
		return ErrorResult(wrong).WithError(errBadArgs)
	}
	if cb != nil && e.canAsync || e.async != nil && e.async.installed.Load() {
		result = c.runTicketed(ctx, e, call, args, cb)
	} else {
		result = c.runPlain(ctx, e, call, args)
	}
	if result == nil {
		return noResult(e.name)
	}
	if result.Async && cb != nil && !e.canAsync {
		c.logger.WarnContext(ctx, "tool says it works on in the background but takes no callback", "tool", e.name)
	}
	return result
}

// textEmptyArgs is for a model whose arguments got lost.
const textEmptyArgs = " There were no arguments at all: if you wrote some, your output was probably cut off. Send less at once, or in several parts."

// prepare returns the arguments as the tool gets them, or what the model has to
// know.
func (c *core) prepare(e *entry, call *callState, args map[string]interface{}) (fitted map[string]interface{}, wrong string) {
	if call.raw != "" && (e.raw || longNumber(call.raw)) {
		v, ok := decodeNumbers(call.raw)
		if ok && !e.raw {
			v, ok = exact(v)
		}
		if written, isObject := v.(map[string]interface{}); ok && isObject {
			args = written
		}
	}
	fitted, wrong = e.args.prepare(c.logger, e.name, args)
	if wrong != "" && len(args) == 0 && call.Round > 0 {
		wrong += textEmptyArgs
	}
	if !sameMap(fitted, args) {
		call.raw = ""
	}
	if _, decodes := e.tool.(interface{ ownArgs() *argChecker }); !decodes {
		// The tool may keep and change what it is given. The history, which is
		// read long after a call was given up, must not change with it.
		fitted, _ = cloneSchema(fitted).(map[string]interface{})
	}
	call.args, call.checker = fitted, e.args
	return fitted, wrong
}

// runPlain runs a call that cannot report back.
func (c *core) runPlain(ctx context.Context, e *entry, call *callState, args map[string]interface{}) *ToolResult {
	var h *hold
	if e.lock != nil {
		var refusal *ToolResult
		if ctx, h, refusal = c.enter(ctx, e, call, c.newWait(ctx, e)); refusal != nil {
			return refusal
		}
	}
	return performance{core: c, entry: e, call: call, args: args, hold: h}.run(ctx)
}

// runTicketed runs a call that may report back through cb, or whose legacy tool
// has a callback anyway; cb is then nil and the report goes nowhere.
func (c *core) runTicketed(ctx context.Context, e *entry, call *callState, args map[string]interface{}, cb AsyncCallback) *ToolResult {
	w := c.newWait(ctx, e)
	ctx, t, refusal := c.openTicket(ctx, e, call, cb)
	if refusal != nil {
		return refusal
	}
	p := performance{core: c, entry: e, call: call, args: args, ticket: t}
	if e.lock != nil {
		if ctx, p.hold, refusal = c.enter(ctx, e, call, w); refusal == nil && e.async != nil {
			refusal = e.async.await(ctx, w, cb != nil)
		}
		if refusal != nil {
			p.done(ctx, refusal)
			return refusal
		}
		if e.async != nil {
			call.inst = e.async
			e.async.add(t)
		}
	}
	return p.run(ctx)
}

// invoke runs a tool that keeps nothing about the call in itself.
func (e *entry) invoke(ctx context.Context, call *callState, args map[string]interface{}) *ToolResult {
	if e.executor != nil && call.ticket != nil {
		return e.executor.ExecuteAsync(ctx, args, call.ticket.deliver)
	}
	if p, ok := e.tool.(PerCallTool); ok {
		return runFresh(ctx, p.ForCall(), args)
	}
	return call.execute(ctx, e.tool, args)
}

// execute runs a tool that takes no callback with the call. Only the outermost
// tool's own ExecuteRaw counts, as with ExecuteAsync.
func (s *callState) execute(ctx context.Context, tool Tool, args map[string]interface{}) *ToolResult {
	t, ok := tool.(RawExecutor)
	if !ok {
		return tool.Execute(ctx, args)
	}
	if strings.HasPrefix(strings.TrimSpace(s.raw), "{") && json.Valid([]byte(s.raw)) {
		return t.ExecuteRaw(ctx, json.RawMessage(s.raw))
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return ErrorResult("Invalid arguments for " + s.Tool + ": they are not JSON.").WithError(err)
	}
	return t.ExecuteRaw(ctx, raw)
}

// runFresh runs an instance that belongs to one call.
func runFresh(ctx context.Context, tool Tool, args map[string]interface{}) *ToolResult {
	if tool == nil {
		return ErrorResult("The tool cannot work at the moment.").WithError(errNoInstance)
	}
	call := stateFrom(ctx)
	if call == nil {
		return tool.Execute(ctx, args)
	}
	if t, ok := As[ContextualTool](tool); ok && call.Channel != "" && call.ChatID != "" {
		t.SetContext(call.Channel, call.ChatID)
	}
	if t, ok := As[MetadataAwareTool](tool); ok && call.Metadata != nil {
		t.SetMetadata(maps.Clone(call.Metadata))
	}
	if call.ticket == nil {
		return call.execute(ctx, tool, args)
	}
	if t, ok := tool.(AsyncExecutor); ok {
		return t.ExecuteAsync(ctx, args, call.ticket.deliver)
	}
	if t, ok := As[AsyncTool](tool); ok {
		t.SetCallback(call.ticket.deliver)
	}
	return call.execute(ctx, tool, args)
}

// maxNamed bounds how many tools an answer to a wrong name lists.
const maxNamed = 30

func (r *ToolRegistry) notFound(name string) *ToolResult {
	text := fmt.Sprintf("Tool %s not found.", got(name))
	names := r.List()
	if near := meant(name, names, 3); len(near) > 0 {
		text += " Did you mean " + strings.Join(near, " or ") + "?"
	}
	if len(names) > maxNamed {
		text += fmt.Sprintf(" Some of the %d available tools: %s.", len(names), strings.Join(nearest(name, names)[:maxNamed], ", "))
	} else if len(names) > 0 {
		text += " Available tools: " + strings.Join(names, ", ") + "."
	}
	return ErrorResult(text).WithError(fmt.Errorf("%w: %s", ErrNotFound, name))
}

// panicked logs a panic with its stack and makes the result for the model,
// which learns nothing about our insides.
func (c *core) panicked(ctx context.Context, call *callState, p any) *ToolResult {
	err := fmt.Errorf("panic: %v", p)
	attrs := append(call.attrs(), slog.Any("err", err), slog.String("stack", string(debug.Stack())))
	c.logger.LogAttrs(ctx, slog.LevelError, "tool panicked", attrs...)
	return ErrorResult("The tool " + call.Tool + " failed because of an internal error. Do not repeat the same call.").WithError(err)
}

func noResult(tool string) *ToolResult {
	return ErrorResult("The tool " + tool + " returned no result.").WithError(errNilResult)
}

func cancelledResult(tool string, cause error) *ToolResult {
	return ErrorResult("The call of " + tool + " was cancelled.").WithError(cause)
}

// attrs names the call in the log.
func (s *callState) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("tool", s.Tool))
	if s.Channel != "" {
		attrs = append(attrs, slog.String("channel", s.Channel), slog.String("chat_id", s.ChatID))
	}
	if s.Turn != "" {
		attrs = append(attrs, slog.String("turn_id", s.Turn), slog.Int("iteration", s.Round))
	}
	return attrs
}

// logEnd logs how a call ended. What the model reads stays out of it, except at
// debug level.
func (c *core) logEnd(ctx context.Context, call *callState, result *ToolResult, took time.Duration) {
	level := slog.LevelDebug
	if result.IsError {
		level = slog.LevelWarn
	}
	if !c.logger.Enabled(ctx, level) {
		return
	}
	attrs := append(call.attrs(), slog.Duration("duration", took))
	if result.Err != nil {
		attrs = append(attrs, slog.Any("err", result.Err))
	}
	switch {
	case result.IsError:
		if c.logger.Enabled(ctx, slog.LevelDebug) {
			attrs = append(attrs, slog.String("result", result.ForLLM))
		}
		c.logger.LogAttrs(ctx, level, "tool failed", attrs...)
	case result.Async:
		c.logger.LogAttrs(ctx, level, "tool started a background task", attrs...)
	default:
		c.logger.LogAttrs(ctx, level, "tool end", attrs...)
	}
}
