// Package console is the channel of one person at a terminal, or of a script
// that pipes its questions in.
//
// On a terminal answers appear when they come, also while a line is being
// typed. Without one (a pipe, a file) each message waits for its answer before
// the next is sent, so the output is a transcript, and the end of the input
// ends the channel after the last answer.
//
// A line that ends in a backslash continues on the next. On a terminal, lines
// that arrive at once were pasted and go together as one message. "/quit" and
// the end of the input end the channel.
package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// ChatID is the one conversation of a console.
const ChatID = "local"

const (
	defaultReplyTimeout = 5 * time.Minute
	settle              = 200 * time.Millisecond // for more messages of the same answer
	pasteGap            = 30 * time.Millisecond  // lines of one paste come faster than anybody types
	firstPause          = 100 * time.Millisecond // between attempts to store a message
	longestPause        = 5 * time.Second
)

// Option changes a Channel while it is made.
type Option func(*Channel)

// WithTerminal says whether a person sits at a terminal. Without it Run looks
// at the input and the output itself.
func WithTerminal(yes bool) Option {
	return func(c *Channel) { c.terminal = func() bool { return yes } }
}

// WithReplyTimeout is how long a message waits for its answer where it has to;
// 5 minutes without this option.
func WithReplyTimeout(d time.Duration) Option {
	return func(c *Channel) { c.replyTimeout = d }
}

// Channel is the console. See New.
type Channel struct {
	name         string
	in           io.Reader
	log          *slog.Logger
	screen       *screen
	terminal     func() bool
	replyTimeout time.Duration
	replies      chan struct{} // holds one token when there was a reply since it was last emptied
	runID        func() string // new in every Run, so that message ids are
}

// New returns the console called name in the configuration, which reads from in
// and writes to out. It does no I/O.
func New(name string, in io.Reader, out io.Writer, log *slog.Logger, opts ...Option) *Channel {
	c := &Channel{
		name: name, in: in, log: log.With("channel", name), screen: newScreen(out),
		terminal:     func() bool { return isTerminal(in) && isTerminal(out) },
		replyTimeout: defaultReplyTimeout,
		replies:      make(chan struct{}, 1),
		runID:        newRunID,
	}
	for _, o := range opts {
		o(c)
	}
	return c
}

// isTerminal reports whether f is a device a person reads from or writes to.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Name returns the instance's key in the configuration.
func (c *Channel) Name() string { return c.name }

// OwnerOnly is true: whoever sits at the terminal runs the machine.
func (c *Channel) OwnerOnly() bool { return true }

// Health returns nil while Run reads.
func (c *Channel) Health() error {
	if !c.screen.open() {
		return errors.New("the console does not read")
	}
	return nil
}

