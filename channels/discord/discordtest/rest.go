package discordtest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request body.
const maxBody = 1 << 20

// ServeHTTP answers REST requests under /api, /api/v9 and /api/v10, and the
// gateway socket everywhere else.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.isDown() {
		panic(http.ErrAbortHandler) // the connection just ends
	}
	if websocket := r.Header.Get("Upgrade") != ""; websocket {
		s.serveGateway(w, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/api/")
	if !ok {
		writeError(w, &apiError{status: 404, Message: "404: Not Found"})
		return
	}
	if v, rest, ok := strings.Cut(path, "/"); ok && len(v) > 1 && v[0] == 'v' {
		if v != "v9" && v != "v10" {
			// "API Versions": older versions are decommissioned.
			writeError(w, &apiError{status: 400, Code: 50041, Message: "Invalid API version provided"})
			return
		}
		path = rest
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, &apiError{status: 413, Message: "Request entity too large"})
		return
	}
	s.answer(w, r, path, body)
}

// answer serves one request and records it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	res := s.route(r, path, body)
	if res.sent != nil && s.opts.OnSend != nil {
		s.opts.OnSend(*res.sent)
	}
	if !s.opts.NoRecord {
		s.mu.Lock()
		call := Call{Method: r.Method, Path: path, Query: r.URL.RawQuery, Body: string(body), Status: res.status}
		if res.cut {
			call.Status = 0
		}
		s.calls = append(s.calls, call)
		s.notify()
		s.mu.Unlock()
	}
	if res.cut {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), res.header)
	if res.status == http.StatusNoContent {
		w.WriteHeader(res.status)
		return
	}
	if page, ok := res.body.([]byte); ok {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(res.status)
		_, _ = w.Write(page)
		return
	}
	writeJSON(w, res.status, res.body)
}

// response is what a handler decided.
type response struct {
	status int
	body   any // a page if it is []byte, JSON otherwise
	header http.Header
	cut    bool  // end the connection instead of answering
	sent   *Sent // the message it created
}

func refuse(e *apiError) response { return response{status: e.status, body: e} }

func (s *Server) route(r *http.Request, path string, body []byte) response {
	if path == "gateway" && r.Method == http.MethodGet { // the one endpoint that needs no token
		return response{status: 200, body: map[string]any{"url": gatewayURL(r)}}
	}
	if e := s.authorize(r); e != nil {
		return refuse(e)
	}
	if e := checkBody(r, body); e != nil {
		return refuse(e)
	}
	part := strings.Split(path, "/")
	switch {
	case r.Method == http.MethodGet && path == "gateway/bot":
		return s.gatewayBot(r)
	case r.Method == http.MethodGet && path == "users/@me":
		return response{status: 200, body: s.bot}
	case r.Method == http.MethodPost && path == "users/@me/channels":
		return s.createDM(body)
	case part[0] == "channels" && len(part) > 1:
		return s.routeChannel(r, part[1], part[2:], body)
	}
	return refuse(&apiError{status: 404, Message: "404: Not Found"})
}

