package telegramtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// updates is the queue of what the bot has not confirmed yet.
type updates struct {
	qmu       sync.Mutex
	queue     []update // ascending ids, without gaps
	history   []update // confirmed ones, unless Forget
	lastID    int64
	allowed   []string
	poll      *poll // the long poll under way
	confirmed int
}

type update struct {
	id   int64
	kind string
	raw  []byte // the whole object
	body []byte // what it holds
}

// poll is one getUpdates call that waits.
type poll struct {
	wake chan struct{} // holds at most one
	end  chan string   // a conflict; at most one
}

// limits of getUpdates, as documented.
const (
	maxUpdates = 100
	maxTimeout = 50 // seconds; not documented, but longer ones are cut short
)

// notByDefault are the kinds a bot gets only if it asks for them.
var notByDefault = [...]string{"chat_member", "message_reaction", "message_reaction_count"}

func (u *updates) init() { u.lastID = 500_000_000 }

// Push delivers an update of any kind, such as "callback_query", and returns
// its id; 0 if the bot has not asked for that kind.
func (s *Server) Push(kind string, payload any) int64 {
	body, err := json.Marshal(payload)
	if err != nil {
		panic("telegramtest: " + err.Error())
	}
	return s.enqueue(kind, body)
}

func (u *updates) enqueue(kind string, body []byte) int64 {
	u.qmu.Lock()
	defer u.qmu.Unlock()
	if u.allowed != nil && !slices.Contains(u.allowed, kind) {
		return 0
	}
	if u.allowed == nil && slices.Contains(notByDefault[:], kind) {
		return 0
	}
	u.lastID++
	raw := make([]byte, 0, len(body)+len(kind)+32)
	raw = append(raw, `{"update_id":`...)
	raw = strconv.AppendInt(raw, u.lastID, 10)
	raw = append(raw, `,"`...)
	raw = append(raw, kind...)
	raw = append(raw, `":`...)
	raw = append(raw, body...)
	raw = append(raw, '}')
	u.queue = append(u.queue, update{id: u.lastID, kind: kind, raw: raw, body: body})
	if u.poll != nil {
		select {
		case u.poll.wake <- struct{}{}:
		default:
		}
	}
	return u.lastID
}

// SetNextUpdateID makes the ids go on from n, as they do at random after a week
// without updates.
func (s *Server) SetNextUpdateID(n int64) {
	s.qmu.Lock()
	defer s.qmu.Unlock()
	s.lastID = n - 1
}

// Redeliver offers every message again that the bot has confirmed, with new
// update ids: the platform's way of repeating itself after the ids restarted.
func (s *Server) Redeliver() {
	s.qmu.Lock()
	old := append(slices.Clone(s.history), s.queue...)
	s.qmu.Unlock()
	for _, u := range old {
		s.enqueue(u.kind, u.body)
	}
}

// Confirmed returns how many updates that hold a message the bot has confirmed.
func (s *Server) Confirmed() int {
	s.qmu.Lock()
	defer s.qmu.Unlock()
	return s.confirmed
}

func (u *updates) pending() int {
	u.qmu.Lock()
	defer u.qmu.Unlock()
	return len(u.queue)
}

// Polling reports whether a long poll is under way.
func (s *Server) Polling() bool {
	s.qmu.Lock()
	defer s.qmu.Unlock()
	return s.poll != nil
}

// terminate ends the long poll under way with a conflict.
func (u *updates) terminate(why string) {
	u.qmu.Lock()
	defer u.qmu.Unlock()
	u.endPoll(why)
}

func (u *updates) endPoll(why string) {
	if u.poll != nil {
		u.poll.end <- why
		u.poll = nil
	}
}

// CutPolls breaks the connection of the next n calls of getUpdates instead of
// answering them.
func (s *Server) CutPolls(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutPoll = n
}

func (s *Server) takeCutPoll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cutPoll == 0 {
		return false
	}
	s.cutPoll--
	return true
}

func (s *Server) getUpdates(w http.ResponseWriter, r *http.Request, p params) {
	if s.takeCutPoll() {
		panic(http.ErrAbortHandler)
	}
	if s.hasWebhook() {
		reply(w, fail(http.StatusConflict, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"))
		return
	}
	limit := int(p.number("limit"))
	if limit <= 0 || limit > maxUpdates {
		limit = maxUpdates // "values between 1-100 are accepted, defaults to 100"
	}
	timeout := time.Duration(min(max(p.number("timeout"), 0), maxTimeout)) * time.Second
	me := s.beginPoll(p)
	defer s.leave(me)
	var timer *time.Timer
	for {
		if batch := s.take(limit); len(batch) > 0 || timeout == 0 {
			s.serve(w, batch)
			return
		}
		if timer == nil {
			timer = time.NewTimer(timeout)
			defer timer.Stop()
		}
		select {
		case <-me.wake:
		case <-timer.C:
			timeout = 0
		case why := <-me.end:
			reply(w, fail(http.StatusConflict, why))
			return
		case <-r.Context().Done():
			return
		}
	}
}

// beginPoll confirms, remembers the kinds asked for and ends another poll: the
// newer of two calls wins.
func (s *Server) beginPoll(p params) *poll {
	me := &poll{wake: make(chan struct{}, 1), end: make(chan string, 1)}
	s.qmu.Lock()
	defer s.qmu.Unlock()
	s.endPoll("Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
	s.poll = me
	if raw := p.get("allowed_updates"); raw != "" {
		// "If not specified, the previous setting will be used"; an empty list
		// is the default.
		var kinds []string
		if json.Unmarshal([]byte(raw), &kinds) == nil {
			s.allowed = nil
			if len(kinds) > 0 {
				s.allowed = kinds
			}
		}
	}
	// "An update is considered confirmed as soon as getUpdates is called with an
	// offset higher than its update_id. The negative offset can be specified to
	// retrieve updates starting from -offset update from the end of the queue.
	// All previous updates will be forgotten."
	offset := p.number("offset")
	n := 0
	if offset < 0 {
		n = max(0, len(s.queue)+int(offset))
	} else {
		for n < len(s.queue) && s.queue[n].id < offset {
			n++
		}
	}
	for _, u := range s.queue[:n] {
		if u.kind == "message" {
			s.confirmed++
		}
		if !s.Forget {
			s.history = append(s.history, u)
		}
	}
	s.queue = s.queue[n:]
	return me
}

// take returns what waits.
func (s *Server) take(limit int) []update {
	s.qmu.Lock()
	defer s.qmu.Unlock()
	return slices.Clone(s.queue[:min(limit, len(s.queue))])
}

func (s *Server) leave(me *poll) {
	s.qmu.Lock()
	defer s.qmu.Unlock()
	if s.poll == me {
		s.poll = nil
	}
}

func (s *Server) serve(w http.ResponseWriter, batch []update) {
	size := 64
	for _, u := range batch {
		size += len(u.raw) + 1
	}
	raw := append(make([]byte, 0, size), `{"ok":true,"result":[`...)
	ids := make([]int64, len(batch))
	for i, u := range batch {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(raw, u.raw...)
		ids[i] = u.id
	}
	if s.OnServe != nil && len(ids) > 0 {
		s.OnServe(ids)
	}
	writeRaw(w, http.StatusOK, append(raw, "]}"...))
}
