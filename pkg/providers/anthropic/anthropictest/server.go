// Package anthropictest holds a strict in-process fake of Anthropic's Messages
// API. It refuses what the real API refuses, with the same status and error
// body; its scripts are those of package providerstest.
package anthropictest

import (
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// Server is a fake of the Messages API. It is an http.Handler for any path that
// ends in /v1/messages, and for the models at /v1/models; Transport reaches it
// without a network. A model that was told to think begins its answers with a
// signed thought, and wants it back. Safe for concurrent use.
type Server struct {
	cfg    providerstest.ServerConfig
	closed chan struct{}
	close  func()

	mu       sync.Mutex // guards what follows; requests arrive on many goroutines
	requests []providerstest.Request
	refusals []string
}

// NewServer returns a server that starts no goroutine and opens no socket. It
// keeps all requests, whatever cfg.Keep says.
func NewServer(cfg providerstest.ServerConfig) *Server {
	if cfg.Reply == nil {
		cfg.Reply = func(providerstest.Request) providerstest.Response { return providerstest.Text("ok") }
	}
	s := &Server{cfg: cfg, closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// Close releases every hanging and delayed request. Idempotent.
func (s *Server) Close() { s.close() }

// Transport returns a RoundTripper that hands requests to the server without a
// network.
func (s *Server) Transport() http.RoundTripper { return providerstest.InMemory(s) }

// Requests returns the valid requests, oldest first.
func (s *Server) Requests() []providerstest.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Refusals returns why requests were refused as invalid, newest last.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refusals)
}

// The API's error types.
const (
	typeInvalid  = "invalid_request_error"
	typeAuth     = "authentication_error"
	typeNotFound = "not_found_error"
)

// apiError is the API's refusal.
type apiError struct {
	status       int
	typ, message string
}

func badRequest(message string) *apiError {
	return &apiError{http.StatusBadRequest, typeInvalid, message}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err != nil {
		s.refuse(w, &apiError{http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size"})
		return
	}
	if e := s.admit(r); e != nil {
		s.refuse(w, e)
		return
	}
	if r.Method == http.MethodGet {
		s.writeModels(w, r)
		return
	}
	req, e := parse(body)
	if e == nil {
		e = s.knows(req.Model)
	}
	if e != nil {
		s.refuse(w, e)
		return
	}
	req.Header = r.Header.Clone()
	s.mu.Lock()
	s.requests = append(s.requests, req)
	req.N = len(s.requests)
	s.requests[req.N-1].N = req.N
	s.mu.Unlock()
	s.answer(w, r, req, s.cfg.Reply(req))
}

func (s *Server) admit(r *http.Request) *apiError {
	method := http.MethodPost
	switch {
	case strings.Contains(r.URL.Path, "/v1/models"):
		method = http.MethodGet
	case !strings.HasSuffix(r.URL.Path, "/v1/messages"):
		return &apiError{http.StatusNotFound, typeNotFound, "Not Found"}
	}
	if r.Method != method {
		return &apiError{http.StatusMethodNotAllowed, typeInvalid, "Method Not Allowed"}
	}
	if got := r.Header.Get("X-Api-Key"); s.cfg.Key != "" && got != s.cfg.Key {
		if got == "" {
			return &apiError{http.StatusUnauthorized, typeAuth, "x-api-key header is required"}
		}
		return &apiError{http.StatusUnauthorized, typeAuth, "invalid x-api-key " + got}
	}
	if r.Header.Get("Anthropic-Version") != "2023-06-01" {
		return badRequest("anthropic-version: header is required")
	}
	if ct := r.Header.Get("Content-Type"); method == http.MethodPost && !strings.HasPrefix(ct, "application/json") {
		return badRequest("content-type: must be application/json")
	}
	return nil
}

func (s *Server) knows(model string) *apiError {
	if len(s.cfg.Models) > 0 && !slices.Contains(s.cfg.Models, model) {
		return &apiError{http.StatusNotFound, typeNotFound, "model: " + model}
	}
	return nil
}

func (s *Server) writeModels(w http.ResponseWriter, r *http.Request) {
	_, model, one := strings.Cut(r.URL.Path, "/v1/models/")
	if e := s.knows(model); one && e != nil {
		s.refuse(w, e)
		return
	}
	list := make([]any, len(s.cfg.Models))
	for i, m := range s.cfg.Models {
		list[i] = map[string]any{"type": "model", "id": m, "display_name": m, "created_at": "2026-01-01T00:00:00Z"}
	}
	var v any = map[string]any{"data": list, "has_more": false}
	if one {
		v = map[string]any{"type": "model", "id": model}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(mustJSON(v)) // the caller may be gone
}

func (s *Server) refuse(w http.ResponseWriter, e *apiError) {
	s.mu.Lock()
	s.refusals = append(s.refusals, e.message)
	s.mu.Unlock()
	writeError(w, e)
}

func writeError(w http.ResponseWriter, e *apiError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(errorBody(e)) // the caller may be gone
}

func errorBody(e *apiError) []byte {
	return mustJSON(map[string]any{"type": "error", "error": map[string]any{"type": e.typ, "message": e.message}, "request_id": "req_1"})
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // only plain values come here
	}
	return raw
}

// failure is how the API reports a kind of failure. The refused key is echoed
// whole, so that a test sees whether the caller repeats it.
func failure(kind providers.ErrorKind, h http.Header) *apiError {
	switch kind {
	case providers.KindRateLimit:
		return &apiError{http.StatusTooManyRequests, "rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute."}
	case providers.KindAuth:
		return &apiError{http.StatusUnauthorized, typeAuth, "invalid x-api-key " + h.Get("X-Api-Key")}
	case providers.KindBilling:
		return badRequest("Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
	case providers.KindContextOverflow:
		return badRequest("prompt is too long: 210000 tokens > 200000 maximum")
	case providers.KindTimeout:
		return &apiError{http.StatusGatewayTimeout, "timeout_error", "Request timed out"}
	case providers.KindInvalidRequest:
		return badRequest("messages.0: invalid")
	case providers.KindOverloaded, providers.KindUnreachable:
	}
	return &apiError{529, "overloaded_error", "Overloaded"}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, req providerstest.Request, resp providerstest.Response) {
	if resp.Hang || resp.Delay > 0 && !s.wait(r, resp.Delay) {
		if resp.Hang {
			s.wait(r, math.MaxInt64)
		}
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	if resp.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(resp.RetryAfter.Seconds()))))
	}
	switch {
	case resp.Failure == providers.KindUnreachable:
		panic(http.ErrAbortHandler)
	case resp.Failure != "":
		writeError(w, failure(resp.Failure, r.Header))
	case resp.Status != 0:
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(resp.Status)
		_, _ = io.WriteString(w, resp.Body) // the caller may be gone
	default:
		s.writeStream(w, r, req, resp)
	}
}

// wait reports false if the caller or the server went away meanwhile.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
	case <-s.closed:
	}
	return false
}
