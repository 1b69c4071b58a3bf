package webchat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// texts is what lines say, with who said it.
func texts(lines []shown) []string {
	var out []string
	for _, l := range lines {
		out = append(out, l.Role+": "+l.Text+strings.TrimSpace(l.HTML))
	}
	return out
}

// What one browser writes and gets reaches no other, however busy both are.
func TestBrowsersNeverCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const browsers, each = 16, 20
		in := &memory{}
		c, w := serve(t, Config{}, in)
		var wg sync.WaitGroup
		for i := range browsers {
			wg.Go(func() {
				b := newBrowser(t, origin, w.dial)
				b.open()
				chat := chatIDOf(b.key())
				events, _ := b.mustWatch(formatSeq(b.open().Cursor))
				for n := range each {
					mine := fmt.Sprintf("b%dn%d", i, n)
					if code, text := b.post("message-"+mine, mine); code != http.StatusAccepted {
						t.Errorf("%s: %d %s", mine, code, text)
					}
					c.mustSend(t, chat, "to "+mine)
					if err := c.Typing(t.Context(), bus.Address{ChatID: chat}); err != nil {
						t.Error(err)
					}
				}
				said := 0
				for said < 2*each {
					e := next(t, events)
					if e.Name != "message" {
						continue
					}
					mine := fmt.Sprintf("b%dn%d", i, said/2)
					s := e.shown(t)
					if s.Text != mine && s.HTML != "<p>to "+mine+"</p>\n" {
						t.Errorf("browser %d got %+v, want %s", i, s, mine)
						return
					}
					said++
				}
				if lines := b.open().Lines; len(lines) != 2*each {
					t.Errorf("browser %d shows %d lines", i, len(lines))
				}
			})
		}
		wg.Wait()
		for _, m := range in.messages() {
			if m.Sender.ID == m.ChatID || m.Sender.ID == "" {
				t.Errorf("sender %q in chat %q", m.Sender.ID, m.ChatID)
			}
		}
	})
}

// A stream that was lost goes on with what it has not seen.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{}, &memory{})
		b := newBrowser(t, origin, w.dial)
		cursor := b.open().Cursor
		chat := chatIDOf(b.key())
		events, cut := b.mustWatch(formatSeq(cursor))
		c.mustSend(t, chat, "one")
		first := next(t, events)
		if first.shown(t).HTML != "<p>one</p>\n" {
			t.Fatalf("got %+v", first)
		}
		cut()
		receipt := c.mustSend(t, chat, "two")
		c.mustSend(t, chat, "three")
		events, cut = b.mustWatch(first.ID)
		for i, want := range []string{"two", "three"} {
			e := next(t, events)
			if e.Name != "message" || e.shown(t).HTML != "<p>"+want+"</p>\n" {
				t.Errorf("after the break came %+v, want %s", e, want)
			}
			if i == 0 && e.ID != receipt.MessageID {
				t.Errorf("the receipt says %s, the stream %s", receipt.MessageID, e.ID)
			}
		}
		cut()

		// What is too long ago is loaded instead.
		for i := range maxEvents + 1 {
			c.mustSend(t, chat, fmt.Sprint("more ", i))
		}
		events, cut = b.mustWatch(first.ID)
		if e := next(t, events); e.Name != "reset" {
			t.Errorf("got %+v, want a reset", e)
		}
		cut()
		if lines := b.open().Lines; len(lines) != maxEvents {
			t.Errorf("%d lines are kept", len(lines))
		}
		// So is all after the conversation has left memory, and when the cursor
		// is from a clock ahead of ours.
		cursor = b.open().Cursor
		time.Sleep(idleTTL + 2*janitorPeriod)
		if n, _, _ := c.hub.counts(); n != 0 {
			t.Errorf("%d conversations stay in memory", n)
		}
		for _, after := range []string{formatSeq(cursor), formatSeq(cursor + int64(time.Hour)), "", "nonsense", "-5"} {
			events, cut = b.mustWatch(after)
			if e := next(t, events); e.Name != "reset" {
				t.Errorf("after %q: got %+v, want a reset", after, e)
			}
			cut()
		}
	})
}

