package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/failpoint"
)

// health is what the poll last found out. The zero value: nothing yet.
type health struct{ last atomic.Pointer[checkup] }

type checkup struct {
	at  time.Time // of a poll that was answered
	err error     // or why there was none
}

func (h *health) set(err error) { h.last.Store(&checkup{at: time.Now(), err: err}) }

// grace is how much later than its timeout a poll may be answered.
const grace = 15 * time.Second

func (h *health) check(pollTimeout time.Duration) error {
	last := h.last.Load()
	switch {
	case last == nil:
		return errors.New("telegram: no poll has been answered yet")
	case last.err != nil:
		return last.err
	case time.Since(last.at) > pollTimeout+2*grace:
		return fmt.Errorf("telegram: no poll has been answered for %s", time.Since(last.at).Round(time.Second))
	}
	return nil
}

// Run polls until ctx ends.
func (c *Channel) Run(ctx context.Context, in bus.Inbox) error {
	defer c.api.http.CloseIdleConnections()
	if c.cfg.Token == "" {
		return channels.Setupf("telegram: no token; put the one @BotFather gave you into channels.%s.token or TELEGRAM_BOT_TOKEN", c.name)
	}
	if !isAddress(c.cfg.APIBase) {
		return channels.Setupf("telegram: channels.%s.api_base has to be an address such as https://api.telegram.org", c.name)
	}
	p := &poller{Channel: c, in: in, wait: newBackOff()}
	err := p.run(ctx)
	if ctx.Err() != nil {
		c.health.set(errors.New("telegram: stopped"))
		return nil
	}
	c.health.set(err)
	return err
}

// poller is one Run. It lives on Run's goroutine alone.
type poller struct {
	*Channel
	in   bus.Inbox
	me   user
	cur  cursor
	wait *backoff.ExponentialBackOff
	ok   bool   // the last request was answered
	why  string // what was logged last
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 250 * time.Millisecond
	b.MaxInterval = 30 * time.Second
	return b
}

// run returns when ctx ends or with an error that waiting cannot mend.
func (p *poller) run(ctx context.Context) error {
	for p.me.ID == 0 {
		if err := p.api.request(ctx, "getMe", nil, &p.me); err != nil {
			if err := p.rest(ctx, err); err != nil {
				return err
			}
		}
	}
	p.log.Info("telegram connected", "bot", "@"+p.me.Username)
	for {
		stored, err := p.facts.Get(ctx, p.cursorName())
		if err == nil {
			p.cur = parseCursor(stored)
			break
		}
		if err := p.rest(ctx, fmt.Errorf("telegram: read the offset: %w", err)); err != nil {
			return err
		}
	}
	for {
		start, long := time.Now(), p.ok
		updates, err := p.poll(ctx)
		switch {
		case err != nil:
			err = p.rest(ctx, err)
		case len(updates) > 0:
			err = p.store(ctx, updates)
			p.healthy() // whoever waits for that finds what came
		default:
			p.healthy()
			if long && time.Since(start) < minPoll {
				err = sleep(ctx, minPoll) // something between us does not let polls wait
			}
		}
		if err != nil {
			return err
		}
	}
}

// minPoll keeps polls that come back empty at once from becoming a storm.
const minPoll = 500 * time.Millisecond

// healthy notes that a poll was answered.
func (p *poller) healthy() {
	if !p.ok && p.why != "" {
		p.log.Info("telegram answers again")
	}
	p.ok, p.why = true, ""
	p.wait.Reset()
	p.health.set(nil)
}

// rest notes a failure and waits before the next attempt. It returns an error
// if there should be none.
func (p *poller) rest(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	delay := p.wait.NextBackOff()
	if failed, ok := errors.AsType[*callError](err); ok {
		switch failed.code {
		case http.StatusUnauthorized, http.StatusNotFound:
			return channels.Setupf("telegram: Telegram does not accept the bot token; get a valid one from @BotFather and put it into channels.%s.token", p.name)
		case http.StatusConflict:
			err = p.conflict(ctx, failed)
		case http.StatusTooManyRequests:
			delay = max(delay, failed.retry)
		}
	}
	p.ok = false
	p.health.set(err)
	if text := err.Error(); text != p.why {
		p.why = text
		p.log.Warn("telegram does not answer", "err", err)
	}
	return sleep(ctx, delay)
}

