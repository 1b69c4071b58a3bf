package providerstest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// errCut is what a caller sees when the connection breaks.
var errCut = errors.New("connection reset by peer")

// Transport returns a RoundTripper that hands requests to the server without a
// network, so it works inside a testing/synctest bubble. Everything happens on
// the caller's goroutine, except that an answer in pieces is written on one of
// its own, which is gone when the answer's body is read to its end or closed.
func (s *Server) Transport() http.RoundTripper { return InMemory(s) }

// InMemory is Server.Transport for any handler. Only requests that accept
// text/event-stream are answered in pieces.
func InMemory(h http.Handler) http.RoundTripper { return transport{h} }

type transport struct{ handler http.Handler }

// RoundTrip serves one request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer func() { _ = r.Body.Close() }() // what RoundTripper promises; nothing to lose in it
	if r.Header.Get("Accept") == "text/event-stream" {
		return t.stream(r)
	}
	w := &memoryWriter{header: make(http.Header)}
	whole := serve(w, t.handler, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if !whole && w.status == 0 {
		return nil, errCut
	}
	w.WriteHeader(http.StatusOK)
	var body io.Reader = bytes.NewReader(w.body.Bytes())
	if !whole {
		body = io.MultiReader(body, broken{})
	}
	return response(r, w.status, w.header, io.NopCloser(body)), nil
}

func response(r *http.Request, status int, h http.Header, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: body, ContentLength: -1, Request: r,
	}
}

// broken is the end of a body that was cut.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// memoryWriter is an http.ResponseWriter that keeps what is written.
type memoryWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// serve reports whether the handler finished; false means it aborted.
func serve(w http.ResponseWriter, h http.Handler, r *http.Request) (whole bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // the value the handler panicked with, compared as net/http does
				panic(p)
			}
		}
	}()
	h.ServeHTTP(w, r)
	return true
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush does nothing: the whole answer is handed over at the end.
func (w *memoryWriter) Flush() {}

// stream serves one request whose answer arrives as it is written.
func (t transport) stream(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	from, to := io.Pipe()
	w := &pipeWriter{header: make(http.Header), to: to, ready: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		whole := serve(w, t.handler, r.WithContext(ctx))
		if whole {
			w.WriteHeader(http.StatusOK)
			_ = to.Close()
			return
		}
		_ = to.CloseWithError(io.ErrUnexpectedEOF)
	}()
	body := &pipeBody{PipeReader: from, cancel: cancel, done: done}
	select {
	case <-w.ready:
	case <-done:
	case <-ctx.Done():
	}
	select {
	case <-w.ready:
		// Whoever gives up reads that they did.
		body.stop = context.AfterFunc(ctx, func() { _ = to.CloseWithError(context.Cause(ctx)) })
		return response(r, w.status, w.sent, body), nil
	default:
	}
	_ = body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return nil, errCut
}

// pipeBody is the body of an answer in pieces.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	stop   func() bool // may be nil
	done   chan struct{}
}

// Close waits until the handler has ended.
func (b *pipeBody) Close() error {
	if b.stop != nil {
		b.stop()
	}
	b.cancel()
	err := b.PipeReader.Close()
	<-b.done
	return err
}

// pipeWriter is an http.ResponseWriter that hands on what is written.
type pipeWriter struct {
	header, sent http.Header
	status       int
	to           *io.PipeWriter
	ready        chan struct{} // closed when status and sent are set
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.ready)
	}
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(p)
}

// Flush does nothing: what is written arrives at once.
func (w *pipeWriter) Flush() {}
