package webchat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Timing of the event streams.
const (
	heartbeat    = 20 * time.Second // the page takes twice and a bit of silence for a broken line
	writeTimeout = 10 * time.Second // a browser that takes longer for one write is cut off; it resumes
)

// events streams what happens in the browser's conversation, from its last
// event id on.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	key := s.cookies.key(r)
	if key == "" {
		s.refuse(w, http.StatusConflict, "This browser has no conversation yet. Please reload the page.")
		return
	}
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.URL.Query().Get("after")
	}
	st := s.hub.watch(chatIDOf(key), parseSeq(after))
	if st == nil {
		w.Header().Set("Retry-After", "30")
		s.refuse(w, http.StatusServiceUnavailable, "Too many pages are open at the moment.")
		return
	}
	defer s.hub.leave(st)
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Time{}); err != nil { // the request's own would end the stream
		s.log.Debug("event stream has no read deadline", "err", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies pass it on at once
	out := &sse{w: w, rc: rc}
	out.raw("retry: 2000\n\n")
	if err := s.follow(r.Context(), st, out); err != nil {
		s.log.Debug("event stream ended", "chat_id", st.conv.chat, "err", err)
	}
}

// follow writes news until somebody ends the stream.
func (s *server) follow(ctx context.Context, st *stream, out *sse) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		s.write(out, s.hub.take(st))
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-st.wake:
		case <-beat.C:
			out.raw(": heartbeat\nevent: ping\ndata:\n\n")
		case <-st.replaced:
			out.raw("event: replaced\ndata:\n\n")
			return out.flush()
		case <-st.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *server) write(out *sse, n news) {
	if n.reset {
		out.raw("event: reset\ndata:\n\n")
	}
	for _, e := range n.events {
		switch e.kind {
		case kindMessage:
			out.event(e, s.showEvent(e))
		case kindClear:
			out.event(e, struct {
				Before int64 `json:"before"`
			}{e.before})
		case kindRetract:
			out.event(e, struct {
				ID string `json:"id"`
			}{e.id})
		}
	}
	if n.typing {
		out.raw("event: typing\ndata:\n\n")
	}
}

// sse writes Server-Sent Events and remembers the first error.
type sse struct {
	w   io.Writer
	rc  *http.ResponseController
	err error
}

func (o *sse) raw(text string) {
	if o.err != nil {
		return
	}
	// Each write has its own deadline. A writer without deadlines is refused
	// nothing by it: then the connection's own state decides.
	_ = o.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, o.err = io.WriteString(o.w, text)
}

func (o *sse) event(e *event, data any) {
	b, err := json.Marshal(data) // one line: JSON escapes line breaks
	if err != nil {
		o.err = err
		return
	}
	o.raw(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.seq, e.kind, b))
}

func (o *sse) flush() error {
	if o.err == nil {
		o.err = o.rc.Flush()
	}
	return o.err
}
