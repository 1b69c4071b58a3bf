package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/channelstest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKit(t *testing.T) { channelstest.RunInBubble(t, newPlatform) }

// desk is a person at a terminal.
type desk struct {
	mu    sync.Mutex
	keys  *io.PipeWriter
	lines int      // typed in this run
	runs  int      // of the console
	shown []string // what the console wrote, each write for itself
}

func (d *desk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown = append(d.shown, string(p))
	return len(p), nil
}

func (d *desk) runID() string { return "run" }

// say types a line and Enter, a while after what was typed before.
func (d *desk) say(t *testing.T, m channelstest.Message) channelstest.Posted {
	t.Helper()
	text := m.Text
	if m.Command != "" {
		text = strings.TrimSpace("/" + m.Command + " " + text)
	}
	time.Sleep(time.Second) // of the bubble's clock
	d.mu.Lock()
	keys := d.keys
	d.lines++
	ids := ids{run: d.runID(), n: d.lines - 1}
	d.mu.Unlock()
	go func() { _, _ = keys.Write([]byte(text + "\n")) }() // gone with the console
	synctest.Wait()
	return channelstest.Posted{MessageID: ids.next()}
}

func (d *desk) writes(keep func(string) bool) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, w := range d.shown {
		if keep(w) {
			out = append(out, strings.TrimSpace(strings.TrimSuffix(w, "\n")))
		}
	}
	return out
}

func newPlatform(t *testing.T) *channelstest.Platform {
	t.Helper()
	d := &desk{}
	here := channelstest.Chat{
		Address: bus.Address{Channel: channelstest.Name, ChatID: ChatID},
		People:  []bus.Sender{{ID: senderID}},
	}
	one := "a terminal has one person in one conversation"
	none := "a terminal has no such thing"
	local := "the terminal is here"
	return &channelstest.Platform{
		New: func(_ *testing.T, o channelstest.Options) channels.Channel {
			in, keys := io.Pipe()
			d.mu.Lock()
			defer d.mu.Unlock()
			d.keys, d.lines = keys, 0
			d.runs++
			c := New(channelstest.Name, in, d, o.Log, WithTerminal(true))
			c.runID = d.runID
			return c
		},
		Direct: []channelstest.Chat{here, here},
		Say:    d.say,
		Sent: func(*testing.T) []channelstest.Sent {
			var all []channelstest.Sent
			for i, text := range d.writes(func(w string) bool { return strings.HasSuffix(w, "\n\n") }) {
				all = append(all, channelstest.Sent{Address: here.Address, Text: text, MessageID: formatNumber(i + 1)})
			}
			return all
		},
		Typed: func(*testing.T) []bus.Address {
			var all []bus.Address
			for range d.writes(func(w string) bool { return strings.Trim(w, ".\r\n ") == "" && strings.Contains(w, ".") }) {
				all = append(all, here.Address)
			}
			return all
		},
		Without: map[string]string{
			"receive-group": one, "receive-topic": one, "mention": one, "reply-to-bot": one, "reply-to-person": one,
			"command-addressed": one, "bot-sender": one, "own-message": one,
			"quoted": none, "forwarded": none, "media": none, "send-reply": none, "send-reply-deleted": none, "odd-updates": none,
			"throttled": none, "blocked": none, "cut": none,
			"send-concurrent": "it takes two conversations; see TestConcurrent",
			"ids":             "a terminal delivers once; see TestIDs",
			"not-confirmed":   "a terminal keeps nothing", "restart": "a terminal keeps nothing",
			"wrong-token": "there is nothing to set up",
			"unreachable": local, "stop-while-unreachable": local, "starts-unreachable": local, "reconnect": local, "health": local,
		},
	}
}

// start runs a console until the test ends or stop is called. ended gets what
// Run returned.
func start(t *testing.T, c *Channel, in bus.Inbox) (stop func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		done <- c.Run(ctx, in)
	}()
	t.Cleanup(func() { cancel(); <-gone })
	return cancel, done
}

