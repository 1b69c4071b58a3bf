package discordtest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Serve answers on ln until stop is called; stop returns when every connection
// and goroutine of it is gone.
func (s *Server) Serve(ln net.Listener) (stop func()) {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln) // ends with http.ErrServerClosed
	}()
	return func() {
		_ = srv.Close()
		s.DropSockets()
		<-served
		s.sockets.Wait()
	}
}

// Listen serves on a free loopback port; base is what goes into api_base.
func (s *Server) Listen() (base string, stop func(), err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("discordtest: listen: %w", err)
	}
	return "http://" + ln.Addr().String(), s.Serve(ln), nil
}

// Sent returns every message the bot has created so far.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Calls returns every REST request so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Typings returns how often the bot showed that it types in a channel.
func (s *Server) Typings(channelID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.typing[channelID]
}

// Stats counts what the gateway socket has seen.
type Stats struct {
	Identified   int // IDENTIFYs that were answered with READY
	Resumed      int // RESUMEs that were answered with RESUMED
	ResumedThere int // of them, at the address that READY named
	Heartbeats   int
	Sessions     int // that could be resumed now, or are connected
	Connected    int // of them, those that are connected
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Identified: s.identify, Resumed: s.resumed, ResumedThere: s.resumedThere, Heartbeats: s.heartbeat, Sessions: len(s.sessions)}
	for _, ses := range s.sessions {
		if ses.conn != nil && ses.ready {
			st.Connected++
		}
	}
	return st
}

// Wait returns when done says so, which it asks after every change, or with
// ctx's error. done must not call the server.
func (s *Server) wait(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := done(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WaitReady returns when the bot is connected and has been told READY.
func (s *Server) WaitReady(ctx context.Context) error {
	return s.wait(ctx, func() bool {
		for _, ses := range s.sessions {
			if ses.conn != nil && ses.ready {
				return true
			}
		}
		return false
	})
}

// WaitSession returns when the bot has a session: what is said from then on
// reaches it, now or when it resumes.
func (s *Server) WaitSession(ctx context.Context) error {
	return s.wait(ctx, func() bool { return len(s.sessions) > 0 })
}

// WaitSent returns when the bot has created at least n messages.
func (s *Server) WaitSent(ctx context.Context, n int) ([]Sent, error) {
	err := s.wait(ctx, func() bool { return len(s.sent) >= n })
	return s.Sent(), err
}

// WaitCalls returns when at least n REST requests were answered.
func (s *Server) WaitCalls(ctx context.Context, n int) ([]Call, error) {
	err := s.wait(ctx, func() bool { return len(s.calls) >= n })
	return s.Calls(), err
}

// WaitStats returns when done accepts the counts.
func (s *Server) WaitStats(ctx context.Context, done func(Stats) bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if done(s.Stats()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Dispatch sends any event to every session, whatever it asked for. data is its
// JSON.
func (s *Server) Dispatch(event, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		s.push(ses, event, []byte(data))
	}
}

// Redeliver sends every message that the channels remember once more.
func (s *Server) Redeliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.channels {
		for _, m := range c.messages {
			s.dispatchMessage("MESSAGE_CREATE", c, m)
		}
	}
}

// SetToken changes the bot's token, as a reset in the developer portal does.
// Open connections are closed with 4004.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	s.token = token
	s.mu.Unlock()
	s.CloseSockets(CloseAuthFailed, "Authentication failed.")
}

// SetDown ends every connection until it is called with false. New ones are
// refused over Pipe; a real listener takes them and ends them without an
// answer.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.DropSockets()
	}
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// connections lists the open gateway connections.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// DropSockets cuts every gateway connection without a word; the sessions can
// be resumed.
func (s *Server) DropSockets() {
	for _, c := range s.connections() {
		_ = c.ws.NetConn().Close()
	}
}

// CloseSockets closes every gateway connection with a close code.
func (s *Server) CloseSockets(code int, reason string) {
	for _, c := range s.connections() {
		s.hangUp(c, code, reason)
	}
}

// AskReconnect sends op 7: the client is to disconnect and resume.
func (s *Server) AskReconnect() {
	for _, c := range s.connections() {
		s.queue(c, []byte(`{"op":7,"d":null}`))
	}
}

// AskHeartbeat sends op 1: the client is to send a heartbeat at once.
func (s *Server) AskHeartbeat() {
	for _, c := range s.connections() {
		s.queue(c, []byte(`{"op":1,"d":null}`))
	}
}