func (s *Server) routeChannel(r *http.Request, id string, rest []string, body []byte) response {
	if !snowflake(id) {
		return refuse(formError("channel_id", "NUMBER_TYPE_COERCE", `Value "`+id+`" is not snowflake.`))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[id]
	switch {
	case c == nil:
		// "JSON Error Codes": 10003 Unknown channel.
		return refuse(&apiError{status: 404, Code: 10003, Message: "Unknown Channel"})
	case c.refuse != nil:
		return refuse(c.refuse)
	}
	switch {
	case r.Method == http.MethodGet && len(rest) == 0:
		return response{status: 200, body: c.Channel}
	case r.Method == http.MethodPost && len(rest) == 1 && rest[0] == "typing":
		s.typing[id]++
		s.notify()
		return response{status: http.StatusNoContent}
	case r.Method == http.MethodGet && len(rest) == 1 && rest[0] == "messages":
		return s.listMessages(c, r)
	case r.Method == http.MethodGet && len(rest) == 2 && rest[0] == "messages":
		if m := c.find(rest[1]); m != nil {
			return response{status: 200, body: m}
		}
		// "JSON Error Codes": 10008 Unknown message.
		return refuse(&apiError{status: 404, Code: 10008, Message: "Unknown Message"})
	case r.Method == http.MethodPost && len(rest) == 1 && rest[0] == "messages":
		return s.createMessage(c, body)
	}
	return refuse(&apiError{status: 405, Message: "405: Method Not Allowed"})
}

// authorize checks what every request needs.
func (s *Server) authorize(r *http.Request) *apiError {
	s.mu.Lock()
	token := s.token
	s.mu.Unlock()
	// "Authentication": Authorization: Bot TOKEN.
	if r.Header.Get("Authorization") != "Bot "+token {
		return &apiError{status: 401, Message: "401: Unauthorized"}
	}
	// "User Agent": clients must say DiscordBot ($url, $versionNumber), or they
	// may be blocked.
	if ua := r.Header.Get("User-Agent"); !strings.HasPrefix(ua, "DiscordBot (") || !strings.Contains(ua, ", ") {
		return &apiError{status: 403, Code: 40333, Message: "internal network error"}
	}
	return nil
}

// checkBody checks that a body is JSON and says so.
func checkBody(r *http.Request, body []byte) *apiError {
	if len(body) == 0 {
		return nil
	}
	// "HTTP API": JSON, form or multipart; this fake speaks JSON.
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return &apiError{status: 415, Message: "415: Unsupported Media Type"}
	}
	// "JSON Error Codes": 50109 The request body contains invalid JSON.
	if !json.Valid(body) {
		return &apiError{status: 400, Code: 50109, Message: "The request body contains invalid JSON."}
	}
	return nil
}

func (s *Server) gatewayBot(r *http.Request) response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return response{status: 200, body: map[string]any{
		"url":    gatewayURL(r),
		"shards": 1,
		"session_start_limit": map[string]any{
			"total": 1000, "remaining": max(0, 1000-s.identify-s.faults.startsUsed),
			"reset_after": s.faults.startsReset.Milliseconds(), "max_concurrency": 1,
		},
	}}
}

// gatewayURL is this very server, as its client sees it.
func gatewayURL(r *http.Request) string {
	if r.TLS != nil {
		return "wss://" + r.Host
	}
	return "ws://" + r.Host
}

func (s *Server) createDM(body []byte) response {
	var in struct {
		RecipientID string `json:"recipient_id"`
	}
	_ = json.Unmarshal(body, &in)
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.users[in.RecipientID]
	if !ok {
		return refuse(&apiError{status: 400, Code: 50033, Message: "Invalid Recipient(s)"})
	}
	return response{status: 200, body: s.channels[s.openDM(u)].Channel}
}

// listMessages is "Get Channel Messages". The caller holds mu.
func (s *Server) listMessages(c *channel, r *http.Request) response {
	if len(c.reads) > 0 {
		res := c.reads[0]
		c.reads = c.reads[1:]
		return res
	}
	in, e := readRange(r.URL.Query())
	switch {
	case e != nil:
		return refuse(e)
	case c.Type == ChannelForum:
		// "JSON Error Codes": 50024 Cannot execute action on this channel type.
		return refuse(&apiError{status: 400, Code: 50024, Message: "Cannot execute action on this channel type"})
	case s.faults.noHistory && c.GuildID != "":
		// "If the current user is missing the READ_MESSAGE_HISTORY permission in
		// the channel, then no messages will be returned."
		return response{status: 200, body: []*Message{}}
	}
	out := []*Message{}
	for _, m := range in.of(c.messages) {
		shown := *m
		shown.GuildID, shown.Member, shown.Nonce = "", nil, "" // "Gateway events only"
		if s.opts.Refused&IntentMessageContent != 0 && c.Type != ChannelDM {
			shown.Content, shown.Attachments, shown.Embeds, shown.Components = "", []Attachment{}, nil, nil
		}
		out = append(out, &shown)
	}
	return response{status: 200, body: out}
}

