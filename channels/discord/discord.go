// Package discord is the Discord adapter. discordgo carries its REST requests
// and defines its wire types; gateway.go keeps the socket, because the
// library's Open and Close can neither be cancelled nor waited for, sleep under
// its lock, and hide why a connection ended.
//
// A chat id is a Discord channel id: a private channel, a server channel, or a
// thread, whose parent is the channel it hangs on.
package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"
	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// Config is a Discord section of the configuration.
type Config struct {
	// Token is the bot's token, with or without "Bot " in front.
	Token config.Secret `yaml:"token" required:"the bot's token from the developer portal"`
	// APIBase is where Discord is; only tests and proxies change it.
	APIBase       string `yaml:"api_base"`
	channels.Gate `yaml:",inline"`
	Rate          Rate    `yaml:"rate"`
	CatchUp       CatchUp `yaml:"catch_up"`
}

// Rate is how fast the bot speaks at most. 0 means no limit of ours; Discord's
// own 429 is obeyed in any case.
type Rate struct {
	GlobalPerSec  float64 `yaml:"global_per_sec" minimum:"0"`
	PerChatPerSec float64 `yaml:"per_chat_per_sec" minimum:"0"`
}

// DefaultConfig is what a section that names nothing but a token means:
// Discord's own limits, 50 requests a second and 5 messages in 5 seconds per
// channel, and an hour to catch up on.
func DefaultConfig() Config {
	return Config{
		APIBase: "https://discord.com",
		Gate:    channels.Gate{Groups: "mention"},
		Rate:    Rate{GlobalPerSec: 50, PerChatPerSec: 1},
		CatchUp: CatchUp{MaxAge: time.Hour, MaxMessages: 200},
	}
}

// maxText is how many characters fit a message. Discord counts code points.
const maxText = 2000

// Channel is one bot on Discord.
type Channel struct {
	name  string
	cfg   Config
	token string
	facts *state.State // nil keeps nothing
	log   *slog.Logger

	badBase   error // why api_base cannot be used; Run reports it
	transport *transport
	rest      *discordgo.Session
	dialer    *websocket.Dialer
	pace      *rate.Limiter // of catching up
	status    atomic.Pointer[status]
	ended     atomic.Bool            // Run has returned
	self      atomic.Pointer[string] // the bot's user id, once it was asked for
}

// What the gateway may ask of it.
var (
	_ channels.Channel     = (*Channel)(nil)
	_ channels.Healther    = (*Channel)(nil)
	_ channels.Typer       = (*Channel)(nil)
	_ channels.TextLimiter = (*Channel)(nil)
	_ channels.Rater       = (*Channel)(nil)
	_ channels.Gater       = (*Channel)(nil)
)

// Option changes a Channel that New makes.
type Option func(*options)

type options struct{ dial dialFunc }

// WithDialer makes every connection, REST and socket, with dial: tests reach
// Discord in memory with it.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(o *options) { o.dial = dial }
}

// New returns the channel called name in the configuration. It does no I/O.
// facts keeps the last message seen per Discord channel and the list of private
// ones; without it nothing is caught up on.
func New(name string, cfg Config, facts *state.State, log *slog.Logger, opts ...Option) *Channel {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	c := &Channel{
		name:  name,
		cfg:   cfg,
		token: strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(cfg.Token)), "Bot ")),
		facts: facts,
		log:   log.With("channel", name),
	}
	base, err := parseBase(cfg.APIBase)
	c.badBase = err
	c.transport = newTransport(base, o.dial)
	c.rest = newSession(c.token, c.transport)
	c.dialer = &websocket.Dialer{
		Proxy:            http.ProxyFromEnvironment,
		NetDialContext:   c.transport.next.DialContext,
		HandshakeTimeout: 20 * time.Second,
	}
	c.pace = rate.NewLimiter(rate.Inf, 0)
	if r := cfg.Rate.GlobalPerSec; r > 0 { // half of it is left for answers
		c.pace = rate.NewLimiter(rate.Limit(r/2), max(1, int(r/2)))
	}
	c.status.Store(&status{problem: "not connected yet"})
	return c
}

// parseBase reads api_base; nil is the library's own address.
func parseBase(s string) (*url.URL, error) {
	s = strings.TrimRight(s, "/")
	if s == "" || s == "https://discord.com" {
		return nil, nil //nolint:nilnil // nil is the documented "leave it"
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, fmt.Errorf("api_base %q is not an address: write https://discord.com", s)
	}
	return u, nil
}

// Name implements channels.Channel.
func (c *Channel) Name() string { return c.name }

// Gate implements channels.Gater.
func (c *Channel) Gate() channels.Gate { return c.cfg.Gate }

// TextLimit implements channels.TextLimiter.
func (c *Channel) TextLimit() (limit int, measure func(string) int) {
	return maxText, utf8.RuneCountInString
}

