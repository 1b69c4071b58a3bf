package tools

import (
	"context"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// ToolLoopConfig configures one run of RunToolLoop. The fields after
// LLMOptions are additions; with all of them zero the loop behaves exactly as
// the plain one.
type ToolLoopConfig struct {
	Provider      providers.LLMProvider // the model
	Model         string                // its name at the provider
	Tools         *ToolRegistry         // nil: no tools
	MaxIterations int                   // most rounds with the model; 0 or less means none
	LLMOptions    map[string]any        // passed on to the provider, may be nil

	// AsyncCallback makes the callback for one asynchronous call. nil, or a nil
	// result: the tool gets none.
	AsyncCallback func(Call) AsyncCallback
	// OnEvent hears what happens, in order, on the loop's goroutine. It must
	// not block.
	OnEvent func(Event)
	// FinalAnswer adds, when MaxIterations is reached, one more request without
	// tools in which the model has to answer.
	FinalAnswer bool
	// Checkpoint is told each step before the loop goes on; if it fails the
	// loop stops with its error.
	Checkpoint func(context.Context, Record) error
	// Rounds is how many rounds a resumed run has already spent, and Finish the
	// finish reason of the last of them.
	Rounds int
	Finish string
	// Shape has the last hand on what the provider is sent, before every
	// request: it returns its argument or another slice, and changes neither
	// the argument nor what its messages point to. What the loop records and
	// returns is not affected. nil: none.
	Shape func([]providers.Message) []providers.Message
}

// RecordKind says what a Record records.
type RecordKind string

// The steps of a round.
const (
	RecordReply RecordKind = "reply" // the model replied
	RecordBegin RecordKind = "begin" // a call is about to run
	RecordEnd   RecordKind = "end"   // a call has its result, and the loop goes on
)

// Record is one step of the loop, for Checkpoint.
type Record struct {
	Kind    RecordKind
	Round   int               // 1-based
	Call    Call              // RecordBegin, RecordEnd
	Message providers.Message // RecordReply: the assistant's with its calls; RecordEnd: the tool's
	Result  *ToolResult       // RecordEnd
	Finish  string            // RecordReply: the model's finish reason

	Idempotent bool // RecordBegin: the call may be run again

	Request string           // RecordReply: the providers.Fingerprint of what the model was sent
	Usage   *providers.Usage // RecordReply: what it cost; nil if the model does not tell
	Took    time.Duration    // RecordReply: until the reply was there; RecordEnd: until the result was
}

// EventKind says what an Event tells.
type EventKind string

// The events of a loop.
const (
	EventModelStart EventKind = "model_start"
	EventModelEnd   EventKind = "model_end"
	EventToolStart  EventKind = "tool_start"
	EventToolEnd    EventKind = "tool_end"
)

// Event is something that happened in the loop.
type Event struct {
	Kind     EventKind
	Round    int
	Call     Call                   // tool events
	Result   *ToolResult            // EventToolEnd
	Response *providers.LLMResponse // EventModelEnd, nil if it failed
	Err      error                  // EventModelEnd
	Duration time.Duration          // end events
}

// StopReason says why the loop ended.
type StopReason string

// Why a loop ended.
const (
	StopAnswer        StopReason = "answer"
	StopMaxIterations StopReason = "max_iterations"
	StopCancelled     StopReason = "cancelled"
	StopError         StopReason = "error"
	StopTool          StopReason = "tool:" // with the name of the LoopBreaker behind it
)

// ToolLoopResult is how the loop ended.
type ToolLoopResult struct {
	Content    string // the final text, of the model or of a LoopBreaker; "" when MaxIterations was reached without FinalAnswer
	Iterations int    // rounds with the model, those before a resumption included

	StopReason StopReason
	Messages   []providers.Message // what the run added to the conversation, valid as history
	Usage      providers.Usage     // summed over all rounds
}
