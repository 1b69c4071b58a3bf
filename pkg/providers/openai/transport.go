package openai

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer = 8 << 20  // bytes of one answer; more is an error
	maxStream = 64 << 20 // the same, with what wraps the pieces of a stream
	maxHead   = 2 << 10  // bytes of an answer kept to explain a failure
	maxDrain  = 64 << 10 // bytes read on Close so that the connection is reused

	endTime   = 5 * time.Second        // what is waited for the usage when a stream has told why it ended
	drainTime = 100 * time.Millisecond // how long that may take
)

// newTransport returns a transport for one service: enough idle connections
// that a busy gateway does not dial for every turn.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		// Without pings a connection that a router forgot hangs every request
		// on it until its time is up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

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
	o.retryAfter = retryAfter(resp.Header, time.Now())
	o.noRetry = resp.Header.Get("X-Should-Retry") == "false"
	o.events = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	o.body = &body{rc: resp.Body, left: maxAnswer, alive: o.alive}
	if o.events {
		o.body.left = maxStream
	}
	resp.Body = o.body
	if resp.StatusCode < http.StatusBadRequest {
		resp.Body = io.NopCloser(strings.NewReader("{}"))
	}
	return resp, nil
}

// retryAfter reads Retry-After-Ms, and Retry-After in seconds or as a date. That
// is of the server's clock, which Date tells; ours, now, may be another.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := h.Get("Retry-After")
	if d, ok := number(v, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(v); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return max(at.Sub(now), 0)
	}
	return 0
}

func number(s string, unit time.Duration) (time.Duration, bool) {
	if s == "" { // as in nearly every answer
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0, false
	}
	const most = float64(365 * 24 * time.Hour)
	return time.Duration(min(max(f*float64(unit), 0), most)), true
}

var errTooLarge = errors.New("the answer is larger than 8 MiB")

// body is an answer's body: bounded, its beginning kept, and read to its end
// on Close, without which a connection with a chunked answer is not reused.
type body struct {
	rc    io.ReadCloser
	left  int64
	head  []byte
	done  bool // the end or an error was seen
	alive func()
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.rc.Read(p)
	b.left -= int64(n)
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
	if !b.done && b.left > 0 {
		// Only the rest of a chunked frame is expected; whatever goes wrong
		// costs the connection and nothing else.
		_, _ = io.CopyN(io.Discard, b.rc, maxDrain)
	}
	return b.rc.Close()
}