// inbox answers messages with answer, which may be nil.
type inbox struct {
	mu     sync.Mutex
	got    []bus.InboundMessage
	fail   int
	answer func(m bus.InboundMessage)
}

func (in *inbox) PublishInbound(_ context.Context, b bus.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fail > 0 {
		in.fail--
		return errors.New("the disk is full")
	}
	in.got = append(in.got, b.Messages...)
	if in.answer != nil {
		for _, m := range b.Messages {
			go in.answer(m)
		}
	}
	return nil
}

func (in *inbox) texts() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var texts []string
	for _, m := range in.got {
		texts = append(texts, m.Text)
	}
	return texts
}

func out(text string) bus.OutboundMessage {
	return bus.OutboundMessage{Address: bus.Address{Channel: "console", ChatID: ChatID}, Text: text}
}

var quiet = slog.New(slog.DiscardHandler)

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Piped in: each message waits for its answers, and the end for the last ones.
func TestPiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen buffer
		c := New("console", strings.NewReader("one\ntwo \\\nlines\n\n/id\nlast"), &screen, quiet)
		in := &inbox{}
		in.answer = func(m bus.InboundMessage) {
			time.Sleep(2 * time.Second)
			for _, text := range []string{"first of " + m.Text, "second of " + m.Text} {
				if _, err := c.Send(context.Background(), out(text)); err != nil {
					t.Error(err)
				}
				time.Sleep(settle / 2)
			}
		}
		_, ended := start(t, c, in)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		want := "first of one\nsecond of one\nfirst of two \nlines\nsecond of two \nlines\nfirst of /id\nsecond of /id\nfirst of last\nsecond of last\n"
		if screen.String() != want {
			t.Errorf("the output is\n%s\nwant\n%s", screen.String(), want)
		}
		if m := in.got[2]; m.Command != "id" {
			t.Errorf("command %q, want id", m.Command)
		}
	})
}

// An answer that never comes holds the end of the input up for the reply
// timeout and no longer.
func TestPipedWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("console", strings.NewReader("one\ntwo\n"), io.Discard, quiet, WithReplyTimeout(time.Minute))
		in := &inbox{}
		began := time.Now()
		_, ended := start(t, c, in)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if d := time.Since(began); d != 2*time.Minute {
			t.Errorf("Run took %s, want a minute for each of two messages", d)
		}
		if got := in.texts(); len(got) != 2 {
			t.Errorf("got %q", got)
		}
	})
}

// On a terminal nothing that arrives is mixed with the prompt, and /quit waits
// for the answer that is on its way.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, keys := io.Pipe()
		var screen buffer
		c := New("console", r, &screen, quiet, WithTerminal(true))
		in := &inbox{}
		_, ended := start(t, c, in)
		write := func(s string) {
			if _, err := io.WriteString(keys, s); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		send := func(s string) {
			if _, err := c.Send(t.Context(), out(s)); err != nil {
				t.Error(err)
			}
		}
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := screen.String(); got != want {
				t.Errorf("the screen shows %q\nwant %q", got, want)
			}
			screen.mu.Lock()
			screen.buf.Reset()
			screen.mu.Unlock()
		}
		typing := func() {
			if err := c.Typing(t.Context(), out("").Address); err != nil {
				t.Error(err)
			}
		}
		shows("Write a line and press Enter. /help lists the commands, /quit ends.\n> ")
		write("hello\n")
		shows("")
		typing()
		shows("...")
		typing()
		shows(".")
		send("hi")
		shows("\r    \r\nhi\n\n> ")
		typing() // something may be being typed
		shows("")
		send("stretch!") // a reminder
		shows("\r  \r\nstretch!\n\n> ")
		write("\n")
		shows("> ")
		write("a paste\nof two lines\n")
		send("quick")
		shows("\nquick\n\n> ")
		write("it \\\n")
		shows("  ")
		write("goes on\n")
		write("/quit\n")
		select {
		case err := <-ended:
			t.Fatalf("Run = %v before the answer came", err)
		default:
		}
		send("bye")
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if want := []string{"hello", "a paste\nof two lines", "it \ngoes on"}; fmt.Sprint(in.texts()) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", in.texts(), want)
		}
	})
}

