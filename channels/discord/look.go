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
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

const (
	// nonceKept is how long Discord recognises a message by its nonce for certain.
	nonceKept = 2 * time.Minute
	// maxLooks is how many pages are read of a channel in search of a message.
	maxLooks = 5
)

// mayBeForgotten reports whether Discord may not recognise a message any more
// that was sent at since. A clock that was set back tells nothing.
func mayBeForgotten(since time.Time) bool {
	age := time.Since(since)
	return !since.IsZero() && (age < 0 || age > nonceKept)
}

// errTooMuch ends a search.
var errTooMuch = errors.New("too much was written since")

// look searches a channel for a message that may have been sent already, and
// returns its id, "" if it is not there. If that cannot be seen the log says so,
// and it is as if it were not there. An error means that one has to look again.
func (c *Channel) look(ctx context.Context, m bus.OutboundMessage) (id string, err error) {
	id, err = c.search(ctx, m)
	switch {
	case errors.Is(err, channels.ErrPermanent), errors.Is(err, errTooMuch):
		c.log.Warn("discord may have taken the message already, sending it again", "chat_id", m.ChatID, "may_appear_twice", true, "err", err)
		return "", nil
	case id != "":
		c.log.Info("discord had taken the message already", "chat_id", m.ChatID, "message_id", id)
	}
	return id, err
}

func (c *Channel) search(ctx context.Context, m bus.OutboundMessage) (id string, err error) {
	if err := checkID(m.ChatID); err != nil {
		return "", err
	}
	self, err := c.whoAmI(ctx)
	if err != nil {
		return "", err
	}
	// Our clock may have been right then and wrong now, or the other way round.
	ahead := min(0, time.Duration(c.transport.ahead.Load()))
	// In one conversation the messages are sent one after another.
	after := max(snowflakeAt(m.Since.Add(ahead)), 1) - 1
	after = max(after, snowflake(m.After))
	for range maxLooks {
		page, err := c.sent(ctx, m.ChatID, after)
		if err != nil {
			return "", err
		}
		for _, s := range page {
			if s.Author.ID == self && s.is(m) {
				return s.ID, nil
			}
		}
		if len(page) < pageSize {
			return "", nil
		}
		after = snowflake(page[len(page)-1].ID)
	}
	return "", errTooMuch
}

// sentMessage is what a message is recognised by.
type sentMessage struct {
	ID      string `json:"id"`
	Content string `json:"content"`
	Author  struct {
		ID string `json:"id"`
	} `json:"author"`
	Reference struct {
		MessageID string `json:"message_id"`
	} `json:"message_reference"`
}

// is reports whether s is what became of m. A quote may have been left out.
func (s *sentMessage) is(m bus.OutboundMessage) bool {
	quotes := s.Reference.MessageID
	return strings.TrimSpace(s.Content) == strings.TrimSpace(m.Text) && (quotes == m.ReplyTo || quotes == "")
}

// sent reads one page of a channel, oldest first.
func (c *Channel) sent(ctx context.Context, channel string, after uint64) (page []sentMessage, err error) {
	endpoint := discordgo.EndpointChannelMessages(channel) + "?limit=" + strconv.Itoa(pageSize) + "&after=" + strconv.FormatUint(after, 10)
	if err := c.ask(ctx, endpoint, &page); err != nil {
		return nil, err
	}
	slices.SortFunc(page, func(a, b sentMessage) int { return cmp.Compare(snowflake(a.ID), snowflake(b.ID)) })
	return page, nil
}

// whoAmI returns the bot's user id. It asks once.
func (c *Channel) whoAmI(ctx context.Context) (string, error) {
	if id := c.self.Load(); id != nil {
		return *id, nil
	}
	var me struct {
		ID string `json:"id"`
	}
	if err := c.ask(ctx, discordgo.EndpointUser("@me"), &me); err != nil {
		return "", err
	}
	c.self.Store(&me.ID)
	return me.ID, nil
}

// ask makes one request that changes nothing, and reads its answer. If the answer
// did not come, nothing was sent.
func (c *Channel) ask(ctx context.Context, endpoint string, into any) error {
	if err := c.pace.Wait(ctx); err != nil {
		return err
	}
	answer, err := c.call(ctx, http.MethodGet, endpoint, nil)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if errors.Is(err, channels.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %s", channels.ErrNotReady, err.Error())
	}
	return err
}
