package httpapi

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

// MaxAnswer is how many bytes an answer may have.
const MaxAnswer = 8 << 20

// ErrTooLarge is what an answer with more than MaxAnswer bytes ends with.
var ErrTooLarge = errors.New("the answer is larger than 8 MiB")

// NewTransport returns a transport for one service: enough idle connections
// that a busy gateway does not dial for every turn. It honours HTTPS_PROXY.
func NewTransport() *http.Transport {
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

// NewHTTP returns the HTTP client that an SDK is to use.
func NewHTTP(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		// A redirected POST would lose its body or its key; say where to go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Body is an answer's body that fails with ErrTooLarge behind its Left-th byte.
type Body struct {
	io.ReadCloser

	Left int64 // bytes that may still be read
}

func (b *Body) Read(p []byte) (int, error) {
	if b.Left <= 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.Left {
		p = p[:b.Left]
	}
	n, err := b.ReadCloser.Read(p)
	b.Left -= int64(n)
	return n, err
}

// RetryAfter reads Retry-After-Ms, and Retry-After in seconds or as a date. That
// is of the server's clock, which Date tells; ours, now, may be another. It is 0
// where the headers ask for no pause.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := pause(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := h.Get("Retry-After")
	if d, ok := pause(v, time.Second); ok {
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

func pause(s string, unit time.Duration) (time.Duration, bool) {
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