// Run reads messages until ctx ends, the input ends or the person writes
// "/quit", and returns nil then. At the end of the input it waits until the
// last message has been answered, at most for the reply timeout; Send works
// throughout and afterwards.
//
// Nothing can interrupt a read from some inputs, a terminal among them: there
// one goroutine stays in it, and ends with the process. Inputs that have a read
// deadline (a pipe) or can be closed are interrupted, and so closed, when Run
// returns.
func (c *Channel) Run(ctx context.Context, in bus.Inbox) error {
	if c.in == nil {
		return channels.Setupf("console: there is nothing to read from")
	}
	c.screen.begin(c.terminal())
	defer c.screen.end()
	if c.screen.interactive() {
		c.screen.notice("Write a line and press Enter. /help lists the commands, /quit ends.")
	}
	src := startReading(c.in)
	defer src.stop()
	ids := ids{run: c.runID()}
	waiting := false
	for {
		c.screen.prompt()
		text, err := c.next(ctx, src)
		if err != nil || isQuit(text) {
			c.report(err)
			break
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		c.sent()
		if !c.publish(ctx, in, toInbound(c.name, ids.next(), text, time.Now())) {
			return nil
		}
		waiting = c.screen.interactive() || !c.awaitReply(ctx, true)
	}
	if waiting {
		c.awaitReply(ctx, false)
	}
	return nil
}

// publish offers m until it is stored, and reports false if ctx ended first:
// what was typed once must not have to be typed again.
func (c *Channel) publish(ctx context.Context, in bus.Inbox, m bus.InboundMessage) bool {
	for pause, told := firstPause, false; ; pause = min(2*pause, longestPause) {
		err := in.PublishInbound(ctx, bus.Batch{Messages: []bus.InboundMessage{m}})
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.log.Error("message not stored, trying again", "message_id", m.MessageID, "err", err)
		if !told {
			told = true
			c.screen.notice("The message could not be stored yet. I keep trying.")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// report logs why the input ended, if it is not an ordinary reason.
func (c *Channel) report(err error) {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.log.Error("input cannot be read", "err", err)
		sentence := "The input cannot be read any further."
		if errors.Is(err, bufio.ErrTooLong) {
			sentence = "A line of more than 1 MB cannot be read."
		}
		c.screen.notice(sentence)
	}
}

func isQuit(text string) bool {
	name, _, ok := channels.ParseCommand(text)
	return ok && (name == "quit" || name == "exit")
}

// sent notes that a message goes out whose reply has not come yet.
func (c *Channel) sent() {
	select {
	case <-c.replies:
	default: // there was none
	}
	c.screen.asked()
}

// awaitReply waits until the last message has a reply, or for the reply
// timeout, and reports whether it came. settled: also for what may follow it.
func (c *Channel) awaitReply(ctx context.Context, settled bool) bool {
	limit := time.NewTimer(c.replyTimeout)
	defer limit.Stop()
	select {
	case <-c.replies:
	case <-limit.C:
		c.log.Warn("no reply in time", "duration", c.replyTimeout)
		return true // waiting longer is no use
	case <-ctx.Done():
		return false
	}
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for settled {
		select {
		case <-c.replies:
			quiet.Reset(settle)
		case <-quiet.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// next returns the next message: a line, joined with what continues it.
func (c *Channel) next(ctx context.Context, src *source) (string, error) {
	var text strings.Builder
	for {
		line, err := src.line(ctx)
		if err != nil {
			if text.Len() > 0 && errors.Is(err, io.EOF) {
				return text.String(), nil
			}
			return "", err
		}
		c.screen.entered()
		head, more := strings.CutSuffix(line, `\`)
		text.WriteString(head)
		if !more {
			break
		}
		text.WriteByte('\n')
		c.screen.continued()
	}
	for c.screen.interactive() {
		line, ok := src.lineWithin(ctx, pasteGap)
		if !ok {
			break
		}
		text.WriteByte('\n')
		text.WriteString(line)
	}
	return text.String(), nil
}

// Send prints a message. It works before, while and after Run runs. An error
// means that the output cannot be written.
func (c *Channel) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return bus.Receipt{}, fmt.Errorf("console: send: %w", err)
	}
	if m.ChatID != ChatID {
		return bus.Receipt{}, fmt.Errorf("console: send: no such conversation: %w", channels.ErrPermanent)
	}
	n, err := c.screen.answer(printable(m.Text))
	if err != nil {
		return bus.Receipt{}, fmt.Errorf("console: send: %w", err)
	}
	select {
	case c.replies <- struct{}{}:
	default: // the one before has not been noticed yet
	}
	return bus.Receipt{MessageID: n, Time: time.Now()}, nil
}

// Typing shows dots while an answer is on its way, on a terminal only.
func (c *Channel) Typing(_ context.Context, to bus.Address) error {
	if to.ChatID != ChatID {
		return fmt.Errorf("console: typing: no such conversation: %w", channels.ErrPermanent)
	}
	return c.screen.typing()
}

// printable removes what could command the terminal instead of being read on
// it: control characters other than line breaks and tabs.
func printable(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
