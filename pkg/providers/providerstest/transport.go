package providerstest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// errCut is what a caller sees when the connection breaks.
var errCut = errors.New("connection reset by peer")

// Transport returns a RoundTripper that hands requests to the server without a
// network: everything happens on the caller's goroutine, so it works inside a
// testing/synctest bubble.
func (s *Server) Transport() http.RoundTripper { return InMemory(s) }

// InMemory is Server.Transport for any handler.
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
	w := &memoryWriter{header: make(http.Header)}
	whole := w.serve(t.handler, r)
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
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(body), ContentLength: -1, Request: r,
	}, nil
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
func (w *memoryWriter) serve(h http.Handler, r *http.Request) (whole bool) {
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