// messageRange is the query of Get Channel Messages.
type messageRange struct {
	limit         int
	after, before string
}

// readRange checks a query: limit is 1-100 with a default of 50; around, before
// and after are snowflakes and exclude one another.
func readRange(q url.Values) (messageRange, *apiError) {
	in := messageRange{limit: 50, after: q.Get("after"), before: q.Get("before")}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			return in, formError("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100.")
		}
		in.limit = n
	}
	sides := 0
	for name, v := range q {
		switch name {
		case "limit":
			continue
		case "after", "before", "around":
			sides++
		default:
			continue // Discord looks past what it does not know
		}
		if !snowflake(v[0]) {
			return in, formError(name, "NUMBER_TYPE_COERCE", `Value "`+v[0]+`" is not snowflake.`)
		}
	}
	switch {
	case sides > 1:
		return in, &apiError{status: 400, Code: 50035, Message: "Invalid Form Body"}
	case q.Has("around"):
		return in, &apiError{status: 501, Message: "this fake does not know around"}
	}
	return in, nil
}

// of picks from messages, which are oldest first; the answer is "from newest to
// oldest". With after it is the messages that follow directly.
func (in messageRange) of(messages []*Message) []*Message {
	var out []*Message
	for _, m := range messages {
		if (in.after == "" || newer(m.ID, in.after)) && (in.before == "" || newer(in.before, m.ID)) {
			out = append(out, m)
		}
	}
	if len(out) > in.limit {
		if in.after != "" {
			out = out[:in.limit]
		} else {
			out = out[len(out)-in.limit:]
		}
	}
	slices.Reverse(out)
	return out
}

// newer compares two snowflakes.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

func snowflake(id string) bool {
	if len(id) == 0 || len(id) > 20 {
		return false
	}
	_, err := strconv.ParseUint(id, 10, 64)
	return err == nil
}

// limit counts a message against its channel's bucket and returns the headers
// every answer carries. The caller holds mu.
func (s *Server) limit(c *channel, now time.Time) (http.Header, *apiError, time.Duration) {
	total, per := s.opts.PerChannel, s.opts.Per
	if total == 0 {
		total, per = 5, 5*time.Second
		c.used = 0 // nothing is enforced
	}
	if !now.Before(c.resetAt) {
		c.used, c.resetAt = 0, now.Add(per)
	}
	wait := c.resetAt.Sub(now)
	over := c.used >= total
	if !over {
		c.used++
	}
	h := http.Header{
		"X-Ratelimit-Bucket":      {"messages-" + c.ID},
		"X-Ratelimit-Limit":       {strconv.Itoa(total)},
		"X-Ratelimit-Remaining":   {strconv.Itoa(total - c.used)},
		"X-Ratelimit-Reset":       {seconds(time.Duration(c.resetAt.UnixNano()))},
		"X-Ratelimit-Reset-After": {seconds(wait)},
	}
	if over {
		return h, &apiError{status: http.StatusTooManyRequests}, wait
	}
	return h, nil, 0
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// tooMany is "Exceeding A Rate Limit": the body holds retry_after in seconds as
// a float, the header Retry-After whole seconds.
func tooMany(h http.Header, after time.Duration, global bool) response {
	if h == nil {
		h = http.Header{}
	}
	h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	scope := "user"
	if global {
		scope = "global"
		h.Set("X-RateLimit-Global", "true")
	}
	h.Set("X-RateLimit-Scope", scope)
	return response{status: http.StatusTooManyRequests, header: h, body: map[string]any{
		"message": "You are being rate limited.", "retry_after": after.Seconds(), "global": global,
	}}
}

func writeError(w http.ResponseWriter, e *apiError) { writeJSON(w, e.status, e) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // only values of this package
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // a client that left is no concern of ours
}