// A browser that stops reading delays nobody, and is cut off.
func TestSlowBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{}, &memory{})
		b := newBrowser(t, origin, w.dial)
		cursor := formatSeq(b.open().Cursor)
		chat := chatIDOf(b.key())

		conn, err := w.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "GET /api/events?after=%s HTTP/1.1\r\nHost: localhost\r\nCookie: %s=%s\r\n\r\n", cursor, newCookies("web", "", time.Now).chat, b.key())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		events, _ := b.mustWatch(cursor)
		began := time.Now()
		for i := range 3 * maxEvents {
			c.mustSend(t, chat, fmt.Sprint("message ", i))
			if e := next(t, events); !strings.Contains(e.Data, fmt.Sprint("message ", i)) {
				t.Fatalf("got %+v", e)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("a slow browser delayed the others by %s", d)
		}
		if _, n, _ := c.hub.counts(); n != 2 {
			t.Fatalf("%d streams", n)
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if _, n, _ := c.hub.counts(); n != 1 {
			t.Errorf("%d streams: the slow one is still there", n)
		}
	})
}

// An open page hears a heartbeat, and a stream outlives the limits of ordinary
// requests.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{}, &memory{})
		b := newBrowser(t, origin, w.dial)
		cursor := formatSeq(b.open().Cursor)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := b.watch(ctx, cursor)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(events); n != int(time.Hour/heartbeat) {
			t.Errorf("%d heartbeats in an hour", n)
		}
		c.mustSend(t, chatIDOf(b.key()), "still there")
		if e := next(t, events); e.Name != "message" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{}, &memory{})
		b := newBrowser(t, origin, w.dial)
		cursor := formatSeq(b.open().Cursor)
		oldest, _ := b.mustWatch(cursor)
		for range maxChatStreams {
			b.mustWatch(cursor)
		}
		if e := next(t, oldest); e.Name != "replaced" {
			t.Errorf("the oldest page got %+v", e)
		}
		if _, open := <-oldest; open {
			t.Error("the oldest page's stream goes on")
		}
		synctest.Wait()
		c.hub.mu.Lock()
		c.hub.streams += maxStreams - maxChatStreams
		c.hub.mu.Unlock()
		if code, _ := b.status(http.MethodGet, "/api/events", nil, nil); code != http.StatusServiceUnavailable {
			t.Errorf("one stream too many: %d", code)
		}
	})
}

// Run returns at once while pages are open, and theirs ends.
func TestStopWithOpenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c := New("web", Config{}, nil, quiet)
		c.listen = w.listen
		stop := run(t, c, &memory{})
		b := newBrowser(t, origin, w.dial)
		events, _ := b.mustWatch(formatSeq(b.open().Cursor))
		began := time.Now()
		stop()
		if _, open := <-events; open {
			t.Error("the stream goes on")
		}
		if d := time.Since(began); d >= shutdownGrace {
			t.Errorf("stopping took %s", d)
		}
	})
}

// What a page may not send, and what it hears then.
func TestMessageRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &memory{}
		_, w := serve(t, Config{}, in)
		b := newBrowser(t, origin, w.dial)
		if code, _ := b.post("message-1", "hi"); code != http.StatusConflict {
			t.Errorf("without a conversation: %d", code)
		}
		b.open()
		for name, tc := range map[string]struct {
			body any
			want int
		}{
			"not JSON":          {"hello", http.StatusBadRequest},
			"half of it":        {`{"id":"message-1","text":"hi`, http.StatusBadRequest},
			"another shape":     {`{"id":7,"text":["hi"]}`, http.StatusBadRequest},
			"null":              {`null`, http.StatusBadRequest},
			"empty":             {post{"message-1", " \n\t"}, http.StatusBadRequest},
			"no id":             {post{"", "hi"}, http.StatusBadRequest},
			"a short id":        {post{"1", "hi"}, http.StatusBadRequest},
			"a long id":         {post{strings.Repeat("1", 65), "hi"}, http.StatusBadRequest},
			"an id with a path": {post{"../../../etc", "hi"}, http.StatusBadRequest},
			"an id with colons": {post{"m:chat:12345", "hi"}, http.StatusBadRequest},
			"too long":          {post{"message-1", strings.Repeat("x", maxText+1)}, http.StatusRequestEntityTooLarge},
			"far too long":      {post{"message-1", strings.Repeat("x", maxBody)}, http.StatusRequestEntityTooLarge},
		} {
			code, text := b.status(http.MethodPost, "/api/messages", tc.body, nil)
			var answer struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal([]byte(text), &answer); code != tc.want || err != nil || !strings.HasSuffix(answer.Error, ".") {
				t.Errorf("%s: %d %s, want %d and a sentence", name, code, text, tc.want)
			}
		}
		if code, _ := b.post("message-2", strings.Repeat("\u0001", maxText)); code != http.StatusAccepted {
			t.Errorf("the longest message: %d", code)
		}
		if n := len(in.messages()); n != 1 {
			t.Errorf("%d messages were taken, want 1", n)
		}
	})
}

