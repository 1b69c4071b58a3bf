package openai

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

const (
	maxStream = 64 << 20 // bytes of a stream, with what wraps its pieces; of another answer, httpapi.MaxAnswer
	maxHead   = 2 << 10  // bytes of an answer kept to explain a failure
	maxDrain  = 64 << 10 // bytes read on Close so that the connection is reused

	endTime   = 5 * time.Second        // what is waited for the usage when a stream has told why it ended
	drainTime = 100 * time.Millisecond // how long that may take
)

// observation is an attempt's answer, of which the SDK sees only refusals.
type observation struct {
	alive      func() // called when something of the answer has come
	sent       bool   // the request reached the transport
	status     int
	location   string // where a redirect points
	retryAfter time.Duration
	noRetry    bool  // the API says that trying again is useless
	events     bool  // the answer says of itself that it is a stream
	body       *body // nil before there is an answer
}

// head is the beginning of the answer's body as far as it was read.
func (o *observation) head() []byte {
	if o.body == nil {
		return nil
	}
	return o.body.head
}

type observationKey struct{}

func withObservation(ctx context.Context, o *observation) context.Context {
	return context.WithValue(ctx, observationKey{}, o)
}

// observer notes headers, bounds bodies, and keeps answers from the SDK, which is
// told that all is well.
type observer struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	o, ok := r.Context().Value(observationKey{}).(*observation)
	if !ok {
		return t.next.RoundTrip(r)
	}
	o.sent = true
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	o.status = resp.StatusCode
	o.location = resp.Header.Get("Location")
	o.retryAfter = httpapi.RetryAfter(resp.Header, time.Now())
	o.noRetry = resp.Header.Get("X-Should-Retry") == "false"
	o.events = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	most := int64(httpapi.MaxAnswer)
	if o.events {
		most = maxStream
	}
	o.body = &body{Body: httpapi.Body{ReadCloser: resp.Body, Left: most}, alive: o.alive}
	resp.Body = o.body
	if resp.StatusCode < http.StatusBadRequest {
		resp.Body = io.NopCloser(strings.NewReader("{}"))
	}
	return resp, nil
}

// body is an answer's body: bounded, its beginning kept, and read to its end
// on Close, without which a connection with a chunked answer is not reused.
type body struct {
	httpapi.Body

	head  []byte
	done  bool // the end or an error was seen
	alive func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if n > 0 {
		b.alive()
	}
	if room := maxHead - len(b.head); room > 0 {
		b.head = append(b.head, p[:min(n, room)]...)
	}
	if err != nil {
		b.done = true
	}
	return n, err
}

func (b *body) Close() error {
	if !b.done {
		// Only the rest of a chunked frame is expected; whatever goes wrong
		// costs the connection and nothing else.
		_, _ = io.CopyN(io.Discard, &b.Body, maxDrain)
	}
	return b.Body.Close()
}
