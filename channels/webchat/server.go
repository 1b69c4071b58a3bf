package webchat

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Bounds of requests.
const (
	maxBody      = 6*maxText + 1024 // JSON may escape every byte of a text
	maxLoginBody = 4 << 10
)

// server answers requests while Run runs.
type server struct {
	*Channel
	in      bus.Inbox
	guard   *guard
	cookies *cookies
}

// handler returns everything the page serves.
func (c *Channel) handler(in bus.Inbox, g *guard) http.Handler {
	s := &server{Channel: c, in: in, guard: g, cookies: newCookies(c.name, g.token, g.now)}
	mux := http.NewServeMux()
	for path, a := range assets() {
		mux.Handle("GET "+path, a)
	}
	mux.HandleFunc("POST /api/login", s.own(true, s.login))
	mux.HandleFunc("POST /api/session", s.member(true, s.session))
	mux.HandleFunc("POST /api/messages", s.member(true, s.message))
	mux.HandleFunc("GET /api/events", s.member(false, s.events))
	for _, m := range c.extra {
		mux.Handle(m.pattern, m.handler)
	}
	return s.outer(mux)
}

// outer sets the headers every answer has and refuses foreign names.
func (s *server) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.guard.hostOK(r.Host) {
			s.refuse(w, http.StatusMisdirectedRequest, "This page does not answer under that name. The operator can add it to allowed_hosts.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// own lets requests of our own page through, and those that carry the token
// themselves: no other site can make a browser do that.
func (s *server) own(changes bool, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if _, ok := bearer(r); !ok && !s.guard.sameOrigin(r, changes) {
			s.refuse(w, http.StatusForbidden, "This request does not come from the chat page.")
			return
		}
		next(w, r)
	}
}

// member lets those through who may see the page.
func (s *server) member(changes bool, next http.HandlerFunc) http.HandlerFunc {
	return s.own(changes, func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r)
		switch {
		case ok && !s.tryToken(w, r, token):
		case !ok && s.guard.token != "" && !s.cookies.loggedIn(r):
			s.refuse(w, http.StatusUnauthorized, "Please enter the access token.")
		default:
			next(w, r)
		}
	})
}

// tryToken reports whether token is right, and answers the request if not.
func (s *server) tryToken(w http.ResponseWriter, r *http.Request, token string) bool {
	right, ok := s.guard.failures.attempt(r.RemoteAddr, s.guard.now())
	if !ok {
		w.Header().Set("Retry-After", "10")
		s.refuse(w, http.StatusTooManyRequests, "Too many wrong tokens. Please wait a moment.")
		return false
	}
	if s.guard.token == "" || !s.guard.tokenOK(token) {
		s.log.Warn("wrong token", "remote", addressKey(r.RemoteAddr))
		s.refuse(w, http.StatusUnauthorized, "That token is not right.")
		return false
	}
	right()
	return true
}

// login takes the token and marks the browser.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if !s.read(w, r, maxLoginBody, &body) || !s.tryToken(w, r, body.Token) {
		return
	}
	s.cookies.setLogin(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// session gives the browser its conversation, new or old, and what was said.
func (s *server) session(w http.ResponseWriter, r *http.Request) {
	key := s.cookies.key(r)
	if key == "" {
		key = newKey()
	}
	lines, cursor, err := s.past(r.Context(), chatIDOf(key))
	if err != nil {
		s.log.Error("cannot read the history", "chat_id", chatIDOf(key), "err", err)
		s.refuse(w, http.StatusServiceUnavailable, "The conversation cannot be loaded at the moment.")
		return
	}
	s.cookies.setKey(w, r, key) // again each time, so that it does not expire
	s.reply(w, http.StatusOK, struct {
		Lines  []shown `json:"lines"`
		Cursor int64   `json:"cursor"`
	}{lines, cursor})
}

// message takes one message in. It answers when the message is stored.
func (s *server) message(w http.ResponseWriter, r *http.Request) {
	key := s.cookies.key(r)
	if key == "" {
		s.refuse(w, http.StatusConflict, "This browser has no conversation yet. Please reload the page.")
		return
	}
	var p post
	if !s.read(w, r, maxBody, &p) {
		return
	}
	if err := p.check(); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errLongText) {
			status = http.StatusRequestEntityTooLarge
		}
		s.refuse(w, status, err.Error())
		return
	}
	// The message takes its place before it is stored, because its answer can
	// be here before PublishInbound returns.
	chat := chatIDOf(key)
	e := s.hub.add(chat, event{kind: kindMessage, role: providers.RoleUser, id: p.ID, text: p.Text})
	m := toInbound(s.name, key, p, e.time)
	if err := s.in.PublishInbound(r.Context(), bus.Batch{Messages: []bus.InboundMessage{m}}); err != nil {
		s.hub.retract(chat, e)
		s.log.Error("message not stored", "chat_id", chat, "message_id", p.ID, "err", err)
		s.refuse(w, http.StatusServiceUnavailable, "The message could not be stored. Please try again.")
		return
	}
	if m.Command == "new" {
		s.hub.clear(chat, e.seq)
	}
	s.reply(w, http.StatusAccepted, s.showEvent(e))
}

// read decodes a JSON body of at most limit bytes, and answers if it cannot.
func (s *server) read(w http.ResponseWriter, r *http.Request, limit int64, into any) bool {
	if r.Header.Get("Content-Type") != "application/json" {
		s.refuse(w, http.StatusUnsupportedMediaType, "The body has to be application/json.")
		return false
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.refuse(w, http.StatusRequestEntityTooLarge, errLongText.Error())
		return false
	}
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "The body is not the JSON that is expected.")
		return false
	}
	return true
}

// refuse answers with a sentence for the person at the page.
func (s *server) refuse(w http.ResponseWriter, status int, sentence string) {
	s.reply(w, status, struct {
		Error string `json:"error"`
	}{sentence})
}

func (s *server) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.log.Debug("answer not written", "err", err)
	}
}
