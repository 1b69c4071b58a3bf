package discord

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/failpoint"
)

const (
	// queueSize is how many events wait for the inbox. When it is full the
	// socket is not read any more; Discord then keeps the events, and a
	// connection it gives up in the meantime is resumed where we stopped.
	queueSize = 1024
	// maxBatch is how many messages go into one PublishInbound.
	maxBatch = 256
	// drainGrace is how long the last messages may take when ctx has ended.
	drainGrace = 2 * time.Second
)

// event is what the socket hands on: a new session, a message, news of messages
// written before, or news of channels.
type event struct {
	self    string // the bot's user id
	fresh   bool   // a session that replays nothing of the one before
	message *discordgo.Message
	own     *ownMessage
	change  *change
	places  []place
}

func (e *event) empty() bool {
	return !e.fresh && e.message == nil && e.own == nil && e.change == nil && len(e.places) == 0
}

// ownMessage is what matters of a message of the bot itself.
type ownMessage struct {
	ID        string `json:"id"`
	ChannelID string `json:"channel_id"`
	Author    struct {
		ID string `json:"id"`
	} `json:"author"`
}

// parseEvent reads the events we need. The bot's own messages are told apart
// here, before the costly part. It is pure.
func parseEvent(kind string, data []byte, self string) (event, error) {
	e := event{self: self}
	var err error
	switch kind {
	case "MESSAGE_CREATE":
		if e.own = own(data, self); e.own != nil {
			return e, nil
		}
		m := &discordgo.Message{}
		if err = json.Unmarshal(data, m); err == nil {
			e.message = m
		}
	case "MESSAGE_UPDATE":
		e.change, err = parseEdit(data, self)
	case "MESSAGE_DELETE", "MESSAGE_DELETE_BULK":
		e.change, err = parseGone(data)
	case "GUILD_CREATE", "THREAD_LIST_SYNC":
		var in struct {
			Channels []place `json:"channels"`
			Threads  []place `json:"threads"`
		}
		if kind == "THREAD_LIST_SYNC" { // there, channels are only ids
			var sync struct {
				Threads []place `json:"threads"`
			}
			err = json.Unmarshal(data, &sync)
			in.Threads = sync.Threads
		} else {
			err = json.Unmarshal(data, &in)
		}
		e.places = append(in.Channels, in.Threads...)
	case "CHANNEL_CREATE", "THREAD_CREATE":
		var p place
		if err = json.Unmarshal(data, &p); err == nil {
			p.New = p.New || kind == "CHANNEL_CREATE"
			e.places = []place{p}
		}
	}
	return e, err
}

// own returns the message if it is the bot's own, else nil.
func own(data []byte, self string) *ownMessage {
	if self == "" || !bytes.Contains(data, []byte(self)) {
		return nil
	}
	var m ownMessage
	if json.Unmarshal(data, &m) != nil || m.Author.ID != self {
		return nil
	}
	return &m
}

// delivery carries events to the inbox, in their order within each channel. One
// goroutine owns it.
type delivery struct {
	c    *Channel
	in   bus.Inbox
	quit <-chan struct{} // closed when Run is to end
	over bool            // it ended before something could be stored; nothing that follows may be
	self string          // the bot's user id
	on   bool            // what was missed is caught up on

	spots   spots
	session uint32 // counts the sessions that replay nothing of the one before

	direct   []string            // the private channels that have been heard, as they are listed
	isDirect map[string]struct{} // the same as a set; nil until it has been read
	listed   map[int]struct{}    // which facts of the list have changed

	messages []bus.InboundMessage // the batch
	moved    map[string]uint64    // channel -> cursor that is stored with it
	later    map[string]uint64    // channel -> cursor that can wait
	flushed  time.Time            // when those that can wait were stored

	lanes    map[string]*lane // channels that are being caught up on
	urgent   []*lane          // those with messages waiting behind them
	waiting  []*lane          // the others
	held     int              // messages that wait behind lanes
	stopping bool             // no more of that
	running  int              // fetches under way
	results  chan result
	fetches  sync.WaitGroup
}

func newDelivery(c *Channel, in bus.Inbox, quit <-chan struct{}) *delivery {
	return &delivery{
		c: c, in: in, quit: quit,
		on:      c.facts != nil && c.cfg.CatchUp.MaxAge > 0 && c.cfg.CatchUp.MaxMessages > 0,
		spots:   spots{},
		listed:  map[int]struct{}{},
		moved:   map[string]uint64{},
		later:   map[string]uint64{},
		flushed: time.Now(),
		lanes:   map[string]*lane{},
		results: make(chan result, maxFetches),
	}
}