// The same message sent again is the same message, for the gateway and for
// those who watch.
func TestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &memory{}
		_, w := serve(t, Config{}, in)
		b := newBrowser(t, origin, w.dial)
		b.open()
		for range 3 {
			if code, text := b.post("message-1", "hello"); code != http.StatusAccepted || !strings.Contains(text, `"id":"message-1"`) {
				t.Errorf("%d %s", code, text)
			}
		}
		chat := chatIDOf(b.key())
		got := in.messages()
		if len(got) != 1 || got[0].ID != "m:"+chat+":message-1" || got[0].ChatID != chat || got[0].Channel != "web" {
			t.Errorf("got %+v", got)
		}
		if lines := b.open().Lines; len(lines) != 1 {
			t.Errorf("shown: %q", texts(lines))
		}
	})
}

// A message that cannot be stored is not shown as if it were, and keeps its
// time when it is sent again.
func TestNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &memory{}
		_, w := serve(t, Config{}, in)
		b := newBrowser(t, origin, w.dial)
		events, _ := b.mustWatch(formatSeq(b.open().Cursor))
		in.fail(errors.New("the disk at /secret/path is full"))
		first := time.Now()
		code, text := b.post("message-1", "hello")
		if code != http.StatusServiceUnavailable || strings.Contains(text, "disk") {
			t.Errorf("%d %s", code, text)
		}
		if lines := b.open().Lines; len(lines) != 0 {
			t.Errorf("shown: %q", texts(lines))
		}
		e := next(t, events)
		if e.Name == "message" { // seen before it was taken out
			e = next(t, events)
		}
		if e.Name != "retract" || !strings.Contains(e.Data, "message-1") {
			t.Errorf("got %+v, want a retract", e)
		}
		in.fail(nil)
		time.Sleep(time.Minute)
		if code, _ := b.post("message-1", "hello"); code != http.StatusAccepted {
			t.Errorf("again: %d", code)
		}
		if got := in.messages(); len(got) != 1 || !got[0].Time.Equal(first) {
			t.Errorf("got %+v, want it of %s", got, first)
		}
	})
}

// An answer that is there before its question is stored comes after it all the
// same.
func TestAnswerComesAfterQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &eager{}
		c, w := serve(t, Config{}, in)
		in.c = c
		b := newBrowser(t, origin, w.dial)
		events, _ := b.mustWatch(formatSeq(b.open().Cursor))
		if code, _ := b.post("message-1", "question"); code != http.StatusAccepted {
			t.Fatal(code)
		}
		for _, want := range []string{"question", "answer"} {
			if e := next(t, events); !strings.Contains(e.Data, want) {
				t.Errorf("got %+v, want the %s", e, want)
			}
		}
	})
}

// eager answers before it has stored.
type eager struct{ c *Channel }

func (e *eager) PublishInbound(ctx context.Context, b bus.Batch) error {
	_, err := e.c.Send(ctx, bus.OutboundMessage{Address: b.Messages[0].Address, Key: "k", Text: "the answer"})
	return err
}

// "/new" clears the page, here and in other tabs.
func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &memory{}
		c, w := serve(t, Config{}, in)
		b := newBrowser(t, origin, w.dial)
		events, _ := b.mustWatch(formatSeq(b.open().Cursor))
		if code, _ := b.post("message-1", "old"); code != http.StatusAccepted {
			t.Fatal(code)
		}
		next(t, events)
		if code, _ := b.post("message-2", "/New  please"); code != http.StatusAccepted {
			t.Fatal(code)
		}
		c.mustSend(t, chatIDOf(b.key()), "fresh")
		if got, want := texts(b.open().Lines), []string{"user: /New  please", "assistant: <p>fresh</p>"}; !slices.Equal(got, want) {
			t.Errorf("shown: %q, want %q", got, want)
		}
		asked := next(t, events)
		var cleared struct {
			Before int64 `json:"before"`
		}
		e := next(t, events)
		if err := json.Unmarshal([]byte(e.Data), &cleared); err != nil || e.Name != "clear" || formatSeq(cleared.Before) != asked.ID {
			t.Errorf("got %+v, want all before %s cleared", e, asked.ID)
		}
		if m := in.messages()[1]; m.Command != "new" || m.Args != "please" || m.Text != "/New  please" {
			t.Errorf("got %+v", m)
		}
	})
}

