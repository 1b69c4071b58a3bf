package providerstest

import (
	"net/http"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Request is what a model API was asked, in the terms of package providers, so
// that a script does not depend on one vendor's wire format.
type Request struct {
	N        int // 1 for the first request the server took
	Model    string
	Messages []providers.Message
	Tools    []providers.ToolDefinition // shared between requests; do not change it
	Options  map[string]any             // every other field of the request, decoded
	Stream   bool                       // the answer is wanted in pieces
	Header   http.Header
	Body     []byte // as it came; do not change it
}

// Last returns the last message, zero if there is none.
func (r Request) Last() providers.Message {
	if len(r.Messages) == 0 {
		return providers.Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// Call is a tool call a scripted model makes. Arguments is written to the wire
// as it stands, broken JSON included. An empty ID gets a fresh one.
type Call struct{ ID, Name, Arguments string }

// Response is what a scripted model does with a request. The zero value is an
// empty answer.
type Response struct {
	Content      string
	Reasoning    string // thoughts, which are told beside the content
	Refusal      string // why the model declines, in place of the content
	ToolCalls    []Call
	FinishReason string           // "": tool_calls if there are calls, otherwise stop
	Usage        *providers.Usage // nil: a rough count

	Delay time.Duration // waited before anything is written
	Pause time.Duration // waited before each piece of an answer in pieces

	// Failure, when not empty, makes the API fail the way the real one does
	// for that kind. KindUnreachable cuts the connection.
	Failure    providers.ErrorKind
	RetryAfter time.Duration // what a failure asks for, 0 for nothing

	// Status and Body, when Status is not 0, are written as they stand.
	Status int
	Body   string
	Header http.Header // added to whatever is written

	Hang bool // no answer until the caller gives up or the server is closed
	Cut  bool // the connection breaks in the middle of the answer's body
	Park bool // nothing more comes from the middle of the answer's body on, until the caller gives up
}

// Text is a plain answer.
func Text(content string) Response { return Response{Content: content} }

// Calls is an answer that calls tools.
func Calls(calls ...Call) Response { return Response{ToolCalls: calls} }

// Fail is a failure of a kind.
func Fail(kind providers.ErrorKind) Response { return Response{Failure: kind} }

// Sequence answers the first request with the first response and so on; the
// last one is repeated. It counts by Request.N.
func Sequence(responses ...Response) func(Request) Response {
	return func(r Request) Response {
		if len(responses) == 0 {
			return Response{}
		}
		return responses[min(max(r.N, 1), len(responses))-1]
	}
}
