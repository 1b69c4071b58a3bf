// Package gateway carries messages between channels and the agent. It is the
// only package that owns concurrency: one worker per live conversation, one
// sender per conversation with something to say, one goroutine per channel and
// one clock for reminders. See docs/architecture.md for the whole line.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Config is what a gateway is made of.
type Config struct {
	Channels []channels.Channel
	Store    store.Store
	Agent    *agent.Agent
	Tools    *tools.ToolRegistry
	Log      *slog.Logger

	// Owners are principals that may do everything ("telegram:12345"). With
	// none, and nobody claimed before, Run announces a one-time code.
	Owners []string
	// Announce is told the code with which an owner claims the bot.
	Announce func(code string)

	MaxParallelTurns int           // turns that run at once; the others wait in order
	TurnTimeout      time.Duration // longest a turn may take; 0 means no limit
	TurnsPerMinute   int           // turns one sender may start in a minute; 0 means no limit
	Grace            time.Duration // how long running turns and queued sends may go on at shutdown

	// OnTurn is told of each turn that is over how long it took from the moment
	// it was taken up, the wait for a slot included, and OnSend of each attempt
	// to send how long the platform took. They are called from many goroutines
	// and must not block. nil: nobody is told.
	OnTurn func(TurnOutcome, time.Duration)
	OnSend func(channel string, outcome SendOutcome, took time.Duration)
}

// maxHops is how many follow-ups may follow one another with a turn of the
// model each. At the last one the result is delivered as it is.
const maxHops = 3

// port is a channel with its capabilities, asked for once.
type port struct {
	channels.Channel
	gate    *channels.Gate // nil: everybody is admitted
	owners  bool           // everybody is an owner
	typer   channels.Typer
	limiter channels.TextLimiter
	rater   channels.Rater
	health  channels.Healther
	heard   chan struct{} // closed when what was missed before the start has come, or should have

	mu    sync.Mutex // guards state: Run's goroutine writes it, readiness reads it
	state error      // why the channel does not work; nil while it runs
}

// Gateway implements bus.Bus in one process.
type Gateway struct {
	cfg   Config
	log   *slog.Logger
	ports map[string]*port
	own   ownership

	slots    *semaphore.Weighted // turn slots, FIFO
	turnRate *keyedLimiter
	strange  *onceSet // strangers who were told how to be let in

	lanes   lanes
	senders senders
	clock   clock

	compaction compaction
	quarantine quarantine
	counts     counters

	started chan struct{}      // closed when Run has restored the ledger
	work    context.Context    // ends when turns have to stop at once
	halt    context.CancelFunc // ends work
	send    context.Context    // ends when senders have to stop at once
	cut     context.CancelFunc // ends send
}

var _ bus.Bus = (*Gateway)(nil)

// New returns a gateway. It does no I/O; Run starts it.
func New(cfg Config) *Gateway {
	g := &Gateway{
		cfg:      cfg,
		log:      cfg.Log,
		ports:    make(map[string]*port, len(cfg.Channels)),
		slots:    semaphore.NewWeighted(int64(max(cfg.MaxParallelTurns, 1))),
		turnRate: newKeyedLimiter(),
		strange:  newOnceSet(maxStrangers),
		started:  make(chan struct{}),
	}
	g.work, g.halt = context.WithCancel(context.Background())
	g.send, g.cut = context.WithCancel(context.Background())
	g.own = ownership{configured: cfg.Owners, store: cfg.Store, code: strings.ToLower(rand.Text()[:10])}
	g.lanes.g, g.senders.g, g.clock.g = g, g, g
	g.lanes.init()
	g.senders.init()
	g.clock.init()
	g.compaction.init()
	g.quarantine.init()
	for _, c := range cfg.Channels {
		g.ports[c.Name()] = newPort(c)
	}
	return g
}

func newPort(c channels.Channel) *port {
	p := &port{Channel: c, state: errStarting, heard: make(chan struct{})}
	if x, ok := c.(channels.Gater); ok {
		gate := x.Gate()
		p.gate = &gate
	}
	if x, ok := c.(channels.OwnerChannel); ok {
		p.owners = x.OwnerOnly()
	}
	p.typer, _ = c.(channels.Typer)
	p.limiter, _ = c.(channels.TextLimiter)
	p.rater, _ = c.(channels.Rater)
	p.health, _ = c.(channels.Healther)
	return p
}