// Typing is shown to those who watch, and leaves nothing behind.
func TestTyping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{}, &memory{})
		if err := c.Typing(t.Context(), bus.Address{ChatID: chatIDOf(newKey())}); err != nil {
			t.Errorf("typing to nobody: %v", err)
		}
		if n, _, _ := c.hub.counts(); n != 0 {
			t.Errorf("typing to nobody left %d conversations", n)
		}
		if err := c.Typing(t.Context(), bus.Address{ChatID: "x"}); !errors.Is(err, channels.ErrPermanent) {
			t.Errorf("typing to no chat: %v", err)
		}
		b := newBrowser(t, origin, w.dial)
		cursor := formatSeq(b.open().Cursor)
		events, cut := b.mustWatch(cursor)
		synctest.Wait()
		if err := c.Typing(t.Context(), bus.Address{ChatID: chatIDOf(b.key())}); err != nil {
			t.Error(err)
		}
		if e := next(t, events); e.Name != "typing" || e.ID != "" {
			t.Errorf("got %+v", e)
		}
		cut()
		events, _ = b.mustWatch(cursor)
		c.mustSend(t, chatIDOf(b.key()), "answer")
		if e := next(t, events); e.Name != "message" {
			t.Errorf("the typing sign came again: %+v", e)
		}
	})
}

// A great many conversations that have each been written to once leave no more than
// the few that are kept, and after a while none.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{}, &memory{})
		for range 20_000 {
			c.mustSend(t, chatIDOf(newKey()), "once")
		}
		if n, _, bytes := c.hub.counts(); n != maxIdle || bytes != n*len("once") {
			t.Errorf("%d conversations, %d bytes", n, bytes)
		}
		for range maxIdle {
			c.mustSend(t, chatIDOf(newKey()), strings.Repeat("x", maxIdleBytes/16))
		}
		if n, _, bytes := c.hub.counts(); bytes > maxIdleBytes || n > 16 {
			t.Errorf("%d conversations, %d bytes", n, bytes)
		}
		time.Sleep(idleTTL + 2*janitorPeriod)
		if n, _, bytes := c.hub.counts(); n != 0 || bytes != 0 {
			t.Errorf("%d conversations, %d bytes stay", n, bytes)
		}
	})
}

// counts is what a hub holds.
func (h *hub) counts() (chats, streams, idleBytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.chats), h.streams, h.bytes
}

// One conversation keeps its last messages within both bounds.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{}, &memory{})
		chat := chatIDOf(newKey())
		for i := range 20 {
			c.mustSend(t, chat, fmt.Sprint(i)+strings.Repeat("x", maxEventBytes/8))
		}
		events, _ := c.hub.snapshot(chat)
		if n := len(events); n != 7 || !strings.HasPrefix(events[n-1].text, "19x") {
			t.Errorf("%d messages are kept", n)
		}
		c.mustSend(t, chat, strings.Repeat("y", 2*maxEventBytes))
		if events, _ := c.hub.snapshot(chat); len(events) != 1 {
			t.Errorf("%d messages are kept beside one that is too long", len(events))
		}
	})
}

