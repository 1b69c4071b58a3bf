package discordtest

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Gateway opcodes.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opPresence       = 3
	opVoiceState     = 4
	opResume         = 6
	opReconnect      = 7
	opRequestMembers = 8
	opInvalidSession = 9
	opHello          = 10
	opAck            = 11
)

// Close codes of the gateway.
const (
	CloseUnknownError      = 4000
	CloseUnknownOpcode     = 4001
	CloseDecodeError       = 4002
	CloseNotAuthenticated  = 4003
	CloseAuthFailed        = 4004
	CloseAlreadyAuth       = 4005
	CloseInvalidSeq        = 4007
	CloseRateLimited       = 4008
	CloseSessionTimedOut   = 4009
	CloseInvalidVersion    = 4012
	CloseInvalidIntents    = 4013
	CloseDisallowedIntents = 4014
)

// resumePath is where READY asks sessions to be resumed.
const resumePath = "/resume"

// session is one gateway session; it outlives its connection so that RESUME
// can replay what was missed. Server.mu guards it.
type session struct {
	id      string
	intents int
	seq     int64    // of the last event
	first   int64    // seq of events[0]
	events  [][]byte // whole frames, oldest first
	conn    *conn    // nil while nobody is connected
	ready   bool     // READY went out on it
}

// conn is one gateway connection. Its reader is the goroutine that serves the
// request; a second goroutine writes.
type conn struct {
	ws   *websocket.Conn
	url  string        // of this server, as the client sees it
	asks bool          // it came to the address for resuming
	wake chan struct{} // capacity 1: out has grown
	done chan struct{} // closed when the reader ends

	out     [][]byte // frames to write; Server.mu guards it
	close   []byte   // a close frame to write after them; Server.mu guards it
	noAcks  bool     // heartbeats stay unanswered; Server.mu guards it
	session *session // Server.mu guards it
	sends   int      // packets in the current minute; the reader's own
	minute  time.Time
}

type packet struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
}

// serveGateway speaks the gateway protocol until the connection ends.
func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request) {
	s.sockets.Add(1)
	defer s.sockets.Done()
	ws, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered already
	}
	c := &conn{
		ws: ws, url: gatewayURL(r), asks: strings.HasPrefix(r.URL.Path, resumePath),
		wake: make(chan struct{}, 1), done: make(chan struct{}), minute: time.Now(),
	}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(c)
	}()
	// "Gateway URL Query String Params": v and encoding.
	q := r.URL.Query()
	switch {
	case q.Get("v") != "9" && q.Get("v") != "10":
		s.hangUp(c, CloseInvalidVersion, "Invalid API version")
	case q.Get("encoding") != "json":
		s.hangUp(c, CloseDecodeError, "this fake speaks json")
	default:
		s.queue(c, frame(opHello, map[string]any{"heartbeat_interval": s.opts.Heartbeat.Milliseconds()}))
	}
	s.read(c)
	close(c.done)
	<-written
	_ = ws.Close()
	s.detach(c)
}

// read handles packets until the connection ends.
func (s *Server) read(c *conn) {
	for {
		// A client that sends no heartbeat in time is disconnected.
		_ = c.ws.SetReadDeadline(time.Now().Add(s.opts.Heartbeat * 2))
		_, data, err := c.ws.ReadMessage()
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) && (closed.Code == 1000 || closed.Code == 1001) {
				s.forget(c) // "Initiating a Disconnect": 1000 and 1001 invalidate the session
			}
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				s.hangUp(c, CloseSessionTimedOut, "Session timed out.")
			}
			return
		}
		if code, reason := s.handle(c, data); code != 0 {
			s.hangUp(c, code, reason)
			_ = c.ws.SetReadDeadline(time.Now().Add(time.Second)) // for the client's own close
			for err == nil {
				_, _, err = c.ws.ReadMessage()
			}
			return
		}
	}
}

