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
	// FinalAnswer sees to it that the run ends in a text. When MaxIterations is
	// reached, LoopGuard stops the loop, or the model's replies do not become
	// whole, it adds one more request without tools, in which the model has to
	// answer and to say what is left undone. A reply with neither text nor calls,
	// which may hold thoughts, is asked for again, twice in a row, before that.
	// What the model is told for it does not become part of the conversation.
	FinalAnswer bool
	// Answered says whether the person has already been told something in this
	// run, by a tool; FinalAnswer then lets a reply be empty. nil: no.
	Answered func() bool
	// Middleware stands around the calls of this loop, outside of what
	// ToolRegistry.Use has put there; the first is the outermost.
	Middleware []Middleware
	// Checkpoint is told each step before the loop goes on; if it fails the
	// loop stops with its error.
	Checkpoint func(context.Context, Record) error
	// Stream is given each reply in pieces while it is made, on the loop's
	// goroutine, if the provider is a providers.Streamer, and otherwise in one
	// piece. Pieces are for showing: an EventModelStart begins a new reply, whose
	// text may turn out to come before calls. Of a reply that breaks off, what was
	// told of it is the Content of the result. nil: whole replies only.
	Stream func(providers.Delta)
	// Parallel is how many calls of one reply may run together at most, where
	// neighbours are ParallelSafe: 0 is 4, 1 is none.
	Parallel int
	// ToolTimeout is how long each call may take, unless its tool is a
	// TimeoutTool: 0 is what the registry's Options say, less is as long as it
	// likes.
	ToolTimeout time.Duration
	// MaxToolResultBytes bounds what the model reads of a tool's result: of a
	// longer one the beginning and the end, and a notice between. 0 is no bound.
	MaxToolResultBytes int
	// LoopGuard watches for calls, alone or in turn with others, that are made
	// again and again with the same outcome. In the third result the model is
	// warned, the fifth call is refused, and the eighth ends the loop with
	// StopLoopDetected. A call whose outcome changes may be repeated for ever.
	LoopGuard bool
	// StopWhen is asked, after each round with calls, whether the loop ends
	// there, with StopCondition. steps are the rounds of this run so far. nil: no.
	StopWhen func(steps []Step) bool
	// PrepareStep may change the fields of a request before it is made; the next
	// one begins from the loop's own again. Messages are to be replaced, never
	// changed. Calls are run with the Tools their request had. An error ends the
	// loop. nil: nothing is changed.
	PrepareStep func(context.Context, *Request) error
	// OutputSchema is a JSON Schema the answer has to fit; the model has to be
	// told so by the caller. An answer that does not fit is sent back once with
	// what is wrong with it; if the next does not fit either the loop ends with
	// StopInvalidOutput. Content is then the JSON alone. nil: any text.
	OutputSchema map[string]any
	// Inject returns what has been written to the running turn meanwhile, limit
	// messages at most; the loop adds them to the conversation. It is asked, 5
	// times with success, when the calls of a reply have their results and before
	// an answer ends the loop, and must not block. A message is taken over when
	// Checkpoint has its RecordInject. nil: nothing is added.
	Inject func(limit int) []providers.Message
	// InjectSkips has the calls of a reply that have not begun when a message
	// comes answered with a note instead of being run.
	InjectSkips bool
	// EstimateUsage counts tokens roughly, at four bytes each, where the provider
	// does not tell.
	EstimateUsage bool
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

// Request is what the model is about to be asked, for PrepareStep. Shape still
// comes after it.
type Request struct {
	Round    int
	Model    string
	Messages []providers.Message
	Tools    *ToolRegistry // nil: none are offered
	Options  map[string]any
}

// Step is one round of the loop whose calls have their results, for StopWhen.
type Step struct {
	Round    int
	Messages []providers.Message // the model's reply and the results
	Finish   string
	Usage    *providers.Usage // nil if it is not known
}

// RecordKind says what a Record records.
type RecordKind string

// The steps of a round.
const (
	RecordReply RecordKind = "reply" // the model replied
	RecordBegin RecordKind = "begin" // a call is about to run
	RecordEnd   RecordKind = "end"   // a call has its result, and the loop goes on

	// A message comes in from outside; see ToolLoopConfig.Inject.
	RecordInject RecordKind = "inject"
)

// Record is one step of the loop, for Checkpoint.
type Record struct {
	Kind    RecordKind
	Round   int               // 1-based
	Call    Call              // RecordBegin, RecordEnd
	Message providers.Message // RecordReply: the assistant's with its calls; RecordEnd: the tool's; RecordInject: what comes in
	Result  *ToolResult       // RecordEnd
	Finish  string            // RecordReply: the model's finish reason

	Idempotent bool // RecordBegin: the call may be run again

	Request string           // RecordReply: the providers.Fingerprint of what the model was sent
	Usage   *providers.Usage // RecordReply: what it cost, with empty replies before it; nil if it is not known
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
	Usage    *providers.Usage       // EventModelEnd, nil if it is not known
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
	StopTool          StopReason = "tool:"          // with the name behind it of the LoopBreaker, or of the tool whose result was Final
	StopLoopDetected  StopReason = "loop_detected"  // LoopGuard
	StopRefused       StopReason = "refused"        // the model, or its service, declines to answer; Content is what there is
	StopLength        StopReason = "length"         // the reply was cut off at the model's limit; Content is what there is
	StopCondition     StopReason = "condition"      // StopWhen; Content is the text of the last reply
	StopInvalidOutput StopReason = "invalid_output" // the answer does not fit OutputSchema
)

// ToolLoopResult is how the loop ended.
type ToolLoopResult struct {
	Content    string // the final text, of the model or of a LoopBreaker; "" when MaxIterations was reached without FinalAnswer, and after a Final result
	Iterations int    // rounds with the model, those before a resumption included; a reply that is asked for again counts once

	StopReason StopReason
	Messages   []providers.Message // what the run added to the conversation, valid as history
	Usage      providers.Usage     // summed over all requests of this run, failed ones included where they tell
}