// The page shows the history, and what is in memory after it, nothing twice.
func TestHistory(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(role, text string, sec int) Line {
		return Line{Role: role, Text: text, Time: at.Add(time.Duration(sec) * time.Second)}
	}
	ev := func(role, text string, sec int) *event {
		return &event{kind: kindMessage, role: role, text: text, time: at.Add(time.Duration(sec) * time.Second)}
	}
	const u, a = "user", "assistant"
	old := []Line{line(u, "q0", -100), line(a, "a0", -99)}
	for name, tc := range map[string]struct {
		lines  []Line
		events []*event
		want   []Line
	}{
		"nothing in memory":         {old, nil, old},
		"nothing stored":            {nil, []*event{ev(u, "q", 0)}, nil},
		"the same turn in both":     {append(slices.Clone(old), line(u, "q", 0), line(a, "a", 5)), []*event{ev(u, "q", 0), ev(a, "a", 6)}, old},
		"only the answer in memory": {append(slices.Clone(old), line(u, "q", 0), line(a, "a", 5)), []*event{ev(a, "a\n", 6)}, append(slices.Clone(old), line(u, "q", 0))},
		"sent long after":           {append(slices.Clone(old), line(u, "q", 0), line(a, "a", 5)), []*event{ev(a, "a", 9999)}, append(slices.Clone(old), line(u, "q", 0))},
		"several answers":           {append(slices.Clone(old), line(u, "q", 0), line(a, "a", 5), line(a, "b", 5)), []*event{ev(a, "a", 6), ev(a, "b", 7)}, append(slices.Clone(old), line(u, "q", 0))},
		"a reminder":                {old, []*event{ev(a, "stretch", 0)}, old},
		"the same words again":      {append(slices.Clone(old), line(u, "q", 10), line(a, "a0", 11)), []*event{ev(u, "q", 10), ev(a, "a0", 12)}, old},
		"an older answer's words":   {append(slices.Clone(old), line(u, "q", 0)), []*event{ev(a, "a0", 6)}, append(slices.Clone(old), line(u, "q", 0))},
		"a clear first":             {nil, []*event{{kind: kindClear, time: at}, ev(u, "/new", 1)}, nil},
	} {
		got := before(tc.lines, tc.events)
		if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestHistoryIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked bus.Address
		fail := error(nil)
		history := func(_ context.Context, a bus.Address, limit int) ([]Line, error) {
			asked = a
			if limit != historyLines {
				t.Errorf("limit %d", limit)
			}
			then := time.Now().Add(-time.Hour)
			return []Line{{Role: "system", Text: "secret instructions", Time: then}, {Role: "user", Text: "<b>q</b>", Time: then}, {Role: "assistant", Text: "**a**", Time: then}, {Role: "tool", Text: "{}", Time: then}}, fail
		}
		c, w := serve(t, Config{}, &memory{}, WithHistory(history))
		b := newBrowser(t, origin, w.dial)
		want := []string{"user: <b>q</b>", "assistant: <p><strong>a</strong></p>"}
		if got := texts(b.open().Lines); !slices.Equal(got, want) {
			t.Errorf("shown: %q, want %q", got, want)
		}
		if chat := chatIDOf(b.key()); asked != (bus.Address{Channel: "web", ChatID: chat}) {
			t.Errorf("asked for the history of %s", asked)
		}
		c.mustSend(t, chatIDOf(b.key()), "new")
		if got := texts(b.open().Lines); !slices.Equal(got, append(want, "assistant: <p>new</p>")) {
			t.Errorf("shown: %q", got)
		}
		fail = errors.New("the disk at /secret/path is full")
		if code, text := b.status(http.MethodPost, "/api/session", nil, nil); code != http.StatusServiceUnavailable || strings.Contains(text, "disk") {
			t.Errorf("without its history: %d %s", code, text)
		}
	})
}

// A question from before a restart is shown while it waits for its answer, and
// stays shown, once and before it, when that is there.
func TestWaitingIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-time.Minute)
		lines := []Line{{Role: "user", Text: "q1", Time: began, Waiting: "message-1"}, {Role: "user", Text: "q2", Time: began, Waiting: "message-2"}}
		c, w := serve(t, Config{}, &memory{}, WithHistory(func(context.Context, bus.Address, int) ([]Line, error) { return lines, nil }))
		b := newBrowser(t, origin, w.dial)
		shows := func(want ...string) {
			t.Helper()
			if got := texts(b.open().Lines); !slices.Equal(got, want) {
				t.Errorf("shown: %q, want %q", got, want)
			}
		}
		shows("user: q1", "user: q2")
		shows("user: q1", "user: q2")
		chat := chatIDOf(b.key())
		time.Sleep(time.Second)
		lines = []Line{{Role: "user", Text: "q1", Time: time.Now()}, {Role: "assistant", Text: "a1", Time: time.Now()}, lines[1]}
		c.mustSend(t, chat, "a1")
		shows("user: q1", "user: q2", "assistant: <p>a1</p>")
		time.Sleep(time.Second)
		lines = append(lines[:2], Line{Role: "user", Text: "q2", Time: time.Now()}, Line{Role: "assistant", Text: "a2", Time: time.Now()})
		c.mustSend(t, chat, "a2")
		shows("user: q1", "user: q2", "assistant: <p>a1</p>", "assistant: <p>a2</p>")
	})
}

// The same key is the same delivery.
func TestSendAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{}, &memory{})
		chat := chatIDOf(newKey())
		first, again := c.mustSend(t, chat, "x"), c.mustSend(t, chat, "x")
		if first != again || first.MessageID == c.mustSend(t, chat, "y").MessageID {
			t.Errorf("receipts %+v and %+v", first, again)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Send(ctx, bus.OutboundMessage{Address: bus.Address{ChatID: chat}}); !errors.Is(err, context.Canceled) {
			t.Errorf("Send = %v", err)
		}
	})
}
