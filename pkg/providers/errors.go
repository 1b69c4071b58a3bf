package providers

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind is why a model could not answer. What to do next depends on it, so
// an adapter always sets it; nobody reads error texts to find out.
type ErrorKind string

// The kinds of failure.
const (
	KindRateLimit       ErrorKind = "rate_limit"       // too many requests; RetryAfter says when, if the API told
	KindOverloaded      ErrorKind = "overloaded"       // the service is up but cannot serve now (5xx, 529)
	KindAuth            ErrorKind = "auth"             // key missing, wrong or without the right
	KindBilling         ErrorKind = "billing"          // out of credit or over a paid quota
	KindContextOverflow ErrorKind = "context_overflow" // the conversation is longer than the model reads
	KindInvalidRequest  ErrorKind = "invalid_request"  // the API refuses the request as it is
	KindTimeout         ErrorKind = "timeout"          // no answer in time
	KindUnreachable     ErrorKind = "unreachable"      // no connection to the service at all
)

// ErrCircles is in an *Error that says that the model makes the same call, which
// cannot be run, over and over.
var ErrCircles = errors.New("the model repeats itself")

// Error is a failed call of a model.
type Error struct {
	Kind       ErrorKind
	Status     int           // HTTP status, 0 if there was no answer
	RetryAfter time.Duration // what the API asked for, 0 if it did not
	Message    string        // the API's own words, for the operator; secrets removed
	Err        error         // the underlying error, may be nil
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("model: %s (HTTP %d): %s", e.Kind, e.Status, e.Message)
	}
	return fmt.Sprintf("model: %s: %s", e.Kind, e.Message)
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or "" if err holds no *Error.
func KindOf(err error) ErrorKind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
