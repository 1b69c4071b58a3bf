package webchat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// origin is where the page is served in memory.
const origin = "http://localhost"

// wire is a network in memory: one address, net.Pipe connections.
type wire struct {
	mu  sync.Mutex
	cur *wireListener
}

type wireListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (w *wire) listen(context.Context, string, string) (net.Listener, error) {
	l := &wireListener{conns: make(chan net.Conn), done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cur = l
	return l, nil
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	l := w.cur
	w.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens")
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *wireListener) Addr() net.Addr { return wireAddr{} }

type wireAddr struct{}

func (wireAddr) Network() string { return "wire" }
func (wireAddr) String() string  { return "localhost" }

// browser is one person's browser: cookies, and the headers a page sends.
type browser struct {
	t      *testing.T
	base   string
	client *http.Client
}

func newBrowser(t *testing.T, base string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &browser{t: t, base: base, client: &http.Client{Transport: tr, Jar: jar}}
}

// do sends a request as the page would. header overrides what it sends, "" takes
// a header away.
func (b *browser) do(ctx context.Context, method, path string, body any, header map[string]string) (*http.Response, error) {
	var r io.Reader = http.NoBody
	if s, ok := body.(string); ok {
		r = strings.NewReader(s)
	} else if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, r)
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", b.base)
	}
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	for k, v := range header {
		switch {
		case k == "Host":
			req.Host = v
		case v == "":
			req.Header.Del(k)
		default:
			req.Header.Set(k, v)
		}
	}
	return b.client.Do(req)
}

// status does a request and returns how it ended and what was answered.
func (b *browser) status(method, path string, body any, header map[string]string) (int, string) {
	b.t.Helper()
	resp, err := b.do(b.t.Context(), method, path, body, header)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

type session struct {
	Lines  []shown `json:"lines"`
	Cursor int64   `json:"cursor"`
}

// open loads the conversation.
func (b *browser) open() session {
	b.t.Helper()
	code, text := b.status(http.MethodPost, "/api/session", nil, nil)
	if code != http.StatusOK {
		b.t.Fatalf("session: %d %s", code, text)
	}
	var s session
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// key returns the conversation's cookie.
func (b *browser) key() string {
	b.t.Helper()
	u, err := url.Parse(b.base)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(u) {
		if validKey(c.Value) {
			return c.Value
		}
	}
	b.t.Fatal("the browser has no conversation")
	return ""
}

// post sends a message.
func (b *browser) post(id, text string) (int, string) {
	b.t.Helper()
	return b.status(http.MethodPost, "/api/messages", post{ID: id, Text: text}, nil)
}

// sseEvent is one event as a browser gets it.
type sseEvent struct {
	ID, Name, Data string
}

// shown decodes a message event.
func (e sseEvent) shown(t *testing.T) shown {
	t.Helper()
	var s shown
	if err := json.Unmarshal([]byte(e.Data), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// watch opens the event stream. The channel is closed when it ends.
func (b *browser) watch(ctx context.Context, after string) (<-chan sseEvent, error) {
	header := map[string]string{}
	if after != "" {
		header["Last-Event-ID"] = after
	}
	resp, err := b.do(ctx, http.MethodGet, "/api/events", nil, header) //nolint:bodyclose // the reader closes it
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("events: HTTP %d", resp.StatusCode), resp.Body.Close())
	}
	events := make(chan sseEvent, 1024)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		readEvents(resp.Body, func(e sseEvent) { events <- e })
	}()
	return events, nil
}

// mustWatch watches until the test, or cancel, ends it.
func (b *browser) mustWatch(after string) (events <-chan sseEvent, cancel func()) {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	events, err := b.watch(ctx, after)
	if err != nil {
		stop()
		b.t.Fatal(err)
	}
	end := func() {
		stop()
		for range events { // until the reader is gone
		}
	}
	b.t.Cleanup(end)
	return events, end
}

func readEvents(r io.Reader, emit func(sseEvent)) {
	var e sseEvent
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		name, value, _ := strings.Cut(sc.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			e.Data += value
		case "":
			if e.Name != "" {
				emit(e)
				e = sseEvent{}
			}
		}
	}
}

// next waits for the next event that is not a heartbeat.
func next(t *testing.T, events <-chan sseEvent) sseEvent {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatal("the stream has ended")
			}
			if e.Name != "ping" {
				return e
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no event came")
		}
	}
}

// memory is an inbox that keeps messages, each once.
type memory struct {
	mu    sync.Mutex
	err   error
	known map[string]bool
	got   []bus.InboundMessage
}

func (m *memory) PublishInbound(_ context.Context, b bus.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.known == nil {
		m.known = map[string]bool{}
	}
	for _, msg := range b.Messages {
		if !m.known[msg.ID] {
			m.known[msg.ID] = true
			m.got = append(m.got, msg)
		}
	}
	return nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) messages() []bus.InboundMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]bus.InboundMessage(nil), m.got...)
}
