package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels"
)

// userAgent has the form Discord asks for.
const userAgent = "DiscordBot (https://github.com/dragoman-chat/dragoman, 1.0)"

// restTimeout bounds one request, whatever the caller's context says.
const restTimeout = 30 * time.Second

// maxRefusal bounds how much of a refusal is read.
const maxRefusal = 64 << 10

// dialFunc opens a connection; see net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newSession returns the library's REST client on our transport. It keeps no
// state, does not retry and logs nothing: errors are returned, and logged here.
func newSession(token string, rt http.RoundTripper) *discordgo.Session {
	s, _ := discordgo.New("Bot " + token) // it has no way to fail
	s.Client = &http.Client{Transport: rt, Timeout: restTimeout}
	s.UserAgent = userAgent
	s.StateEnabled = false
	s.ShouldRetryOnRateLimit = false
	s.ShouldReconnectOnError = false
	s.MaxRestRetries = 0
	s.LogLevel = -1 // below LogError: nothing
	return s
}

// transport sends the library's requests to the configured host and reads what
// the library would hide: how far a request got, and the whole of a 429.
type transport struct {
	next  *http.Transport
	base  *url.URL     // nil: the library's own
	ahead atomic.Int64 // nanoseconds by which Discord's clock is ahead of ours
}

// now is the time by Discord's clock, as far as an answer has told it. Ours may
// be wrong by years, and then no message in a gap would be young enough.
func (t *transport) now() time.Time { return time.Now().Add(time.Duration(t.ahead.Load())) }

func newTransport(base *url.URL, dial dialFunc) *transport {
	next := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 128,
		MaxConnsPerHost:     128, // a connection takes more memory than a message that waits for one
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	if dial != nil {
		next.DialContext = dial
	}
	return &transport{next: next, base: base}
}

// RoundTrip implements http.RoundTripper. Against that interface's custom it
// makes errors of 429 and 5xx: the library cannot read a 429 without JSON, as
// Cloudflare sends it, and turns a 502 into text.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	reached := false // only this goroutine calls the two hooks below
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { reached = false },
		GotConn: func(httptrace.GotConnInfo) { reached = true },
	})
	req = req.WithContext(ctx)
	if t.base != nil {
		u := *req.URL
		u.Scheme, u.Host, u.Path = t.base.Scheme, t.base.Host, t.base.Path+u.Path
		req.URL, req.Host = &u, ""
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			t.ahead.Store(int64(time.Until(at)))
		}
	}
	switch {
	case err != nil && reached:
		return nil, fmt.Errorf("%w: %w", channels.ErrUnknownOutcome, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", channels.ErrNotReady, err)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError:
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what can be read of it
		if resp.StatusCode == http.StatusTooManyRequests {
			return nil, rateLimit(resp.Header, body)
		}
		return nil, &serverError{status: resp.StatusCode}
	}
	// The gateway limits. The library's limiter would fail a message that was
	// delivered over a header it cannot read, and crash over a global one.
	for _, h := range []string{"X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After", "X-Ratelimit-Global"} {
		delete(resp.Header, h)
	}
	return resp, nil
}

// serverError is a 5xx: nothing we did, and worth another try.
type serverError struct{ status int }

func (e *serverError) Error() string {
	return "discord answered " + strconv.Itoa(e.status) + " " + http.StatusText(e.status)
}

// rateLimit reads a 429: the body when it is Discord's, else the header.
func rateLimit(h http.Header, body []byte) *channels.RateLimitError {
	var in struct {
		RetryAfter float64 `json:"retry_after"`
		Global     bool    `json:"global"`
	}
	if json.Unmarshal(body, &in) != nil || in.RetryAfter <= 0 {
		in.RetryAfter, _ = strconv.ParseFloat(h.Get("Retry-After"), 64)
	}
	wait := time.Duration(in.RetryAfter * float64(time.Second))
	if wait <= 0 {
		wait = time.Second
	}
	return &channels.RateLimitError{RetryAfter: wait, Global: in.Global || h.Get("X-RateLimit-Global") != ""}
}

// call makes one request. Each has a bucket of its own: the library would keep
// one per channel for ever, serialise on it, and sleep where nobody can wake
// it.
func (c *Channel) call(ctx context.Context, method, endpoint string, body any) ([]byte, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
	}
	bucket := &discordgo.Bucket{}
	bucket.Lock() // the library unlocks it
	answer, err := c.rest.RequestWithLockedBucket(method, endpoint, "application/json", raw, bucket, 0, discordgo.WithContext(ctx))
	return answer, classify(err)
}

// classify types an error of a request; see channels.Channel.Send.
func classify(err error) error {
	var (
		limit   *channels.RateLimitError
		server  *serverError
		refusal *discordgo.RESTError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return limit
	case errors.As(err, &server):
		return server
	case errors.As(err, &refusal):
		return readRefusal(refusal)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // it names the library's host, not the one that was asked
	}
	if errors.Is(err, channels.ErrNotReady) || errors.Is(err, channels.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", channels.ErrUnknownOutcome, err) // the answer broke off
}

// refusedError is a 4xx other than 429. It holds nothing of the request, whose
// headers carry the token.
type refusedError struct {
	status int
	code   int // Discord's own, 0 if the answer is not Discord's
	text   string
	field  bool // the quoted message is what was refused
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("discord refused: %d %s (code %d)", e.status, e.text, e.code)
}

// Unwrap makes it permanent, except where it is not about the message: a
// refused token, and what something in front of Discord answers.
func (e *refusedError) Unwrap() error {
	switch {
	case e.status == http.StatusUnauthorized:
		return channels.ErrNotReady
	case e.status == http.StatusRequestTimeout, e.code == 0 && e.status != http.StatusBadRequest:
		return nil
	}
	return channels.ErrPermanent
}

// Codes of Discord that are looked at.
const (
	codeInvalidForm = 50035
	codeNoHistory   = 160002 // replying needs the right to read history
)

func readRefusal(r *discordgo.RESTError) *refusedError {
	e := &refusedError{status: r.Response.StatusCode, text: http.StatusText(r.Response.StatusCode)}
	if r.Message != nil {
		e.code = r.Message.Code
		if r.Message.Message != "" {
			e.text = r.Message.Message
		}
	}
	e.field = e.code == codeNoHistory ||
		e.code == codeInvalidForm && strings.Contains(string(r.ResponseBody), `"message_reference"`)
	return e
}
