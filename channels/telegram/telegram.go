// Package telegram connects one Telegram bot by long polling.
//
// A forum topic is a conversation of its own, "chat/topic". What a poll brings
// is stored together with the poll's offset before Telegram is told that it
// arrived, so nothing is lost and nothing is asked for twice.
package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// Config is a channel's section in the configuration.
type Config struct {
	// Token is the bot's, from @BotFather.
	Token config.Secret `yaml:"token" required:"the token @BotFather gave"`
	// APIBase is where the Bot API lives; a local Bot API server has another.
	APIBase string `yaml:"api_base"`
	// PollTimeout is how long a poll waits for news, from 1 s to 50 s.
	PollTimeout time.Duration `yaml:"poll_timeout"`
	// MaxAge is how old a message may be that is still answered. What came within
	// the last minute is answered in any case.
	MaxAge time.Duration `yaml:"max_age" minimum:"0"`

	channels.Gate `yaml:",inline"`

	Rate Rate `yaml:"rate"`
}

// Rate is how fast Telegram may be spoken to; 0 is no limit of ours.
type Rate struct {
	GlobalPerSec   float64 `yaml:"global_per_sec" minimum:"0"`
	PerChatPerSec  float64 `yaml:"per_chat_per_sec" minimum:"0"`
	PerGroupPerMin float64 `yaml:"per_group_per_min" minimum:"0"`
}

// DefaultConfig returns the settings of a channel whose section names only a
// token.
func DefaultConfig() Config {
	return Config{
		APIBase:     "https://api.telegram.org",
		PollTimeout: 30 * time.Second,
		MaxAge:      keptFor,
		Gate:        channels.Gate{Groups: "mention"},
		Rate:        Rate{GlobalPerSec: 30, PerChatPerSec: 1, PerGroupPerMin: 20},
	}
}

// How long Telegram lets a poll wait; less is no long poll.
const (
	minPollTimeout = time.Second
	maxPollTimeout = 50 * time.Second
)