// absent reports whether the channel of a conversation is not configured, or not
// any more.
func (g *Gateway) absent(at bus.Address) bool { return g.ports[at.Channel] == nil }

var errStarting = errors.New("has not started yet")

// Run restores what the ledger holds, starts every channel and blocks until ctx
// ends or no channel is left. Then it stops in order: channels, turns,
// background tasks, senders, store. The error is the one of a channel that
// cannot work until somebody mends its setup, or of the ledger.
func (g *Gateway) Run(ctx context.Context) error {
	if err := g.restore(ctx); err != nil {
		if ctx.Err() != nil {
			err = nil // stopped before it had started
		}
		return errors.Join(err, g.shutdown()) //nolint:contextcheck // stopping has a time of its own
	}
	defer time.AfterFunc(longestHold, g.quarantine.expire).Stop()
	receiving, stopReceiving := context.WithCancel(ctx)
	defer stopReceiving()

	var (
		running sync.WaitGroup
		mu      sync.Mutex // guards errs until Wait has returned
		errs    []error
	)
	for _, p := range g.ports {
		running.Go(func() { p.listen(receiving) })
		running.Go(func() {
			began := time.Now()
			err := g.runChannel(receiving, p)
			if err == nil {
				return
			}
			if time.Since(began) < setupWindow {
				stopReceiving()
			} else {
				g.log.Error("channel cannot work", "channel", p.Name(), "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	running.Wait()
	return errors.Join(append(errs, g.shutdown())...) //nolint:contextcheck // ctx has ended; stopping has a time of its own
}

// firstPoll is how long the turns of before wait for their channel to work.
const firstPoll = time.Second

// listen waits until the channel works: then it has brought what it missed, such
// as the changes of messages that wait.
func (p *port) listen(ctx context.Context) {
	defer close(p.heard)
	if p.health == nil {
		return
	}
	const pause = 5 * time.Millisecond
	for began := time.Now(); time.Since(began) < firstPoll && p.health.Health() != nil; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// setupWindow is how long after its start a channel that turns out to be set up
// wrongly ends the daemon, so that the person who just started it sees why. A
// channel that breaks later is marked as down, which readiness shows, and the
// others go on.
const setupWindow = time.Minute

// runChannel runs one channel until ctx ends or the channel itself has come to
// an end. The error is one that only a change of the setup mends; anything else
// is tried again.
func (g *Gateway) runChannel(ctx context.Context, p *port) error {
	const firstPause, longestPause = time.Second, time.Minute
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		p.setState(nil)
		began := time.Now()
		err := g.runGuarded(ctx, p)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what an adapter says while it is stopped is no fault
		}
		if err == nil {
			p.setState(errors.New("has ended"))
			return nil
		}
		if errors.Is(err, channels.ErrSetup) {
			p.setState(err)
			return err
		}
		if time.Since(began) > longestPause {
			pause = firstPause // it has worked meanwhile
		}
		p.setState(err)
		g.log.Error("channel failed, starting it again", "channel", p.Name(), "err", err, "duration", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (g *Gateway) runGuarded(ctx context.Context, p *port) (err error) {
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("channel panicked", "channel", p.Name(), "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.Run(ctx, g)
}

func (p *port) setState(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = err
}

// Ready returns nil when every channel has completed a poll or a heartbeat and
// the ledger can be written, otherwise what is missing, in a sentence for the
// operator. Safe for concurrent use; does not block.
func (g *Gateway) Ready() error {
	var errs []error
	if err := g.cfg.Store.Health(); err != nil {
		errs = append(errs, fmt.Errorf("store: %w", err))
	}
	for name, p := range g.ports {
		p.mu.Lock()
		err := p.state
		p.mu.Unlock()
		if err == nil && p.health != nil {
			err = p.health.Health()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// shutdown ends everything in order, each stage within what is left of the
// grace. What does not finish stays in the ledger.
func (g *Gateway) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Grace)
	defer cancel()
	g.clock.stop()
	g.compaction.stop()
	g.lanes.stop(ctx)
	g.absolve(context.WithoutCancel(ctx)) // the grace may be used up
	if err := g.cfg.Tools.Shutdown(ctx); err != nil {
		g.log.Warn("background tasks were interrupted", "err", err)
	}
	g.senders.stop(ctx)
	if err := g.cfg.Store.Close(); err != nil {
		return fmt.Errorf("gateway: close the store: %w", err)
	}
	return nil
}
