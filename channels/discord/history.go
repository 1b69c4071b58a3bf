package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/cenkalti/backoff/v5"

	"github.com/dragoman-chat/dragoman/channels"
)

const (
	// pageSize is the most messages Discord gives at once.
	pageSize = 100
	// maxTries bounds how often Discord may answer a request for one page with an
	// error of its own; with the waits between them it takes about seven minutes.
	maxTries = 20
)

// gap is where messages of a channel may be missing.
type gap struct {
	channel string
	origin  origin
	after   uint64         // the last message seen
	live    *atomic.Uint64 // the first message that came over the socket, 0 if none has; it and what follows is no concern of the fetch
	oldest  uint64         // what is older is passed over
	most    int            // so many are taken, the newest
}

// missed is what was found in a gap.
type missed struct {
	messages []heard // oldest first
	newest   uint64  // the last of them, or of those passed over
	count    int     // how many of messages somebody said
	passed   int     // how many were passed over
	more     bool    // and others that were not even looked at
}

// findMissed reads what a gap holds. It blocks until then, waits out 429s, and ends
// with ctx.
func (c *Channel) findMissed(ctx context.Context, g gap) (missed, error) {
	var found missed
	all, err := c.history(ctx, g, "after", g.after)
	if err != nil {
		return found, err
	}
	if len(all) >= pageSize { // much was said: the rest is read from its end
		last, whole, err := c.newest(ctx, g, all[len(all)-1].id)
		if err != nil {
			return found, err
		}
		found.more = !whole
		all = inOrder(append(all, last...))
	}
	all = before(g.live.Load(), all)
	if len(all) > 0 {
		found.newest = all[len(all)-1].id
	}
	first := max(0, len(all)-g.most)
	for first < len(all) && all[first].id < g.oldest {
		first++
	}
	found.messages = all[first:]
	found.count, found.passed = said(all[first:]), said(all[:first])
	return found, nil
}

// before leaves the messages before id, 0 being the end.
func before(id uint64, all []heard) []heard {
	if id == 0 {
		return all
	}
	n, _ := slices.BinarySearchFunc(all, id, func(h heard, id uint64) int { return cmp.Compare(h.id, id) })
	return all[:n]
}

// newest reads backwards from the end of the gap until it reaches the message
// known, too old ones, or enough; whole is true in the first case.
func (c *Channel) newest(ctx context.Context, g gap, known uint64) (all []heard, whole bool, err error) {
	for end := g.live.Load(); ; end = all[0].id {
		page, err := c.history(ctx, g, "before", end)
		if err != nil {
			return nil, false, err
		}
		all = append(page, all...)
		switch {
		case len(page) < pageSize, page[0].id <= known:
			return all, true, nil
		case page[0].id < g.oldest, len(all) >= g.most:
			return all, false, nil
		}
	}
}

// said counts the messages that are somebody's.
func said(all []heard) int {
	n := 0
	for _, h := range all {
		if _, ok := convert(h.o, h.m); ok {
			n++
		}
	}
	return n
}

// history reads one page of a channel, oldest first: the messages that follow
// id, or those that come before it, 0 being the end.
func (c *Channel) history(ctx context.Context, g gap, side string, id uint64) ([]heard, error) {
	endpoint := discordgo.EndpointChannelMessages(g.channel) + "?limit=" + strconv.Itoa(pageSize)
	if id > 0 {
		endpoint += "&" + side + "=" + strconv.FormatUint(id, 10)
	}
	answer, err := c.get(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("discord: get messages: %w", err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("discord: get messages: %w", err)
	}
	all := make([]heard, 0, len(list))
	for _, raw := range list {
		m := &discordgo.Message{}
		if err := json.Unmarshal(raw, m); err != nil { // as in an event, it costs this one only
			c.log.Error("discord message cannot be read", "chat_id", g.channel, "err", err)
			m = &discordgo.Message{ID: idOf(raw)}
		}
		m.ChannelID = g.channel
		all = append(all, heard{id: snowflake(m.ID), o: g.origin, m: m})
	}
	return inOrder(all), nil
}

// idOf is the id of a message that cannot be read otherwise.
func idOf(raw []byte) string {
	var m struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &m) // it may still hold the id
	return m.ID
}

// get makes a request that changes nothing, until it is answered or Discord has
// failed too often. While Discord cannot be reached it waits.
func (c *Channel) get(ctx context.Context, endpoint string) ([]byte, error) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = time.Second, 30*time.Second
	for tries := 0; ; {
		if err := c.pace.Wait(ctx); err != nil {
			return nil, err
		}
		answer, err := c.call(ctx, http.MethodGet, endpoint, nil)
		if err == nil {
			return answer, nil
		}
		var limit *channels.RateLimitError
		var wait time.Duration
		switch {
		case errors.As(err, &limit):
			wait = limit.RetryAfter
		case errors.Is(err, channels.ErrPermanent), tries+1 >= maxTries:
			return nil, err
		default:
			wait = waits.NextBackOff()
			if !errors.Is(err, channels.ErrNotReady) && !errors.Is(err, channels.ErrUnknownOutcome) {
				tries++
			}
		}
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}