// What cannot be stored is offered until it can.
func TestNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen buffer
		c := New("console", strings.NewReader("keep this\n"), &screen, quiet)
		in := &inbox{fail: 5}
		in.answer = func(bus.InboundMessage) { _, _ = c.Send(context.Background(), out("kept")) }
		_, ended := start(t, c, in)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if got := in.texts(); len(got) != 1 || got[0] != "keep this" {
			t.Errorf("got %q", got)
		}
		if got := screen.String(); strings.Count(got, "keep trying") != 1 || !strings.HasSuffix(got, "kept\n") {
			t.Errorf("the output is %q", got)
		}
	})
}

// A read that waits for a person does not keep Run from returning, and no
// goroutine stays where the input can be interrupted.
func TestStopWhileReading(t *testing.T) {
	pipeEnd, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipeEnd.Close() }()
	defer func() { _ = keys.Close() }()
	memory, _ := io.Pipe()
	for name, in := range map[string]io.Reader{"a pipe": pipeEnd, "a closer": memory, "a reader that blocks": stuck{t.Context()}} {
		c := New("console", in, io.Discard, quiet)
		stop, ended := start(t, c, &inbox{})
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%s: Run = %v", name, err)
		}
		if c.Health() == nil {
			t.Errorf("%s: healthy after Run", name)
		}
	}
}

// stuck is an input that nothing wakes but its own end.
type stuck struct{ ctx context.Context }

func (s stuck) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, io.EOF }

// The ledger remembers the messages of earlier runs, so ids must not repeat.
func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := New("console", strings.NewReader("a\nb\n"), io.Discard, quiet)
			in := &inbox{}
			in.answer = func(bus.InboundMessage) { _, _ = c.Send(context.Background(), out("yes")) }
			_, ended := start(t, c, in)
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
			for _, m := range in.got {
				if seen[m.ID] || m.ID != "m:local:"+m.MessageID {
					t.Errorf("the id %q", m.ID)
				}
				seen[m.ID] = true
			}
		})
	}
	if len(seen) != 6 {
		t.Errorf("%d ids, want 6", len(seen))
	}
}

func TestConcurrent(t *testing.T) {
	var screen buffer
	c := New("console", strings.NewReader(""), &screen, quiet, WithTerminal(true))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				if _, err := c.Send(t.Context(), out(fmt.Sprintf("<%d.%d>", i, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		at := -1
		for n := range 20 {
			next := strings.Index(screen.String(), fmt.Sprintf("<%d.%d>\n", i, n))
			if next <= at {
				t.Fatalf("message %d of sender %d is missing or out of order", n, i)
			}
			at = next
		}
	}
}

// A model's answer cannot command the terminal.
func TestPrintable(t *testing.T) {
	got := printable("a\x1b[2Jb\u009bc\td\r\ne\rf\x00\x07")
	if want := "a[2Jbc\td\ne\nf"; got != want {
		t.Errorf("printable = %q, want %q", got, want)
	}
}

func TestOutputBroken(t *testing.T) {
	c := New("console", strings.NewReader(""), broken{}, quiet, WithTerminal(true))
	if _, err := c.Send(t.Context(), out("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Send = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Send(ctx, out("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLineTooLong(t *testing.T) {
	var screen buffer
	c := New("console", strings.NewReader(strings.Repeat("x", maxLine+1)+"\n"), &screen, quiet)
	if err := c.Run(t.Context(), &inbox{}); err != nil {
		t.Errorf("Run = %v", err)
	}
	if got := screen.String(); !strings.Contains(got, "more than 1 MB") {
		t.Errorf("the output is %q", got)
	}
}

func TestNothingToReadFrom(t *testing.T) {
	if err := New("console", nil, io.Discard, quiet).Run(t.Context(), &inbox{}); !errors.Is(err, channels.ErrSetup) {
		t.Errorf("Run = %v, want a setup error", err)
	}
}