// handle serves one packet; a code other than 0 closes the connection.
func (s *Server) handle(c *conn, data []byte) (code int, reason string) {
	// "Rate Limiting": 120 events in 60 seconds.
	if now := time.Now(); now.Sub(c.minute) > time.Minute {
		c.minute, c.sends = now, 0
	}
	if c.sends++; c.sends > 120 {
		return CloseRateLimited, "You are being rate limited."
	}
	// "Sending Events": a payload of more than 4096 bytes closes with 4002.
	var p packet
	if len(data) > 4096 || json.Unmarshal(data, &p) != nil {
		return CloseDecodeError, "Error while decoding payload."
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p.Op {
	case opHeartbeat:
		s.heartbeat++
		s.notify()
		if !c.noAcks {
			s.enqueue(c, []byte(`{"op":11}`))
		}
		return 0, ""
	case opIdentify:
		return s.identifyConn(c, p.Data)
	case opResume:
		return s.resumeConn(c, p.Data)
	case opPresence, opVoiceState, opRequestMembers:
		if c.session == nil {
			return CloseNotAuthenticated, "Not authenticated."
		}
		return 0, ""
	}
	return CloseUnknownOpcode, "Unknown opcode."
}

// identifyConn starts a session. The caller holds mu.
func (s *Server) identifyConn(c *conn, data []byte) (int, string) {
	var in struct {
		Token      string            `json:"token"`
		Intents    *int              `json:"intents"`
		Properties map[string]string `json:"properties"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return CloseDecodeError, "Error while decoding payload."
	}
	switch {
	case c.session != nil: // 4005: more than one identify payload
		return CloseAlreadyAuth, "Already authenticated."
	case strings.TrimPrefix(in.Token, "Bot ") != s.token: // 4004
		return CloseAuthFailed, "Authentication failed."
	case in.Intents == nil || len(in.Properties) == 0: // "Identify Structure": both are required
		return CloseDecodeError, "Error while decoding payload."
	case *in.Intents&^knownIntents != 0: // 4013: miscalculated bits
		return CloseInvalidIntents, "Invalid intent(s)."
	case *in.Intents&privilegedIntents&s.opts.Refused != 0: // 4014: not switched on in the portal
		return CloseDisallowedIntents, "Disallowed intent(s)."
	}
	s.identify++
	ses := &session{id: "s" + s.nextID(), intents: *in.Intents, first: 1, conn: c}
	s.sessions[ses.id] = ses
	c.session = ses
	guilds := make([]map[string]any, 0, len(s.order))
	for _, id := range s.order {
		guilds = append(guilds, map[string]any{"id": id, "unavailable": true})
	}
	s.push(ses, "READY", encode(map[string]any{
		"v": 9, "user": s.bot, "guilds": guilds, "session_id": ses.id, "private_channels": []any{},
		"resume_gateway_url": c.url + resumePath,
		"application":        map[string]any{"id": s.bot.ID, "flags": 0},
	}))
	if ses.intents&IntentGuilds != 0 {
		for _, id := range s.order {
			s.push(ses, "GUILD_CREATE", encode(s.guildObject(id)))
		}
	}
	ses.ready = true
	s.notify()
	return 0, ""
}

// resumeConn continues a session and replays what it missed. The caller holds
// mu.
func (s *Server) resumeConn(c *conn, data []byte) (int, string) {
	var in struct {
		Token     string `json:"token"`
		SessionID string `json:"session_id"`
		Seq       int64  `json:"seq"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return CloseDecodeError, "Error while decoding payload."
	}
	if c.session != nil {
		return CloseAlreadyAuth, "Already authenticated."
	}
	if strings.TrimPrefix(in.Token, "Bot ") != s.token {
		return CloseAuthFailed, "Authentication failed."
	}
	if s.faults.noResumes > 0 {
		s.faults.noResumes--
		return CloseUnknownError, "Unknown error."
	}
	ses := s.sessions[in.SessionID]
	switch {
	case ses != nil && in.Seq > ses.seq: // 4007: the sequence sent when resuming was invalid
		delete(s.sessions, ses.id)
		return CloseInvalidSeq, "Invalid seq."
	case ses == nil || in.Seq+1 < ses.first: // gone, or too old to replay
		s.enqueue(c, []byte(`{"op":9,"d":false}`))
		return 0, ""
	}
	if old := ses.conn; old != nil && old != c {
		old.session = nil // the new connection takes over
	}
	ses.conn, c.session = c, ses
	for _, e := range ses.events[in.Seq+1-ses.first:] {
		s.enqueue(c, e)
	}
	s.resumed++
	if c.asks {
		s.resumedThere++
	}
	s.push(ses, "RESUMED", []byte(`{}`))
	s.notify()
	return 0, ""
}

// push numbers an event, remembers it for RESUME, and sends it if somebody is
// connected. The caller holds mu.
func (s *Server) push(ses *session, event string, data []byte) {
	ses.seq++
	b := make([]byte, 0, len(data)+len(event)+48)
	b = append(b, `{"t":"`...)
	b = append(b, event...)
	b = append(b, `","s":`...)
	b = strconv.AppendInt(b, ses.seq, 10)
	b = append(b, `,"op":0,"d":`...)
	b = append(b, data...)
	b = append(b, '}')
	ses.events = append(ses.events, b)
	if over := len(ses.events) - s.opts.Replay; over > 0 {
		ses.events = ses.events[over:] // append moves the rest to a new array in time
		ses.first += int64(over)
	}
	if ses.conn != nil {
		s.enqueue(ses.conn, b)
	}
}

// dispatch sends an event to every session that asked for it. The caller holds
// mu.
func (s *Server) dispatch(event string, v any, intent int) {
	if len(s.sessions) == 0 {
		return
	}
	data := encode(v)
	for _, ses := range s.sessions {
		if ses.intents&intent != 0 {
			s.push(ses, event, data)
		}
	}
}

// dispatchMessage sends MESSAGE_CREATE or MESSAGE_UPDATE. "Message Content
// Intent": without it content, embeds, attachments and components are empty, except in private
// channels, in the app's own messages and where the app is mentioned. The
// caller holds mu.
func (s *Server) dispatchMessage(kind string, c *channel, m *Message) {
	if len(s.sessions) == 0 {
		return
	}
	intent, event := IntentGuildMessages, *m
	if c.Type == ChannelDM {
		intent = IntentDirectMessages
	} else {
		event.GuildID = c.GuildID
		if event.Member == nil && event.Author != nil && event.WebhookID == "" {
			event.Member = &Member{Roles: []string{}}
		}
	}
	exempt := c.Type == ChannelDM || m.Author != nil && m.Author.ID == s.bot.ID
	for _, u := range m.Mentions {
		exempt = exempt || u.ID == s.bot.ID
	}
	var full, bare []byte
	for _, ses := range s.sessions {
		switch {
		case ses.intents&intent == 0:
		case exempt || ses.intents&IntentMessageContent != 0:
			if full == nil {
				full = encode(event)
			}
			s.push(ses, kind, full)
		default:
			if bare == nil {
				e := event
				e.Content, e.Attachments, e.Embeds, e.Components = "", []Attachment{}, nil, nil
				bare = encode(e)
			}
			s.push(ses, kind, bare)
		}
	}
}

// forget ends the session of a connection for good.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.session != nil {
		delete(s.sessions, c.session.id)
		c.session.conn, c.session = nil, nil
		s.notify()
	}
}

