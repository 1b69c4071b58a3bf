package discord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/cenkalti/backoff/v5"
	"github.com/gorilla/websocket"

	"github.com/dragoman-chat/dragoman/channels"
)

// portal is where the owner of a bot sets it up.
const portal = "https://discord.com/developers/applications"

// intents is what we ask to be told: servers with their channels and threads,
// messages there and in private, and the text of messages (privileged).
const intents = discordgo.IntentGuilds | discordgo.IntentGuildMessages |
	discordgo.IntentDirectMessages | discordgo.IntentMessageContent

// Bounds of a connection.
const (
	helloTimeout = 20 * time.Second // for HELLO
	readyTimeout = time.Minute      // for READY or RESUMED
	writeTimeout = 10 * time.Second
	maxPacket    = 64 << 20    // a GUILD_CREATE of a very large server
	keepBuffer   = 256 << 10   // a read buffer grown beyond this is let go
	lastingLink  = time.Minute // a connection that lived so long was a good one
	maxResumes   = 3           // failed RESUMEs before a fresh IDENTIFY
	maxDials     = 3           // failed dials before the address is asked for again
	closeGrace   = time.Second // for the close frame when we leave
	closeResume  = 4000        // our close code that keeps the session alive
	maxWait      = 60 * time.Second
)

// Gateway opcodes.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opAck            = 11
)

// status is how the connection does. It is replaced, never changed.
type status struct {
	problem  string    // why there is no working connection; "" if there is one
	deadline time.Time // by when the next heartbeat has to be answered
}

func (s *status) err(now time.Time) error {
	switch {
	case s.problem != "":
		return fmt.Errorf("discord: %s", s.problem)
	case now.After(s.deadline):
		return errors.New("discord: heartbeats are not answered")
	}
	return nil
}

// link is the gateway session, which outlives its connections. Only Run's
// goroutine uses it, except seq.
type link struct {
	url       string       // the gateway's address; "" asks for it
	resumeURL string       // where this session wants to be resumed
	sessionID string       // "" identifies anew
	seq       atomic.Int64 // last event taken; heartbeats report it
	self      string       // the bot's user id

	resumes int           // RESUMEs in a row that led nowhere
	dials   int           // dials in a row that failed
	since   time.Time     // when READY or RESUMED came on this connection
	pause   time.Duration // Discord asked to wait so long before the next try
}

// drop makes the next connection identify anew, after a look at how often that
// may still be done.
func (l *link) drop() {
	l.sessionID, l.resumeURL, l.url, l.resumes = "", "", "", 0
	l.seq.Store(0)
}

// stayConnected keeps a connection until ctx ends (nil) or the operator has to
// act (channels.ErrSetup). Events go out in their order.
func (c *Channel) stayConnected(ctx context.Context, events chan<- event) error {
	l := &link{}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = time.Second, maxWait
	failed := false
	for ctx.Err() == nil {
		l.since, l.pause = time.Time{}, 0
		err := c.connect(ctx, l, events)
		if errors.Is(err, channels.ErrSetup) {
			return fmt.Errorf("discord: %w", err)
		}
		c.status.Store(&status{problem: "not connected: " + err.Error()})
		if !l.since.IsZero() && time.Since(l.since) > lastingLink {
			failed = false
			waits.Reset()
		}
		wait := l.pause
		if failed { // the first retry comes at once, to miss as little as possible
			wait = max(wait, waits.NextBackOff())
		}
		failed = true
		c.logLost(ctx, err, wait)
		sleep(ctx, wait)
	}
	return nil
}

func (c *Channel) logLost(ctx context.Context, err error, wait time.Duration) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errAskedToReconnect): // every few hours, by itself
		c.log.Info("discord asked to reconnect")
	default:
		c.log.Warn("discord connection lost, connecting again", "err", err, "duration", wait)
	}
}

