package tools

import (
	"context"
	"encoding/json"
)

// Tool is something the model can call.
type Tool interface {
	// Name is the key by which the registry and the model refer to the tool.
	// It is read once, when the tool is registered.
	Name() string
	// Description tells the model what the tool does and when to use it.
	Description() string
	// Parameters returns the JSON Schema of the arguments, an object schema.
	// It is read once, when the tool is registered, and must not be changed
	// afterwards.
	Parameters() map[string]interface{}
	// Execute runs the tool. args has been checked against Parameters, and is the
	// tool's own to keep or change. ctx ends when the caller gives up;
	// CallFrom(ctx) tells which conversation asked.
	// Several goroutines may call it at once, unless the tool has one of the
	// setters below. It always returns a result; failures are results too.
	Execute(ctx context.Context, args map[string]interface{}) *ToolResult
}

// ContextualTool is a Tool that is told the conversation before each call. The
// registry calls SetContext before Execute when both values are non-empty, and
// lets nobody else use the instance until Execute has returned. A new tool had
// better read CallFrom(ctx), which needs no such lock.
type ContextualTool interface {
	Tool
	SetContext(channel, chatID string)
}

// MetadataAwareTool is a Tool that is told the message's metadata before each
// call. It gets a copy of its own.
type MetadataAwareTool interface {
	Tool
	SetMetadata(metadata map[string]string)
}

// AsyncCallback takes the result of background work to the conversation that
// asked for it. It may be called from any goroutine; it counts once.
type AsyncCallback func(ctx context.Context, result *ToolResult)

// AsyncTool is a Tool whose Execute starts background work, returns an
// AsyncResult at once and calls the callback when the work is done, with the
// ctx it was given or one made from it.
type AsyncTool interface {
	Tool
	SetCallback(cb AsyncCallback)
}

// AsyncExecutor is an AsyncTool without shared state: the callback comes with
// the call. cb is never nil.
type AsyncExecutor interface {
	Tool
	ExecuteAsync(ctx context.Context, args map[string]interface{}, cb AsyncCallback) *ToolResult
}

// PerCallTool is a Tool that makes a fresh instance for every call; setters
// and Execute then reach only that instance. See PerCall.
type PerCallTool interface {
	Tool
	ForCall() Tool
}

// IdempotentTool is a Tool that says whether a call may be run a second time,
// with the same arguments and the same Call.Key, without anything happening
// twice. After a crash a begun call of such a tool is run again; of any other
// tool the model is told that the outcome is unknown.
type IdempotentTool interface {
	Tool
	Idempotent() bool
}

// ParallelSafe is a Tool that says of a call whether it may run while the calls
// next to it in the same reply run too: it changes nothing that another call
// could read, and waits for nothing that another call does. It is asked once for
// each call, on the loop's goroutine, before anything of the group runs; it must
// not block. args are as the model wrote them, not checked yet, and are only to
// be read; a panic counts as false. A tool without it always runs alone, and so
// does one with setters, whose instance serves one call at a time anyway.
type ParallelSafe interface {
	Tool
	ParallelSafe(args map[string]interface{}) bool
}

// LoopBreaker is a Tool that can end the loop: it says that the work is done, or
// that a person has to answer first. IsLoopBreaking is asked once, when the tool
// is registered. The loop ends when such a tool was run and did not fail; what
// the model would read of the result is then the loop's Content, and its ForUser
// is not used. Checkpoint hears of its beginning only; one that is idempotent is
// run again when the loop is resumed, and ends it again.
type LoopBreaker interface {
	Tool
	IsLoopBreaking() bool
}

// RawExecutor is a Tool that takes the arguments as the model wrote them, which
// keeps large numbers and the order of keys. They have been checked like those
// of Execute, which is not called then. arguments is always a JSON object.
type RawExecutor interface {
	Tool
	ExecuteRaw(ctx context.Context, arguments json.RawMessage) *ToolResult
}

// ToolToSchema describes a tool in the form OpenAI-style APIs take:
// {"type":"function","function":{"name":...,"description":...,"parameters":...}}.
func ToolToSchema(tool Tool) map[string]interface{} {
	return schemaMap(tool.Name(), tool.Description(), tool.Parameters())
}

func schemaMap(name, description string, parameters map[string]interface{}) map[string]interface{} {
	return map[string]interface{}{
		"type": "function",
		"function": map[string]interface{}{
			"name":        name,
			"description": description,
			"parameters":  parameters,
		},
	}
}

// As finds the first tool in a chain of decorators that implements T. A
// decorator is a tool with an Unwrap() Tool method.
func As[T any](tool Tool) (T, bool) {
	for tool != nil {
		if t, ok := tool.(T); ok {
			return t, true
		}
		u, ok := tool.(interface{ Unwrap() Tool })
		if !ok {
			break
		}
		tool = u.Unwrap()
	}
	var zero T
	return zero, false
}
