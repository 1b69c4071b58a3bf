package discord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// A session that could not be resumed, and every start, leaves a gap. READY
// begins it: from then on each channel is compared once with its cursor, when
// GUILD_CREATE lists it, when it comes up in the list of private channels, or
// when the first message arrives in it. Where something may be missing the
// channel gets a lane: what was missed is fetched, and what arrives meanwhile
// waits behind it. No other channel is delayed.

// CatchUp bounds what is fetched of the messages that were written while the
// bot was away. 0 switches it off.
type CatchUp struct {
	// MaxAge is how old a message may be that is still answered.
	MaxAge time.Duration `yaml:"max_age" minimum:"0"`
	// MaxMessages is how many of them are taken per channel: the newest.
	MaxMessages int `yaml:"max_messages" minimum:"0"`
}

const (
	// maxFetches is how many channels are fetched from at once.
	maxFetches = 4
	// maxHeld is how many messages wait behind lanes. When there are more,
	// events wait; see queueSize.
	maxHeld = 1024
	// maxDirectLooks is how many private channels are looked at after a gap:
	// those that were heard last.
	maxDirectLooks = 1000
)

// lane is a channel that is being caught up on.
type lane struct {
	id      string
	origin  origin
	after   uint64               // the cursor, which stands still
	last    uint64               // its last message, as far as Discord has said
	held    []heard              // what has arrived meanwhile
	changes []bus.InboundMessage // news of messages, which comes after these
	live    atomic.Uint64        // the first of these, where the gap ends; 0 while there is none
	urgent  bool
	running bool
	again   bool // it changed while it was fetched from: the outcome is void
	cancel  context.CancelFunc
}

// result is what a fetch has brought.
type result struct {
	lane  *lane
	found missed
	err   error
}

// begin starts a session that replays nothing of the one before.
func (d *delivery) begin(ctx context.Context) {
	d.session++
	if !d.on {
		return
	}
	for _, l := range d.lanes {
		l.live.Store(0) // what waits comes before a gap now
		d.redo(l)
	}
	d.readDirect(ctx)
	known := make([]string, 0, len(d.direct))
	for _, id := range d.direct {
		s, ok := d.spot(ctx, id)
		if !ok {
			return
		}
		if s.cursor > 0 && d.lanes[id] == nil {
			known = append(known, id)
		}
	}
	slices.SortFunc(known, func(a, b string) int { return d.byCursor(b, a) })
	if n := len(known) - maxDirectLooks; n > 0 {
		d.c.log.Warn("discord private channels not looked at for missed messages", "count", n)
		known = known[:maxDirectLooks]
	}
	for _, id := range known {
		d.open(&lane{id: id, after: d.spots[id].cursor, origin: origin{channel: d.c.name, self: d.self}})
	}
}

// see compares channels with their cursors. One that is new to us starts where
// it is.
func (d *delivery) see(ctx context.Context, places []place) {
	passed := 0
	for _, p := range places {
		d.spots.learn(p)
		id := snowflake(p.ID)
		if !d.on || id == 0 || !p.talks() {
			continue
		}
		s, ok := d.spot(ctx, p.ID)
		if !ok {
			return
		}
		last := snowflake(p.LastMessageID)
		switch l := d.lanes[p.ID]; {
		case l != nil:
			l.last = max(l.last, last)
			d.redo(l)
			continue
		case s.cursor == 0 && p.New:
			d.move(p.ID, id-1, false) // the first message can have the channel's id
		case s.cursor == 0:
			d.move(p.ID, max(id, last), false)
		case last <= s.cursor:
		case last < d.oldest():
			passed++
			d.move(p.ID, last, false)
		default:
			o := origin{channel: d.c.name, self: d.self, parent: s.parent, group: true}
			d.open(&lane{id: p.ID, after: s.cursor, last: last, origin: o})
			continue
		}
		d.compared(p.ID)
	}
	if passed > 0 {
		d.c.log.Info("discord channels with nothing but old messages passed over", "count", passed)
	}
}

// oldest is the smallest id that is not too old.
func (d *delivery) oldest() uint64 {
	return snowflakeAt(d.c.transport.now().Add(-d.c.cfg.CatchUp.MaxAge))
}

// compared notes that what arrives in a channel follows what was heard before.
func (d *delivery) compared(channel string) {
	s := d.spots[channel]
	s.session = d.session
	d.spots.put(channel, s)
}

// hear takes a message that the socket brings. The first one of a session in a
// channel that nothing has told of may come after a gap.
func (d *delivery) hear(ctx context.Context, m *discordgo.Message) {
	o := origin{channel: d.c.name, self: d.self, parent: d.parentOf(ctx, m)}
	h := heard{id: snowflake(m.ID), o: o, m: m}
	if m.GuildID == "" {
		d.list(m.ChannelID)
	}
	if l := d.lanes[m.ChannelID]; l != nil {
		d.hold(l, h)
		return
	}
	s, ok := d.spot(ctx, m.ChannelID)
	switch {
	case !ok:
		return
	case !d.on, s.session == d.session, h.id == 0, snowflake(m.ChannelID) == 0:
	case s.cursor > 0 && s.cursor < h.id:
		o.group = m.GuildID != ""
		l := &lane{id: m.ChannelID, after: s.cursor, origin: o}
		d.open(l)
		d.hold(l, h)
		return
	case s.cursor == 0:
		d.compared(m.ChannelID)
	}
	d.put(ctx, h)
}