// sleep waits; false means that ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// connect makes one connection and reads from it until it ends. Its error says
// why; it is never nil.
func (c *Channel) connect(ctx context.Context, l *link, events chan<- event) error {
	ws, err := c.dial(ctx, l)
	if err != nil {
		return err
	}
	k := &socket{ws: ws, beatNow: make(chan struct{}, 1)}
	gone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gone)
		k.end(closeCode(ctx))
	})
	defer func() {
		k.end(closeCode(ctx))
		if !stop() {
			<-gone
		}
	}()
	if err := k.hello(); err != nil {
		return c.closeError(l, fmt.Errorf("hello: %w", err))
	}
	resuming := l.sessionID != ""
	if err := c.introduce(k, l); err != nil {
		return fmt.Errorf("identify: %w", err)
	}
	quit := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() { k.beat(&l.seq, quit) })
	err = c.read(ctx, k, l, events)
	close(quit)
	k.end(closeCode(ctx))
	beats.Wait()
	if resuming && l.since.IsZero() {
		if l.resumes++; l.resumes >= maxResumes {
			l.drop()
		}
	}
	if k.silent.Load() {
		return errors.New("heartbeats are not answered")
	}
	return c.closeError(l, err)
}

// closeCode is how we leave: for good, so that the bot shows as offline at once,
// or to come back to the session.
func closeCode(ctx context.Context) int {
	if ctx.Err() != nil {
		return websocket.CloseNormalClosure
	}
	return closeResume
}

// dial connects to where the session wants to be resumed, or to the gateway.
func (c *Channel) dial(ctx context.Context, l *link) (*websocket.Conn, error) {
	address := l.resumeURL
	if address == "" {
		if l.url == "" {
			if err := c.findGateway(ctx, l); err != nil {
				return nil, err
			}
		}
		address = l.url
	}
	ws, resp, err := c.dialer.DialContext(ctx, address+"/?v="+discordgo.APIVersion+"&encoding=json", nil)
	if resp != nil {
		_ = resp.Body.Close() // the library has put what it needs aside
	}
	if err != nil {
		if l.dials++; l.dials >= maxDials {
			l.dials, l.url, l.resumeURL = 0, "", ""
		}
		return nil, fmt.Errorf("dial: %w", err)
	}
	l.dials = 0
	ws.SetReadLimit(maxPacket)
	return ws, nil
}

// findGateway asks where the gateway is, which also tries the token.
func (c *Channel) findGateway(ctx context.Context, l *link) error {
	answer, err := c.call(ctx, http.MethodGet, discordgo.EndpointGatewayBot, nil)
	var refused *refusedError
	var limit *channels.RateLimitError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusUnauthorized:
		return c.tokenRefused()
	case errors.As(err, &refused) && refused.status == http.StatusNotFound && l.self == "":
		return channels.Setupf("there is no Discord at api_base: write https://discord.com")
	case errors.As(err, &limit):
		l.pause = limit.RetryAfter
	}
	if err != nil {
		return fmt.Errorf("find gateway: %w", err)
	}
	var in discordgo.GatewayBotResponse
	if err := json.Unmarshal(answer, &in); err != nil || in.URL == "" {
		return errors.New("find gateway: the answer holds no address")
	}
	if s := in.SessionStartLimit; s.Total > 0 && s.Remaining == 0 && l.sessionID == "" {
		// Identifying once more would cost the bot its token.
		l.pause = time.Duration(s.ResetAfter) * time.Millisecond
		return errors.New("find gateway: today's session starts are used up")
	}
	l.url = trimSlash(in.URL)
	return nil
}

func (c *Channel) tokenRefused() error {
	return channels.Setupf("the bot token was refused: copy it again from %s (Bot, Reset Token) into channels.%s.token", portal, c.name)
}

// introduce resumes the session, or begins one.
func (c *Channel) introduce(k *socket, l *link) error {
	if l.sessionID != "" {
		return k.send(opResume, map[string]any{"token": c.token, "session_id": l.sessionID, "seq": l.seq.Load()})
	}
	return k.send(opIdentify, map[string]any{ // the library's type still has the names with "$"
		"token":           c.token,
		"intents":         intents,
		"large_threshold": 50, // the shortest list of members
		"properties":      map[string]string{"os": runtime.GOOS, "browser": "dragoman", "device": "dragoman"},
	})
}

