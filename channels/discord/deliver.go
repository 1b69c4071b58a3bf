package discord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

const (
	// queueSize is how many events wait for the inbox. When it is full the
	// socket is not read any more; Discord then keeps the events, and a
	// connection it gives up in the meantime is resumed where we stopped.
	queueSize = 1024
	// maxBatch is how many messages go into one PublishInbound.
	maxBatch = 256
	// maxPlaces bounds what is remembered of channels.
	maxPlaces = 100000
	// drainGrace is how long the last messages may take when ctx has ended.
	drainGrace = 2 * time.Second
	// lookUpTimeout bounds one look at a channel, which holds up what follows.
	lookUpTimeout = 5 * time.Second
)

// event is what the socket hands on: a message, or news of channels.
type event struct {
	self    string // the bot's user id
	message *discordgo.Message
	places  []place
}

func (e *event) empty() bool { return e.message == nil && len(e.places) == 0 }

// place is a channel as far as we need it.
type place struct {
	ID       string                `json:"id"`
	Type     discordgo.ChannelType `json:"type"`
	ParentID string                `json:"parent_id"`
}

// parent returns the channel a thread hangs on, "" for anything else (whose
// parent_id is a category).
func (p *place) parent() string {
	switch p.Type { //nolint:exhaustive // the three kinds of thread
	case discordgo.ChannelTypeGuildNewsThread, discordgo.ChannelTypeGuildPublicThread, discordgo.ChannelTypeGuildPrivateThread:
		return p.ParentID
	}
	return ""
}

// parseEvent reads the events we need. The bot's own messages are dropped here,
// before the costly part. It is pure.
func parseEvent(kind string, data []byte, self string) (event, error) {
	e := event{self: self}
	var err error
	switch kind {
	case "MESSAGE_CREATE":
		if own(data, self) {
			return e, nil
		}
		m := &discordgo.Message{}
		if err = json.Unmarshal(data, m); err == nil {
			e.message = m
		}
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
			e.places = []place{p}
		}
	}
	return e, err
}

// own reports whether a message is the bot's own.
func own(data []byte, self string) bool {
	if self == "" || !bytes.Contains(data, []byte(self)) {
		return false
	}
	var m struct {
		Author struct {
			ID string `json:"id"`
		} `json:"author"`
	}
	return json.Unmarshal(data, &m) == nil && m.Author.ID == self
}

// delivery carries events to the inbox in their order. One goroutine owns it.
type delivery struct {
	c  *Channel
	in bus.Inbox
	// parents holds the parent of every thread we have heard of, and "" for
	// every other channel.
	parents map[string]string
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
	d := &delivery{c: c, in: in, parents: map[string]string{}}
	for e := range events {
		b := &batch{}
		d.add(work, b, e)
		for more := true; more && len(b.messages) < maxBatch; {
			select {
			case e, ok := <-events:
				if more = ok; ok {
					d.add(work, b, e)
				}
			default:
				more = false
			}
		}
		d.publish(ctx, work, b)
	}
}

// batch is what goes to the inbox at once.
type batch struct {
	messages []bus.InboundMessage
	last     map[string]int // channel id -> index of its last message
}

// add converts one event into the batch. A panic costs that event only.
func (d *delivery) add(ctx context.Context, b *batch, e event) {
	defer func() {
		if r := recover(); r != nil {
			d.c.log.Error("discord event dropped after a panic", "err", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	for _, p := range e.places {
		d.learn(p)
	}
	if e.message == nil {
		return
	}
	o := origin{channel: d.c.name, self: e.self, parent: d.parentOf(ctx, e.message)}
	msg, ok := convert(o, e.message)
	if !ok {
		return
	}
	if b.last == nil {
		b.last = map[string]int{}
	}
	b.last[msg.ChatID] = len(b.messages)
	b.messages = append(b.messages, msg)
}

// cursors says which message was the last one seen in each channel.
func (d *delivery) cursors(b *batch) []bus.Cursor {
	if d.c.facts == nil {
		return nil
	}
	cursors := make([]bus.Cursor, 0, len(b.last))
	for i := range b.messages {
		if m := &b.messages[i]; b.last[m.ChatID] == i {
			cursors = append(cursors, bus.Cursor{Key: d.c.facts.Key("last/" + m.ChatID), Value: m.MessageID})
		}
	}
	return cursors
}

// publish offers the batch until it is taken, or ctx has ended.
func (d *delivery) publish(ctx, work context.Context, b *batch) {
	if len(b.messages) == 0 {
		return
	}
	full := bus.Batch{Messages: b.messages, Cursors: d.cursors(b)}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 100*time.Millisecond, 10*time.Second
	for {
		err := d.offer(work, full)
		if err == nil {
			return
		}
		d.c.log.Error("discord messages not stored", "err", err)
		if !sleep(ctx, waits.NextBackOff()) {
			return
		}
	}
}

// offer is PublishInbound; a panic in it is one more failure.
func (d *delivery) offer(ctx context.Context, b bus.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return d.in.PublishInbound(ctx, b)
}

// learn remembers a channel. A full memory forgets any other one: it costs one
// request to learn it again.
func (d *delivery) learn(p place) {
	if _, known := d.parents[p.ID]; !known && len(d.parents) >= maxPlaces {
		for id := range d.parents {
			delete(d.parents, id)
			break
		}
	}
	d.parents[p.ID] = p.parent()
}

// parentOf returns the channel that m's thread hangs on, "" if m is in no
// thread. Only a channel that no event has told of costs a request.
func (d *delivery) parentOf(ctx context.Context, m *discordgo.Message) string {
	if m.GuildID == "" {
		return ""
	}
	if parent, known := d.parents[m.ChannelID]; known {
		return parent
	}
	if checkID(m.ChannelID) != nil {
		return ""
	}
	waits := backoff.NewExponentialBackOff()
	for range 3 {
		p, err := d.lookUp(ctx, m.ChannelID)
		if err == nil {
			d.learn(p)
			return p.parent()
		}
		d.c.log.Warn("discord channel not found out about", "chat_id", m.ChannelID, "err", err)
		if errors.Is(err, channels.ErrPermanent) || !sleep(ctx, waits.NextBackOff()) {
			break
		}
	}
	return "" // then its thread is judged by its own id
}

func (d *delivery) lookUp(ctx context.Context, id string) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	answer, err := d.c.call(ctx, http.MethodGet, discordgo.EndpointChannel(id), nil)
	if err != nil {
		return place{}, fmt.Errorf("discord: get channel: %w", err)
	}
	var p place
	if err := json.Unmarshal(answer, &p); err != nil {
		return place{}, fmt.Errorf("discord: get channel: %w", err)
	}
	p.ID = id
	return p, nil
}