// Validate implements config.Validator.
func (c *Config) Validate(name string, wrong func(key, format string, args ...any)) {
	if !isAddress(c.APIBase) {
		wrong("api_base", "expected an address such as https://api.telegram.org")
	}
	if c.PollTimeout < minPollTimeout || c.PollTimeout > maxPollTimeout {
		wrong("poll_timeout", "expected a time from %s to %s, found %s", minPollTimeout, maxPollTimeout, c.PollTimeout)
	}
	isUser := func(id string) bool { n, err := strconv.ParseInt(id, 10, 64); return err == nil && n > 0 }
	isGroup := func(id string) bool { p, err := parsePlace(id); return err == nil && p.chat < 0 }
	c.Gate.Validate(name, isUser, isGroup, wrong)
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// Channel is one bot. Make it with New.
type Channel struct {
	name   string
	cfg    Config
	facts  *state.State
	log    *slog.Logger
	api    *client
	render *renderer
	health health

	// moved holds the supergroups that groups have become. Guarded by a mutex
	// because any sender may find out.
	mu    sync.RWMutex
	moved map[int64]int64
}

var (
	_ channels.Channel     = (*Channel)(nil)
	_ channels.Healther    = (*Channel)(nil)
	_ channels.Typer       = (*Channel)(nil)
	_ channels.TextLimiter = (*Channel)(nil)
	_ channels.Rater       = (*Channel)(nil)
	_ channels.Gater       = (*Channel)(nil)
)

// Option changes how a Channel is made.
type Option func(*Channel)

// WithTransport makes the channel reach Telegram through t.
func WithTransport(t http.RoundTripper) Option {
	return func(c *Channel) { c.api.http.Transport = t }
}

// New returns the bot named name in the configuration. It does no I/O. facts
// keeps the offset of the poll.
func New(name string, cfg Config, facts *state.State, log *slog.Logger, options ...Option) *Channel {
	if cfg.PollTimeout < minPollTimeout {
		cfg.PollTimeout = DefaultConfig().PollTimeout
	}
	cfg.PollTimeout = min(cfg.PollTimeout, maxPollTimeout)
	c := &Channel{
		name:   name,
		cfg:    cfg,
		facts:  facts,
		log:    log.With("channel", name),
		api:    newClient(cfg, nil),
		render: newRenderer(),
		moved:  make(map[int64]int64),
	}
	for _, o := range options {
		o(c)
	}
	if c.api.http.Transport == nil {
		c.api.http.Transport = newTransport()
	}
	return c
}

// Name returns the channel's key in the configuration.
func (c *Channel) Name() string { return c.name }

// Gate returns who is answered.
func (c *Channel) Gate() channels.Gate { return c.cfg.Gate }

// maxText is how many UTF-16 units a message holds once its markup is gone.
const maxText = 4096

// TextLimit returns Telegram's limit and measure.
func (c *Channel) TextLimit() (limit int, measure func(string) int) { return maxText, c.render.measure }

// RatesFor returns the limits for a conversation. All topics of a group count
// as one.
func (c *Channel) RatesFor(to bus.Address) channels.Rates {
	r := channels.Rates{GlobalPerSec: c.cfg.Rate.GlobalPerSec, PerSec: c.cfg.Rate.PerChatPerSec, Key: to.ChatID}
	p, err := parsePlace(to.ChatID)
	if err != nil {
		return r
	}
	r.Key = strconv.FormatInt(p.chat, 10)
	if p.chat < 0 {
		r.PerMin = c.cfg.Rate.PerGroupPerMin
	}
	return r
}

// Health returns nil if a poll has been answered recently.
func (c *Channel) Health() error { return c.health.check(c.cfg.PollTimeout) }

// sendTimeout bounds one attempt to send.
const sendTimeout = 30 * time.Second

// Typing shows once that an answer is on its way.
func (c *Channel) Typing(ctx context.Context, to bus.Address) error {
	p, err := parsePlace(to.ChatID)
	if err != nil {
		return fmt.Errorf("telegram: typing: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	params := c.paramsFor(p)
	params["action"] = "typing"
	return outcome(c.api.request(ctx, "sendChatAction", params, nil))
}

// Send delivers one message.
func (c *Channel) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	p, err := parsePlace(m.ChatID)
	if err != nil {
		return bus.Receipt{}, fmt.Errorf("telegram: send: %w", err)
	}
	params, err := c.messageParams(p, m)
	if err != nil {
		return bus.Receipt{}, fmt.Errorf("telegram: send: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var sent struct {
		MessageID int64 `json:"message_id"`
	}
	err = c.api.request(ctx, "sendMessage", params, &sent)
	if failed, ok := errors.AsType[*callError](err); ok && failed.moved != 0 && p.chat != failed.moved {
		c.setMoved(p.chat, failed.moved)
		params["chat_id"] = strconv.FormatInt(failed.moved, 10)
		err = c.api.request(ctx, "sendMessage", params, &sent)
	}
	if err != nil {
		return bus.Receipt{}, outcome(err)
	}
	return bus.Receipt{MessageID: strconv.FormatInt(sent.MessageID, 10), Time: time.Now()}, nil
}

func (c *Channel) messageParams(p place, m bus.OutboundMessage) (tgbotapi.Params, error) {
	text, entities := c.render.render(m.Text)
	if isInvisible(text) {
		return nil, fmt.Errorf("the text holds nothing to see: %w", channels.ErrPermanent)
	}
	params := c.paramsFor(p)
	params["text"] = text
	params["link_preview_options"] = `{"is_disabled":true}`
	if len(entities) > 0 {
		raw, err := json.Marshal(entities)
		if err != nil {
			return nil, fmt.Errorf("entities: %w", err)
		}
		params["entities"] = string(raw)
	}
	if id, err := strconv.ParseInt(m.ReplyTo, 10, 64); err == nil && id > 0 {
		raw, err := json.Marshal(replyParameters{MessageID: id, AllowSendingWithoutReply: true})
		if err != nil {
			return nil, fmt.Errorf("reply parameters: %w", err)
		}
		params["reply_parameters"] = string(raw)
	}
	return params, nil
}

// paramsFor returns the parameters that say where a message goes.
func (c *Channel) paramsFor(p place) tgbotapi.Params {
	c.mu.RLock()
	if to, ok := c.moved[p.chat]; ok {
		p.chat = to
	}
	c.mu.RUnlock()
	params := tgbotapi.Params{"chat_id": strconv.FormatInt(p.chat, 10)}
	if p.thread != 0 {
		params["message_thread_id"] = strconv.FormatInt(p.thread, 10)
	}
	return params
}

// setMoved remembers that a group has become a supergroup. What is addressed to
// the one goes to the other from now on; after a restart Telegram says so
// again.
func (c *Channel) setMoved(from, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved[from] = to
}
