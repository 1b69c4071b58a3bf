package webchat

import (
	"container/list"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Bounds of what is kept in memory. A stream that falls behind its
// conversation's ring is told to load the history again.
const (
	maxEvents      = 64               // per conversation
	maxEventBytes  = 128 << 10        // text per conversation; one longer message is kept alone
	maxIdle        = 256              // conversations nobody watches
	maxIdleBytes   = 4 << 20          // text in those
	idleTTL        = 10 * time.Minute // after that a conversation nobody watches leaves memory
	maxStreams     = 512              // open pages in all
	maxChatStreams = 4                // open pages of one conversation; the oldest gives way
)

type kind string

const (
	kindMessage kind = "message" // something was said
	kindClear   kind = "clear"   // what stands before is no longer part of the conversation
	kindRetract kind = "retract" // a message of the person was not stored after all
)

// event is one thing that happened in a conversation.
type event struct {
	seq    int64
	kind   kind
	role   string
	id     string // kindMessage of a person, kindRetract: the page's id; of the assistant: the key
	text   string
	time   time.Time
	before int64                    // kindClear
	html   func(r *markdown) string // assistant: rendered once, when first watched
}

// conversation is what is in memory of one conversation: a ring of its last
// events and those who watch it.
type conversation struct {
	chat    string
	floor   int64 // every event with a higher seq is in events
	events  []*event
	bytes   int
	streams []*stream     // oldest first
	idle    *list.Element // place among those nobody watches, nil while watched
	used    time.Time
}

// stream is one open page. Its fields are the hub's, but for the channels.
type stream struct {
	conv     *conversation
	cursor   int64
	typing   bool
	wake     chan struct{} // holds one token when there is something to take
	replaced chan struct{} // closed when a newer page took its place
	done     chan struct{} // closed when the page is no longer served
}

// hub owns all conversations. One mutex guards everything in it: its sections
// are short, do no I/O and call nobody, and a sender must never wait for a
// browser, which an owning goroutine with a queue could not promise.
type hub struct {
	mu      sync.Mutex
	seq     int64
	chats   map[string]*conversation
	idle    *list.List // conversations nobody watches, longest idle first
	bytes   int        // text in the idle ones
	streams int
	done    chan struct{} // closed when the streams have to end
	closed  bool
	now     func() time.Time
}

func newHub() *hub {
	return &hub{chats: map[string]*conversation{}, idle: list.New(), closed: true, now: time.Now}
}

// next returns a new sequence number. It starts from the clock, so that
// numbers go on growing over a restart without being stored anywhere.
func (h *hub) next(now time.Time) int64 {
	h.seq = max(h.seq+1, now.UnixMicro())
	return h.seq
}

// open returns the conversation, in memory from now on. The caller holds mu and
// calls settle when it has changed it.
func (h *hub) open(chat string, now time.Time) *conversation {
	c := h.chats[chat]
	if c == nil {
		c = &conversation{chat: chat, floor: h.next(now)}
		h.chats[chat] = c
	}
	if c.idle != nil {
		h.idle.Remove(c.idle)
		h.bytes -= c.bytes
		c.idle = nil
	}
	c.used = now
	return c
}

// settle puts a conversation nobody watches at the end of the idle ones and
// makes room there.
func (h *hub) settle(c *conversation) {
	if len(c.streams) > 0 {
		return
	}
	c.idle = h.idle.PushBack(c)
	h.bytes += c.bytes
	for h.idle.Len() > maxIdle || h.bytes > maxIdleBytes && h.idle.Len() > 1 {
		h.evict(h.idle.Front())
	}
}

func (h *hub) evict(el *list.Element) {
	c := h.idle.Remove(el).(*conversation)
	h.bytes -= c.bytes
	delete(h.chats, c.chat)
}

// evictIdle drops what nobody has watched or written to for a while.
func (h *hub) evictIdle(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for el := h.idle.Front(); el != nil && now.Sub(el.Value.(*conversation).used) >= idleTTL; el = h.idle.Front() {
		h.evict(el)
	}
}

// add puts e into the conversation and wakes those who watch. A message that is
// there already is not added twice: the first one is returned. One that was
// taken out again keeps its first time.
func (h *hub) add(chat string, e event) *event {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	c := h.open(chat, now)
	defer h.settle(c)
	if e.kind == kindMessage {
		if old := c.find(&e); old != nil {
			return old
		}
	}
	e.seq, e.time = h.next(now), c.firstTime(&e, now)
	if e.role == providers.RoleAssistant {
		e.html = onceHTML(e.text)
	}
	c.push(&e)
	return &e
}

// onceHTML renders text the first time it is asked for.
func onceHTML(text string) func(*markdown) string {
	var once sync.Once
	var html string
	return func(r *markdown) string {
		once.Do(func() { html = r.html(text) })
		return html
	}
}

// retract takes a message of the person out again.
func (h *hub) retract(chat string, e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	c := h.open(chat, now)
	defer h.settle(c)
	c.trim(func(x *event) bool { return x == e })
	c.push(&event{seq: h.next(now), time: e.time, kind: kindRetract, id: e.id})
}

// clear forgets what stands before the event with that seq.
func (h *hub) clear(chat string, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.open(chat, h.now())
	defer h.settle(c)
	c.trim(func(e *event) bool { return e.seq < seq })
	c.push(&event{seq: h.next(h.now()), time: h.now(), kind: kindClear, before: seq})
}

// typing tells those who watch that an answer is on its way.
func (h *hub) typing(chat string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.chats[chat]
	if c == nil {
		return
	}
	for _, s := range c.streams {
		s.typing = true
		s.signal()
	}
}

// snapshot returns what is in memory of a conversation and the cursor from
// which a stream goes on.
func (h *hub) snapshot(chat string) (events []*event, cursor int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.open(chat, h.now())
	defer h.settle(c)
	return slices.Clone(c.events), h.seq
}

// watch opens a stream that goes on after cursor. It returns nil when there
// are too many.
func (h *hub) watch(chat string, cursor int64) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.streams >= maxStreams {
		return nil
	}
	c := h.open(chat, h.now())
	if cursor > h.seq {
		cursor = 0 // from before a restart with a clock ahead of ours: load everything
	}
	if len(c.streams) >= maxChatStreams {
		close(c.streams[0].replaced)
		c.streams = slices.Delete(c.streams, 0, 1)
	}
	s := &stream{conv: c, cursor: cursor, wake: make(chan struct{}, 1), replaced: make(chan struct{}), done: h.done}
	c.streams = append(c.streams, s)
	h.streams++
	return s
}