// conflict deals with somebody else taking this bot's updates.
func (p *poller) conflict(ctx context.Context, failed *callError) error {
	if !strings.Contains(failed.Error(), "webhook") {
		return errors.New("telegram: another program polls with this bot's token; stop it, or give each its own bot")
	}
	p.log.Warn("the bot has a webhook, which excludes polling; removing it")
	if err := p.api.request(ctx, "deleteWebhook", nil, nil); err != nil {
		return err
	}
	return errors.New("telegram: a webhook took this bot's updates; it has been removed")
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll asks for updates once. The first time, and after a failure, it does not
// wait for any: the answer tells that the channel works.
func (p *poller) poll(ctx context.Context) ([]update, error) {
	timeout := time.Duration(0)
	if p.ok {
		timeout = p.cfg.PollTimeout
	}
	params := tgbotapi.Params{
		"timeout":         strconv.Itoa(int(timeout / time.Second)),
		"limit":           strconv.Itoa(fullPoll),
		"allowed_updates": `["message","edited_message"]`,
	}
	if offset := p.cur.offset(time.Now()); offset != 0 {
		params["offset"] = strconv.FormatInt(offset, 10)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	var raw json.RawMessage
	if err := p.api.request(ctx, "getUpdates", params, &raw); err != nil {
		return nil, err
	}
	return p.parse(raw)
}

// parse reads a list of updates. One that cannot be read must not hold up the
// others for ever, so it is reduced to its id.
func (p *poller) parse(raw json.RawMessage) ([]update, error) {
	var updates []update
	err := json.Unmarshal(raw, &updates)
	if err == nil {
		return updates, nil
	}
	p.log.Error("telegram sent an update that cannot be read", "err", err)
	var each []json.RawMessage
	if err := json.Unmarshal(raw, &each); err != nil {
		return nil, fmt.Errorf("telegram: getUpdates: %w", err)
	}
	updates = updates[:0]
	for _, one := range each {
		var u update
		if json.Unmarshal(one, &u) != nil {
			var id struct {
				UpdateID int64 `json:"update_id"`
			}
			if err := json.Unmarshal(one, &id); err != nil {
				return nil, fmt.Errorf("telegram: getUpdates: an update without an id: %w", err)
			}
			u = update{UpdateID: id.UpdateID}
		}
		updates = append(updates, u)
	}
	return updates, nil
}

// store hands a batch, which is not empty, over, for as long as it takes, and moves the offset when
// it is stored.
func (p *poller) store(ctx context.Context, updates []update) error {
	batch, next := p.batch(updates)
	wait := newBackOff()
	for {
		err := p.in.PublishInbound(ctx, batch)
		if err == nil {
			failpoint.Hit("telegram/published")
			p.cur = next
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.log.Error("messages could not be stored; trying again", "err", err)
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// batch turns updates, of which there are some, into what is to be stored.
func (p *poller) batch(updates []update) (bus.Batch, cursor) {
	// The last id and not the highest: ids start again at random after a week
	// without updates.
	next := cursor{next: updates[len(updates)-1].UpdateID + 1, seen: time.Now()}
	var batch bus.Batch
	now, gap := p.api.now(), p.cur.gap
	for _, u := range updates {
		if u.Message != nil && u.Message.MigrateToChatID != 0 {
			p.setMoved(u.Message.Chat.ID, u.Message.MigrateToChatID)
		}
		m, ok := convert(u.Message, p.name, p.me)
		switch {
		case !ok:
		case u.UpdateID >= p.cur.next && isLate(now.Sub(m.Time), p.cfg.MaxAge):
			batch.Late = append(batch.Late, m)
			if gap == 0 {
				gap = u.UpdateID
			}
		default: // a lower id may be of something that was answered long ago
			batch.Messages = append(batch.Messages, m)
		}
		if m, ok := convertEdit(u.Edited, p.name, p.me); ok {
			batch.Messages = append(batch.Messages, m)
		}
	}
	if n := len(batch.Late); n > 0 {
		batch.Gap = strconv.FormatInt(gap, 10)
		p.log.Warn("telegram messages too old to be answered passed over", "count", n)
	}
	if len(updates) >= fullPoll {
		next.gap = gap
	}
	batch.Cursors = []bus.Cursor{{Key: p.facts.Key(p.cursorName()), Value: next.String()}}
	return batch, next
}

const (
	// keptFor is how long Telegram keeps what nobody has asked for.
	keptFor = 24 * time.Hour
	// fullPoll is how many updates a poll brings at most.
	fullPoll = 100
)

// isLate reports whether a message is too old to be answered. What waited for a
// moment while we were at work is not, and neither is what seems to be older
// than Telegram keeps anything: then it is a clock that is wrong.
func isLate(age, maxAge time.Duration) bool {
	return age > max(maxAge, time.Minute) && age < 2*keptFor
}

// cursorName is by bot, so that another token in the same section does not
// inherit the offset.
func (p *poller) cursorName() string { return "cursor/" + strconv.FormatInt(p.me.ID, 10) }

// cursor is how far the updates have been stored.
type cursor struct {
	next int64     // the offset of the next poll
	seen time.Time // when the last update came
	gap  int64     // the first update of a backlog that was too old to be answered, while there is more of it; or 0
}

// staleAfter is less than the week after which update ids start again.
const staleAfter = 6 * 24 * time.Hour

// offset returns the offset to poll with; 0 for none. After a quiet week an old
// offset could skip new updates, so everything unconfirmed is asked for; what
// is known already is recognised by its id.
func (c cursor) offset(now time.Time) int64 {
	if age := now.Sub(c.seen); age > staleAfter || age < 0 {
		return 0 // or the clock was set back, and nobody knows how long ago it was
	}
	return c.next
}

// String returns the cursor as it is stored.
func (c cursor) String() string {
	return fmt.Sprintf("%d %d %d", c.next, c.seen.Unix(), c.gap)
}

func parseCursor(s string) cursor {
	var c cursor
	var seen int64
	if n, _ := fmt.Sscan(s, &c.next, &seen, &c.gap); n < 2 { // earlier versions wrote two numbers
		return cursor{}
	}
	c.seen = time.Unix(seen, 0)
	return c
}
