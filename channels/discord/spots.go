package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

const (
	// maxPlaces bounds what is remembered of channels.
	maxPlaces = 100000
	// lookUpTimeout bounds one look at a channel, which holds up what follows.
	lookUpTimeout = 5 * time.Second
	// maxDirect bounds the list of private channels; beyond it, the one that has
	// been quiet for longest makes room.
	maxDirect = 10000
	// directPerFact is how many of them one fact lists.
	directPerFact = 100
)

// place is a channel as far as we need it.
type place struct {
	ID            string                `json:"id"`
	Type          discordgo.ChannelType `json:"type"`
	ParentID      string                `json:"parent_id"`
	LastMessageID string                `json:"last_message_id"`
	New           bool                  `json:"newly_created"` // made a moment ago: every message in it is still to come
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

// talks reports whether messages can be written in p itself. The last message
// of a forum is a thread.
func (p *place) talks() bool {
	switch p.Type { //nolint:exhaustive // those that cannot
	case discordgo.ChannelTypeGuildCategory, discordgo.ChannelTypeGuildForum, discordgo.ChannelTypeGuildMedia,
		discordgo.ChannelTypeGuildStore, discordgo.ChannelTypeGuildDirectory:
		return false
	}
	return true
}

// spot is what is remembered of a channel.
type spot struct {
	parent  string // of a thread
	cursor  uint64 // the last message seen, 0 if the channel is new to us
	session uint32 // the session in which it was last compared with Discord
	placed  bool   // parent is known
	read    bool   // cursor is known
	refused bool   // Discord does not let us read it, and that has been said
}

// spots holds the channels and how far each has been heard. The ledger is asked
// for a cursor when its channel first matters, and never again.
type spots map[string]spot

// put remembers s. A full memory forgets any other channel: it costs one
// request or one look into the ledger to learn it again.
func (all spots) put(id string, s spot) {
	if _, known := all[id]; !known && len(all) >= maxPlaces {
		for other := range all {
			delete(all, other)
			break
		}
	}
	all[id] = s
}

// learn remembers where a channel hangs.
func (all spots) learn(p place) {
	s := all[p.ID]
	s.parent, s.placed = p.parent(), true
	all.put(p.ID, s)
}

// snowflake reads an id; 0 is none.
func snowflake(id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// discordEpoch is where the time in an id begins, in milliseconds.
const discordEpoch = 1420070400000

// snowflakeAt is the smallest id that can be given at t.
func snowflakeAt(t time.Time) uint64 {
	ms := t.UnixMilli() - discordEpoch
	if ms < 0 {
		return 0
	}
	return uint64(ms) << 22
}

func lastKey(channel string) string { return "last/" + channel }
func directKey(i int) string        { return "direct/" + strconv.Itoa(i) }

// spot returns what is known of a channel, its cursor included. ok is false
// when the delivery is over.
func (d *delivery) spot(ctx context.Context, id string) (s spot, ok bool) {
	s = d.spots[id]
	if s.read || d.c.facts == nil {
		return s, true
	}
	value, ok := d.fact(ctx, lastKey(id))
	s.cursor, s.read = snowflake(value), true
	if ok {
		d.spots.put(id, s)
	}
	return s, ok
}

func (d *delivery) fact(ctx context.Context, name string) (value string, ok bool) {
	ok = d.insist(ctx, func(ctx context.Context) error {
		var err error
		if value, err = d.c.facts.Get(ctx, name); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		return nil
	})
	return value, ok
}

// move says how far a channel has been heard. The cursor never goes back. It is
// stored with the next batch or, where it stands for no message, later.
func (d *delivery) move(channel string, id uint64, later bool) {
	s := d.spots[channel]
	if id > s.cursor {
		s.cursor, s.read = id, true
		d.spots.put(channel, s)
	}
	switch {
	case d.c.facts == nil:
	case later:
		d.later[channel] = s.cursor
	default:
		d.moved[channel] = s.cursor
	}
}

// laterFor is how long a cursor may wait that stands for no message: losing it
// costs a request after the next start.
const laterFor = time.Minute

// cursors takes out what is to be stored with the batch; all says that nothing
// may wait any longer.
func (d *delivery) cursors(all bool) []bus.Cursor {
	if now := time.Now(); all || now.Sub(d.flushed) >= laterFor {
		d.flushed = now
		for channel, id := range d.later {
			d.moved[channel] = max(id, d.moved[channel])
		}
		clear(d.later)
	}
	cursors := make([]bus.Cursor, 0, len(d.moved)+len(d.listed))
	for channel, id := range d.moved {
		value := "" // forgotten
		if id > 0 {
			value = strconv.FormatUint(max(id, d.later[channel]), 10)
		}
		cursors = append(cursors, bus.Cursor{Key: d.c.facts.Key(lastKey(channel)), Value: value})
		delete(d.later, channel)
	}
	for i := range d.listed {
		chunk := d.direct[i*directPerFact : min((i+1)*directPerFact, len(d.direct))]
		cursors = append(cursors, bus.Cursor{Key: d.c.facts.Key(directKey(i)), Value: strings.Join(chunk, " ")})
	}
	clear(d.moved)
	clear(d.listed)
	return cursors
}

// readDirect reads the list of private channels, which Discord does not tell.
func (d *delivery) readDirect(ctx context.Context) {
	if d.isDirect != nil {
		return
	}
	d.isDirect = map[string]struct{}{}
	for i := 0; len(d.direct) == i*directPerFact; i++ {
		value, ok := d.fact(ctx, directKey(i))
		if !ok {
			return
		}
		for id := range strings.FieldsSeq(value) {
			if _, known := d.isDirect[id]; !known {
				d.isDirect[id] = struct{}{}
				d.direct = append(d.direct, id)
			}
		}
	}
}

// list adds a private channel to the list.
func (d *delivery) list(channel string) {
	if _, known := d.isDirect[channel]; known || !d.on || snowflake(channel) == 0 {
		return
	}
	i := len(d.direct)
	if i < maxDirect {
		d.direct = append(d.direct, channel)
	} else {
		i = slices.Index(d.direct, slices.MinFunc(d.direct, d.byCursor))
		delete(d.isDirect, d.direct[i])
		d.direct[i] = channel
	}
	d.isDirect[channel] = struct{}{}
	d.listed[i/directPerFact] = struct{}{}
}

// byCursor orders channels by when they were last heard.
func (d *delivery) byCursor(a, b string) int {
	switch ca, cb := d.spots[a].cursor, d.spots[b].cursor; {
	case ca < cb:
		return -1
	case ca > cb:
		return 1
	}
	return 0
}

// parentOf returns the channel that m's thread hangs on, "" if m is in no
// thread. Only a channel that no event has told of costs a request.
func (d *delivery) parentOf(ctx context.Context, m *discordgo.Message) string {
	if m.GuildID == "" {
		return ""
	}
	if s := d.spots[m.ChannelID]; s.placed {
		return s.parent
	}
	if checkID(m.ChannelID) != nil {
		return ""
	}
	waits := backoff.NewExponentialBackOff()
	for range 3 {
		p, err := d.lookUp(ctx, m.ChannelID)
		if err == nil {
			d.spots.learn(p)
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