// leave ends a stream. Every stream of watch leaves once.
func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	c := s.conv
	i := slices.Index(c.streams, s)
	if i < 0 {
		return
	}
	c.streams = slices.Delete(c.streams, i, i+1)
	if len(c.streams) == 0 {
		c.used = h.now()
		h.settle(c)
	}
}

// news is what a stream has not seen yet.
type news struct {
	events []*event
	typing bool
	reset  bool // some of it is gone: the page has to load the history
}

// take returns what is new for s.
func (h *hub) take(s *stream) news {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := news{typing: s.typing, reset: s.cursor < s.conv.floor}
	s.typing = false
	if n.reset {
		s.cursor = h.seq
		return n
	}
	for _, e := range s.conv.events {
		if e.seq > s.cursor {
			n.events = append(n.events, e)
		}
	}
	s.cursor = max(s.cursor, h.seq)
	return n
}

// closeStreams ends all streams, and lets none open until reopen.
func (h *hub) closeStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	close(h.done)
}

// reopen lets streams open; Run calls it when it starts.
func (h *hub) reopen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.done = false, make(chan struct{})
}

// find returns the event that e would repeat. The page never uses an id twice;
// a key with another text is another message.
func (c *conversation) find(e *event) *event {
	i := slices.IndexFunc(c.events, func(x *event) bool {
		return x.kind == kindMessage && x.role == e.role && x.id == e.id && e.id != "" &&
			(x.role == providers.RoleUser || x.text == e.text)
	})
	if i < 0 {
		return nil
	}
	return c.events[i]
}

// firstTime is when e was added first, if it was taken out again since.
func (c *conversation) firstTime(e *event, now time.Time) time.Time {
	for _, x := range c.events {
		if x.kind == kindRetract && e.role == providers.RoleUser && x.id == e.id {
			return x.time
		}
	}
	return now
}

// push appends e, drops the oldest beyond the bounds and wakes the streams.
func (c *conversation) push(e *event) {
	c.events = append(c.events, e)
	c.bytes += len(e.text)
	for len(c.events) > maxEvents || c.bytes > maxEventBytes && len(c.events) > 1 {
		c.floor = c.events[0].seq
		c.trim(func(e *event) bool { return e.seq <= c.floor })
	}
	for _, s := range c.streams {
		s.signal()
	}
}

// trim deletes the events gone says yes to.
func (c *conversation) trim(gone func(*event) bool) {
	c.events = slices.DeleteFunc(c.events, func(e *event) bool {
		yes := gone(e)
		if yes {
			c.bytes -= len(e.text)
		}
		return yes
	})
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it has not taken the last news yet, and will find this with it
	}
}

func formatSeq(seq int64) string { return strconv.FormatInt(seq, 10) }

// parseSeq reads a sequence number; anything else is 0, before everything.
func parseSeq(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