// RatesFor implements channels.Rater. Discord counts a thread by itself.
func (c *Channel) RatesFor(to bus.Address) channels.Rates {
	return channels.Rates{GlobalPerSec: c.cfg.Rate.GlobalPerSec, Key: to.ChatID, PerSec: c.cfg.Rate.PerChatPerSec}
}

// Health implements channels.Healther: nil while connected, known to Discord
// and with heartbeats answered.
func (c *Channel) Health() error { return c.status.Load().err(time.Now()) }

// Run implements channels.Channel.
func (c *Channel) Run(ctx context.Context, in bus.Inbox) error {
	if err := c.checkSetup(); err != nil {
		return err
	}
	events := make(chan event, queueSize)
	delivered := make(chan struct{})
	delivering, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer close(delivered)
		c.deliver(delivering, in, events)
	}()
	err := c.stayConnected(ctx, events)
	end()
	close(events)
	<-delivered
	c.ended.Store(true)
	c.transport.next.CloseIdleConnections()
	problem := "stopped"
	if err != nil {
		problem = err.Error()
	}
	c.status.Store(&status{problem: problem})
	return err
}

func (c *Channel) checkSetup() error {
	if c.badBase != nil {
		return channels.Setupf("discord: %w", c.badBase)
	}
	if c.token == "" {
		return channels.Setupf("discord: no token: make a bot at %s and put its token into channels.%s.token", portal, c.name)
	}
	return nil
}

// createMessage is the body of Create Message; the library's type lacks the
// nonce.
type createMessage struct {
	Content         string                            `json:"content"`
	Nonce           string                            `json:"nonce,omitempty"`
	EnforceNonce    bool                              `json:"enforce_nonce,omitempty"`
	Flags           discordgo.MessageFlags            `json:"flags"`
	AllowedMentions *discordgo.MessageAllowedMentions `json:"allowed_mentions"`
	Reference       *discordgo.MessageReference       `json:"message_reference,omitempty"`
}

// Send implements channels.Channel. The key goes along as an enforced nonce:
// sent again within a few minutes, Discord answers with the first message. Later
// it is looked for first. It pings nobody, not even the author of the message it
// quotes.
func (c *Channel) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if mayBeForgotten(m.Since) {
		id, err := c.look(ctx, m)
		c.afterRun()
		if err != nil {
			return bus.Receipt{}, fmt.Errorf("discord: look for what was sent: %w", err)
		}
		if id != "" {
			return bus.Receipt{MessageID: id, Time: time.Now()}, nil
		}
	}
	body := &createMessage{
		Content:      m.Text,
		Nonce:        m.Key,
		EnforceNonce: m.Key != "",
		Flags:        discordgo.MessageFlagsSuppressEmbeds,
		AllowedMentions: &discordgo.MessageAllowedMentions{
			Parse: []discordgo.AllowedMentionType{},
		},
	}
	if m.ReplyTo != "" {
		mayBeGone := false
		body.Reference = &discordgo.MessageReference{MessageID: m.ReplyTo, FailIfNotExists: &mayBeGone}
	}
	answer, err := c.post(ctx, m.ChatID, body)
	var refused *refusedError
	if errors.As(err, &refused) && refused.field && body.Reference != nil {
		body.Reference = nil // the quote is an ornament, the answer is not
		answer, err = c.post(ctx, m.ChatID, body)
	}
	if err != nil {
		return bus.Receipt{}, fmt.Errorf("discord: send: %w", err)
	}
	var created struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &created); err != nil || created.ID == "" {
		return bus.Receipt{}, fmt.Errorf("discord: send: %w: the answer is not a message", channels.ErrUnknownOutcome)
	}
	return bus.Receipt{MessageID: created.ID, Time: time.Now()}, nil
}

func (c *Channel) post(ctx context.Context, chatID string, body *createMessage) ([]byte, error) {
	if err := checkID(chatID); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, http.MethodPost, discordgo.EndpointChannelMessages(chatID), body)
	c.afterRun()
	return answer, err
}

// Typing implements channels.Typer. Discord shows it for ten seconds.
func (c *Channel) Typing(ctx context.Context, to bus.Address) error {
	err := checkID(to.ChatID)
	if err == nil {
		_, err = c.call(ctx, http.MethodPost, discordgo.EndpointChannelTyping(to.ChatID), nil)
		c.afterRun()
	}
	if err != nil {
		return fmt.Errorf("discord: typing: %w", err)
	}
	return nil
}

// checkID keeps what is no channel id out of a URL.
func checkID(chatID string) error {
	if _, err := strconv.ParseUint(chatID, 10, 64); err != nil {
		return fmt.Errorf("%w: %q is not a Discord channel id", channels.ErrPermanent, chatID)
	}
	return nil
}

// afterRun leaves no idle connection behind when the last answers go out after
// Run has returned.
func (c *Channel) afterRun() {
	if c.ended.Load() {
		c.transport.next.CloseIdleConnections()
	}
}