// hearOwn moves the cursor over a message of ours, so that the next start need
// not ask for it. It waits for no disk.
func (d *delivery) hearOwn(ctx context.Context, m *ownMessage) {
	id := snowflake(m.ID)
	if !d.on || id == 0 || snowflake(m.ChannelID) == 0 || d.lanes[m.ChannelID] != nil {
		return
	}
	s, ok := d.spot(ctx, m.ChannelID)
	if !ok || s.session != d.session && s.cursor > 0 {
		return // something may be missing before it
	}
	d.compared(m.ChannelID)
	d.move(m.ChannelID, id, true)
}

// open puts a channel in line to be caught up on.
func (d *delivery) open(l *lane) {
	d.lanes[l.id] = l
	d.waiting = append(d.waiting, l)
}

// hold lets a message wait until its channel has been caught up on, and brings
// that forward. At the end it is left out: the cursor stays before it.
func (d *delivery) hold(l *lane, h heard) {
	if d.stopping {
		return
	}
	l.held = append(l.held, h)
	d.held++
	if live := l.live.Load(); live == 0 || h.id < live {
		l.live.Store(h.id)
	}
	if !l.urgent {
		l.urgent = true
		if !l.running {
			d.urgent = append(d.urgent, l)
		}
	}
}

// redo makes a fetch that is under way start over.
func (d *delivery) redo(l *lane) {
	if l.running {
		l.again = true
		l.cancel()
	}
}

// letGo gives up what has not been caught up on. News of messages goes out: it
// may be about some that were published long ago.
func (d *delivery) letGo(ctx context.Context) {
	d.stopping, d.held = true, 0
	for _, l := range d.lanes {
		d.add(ctx, l.changes...)
		l.held, l.changes = nil, nil
		d.redo(l)
	}
}

// fetch starts as many fetches as may run.
func (d *delivery) fetch(ctx context.Context) {
	for d.running < maxFetches && !d.stopping && !d.over {
		l := d.pick()
		if l == nil {
			return
		}
		fetching, cancel := context.WithCancel(ctx)
		l.running, l.cancel = true, cancel
		d.running++
		g := gap{
			channel: l.id, origin: l.origin, after: l.after, live: &l.live,
			oldest: d.oldest(), most: d.c.cfg.CatchUp.MaxMessages,
		}
		d.fetches.Go(func() {
			defer cancel()
			found, err := d.c.safely(fetching, g)
			d.results <- result{lane: l, found: found, err: err} // it holds as many as may run
		})
	}
}

// pick takes the lane that is next in line, nil if there is none.
func (d *delivery) pick() *lane {
	for _, line := range []*[]*lane{&d.urgent, &d.waiting} {
		for len(*line) > 0 {
			l := (*line)[0]
			*line = (*line)[1:]
			if d.lanes[l.id] == l && !l.running {
				return l
			}
		}
	}
	return nil
}

// safely is findMissed; a panic in it is an error.
func (c *Channel) safely(ctx context.Context, g gap) (found missed, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return c.findMissed(ctx, g)
}

// finish publishes what was missed in a channel and what has waited behind it.
func (d *delivery) finish(ctx context.Context, r result) {
	l := r.lane
	l.running = false
	d.running--
	select {
	case <-d.quit: // it may have been cut short
		d.letGo(ctx)
	default:
	}
	switch {
	case d.stopping, d.over:
		return
	case l.again:
		l.again = false
		line := &d.waiting
		if l.urgent {
			line = &d.urgent
		}
		*line = append(*line, l)
		return
	}
	delete(d.lanes, l.id)
	d.held -= len(l.held) + len(l.changes)
	for _, h := range inOrder(append(before(l.live.Load(), r.found.messages), l.held...)) {
		d.put(ctx, h)
	}
	d.add(ctx, l.changes...)
	refused := errors.Is(r.err, channels.ErrPermanent)
	if live := l.live.Load(); live == 0 && (r.err == nil || refused) {
		d.move(l.id, max(l.last, r.found.newest), false)
	} // else what waited has moved it, and what is newer has yet to come
	if r.err == nil || refused || len(l.held) > 0 {
		d.compared(l.id) // else the next message asks again
	}
	if refused && d.spots[l.id].cursor == l.after {
		d.forget(l.id)
	}
	d.report(r, refused)
}

// forget makes a channel new to us again.
func (d *delivery) forget(channel string) {
	s := d.spots[channel]
	s.cursor = 0
	d.spots.put(channel, s)
	d.moved[channel] = 0
	delete(d.later, channel)
}

// report logs the outcome for one channel.
func (d *delivery) report(r result, refused bool) {
	log := d.c.log.With("chat_id", r.lane.id)
	switch s := d.spots[r.lane.id]; {
	case refused && s.refused:
	case refused:
		s.refused = true
		d.spots.put(r.lane.id, s)
		log.Warn("discord does not let the bot read what was missed", "err", r.err)
	case r.err != nil:
		log.Error("discord messages that were missed cannot be fetched", "err", r.err)
	case r.found.passed > 0:
		log.Warn("discord caught up, old messages passed over",
			"count", r.found.count, "passed", r.found.passed, "at_least", r.found.more)
	case r.found.count > 0:
		log.Info("discord caught up", "count", r.found.count)
	}
}

// inOrder sorts messages by id and leaves one of each.
func inOrder(all []heard) []heard {
	slices.SortStableFunc(all, func(a, b heard) int { return cmp.Compare(a.id, b.id) })
	return slices.CompactFunc(all, func(a, b heard) bool { return a.id == b.id })
}