// InvalidateSessions sends op 9. Unless resumable, the sessions are gone.
func (s *Server) InvalidateSessions(resumable bool) {
	for _, c := range s.connections() {
		s.queue(c, fmt.Appendf(nil, `{"op":9,"d":%t}`, resumable))
		if !resumable {
			s.forget(c)
		}
	}
}

// ForgetSessions drops every session without telling; RESUME then meets op 9.
func (s *Server) ForgetSessions() {
	for _, c := range s.connections() {
		s.forget(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// StopAcks leaves the heartbeats of the present connections unanswered.
func (s *Server) StopAcks() {
	for _, c := range s.connections() {
		s.mu.Lock()
		c.noAcks = true
		s.mu.Unlock()
	}
}

// Throttle answers the next n messages with 429.
func (s *Server) Throttle(n int, after time.Duration, global bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults.queue = append(s.faults.queue, tooMany(nil, after, global))
	}
}

// Fail answers the next n messages with a bare HTTP status, such as 503.
func (s *Server) Fail(n, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults.queue = append(s.faults.queue, response{status: status, body: map[string]string{"message": http.StatusText(status)}})
	}
}

// ThrottleReads answers the next n looks at a channel's messages with 429.
func (s *Server) ThrottleReads(channelID string, n int, after time.Duration) {
	s.faultReads(channelID, n, tooMany(nil, after, false))
}

// FailReads answers the next n looks at a channel's messages with a bare HTTP
// status; 0 cuts the connection.
func (s *Server) FailReads(channelID string, n, status int) {
	res := response{status: status, body: map[string]string{"message": http.StatusText(status)}, cut: status == 0}
	s.faultReads(channelID, n, res)
}

// RefuseReads answers the next n looks at a channel's messages with 403: the bot
// may not read there.
func (s *Server) RefuseReads(channelID string, n int) {
	s.faultReads(channelID, n, refuse(&apiError{status: 403, Code: CodeMissingAccess, Message: "Missing Access"}))
}

func (s *Server) faultReads(channelID string, n int, res response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil {
		c.reads = append(c.reads, slices.Repeat([]response{res}, n)...)
	}
}

// FailInFront answers the next n messages the way something in front of Discord
// does: with a page and no JSON. after, if not 0, is the header Retry-After.
func (s *Server) FailInFront(n, status int, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := response{status: status, body: []byte("<html>" + http.StatusText(status) + "</html>"), header: http.Header{}}
	if after != 0 {
		res.header.Set("Retry-After", strconv.Itoa(int(after.Seconds())))
	}
	for range n {
		s.faults.queue = append(s.faults.queue, res)
	}
}

// RefuseResumes closes the next n RESUMEs with 4000, which says nothing of the
// session.
func (s *Server) RefuseResumes(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.noResumes = n
}

// CutAfterAccept takes the next n messages and cuts the connection instead of
// answering: the sender cannot know.
func (s *Server) CutAfterAccept(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.cutAfter += n
}

// CutBeforeAccept cuts the connection of the next n messages without taking
// them.
func (s *Server) CutBeforeAccept(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.cutBefore += n
}

// HideHistory takes the right to read history from the bot: replies that quote
// are refused with 160002, and a channel shows no messages.
func (s *Server) HideHistory(hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.noHistory = hidden
}

// UseStarts takes n of the day's session starts away; reset is when they come
// back.
func (s *Server) UseStarts(n int, reset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.startsUsed, s.faults.startsReset = n, reset
}

// Codes for Block.
const (
	CodeUnknownChannel    = 10003 // the channel is gone
	CodeMissingAccess     = 50001
	CodeCannotMessageUser = 50007 // the person has blocked the bot or private messages
	CodeMissingPermission = 50013
)

// Block refuses everything in a channel with one of the codes above; 0 lifts
// it.
func (s *Server) Block(channelID string, code int) {
	e := map[int]*apiError{
		CodeUnknownChannel:    {status: 404, Code: code, Message: "Unknown Channel"},
		CodeMissingAccess:     {status: 403, Code: code, Message: "Missing Access"},
		CodeCannotMessageUser: {status: 403, Code: code, Message: "Cannot send messages to this user"},
		CodeMissingPermission: {status: 403, Code: code, Message: "Missing Permissions"},
	}[code]
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil {
		c.refuse = e
	}
}