// Reasons to connect again that are no failure of the connection.
var (
	errAskedToReconnect = errors.New("discord asked to reconnect")
	errInvalidSession   = errors.New("the session has become invalid")
)

// read takes packets until the connection ends.
func (c *Channel) read(ctx context.Context, k *socket, l *link, events chan<- event) error {
	_ = k.ws.SetReadDeadline(time.Now().Add(readyTimeout))
	for {
		var p discordgo.Event
		if err := k.next(&p); err != nil {
			return err
		}
		switch p.Operation {
		case opDispatch:
			if err := c.dispatch(ctx, k, l, &p, events); err != nil {
				return err
			}
		case opAck:
			k.acked.Store(true)
			if !l.since.IsZero() {
				c.status.Store(&status{deadline: time.Now().Add(2 * k.interval)})
			}
		case opHeartbeat:
			k.beatAtOnce()
		case opReconnect:
			return errAskedToReconnect
		case opInvalidSession:
			if string(bytes.TrimSpace(p.RawData)) != "true" {
				l.drop()
				// Discord asks for a random wait of one to five seconds.
				l.pause = time.Second + rand.N(4*time.Second) //nolint:gosec // no secret hangs on it
			}
			return errInvalidSession
		}
	}
}

// dispatch handles one event. Its number is kept only after the event has been
// taken, so that a resumed session gets it again otherwise.
func (c *Channel) dispatch(ctx context.Context, k *socket, l *link, p *discordgo.Event, events chan<- event) error {
	switch p.Type {
	case "READY":
		if err := l.ready(p.RawData); err != nil {
			return err
		}
		c.connected(k, l)
		c.log.Info("discord connected")
		if err := hand(ctx, events, event{self: l.self, fresh: true}); err != nil {
			return err
		}
	case "RESUMED":
		c.connected(k, l)
		c.log.Info("discord connection resumed")
	default:
		e, err := parseEvent(p.Type, p.RawData, l.self)
		if err != nil { // skipped: asking for it again would bring the same
			c.log.Error("discord event cannot be read", "event", p.Type, "err", err)
		}
		if !e.empty() {
			if err := hand(ctx, events, e); err != nil {
				return err
			}
		}
	}
	l.seq.Store(p.Sequence)
	return nil
}

// hand passes an event on.
func hand(ctx context.Context, events chan<- event, e event) error {
	select {
	case events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ready takes what READY says of the new session.
func (l *link) ready(data []byte) error {
	var in struct {
		SessionID string `json:"session_id"`
		ResumeURL string `json:"resume_gateway_url"`
		User      struct {
			ID string `json:"id"`
		} `json:"user"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	l.sessionID, l.resumeURL, l.self = in.SessionID, trimSlash(in.ResumeURL), in.User.ID
	return nil
}

func (c *Channel) connected(k *socket, l *link) {
	_ = k.ws.SetReadDeadline(time.Time{}) // heartbeats watch from here on
	l.since, l.resumes = time.Now(), 0
	c.status.Store(&status{deadline: l.since.Add(2 * k.interval)})
}

// closeError explains the end of a connection by its close code.
func (c *Channel) closeError(l *link, err error) error {
	var closed *websocket.CloseError
	if !errors.As(err, &closed) {
		return err
	}
	switch closed.Code {
	case 4003, 4007, 4009: // not authenticated, invalid sequence, session timed out
		l.drop()
	case 4004:
		return c.tokenRefused()
	case 4010, 4011:
		return channels.Setupf("this bot is in more servers than one connection may serve (close code %d): use one bot per group of servers", closed.Code)
	case 4012, 4013:
		return channels.Setupf("discord no longer speaks this version of its protocol (close code %d): update the program", closed.Code)
	case 4014:
		return channels.Setupf("discord refused the intents: open the bot at %s and switch on Bot, Privileged Gateway Intents, Message Content Intent", portal)
	}
	return err
}

func trimSlash(s string) string {
	if n := len(s); n > 0 && s[n-1] == '/' {
		return s[:n-1]
	}
	return s
}
