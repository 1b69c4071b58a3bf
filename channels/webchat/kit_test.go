package webchat

import (
	"cmp"
	"context"
	"encoding/json"
	"html"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/channelstest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

const testToken = "correct horse battery staple"

func TestKit(t *testing.T) { channelstest.RunInBubble(t, newPlatform) }

// platform is two people with a browser each, in front of the page.
type platform struct {
	wire   *wire
	people []*person
}

// person has the page open in a browser. What the person writes is sent one
// message after the other, each until the page has it, as the page's script
// does.
type person struct {
	*browser
	chat   channelstest.Chat
	ctx    context.Context
	queue  chan post
	mu     sync.Mutex
	posts  []post
	sent   int
	events []sseEvent
}

func newPlatform(t *testing.T) *channelstest.Platform {
	t.Helper()
	p := &platform{wire: &wire{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	var secrets []string
	for range 2 {
		key := newKey()
		secrets = append(secrets, key)
		b := newBrowser(t, origin, p.wire.dial)
		who := &person{browser: b, ctx: ctx, queue: make(chan post, 1024), chat: channelstest.Chat{
			Address: bus.Address{Channel: channelstest.Name, ChatID: chatIDOf(key)},
			People:  []bus.Sender{{ID: senderIDOf(key)}},
		}}
		who.setKey(key)
		p.people = append(p.people, who)
		running.Go(who.write)
		running.Go(who.read)
	}
	return &channelstest.Platform{
		New:       p.newChannel,
		Direct:    []channelstest.Chat{p.people[0].chat, p.people[1].chat},
		Say:       p.say,
		Sent:      p.sent,
		Typed:     p.typed,
		Redeliver: p.redeliver,
		Confirmed: p.confirmed,
		Secrets:   append(secrets, testToken),
		Without: map[string]string{
			"receive-group":          "a conversation has one person",
			"receive-topic":          "a conversation has one person",
			"mention":                "a conversation has one person",
			"reply-to-bot":           "a conversation has one person",
			"reply-to-person":        "a conversation has one person",
			"command-addressed":      "a conversation has one person",
			"bot-sender":             "a conversation has one person",
			"own-message":            "a conversation has one person",
			"quoted":                 "the page has no replies",
			"send-reply":             "the page has no replies",
			"send-reply-deleted":     "the page has no replies",
			"forwarded":              "the page has no forwards",
			"media":                  "the page takes text",
			"odd-updates":            "see TestMessageRefused",
			"throttled":              "the page is our own and never asks for patience",
			"blocked":                "nobody can block the page",
			"cut":                    "Send writes to memory",
			"unreachable":            "Send writes to memory",
			"stop-while-unreachable": "the page is served here",
			"starts-unreachable":     "the page is served here",
			"reconnect":              "the page is served here",
			"health":                 "see TestHealth",
		},
	}
}

func (p *platform) newChannel(t *testing.T, o channelstest.Options) channels.Channel {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:8080", Token: config.Secret(testToken)}
	if o.WrongToken { // the one thing about it that the operator can get wrong
		cfg = Config{Listen: "0.0.0.0:8080"}
	}
	c := New(channelstest.Name, cfg, o.Facts, o.Log)
	c.listen = p.wire.listen
	if o.WrongToken {
		c.listen = func(context.Context, string, string) (net.Listener, error) { return publicListener{}, nil }
	}
	return c
}

type publicListener struct{ net.Listener }

func (publicListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 8080} }
func (publicListener) Close() error   { return nil }

func (w *person) setKey(key string) {
	ck := newCookies(channelstest.Name, testToken, time.Now)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, origin, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	w.client.Jar.SetCookies(r.URL, []*http.Cookie{{Name: ck.chat, Value: key}})
}

// insist repeats try, logged in, until the page accepts.
func (w *person) insist(try func() (ok bool)) {
	for w.ctx.Err() == nil && !try() {
		if resp, err := w.do(w.ctx, http.MethodPost, "/api/login", map[string]string{"token": testToken}, nil); err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

func (w *person) write() {
	for {
		select {
		case p := <-w.queue:
			w.insist(func() bool {
				resp, err := w.do(w.ctx, http.MethodPost, "/api/messages", p, nil)
				if err != nil {
					return false
				}
				_ = resp.Body.Close()
				return resp.StatusCode == http.StatusAccepted
			})
			w.mu.Lock()
			w.sent++
			w.mu.Unlock()
		case <-w.ctx.Done():
			return
		}
	}
}

// read loads the conversation and follows the stream, as the page does.
func (w *person) read() {
	last := ""
	for w.ctx.Err() == nil {
		var events <-chan sseEvent
		w.insist(func() (ok bool) {
			if last == "" {
				last, ok = w.load()
				if !ok {
					return false
				}
			}
			var err error
			events, err = w.watch(w.ctx, last)
			return err == nil
		})
		if events == nil {
			return
		}
		for e := range events {
			if e.Name == "reset" {
				last = ""
			} else if e.ID != "" {
				last = e.ID
			}
			w.see(e)
		}
	}
}

// load takes what the page shows when it opens for events that came.
func (w *person) load() (cursor string, ok bool) {
	resp, err := w.do(w.ctx, http.MethodPost, "/api/session", nil, nil)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	var s struct {
		Lines  []json.RawMessage `json:"lines"`
		Cursor int64             `json:"cursor"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&s) != nil {
		return "", false
	}
	for _, l := range s.Lines {
		e := sseEvent{Name: "message", Data: string(l)}
		e.ID = formatSeq(e.shown(w.t).Seq)
		w.see(e)
	}
	return formatSeq(s.Cursor), true
}

func (w *person) see(e sseEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (p *platform) who(a bus.Address) *person {
	i := slices.IndexFunc(p.people, func(w *person) bool { return w.chat.Address == a })
	return p.people[i]
}

func (p *platform) say(t *testing.T, m channelstest.Message) channelstest.Posted {
	t.Helper()
	w := p.who(m.Chat.Address)
	text := m.Text
	if m.Command != "" {
		text = strings.TrimSpace("/" + m.Command + " " + text)
	}
	w.mu.Lock()
	msg := post{ID: "message-" + strconv.Itoa(len(w.posts)), Text: text}
	w.posts = append(w.posts, msg)
	w.mu.Unlock()
	w.queue <- msg
	return channelstest.Posted{MessageID: msg.ID}
}

func (p *platform) redeliver(*testing.T) {
	for _, w := range p.people {
		w.mu.Lock()
		again := slices.Clone(w.posts)
		w.mu.Unlock()
		for _, m := range again {
			w.queue <- m
		}
	}
}

func (p *platform) confirmed(*testing.T) int {
	synctest.Wait()
	n := 0
	for _, w := range p.people {
		w.mu.Lock()
		n += w.sent
		w.mu.Unlock()
	}
	return n
}

// seen returns the events of a name that the browsers have got by now.
func (p *platform) seen(name string, each func(*person, sseEvent)) {
	time.Sleep(time.Second) // of the bubble's clock: until the pages are there
	synctest.Wait()
	for _, w := range p.people {
		w.mu.Lock()
		events := slices.Clone(w.events)
		w.mu.Unlock()
		for _, e := range events {
			if e.Name == name {
				each(w, e)
			}
		}
	}
}

func (p *platform) sent(t *testing.T) []channelstest.Sent {
	t.Helper()
	var all []channelstest.Sent
	seen := map[string]bool{}
	p.seen("message", func(w *person, e sseEvent) {
		s := e.shown(t)
		if s.Role == "assistant" && !seen[e.ID] {
			seen[e.ID] = true
			all = append(all, channelstest.Sent{Address: w.chat.Address, Text: textOf(s.HTML), MessageID: e.ID})
		}
	})
	slices.SortFunc(all, func(a, b channelstest.Sent) int { return cmp.Compare(parseSeq(a.MessageID), parseSeq(b.MessageID)) })
	return all
}

func (p *platform) typed(*testing.T) []bus.Address {
	var all []bus.Address
	p.seen("typing", func(w *person, _ sseEvent) { all = append(all, w.chat.Address) })
	return all
}

var (
	languageClass = regexp.MustCompile(`<code class="language-([^"]*)">`)
	tag           = regexp.MustCompile(`<[^>]*>`)
)

// textOf is what a person reads: the words, and the language the page writes
// above a block of code. An entity in the text is the character it stands for
// for a browser; it stays an entity here, because the kit looks for its name.
func textOf(markup string) string {
	markup = languageClass.ReplaceAllString(markup, "$1\n")
	markup = tag.ReplaceAllString(markup, "")
	if !strings.Contains(markup, "&lt;") {
		markup = html.UnescapeString(markup)
	}
	return strings.TrimSpace(markup)
}
