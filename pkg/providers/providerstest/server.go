// Package providerstest holds what a model provider is tested with: Server, a
// strict in-process fake of OpenAI's chat completions API, and Run, the kit
// every provider passes.
//
// The server speaks the real protocol and refuses what the real API refuses,
// with the same status and error body, so that code which works against it
// does not meet its first refusal in production.
package providerstest

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
)

// ServerConfig configures a Server. The zero value answers every valid request
// of anybody with "ok".
type ServerConfig struct {
	// Key is the API key callers must show; empty admits everybody.
	Key string
	// Models are the known model names; empty knows all.
	Models []string
	// Reply decides what the model does. It is called from many goroutines at
	// once. nil answers "ok".
	Reply func(Request) Response
	// Keep is how many of the newest requests Requests returns: 0 means 1000,
	// a negative number none.
	Keep int
}

// Server is a fake of OpenAI's chat completions API. It is an http.Handler for
// any path that ends in /chat/completions, and for the list of models at
// /models; Transport reaches it without a network. Safe for concurrent use.
type Server struct {
	cfg    ServerConfig
	closed chan struct{}
	close  func()
	tools  toolLists

	mu       sync.Mutex // guards what follows; requests arrive on many goroutines
	count    int
	requests []Request
	refusals []string
}

// NewServer returns a server that starts no goroutine and opens no socket.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Keep == 0 {
		cfg.Keep = 1000
	}
	if cfg.Reply == nil {
		cfg.Reply = func(Request) Response { return Text("ok") }
	}
	s := &Server{cfg: cfg, closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// Close releases every hanging and delayed request. Idempotent.
func (s *Server) Close() { s.close() }

// Count returns how many valid requests the server has taken.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Requests returns the newest valid requests, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Refusals returns why requests were refused as invalid, newest last; at most
// the first hundred are kept. A rig that speaks the protocol sees none.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refusals)
}

const maxRequestBody = 32 << 20

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody))
	if err != nil {
		s.refuse(w, badRequest("could not read the request body", "", ""))
		return
	}
	if refusal := s.admit(r); refusal != nil {
		s.refuse(w, refusal)
		return
	}
	if r.Method == http.MethodGet {
		s.writeModels(w)
		return
	}
	req, refusal := s.parse(body)
	if refusal == nil && len(s.cfg.Models) > 0 && !slices.Contains(s.cfg.Models, req.Model) {
		refusal = &apiError{http.StatusNotFound, "The model `" + req.Model + "` does not exist or you do not have access to it.", invalidRequest, "", "model_not_found"}
	}
	if refusal != nil {
		s.refuse(w, refusal)
		return
	}
	req.Header = r.Header.Clone()
	s.record(&req)
	s.answer(w, r, req, s.cfg.Reply(req))
}

func (s *Server) admit(r *http.Request) *apiError {
	method := http.MethodPost
	switch {
	case strings.HasSuffix(r.URL.Path, "/models"):
		method = http.MethodGet
	case !strings.HasSuffix(r.URL.Path, "/chat/completions"):
		return &apiError{http.StatusNotFound, "Unknown request URL: " + r.Method + " " + r.URL.Path, invalidRequest, "", "unknown_url"}
	}
	if r.Method != method {
		return &apiError{http.StatusMethodNotAllowed, "Not allowed to " + r.Method + " on " + r.URL.Path, invalidRequest, "", "method_not_supported"}
	}
	if s.cfg.Key != "" {
		got := r.Header.Get("Authorization")
		if got == "" {
			return &apiError{http.StatusUnauthorized, "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.", invalidRequest, "", ""}
		}
		if got != "Bearer "+s.cfg.Key {
			return &apiError{http.StatusUnauthorized, "Incorrect API key provided: " + strings.TrimPrefix(got, "Bearer ") + ".", invalidRequest, "", "invalid_api_key"}
		}
	}
	if ct := r.Header.Get("Content-Type"); method == http.MethodPost && !strings.HasPrefix(ct, "application/json") {
		return badRequest("Unsupported content type: '"+ct+"'. This API method only accepts 'application/json' requests.", "", "unsupported_content_type")
	}
	return nil
}

// writeModels writes the list of models.
func (s *Server) writeModels(w http.ResponseWriter) {
	list := make([]map[string]any, 0, len(s.cfg.Models))
	for _, m := range s.cfg.Models {
		list = append(list, map[string]any{"id": m, "object": "model", "created": 1, "owned_by": "fake"})
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": list})
	if err != nil {
		panic(err) // plain strings and numbers always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the caller may be gone
}

func (s *Server) record(req *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	req.N = s.count
	if s.cfg.Keep < 0 {
		return
	}
	if len(s.requests) >= s.cfg.Keep {
		s.requests = slices.Delete(s.requests, 0, 1)
	}
	s.requests = append(s.requests, *req)
}

func (s *Server) refuse(w http.ResponseWriter, e *apiError) {
	s.mu.Lock()
	if len(s.refusals) < 100 {
		s.refusals = append(s.refusals, e.message)
	}
	s.mu.Unlock()
	writeError(w, e)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request, resp Response) {
	if resp.Hang {
		s.wait(r, math.MaxInt64)
		panic(http.ErrAbortHandler)
	}
	if resp.Delay > 0 && !s.wait(r, resp.Delay) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	if resp.RetryAfter > 0 {
		setRetryAfter(w.Header(), resp.RetryAfter)
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
	case req.Stream:
		s.writeStream(w, r, req, resp)
	default:
		s.writeCompletion(w, r, req, resp)
	}
}

// breakOff ends an answer in its middle.
func (s *Server) breakOff(w http.ResponseWriter, r *http.Request, resp Response) {
	_ = http.NewResponseController(w).Flush() // what was written is to arrive
	if resp.Park {
		s.wait(r, math.MaxInt64)
	}
	panic(http.ErrAbortHandler)
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

// setRetryAfter writes the two headers the real API writes: whole seconds,
// rounded up, and milliseconds.
func setRetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	h.Set("Retry-After-Ms", strconv.FormatInt(d.Milliseconds(), 10))
}