// detach leaves the session of a connection to be resumed.
func (s *Server) detach(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	s.notify()
}

// queue and enqueue put a frame in the connection's line; enqueue is for a
// caller that holds mu.
func (s *Server) queue(c *conn, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(c, b)
}

func (s *Server) enqueue(c *conn, b []byte) {
	c.out = append(c.out, b)
	c.poke()
}

// hangUp closes the connection with a code once everything queued is out. The
// connection then waits for the client's close.
func (s *Server) hangUp(c *conn, code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := c.session; ses != nil && (code == CloseInvalidSeq || code == CloseSessionTimedOut) {
		delete(s.sessions, ses.id) // "Gateway Close Event Codes": start a new session
	}
	c.close = websocket.FormatCloseMessage(code, reason)
	c.poke()
}

func (c *conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued until the connection or its reader ends.
func (s *Server) write(c *conn) {
	for ended := false; !ended; {
		select {
		case <-c.wake:
		case <-c.done:
			ended = true // one last look at the queue, for the close frame
		}
		s.mu.Lock()
		out, closing := c.out, c.close
		c.out = nil
		s.mu.Unlock()
		for _, b := range out {
			if c.ws.WriteMessage(websocket.TextMessage, b) != nil {
				return
			}
		}
		if closing != nil {
			_ = c.ws.WriteMessage(websocket.CloseMessage, closing)
			return
		}
	}
}

func frame(op int, data any) []byte {
	return encode(map[string]any{"op": op, "d": data})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this package
	}
	return b
}
