package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// troubleResult is how the daemon bore one kind of trouble under load.
type troubleResult struct {
	Name   string `json:"name"`
	Failed string `json:"failed,omitempty"` // what it did that it must not do
	crashResult
}

// trouble is one kind of it. play disturbs a running daemon; judge looks at what
// became of the messages, and returns "" if all is well.
type trouble struct {
	name  string
	ahead int
	play  func(ctx context.Context, c *crasher, s *subject) (*subject, error)
	judge func(c *crashResult) string
}

// disturbances goes through all troubles.
func (l *loadtest) disturbances(ctx context.Context) error {
	if err := l.findFailing(ctx); err != nil {
		return err
	}
	for _, t := range []trouble{
		{"ten orderly stops", 2, stops, nothingAtAll},
		{"the model away", 1, modelAway, allTold},
		{"429 and 5xx from the platforms", 2, platformSick, nothingAtAll},
		{"connections cut after the platform took a reply", 2, platformCuts, onlyLogged},
		{"one user has blocked the bot, one chat is throttled", 1, othersGoOn, nothingAtAll},
		{"a full disk", 2, diskFull, nothingAtAll},
		{"clock jumps", 2, l.clockJumps, nothingAtAll},
	} {
		if err := l.bear(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func (l *loadtest) bear(ctx context.Context, t trouble) error {
	l.note("%s", t.name)
	cleanUp := func() error { return nil }
	if t.name == "a full disk" {
		var err error
		if cleanUp, err = l.smallDisk(); err != nil {
			l.note("skipped: %v", err)
			return nil
		}
	}
	res := troubleResult{Name: t.name}
	var err error
	res.crashResult, err = l.underLoad(ctx, t.ahead, func(c *crasher) error {
		s, err := c.home.start(ctx)
		if err != nil {
			return err
		}
		if err := pause(ctx, s, 300*time.Millisecond); err != nil {
			return errors.Join(err, s.stop())
		}
		s, err = t.play(ctx, c, s)
		if err != nil {
			s.kill()
			return err
		}
		c.quiet()
		if err := c.await(ctx, s, c.r.book.mark(), "it"); err != nil {
			c.note("%v", err) // the books tell
		}
		return s.stop()
	})
	err = errors.Join(err, cleanUp())
	if failed, ok := errors.AsType[misbehaved](err); ok {
		res.Failed, err = string(failed), nil
	}
	if err != nil {
		return err
	}
	if res.Failed == "" {
		res.Failed = t.judge(&res.crashResult)
	}
	if res.Failed == "" && res.Repeated > 0 {
		res.Failed = "a tool was run twice"
	}
	l.report.Troubles = append(l.report.Troubles, res)
	return nil
}

// misbehaved is something the daemon must not do.
type misbehaved string

func (m misbehaved) Error() string { return string(m) }

// nothingAtAll is the judgement of a trouble nobody must notice.
func nothingAtAll(c *crashResult) string {
	if c.Faults.any() || c.Excused > 0 {
		return "it was noticed"
	}
	return ""
}

// allTold: whoever got no answer was told so.
func allTold(c *crashResult) string {
	f := c.Faults
	if f.Lost != f.Stray || f.Doubled+f.Misrouted+f.Misordered+c.Excused > 0 {
		return "messages were left without a word, or answered twice"
	}
	return ""
}

// onlyLogged: a reply may come twice where that was logged as possible.
func onlyLogged(c *crashResult) string {
	if c.Faults.any() || c.Excused > c.Logged {
		return "it was noticed beyond what was logged as possible"
	}
	return ""
}

// stops ends the daemon in order and starts it again.
func stops(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	for range 10 {
		if err := pause(ctx, s, 100*time.Millisecond+c.upTo(300*time.Millisecond)); err != nil {
			return s, err
		}
		err := s.stop()
		c.r.discord.ForgetSessions()
		if err != nil {
			return s, err
		}
		if s, err = c.home.start(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// modelAway lets the model fail in each way for a while.
func modelAway(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	for _, kind := range []providers.ErrorKind{providers.KindRateLimit, providers.KindOverloaded, providers.KindUnreachable} {
		fail := func(string) providerstest.Response { return providerstest.Response{Failure: kind} }
		c.r.model.trouble.Store(&fail)
		if err := pause(ctx, s, 3*time.Second); err != nil {
			return s, err
		}
		c.r.model.trouble.Store(nil)
		if err := pause(ctx, s, time.Second); err != nil {
			return s, err
		}
	}
	return s, nil
}

// platformSick refuses one message in ten.
func platformSick(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	var n atomic.Int64
	sick := func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/sendMessage") {
			return false
		}
		switch n.Add(1) % 20 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 1","parameters":{"retry_after":1}}`)
		case 10:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>Bad Gateway</html>")
		default:
			return false
		}
		return true
	}
	c.r.sick.Store(&sick)
	defer c.r.sick.Store(nil)
	for range 20 {
		c.r.discord.Throttle(1, 200*time.Millisecond, false)
		c.r.discord.Fail(1, http.StatusServiceUnavailable)
		if err := pause(ctx, s, 200*time.Millisecond); err != nil {
			return s, err
		}
	}
	return s, nil
}

// platformCuts takes replies and cuts the connection before it says so.
func platformCuts(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	for range 40 {
		c.r.telegram.CutNext()
		c.r.discord.CutAfterAccept(1)
		from := time.Now()
		if err := pause(ctx, s, 100*time.Millisecond); err != nil {
			return s, err
		}
		c.kills = append(c.kills, span{from, time.Now()}) // a cut excuses what a kill does
	}
	return s, nil
}

// othersGoOn measures what everybody else notices of a blocked and a throttled
// chat.
func othersGoOn(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	const window = 5 * time.Second
	measure := func() (float64, error) {
		from := time.Now()
		if err := pause(ctx, s, window); err != nil {
			return 0, err
		}
		return c.r.book.p50(from, 2), nil
	}
	before, err := measure()
	if err != nil {
		return s, err
	}
	c.r.telegram.Block(c.r.people[0])
	c.r.telegram.Throttle(c.r.people[1], 30*time.Second)
	after, err := measure()
	if err != nil {
		return s, err
	}
	c.note("p50 of the others: %.1f ms before, %.1f ms after", before, after)
	if after > 1.2*before {
		return s, misbehaved(fmt.Sprintf("the others' p50 went from %.1f to %.1f ms", before, after))
	}
	c.r.book.excuse(0) // nothing can reach somebody who has blocked the bot
	return s, nil
}

// smallDisk mounts a small file system for the daemon's data.
func (l *loadtest) smallDisk() (cleanUp func() error, err error) {
	dir, err := os.MkdirTemp(l.dir, "disk-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w", err)
	}
	l.data = filepath.Join(dir, "data")
	return func() error {
		l.data = ""
		return syscall.Unmount(dir, 0)
	}, nil
}

// diskFull fills the disk, waits, and frees it.
func diskFull(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	filler := filepath.Join(filepath.Dir(c.l.data), "filler")
	defer func() { _ = os.Remove(filler) }() // after an error; otherwise it is gone
	if err := fill(filler); err != nil {
		return s, err
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	until := func(want bool, most time.Duration) (time.Duration, error) {
		from := time.Now()
		for ready(ctx, client, c.home.readyz()) != want {
			if time.Since(from) > most {
				return 0, misbehaved(fmt.Sprintf("after %s ready is still %t", most, !want))
			}
			if err := pause(ctx, s, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
		return time.Since(from), nil
	}
	unready, err := until(false, 5*time.Second)
	if err != nil {
		return s, err
	}
	if err := pause(ctx, s, 500*time.Millisecond); err != nil {
		return s, err
	}
	confirmed := c.r.telegram.Confirmed()
	if err := pause(ctx, s, 2*time.Second); err != nil {
		return s, err
	}
	if n := c.r.telegram.Confirmed(); n > confirmed {
		return s, misbehaved(fmt.Sprintf("%d messages were acknowledged that are on no disk", n-confirmed))
	}
	if err := os.Remove(filler); err != nil {
		return s, fmt.Errorf("free the disk: %w", err)
	}
	again, err := until(true, 10*time.Second)
	if err != nil {
		return s, err
	}
	c.note("not ready %d ms after the disk was full, ready %d ms after it was freed", unready.Milliseconds(), again.Milliseconds())
	return s, pause(ctx, s, time.Second)
}

// fill writes until the disk is full.
func fill(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("fill the disk: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// p50 is the middle time from serving to answer of what was asked from a moment
// on, without the first chats.
func (b *book) p50(from time.Time, skip int) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var delays []time.Duration
	for i := range b.chats[skip:] {
		for _, a := range b.chats[skip+i].asked {
			if a.answered && a.served.After(from) {
				delays = append(delays, a.first.Sub(a.served))
			}
		}
	}
	return latencyOf(delays).P50
}

// excuse takes what a chat still waits for out of the account.
func (b *book) excuse(chat int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.chats[chat]
	c.asked = slices.DeleteFunc(c.asked, func(a asked) bool { return !a.answered })
}
