package anthropic

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	maxAnswer = 8 << 20  // bytes of one answer; more is an error
	maxHead   = 16 << 10 // bytes of an answer read to explain a failure
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

// bounded lets no answer be longer than maxAnswer.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &body{rc: resp.Body, left: maxAnswer}
	return resp, nil
}

var errTooLarge = errors.New("the answer is larger than 8 MiB")

// body is an answer's body, bounded.
type body struct {
	rc   io.ReadCloser
	left int64
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
	return n, err
}

func (b *body) Close() error { return b.rc.Close() }

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
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0, false
	}
	const most = float64(365 * 24 * time.Hour)
	return time.Duration(min(max(f*float64(unit), 0), most)), true
}