// deliver publishes events, as many at a time as wait, until the channel
// closes. When ctx ends it takes at most drainGrace for the rest, so that a
// planned stop loses nothing.
func (c *Channel) deliver(ctx context.Context, in bus.Inbox, events <-chan event) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		sleep(work, drainGrace)
		cancel()
	})
	defer stop()
	d := newDelivery(c, in, ctx.Done())
	defer d.fetches.Wait()
	fetching, end := context.WithCancel(ctx)
	defer end()
	for d.next(work, events) {
		d.publish(work, false)
		d.fetch(fetching)
	}
	d.publish(work, true)
}

// next takes what has come, as much as makes a batch. false means that nothing
// more will come.
func (d *delivery) next(ctx context.Context, events <-chan event) bool {
	quit := d.quit
	if d.stopping {
		quit = nil
	}
	select {
	case e, ok := <-d.source(events):
		if !ok {
			return false
		}
		d.take(ctx, e)
	case r := <-d.results:
		d.finish(ctx, r)
	case <-quit:
		d.letGo(ctx)
	}
	for len(d.messages) < maxBatch {
		select {
		case e, ok := <-d.source(events):
			if !ok {
				return true // next time
			}
			d.take(ctx, e)
		case r := <-d.results:
			d.finish(ctx, r)
		default:
			return true
		}
	}
	return true
}

// source is where events come from, or nowhere while too many wait.
func (d *delivery) source(events <-chan event) <-chan event {
	if d.held >= maxHeld {
		return nil
	}
	return events
}

// take handles one event. A panic costs that event only.
func (d *delivery) take(ctx context.Context, e event) {
	if d.over {
		return
	}
	defer d.survive()
	d.self = e.self
	if e.fresh {
		d.begin(ctx)
	}
	d.see(ctx, e.places)
	if e.own != nil {
		d.hearOwn(ctx, e.own)
	}
	if e.message != nil {
		d.hear(ctx, e.message)
	}
	if e.change != nil {
		d.change(ctx, e.change)
	}
}

func (d *delivery) survive() {
	if r := recover(); r != nil {
		d.c.log.Error("discord event dropped after a panic", "err", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// heard is a message with what it does not say about itself.
type heard struct {
	id uint64
	o  origin
	m  *discordgo.Message
}

// put adds a message to the batch. What nobody said only moves the cursor.
func (d *delivery) put(ctx context.Context, h heard) {
	msg, ok := d.convert(h)
	d.move(h.m.ChannelID, h.id, !ok)
	if ok {
		d.add(ctx, msg)
	}
}

func (d *delivery) convert(h heard) (msg bus.InboundMessage, ok bool) {
	defer d.survive()
	return convert(h.o, h.m)
}

// publish offers the batch until it is taken, or quit has come.
func (d *delivery) publish(ctx context.Context, all bool) {
	if d.over || len(d.messages) == 0 && len(d.moved) == 0 && len(d.listed) == 0 && (!all || len(d.later) == 0) {
		return
	}
	b := bus.Batch{Messages: d.messages}
	d.messages = nil // handed over
	if d.c.facts != nil {
		b.Cursors = d.cursors(all)
	}
	d.insist(ctx, func(ctx context.Context) error { return d.offer(ctx, b) })
}

// insist repeats f until it succeeds. false means that quit has come, and that
// the delivery is over: a later batch would move cursors past what was not
// stored.
func (d *delivery) insist(ctx context.Context, f func(context.Context) error) bool {
	if d.over {
		return false
	}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 100*time.Millisecond, 10*time.Second
	for {
		err := f(ctx)
		if err == nil {
			return true
		}
		d.c.log.Error("discord is waiting for the ledger", "err", err)
		if !d.pause(waits.NextBackOff()) {
			d.over = true
			return false
		}
	}
}

// pause waits; false means that quit has come.
func (d *delivery) pause(wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-d.quit:
		return false
	default:
	}
	select {
	case <-t.C:
		return true
	case <-d.quit:
		return false
	}
}

// offer is PublishInbound; a panic in it is one more failure.
func (d *delivery) offer(ctx context.Context, b bus.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	err = d.in.PublishInbound(ctx, b)
	failpoint.Hit("discord/published")
	return err
}
