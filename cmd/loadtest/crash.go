package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/failpoint"
)

// crashResult is what became of everything while the daemon was killed again
// and again. What the fakes saw decides, not what the daemon says.
type crashResult struct {
	Kills  int    `json:"kills"`       // at random times
	Points int    `json:"fail_points"` // kills at named points
	Asked  int    `json:"asked"`
	Faults faults `json:"faults"` // Doubled: those that have no excuse
	// Excused are replies that came twice on a platform that cannot recognise a
	// repetition, the first one so shortly before a kill that its receipt was not
	// on disk.
	Excused  int      `json:"doubled_with_excuse"`
	Longest  float64  `json:"longest_excuse_ms"`   // from a first reply to the kill
	Logged   int      `json:"logged_as_possible"`  // lines of the log with may_appear_twice
	Counted  int      `json:"counted"`             // runs of the tool that must not run twice
	Repeated int      `json:"tool_runs_repeated"`  // of them, those that did
	NotHit   int      `json:"fail_points_not_hit"` // points that were never reached
	Recovery float64  `json:"longest_recovery_ms"` // from a start to the answer of all that was open
	Refused  int      `json:"model_refusals"`
	Notes    []string `json:"notes,omitempty"`
}

func (c *crashResult) bad() bool {
	return c.Faults.any() || c.Repeated > 0 || c.NotHit > 0 || c.Refused > 0 || c.Excused > c.Logged
}

// Sizes of the crash run.
const (
	crashTelegram = 24
	crashDiscord  = 8
	crashAhead    = 2
	// excuse is how long before a kill a reply may have been accepted whose
	// receipt was not stored: a commit of the ledger under load.
	excuse = time.Second
	// underway is how long after a kill the platform may still take what the
	// daemon had written to the socket. It is less than a start takes.
	underway = 25 * time.Millisecond
	// cutShort is what the fake model says of a request whose sender was killed.
	cutShort = "could not read the request body"
	// recoverWait is how long a message may go without an answer.
	recoverWait = 30 * time.Second
)

// crasher is a crash run.
type crasher struct {
	l    *loadtest
	r    *rig
	home *home
	rnd  *rand.Rand
	res  crashResult

	kills  []span
	counts string // file of the tool that must not run twice

	stop chan struct{} // closed: nobody writes any more
	load sync.WaitGroup

	silent sync.Once
}

// span is when a kill happened: between two moments.
type span struct{ from, to time.Time }

// runCrash kills the daemon at every fail point and at random times under load.
func (l *loadtest) runCrash(ctx context.Context) (crashResult, error) {
	return l.underLoad(ctx, crashAhead, func(c *crasher) error {
		if err := c.atPoints(ctx); err != nil {
			return err
		}
		return c.atRandom(ctx)
	})
}

// underLoad runs play while chats write, each with so many messages ahead of
// the answers, then lets everything be answered and closes the books. play
// starts and ends the daemon's processes.
func (l *loadtest) underLoad(ctx context.Context, ahead int, play func(*crasher) error) (crashResult, error) {
	r, err := newRig(ctx, rigConfig{telegram: crashTelegram, discord: crashDiscord, rounds: 1, jitter: 30 * time.Millisecond, once: true})
	if err != nil {
		return crashResult{}, err
	}
	c := &crasher{l: l, r: r, stop: make(chan struct{}), rnd: rand.New(rand.NewPCG(l.seed, 0))}
	err = c.run(ctx, ahead, play)
	return c.res, errors.Join(err, r.close())
}

func (c *crasher) run(ctx context.Context, ahead int, play func(*crasher) error) (err error) {
	if c.home, err = c.l.newHome(ctx, c.r, true, false); err != nil {
		return err
	}
	c.counts = filepath.Join(c.home.dir, "counts")
	c.home.env = []string{"DRAGOMAN_COUNT_FILE=" + c.counts}
	c.home.daemon = c.l.failing
	if err := c.warmUp(ctx); err != nil {
		return err
	}
	for i := range len(c.r.say) * ahead {
		c.load.Go(func() { c.chat(ctx, i%len(c.r.say)) })
	}
	err = play(c)
	c.quiet()
	if err != nil {
		return err
	}
	return c.finish(ctx)
}

// quiet makes the chats stop writing.
func (c *crasher) quiet() {
	c.silent.Do(func() { close(c.stop) })
	c.load.Wait()
}

// warmUp lets each chat speak once: a private channel of Discord that was never
// heard cannot be found after a gap.
func (c *crasher) warmUp(ctx context.Context) error {
	s, err := c.home.start(ctx)
	if err != nil {
		return err
	}
	var chats sync.WaitGroup
	for i := range c.r.say {
		chats.Go(func() { c.r.askAndWait(ctx, i) })
	}
	chats.Wait()
	return s.stop()
}

// chat writes, waits for the answer however long it takes, and writes again.
func (c *crasher) chat(ctx context.Context, i int) {
	b := &c.r.book.chats[i]
	for {
		b.writing.Lock()
		c.r.say[i](question(i, c.r.book.ask(i)))
		b.writing.Unlock()
		select {
		case <-b.heard:
		case <-c.stop:
			return
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(rand.N(20 * time.Millisecond)):
		case <-c.stop:
			return
		}
	}
}

// atPoints kills at each fail point, at its first time and at a later one.
func (c *crasher) atPoints(ctx context.Context) error {
	for _, name := range failpoint.Names() {
		for _, n := range []int{1, 2 + c.rnd.IntN(4), 6 + c.rnd.IntN(30)} {
			point := fmt.Sprintf("%s:%d", name, n)
			s, err := c.home.launch(ctx, failpoint.Env+"="+point)
			if err != nil {
				return err
			}
			select {
			case <-s.ended:
			case <-time.After(10 * time.Second):
				c.res.NotHit++
				c.note("%s was never hit", point)
			case <-ctx.Done():
				s.kill()
				return ctx.Err()
			}
			now := time.Now()
			s.kill()
			if !s.killed() {
				return fmt.Errorf("at %s the daemon ended with %w; its log: %s", point, s.err, s.tail())
			}
			c.res.Points++
			c.died(now.Add(-10*time.Millisecond), now)
			if err := c.recover(ctx, point); err != nil {
				return err
			}
		}
	}
	return nil
}

// atRandom kills at random times, sometimes while the daemon still starts.
func (c *crasher) atRandom(ctx context.Context) error {
	early := false
	for c.res.Kills < c.l.kills {
		s, err := c.home.launch(ctx)
		if err != nil {
			return err
		}
		wait := 80*time.Millisecond + c.upTo(600*time.Millisecond)
		if early = !early && c.rnd.IntN(4) == 0; early {
			wait = c.upTo(80 * time.Millisecond)
		}
		select {
		case <-time.After(wait):
		case <-s.ended:
			return fmt.Errorf("the daemon ended by itself: %w; its log: %s", s.err, s.tail())
		case <-ctx.Done():
		}
		from := time.Now()
		s.kill()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !s.killed() {
			return fmt.Errorf("the daemon ended by itself: %w; its log: %s", s.err, s.tail())
		}
		c.res.Kills++
		c.died(from, time.Now())
		if c.res.Kills%10 == 0 {
			if err := c.recover(ctx, fmt.Sprintf("kill %d", c.res.Kills)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *crasher) upTo(d time.Duration) time.Duration { return time.Duration(c.rnd.Int64N(int64(d))) }

func (c *crasher) died(from, to time.Time) {
	c.kills = append(c.kills, span{from, to})
	c.r.discord.ForgetSessions() // the connection is gone, and so is whoever could resume it
}

// recover lets the daemon run until everything that was written up to now is
// answered, and kills it once more.
func (c *crasher) recover(ctx context.Context, after string) error {
	mark := c.r.book.mark()
	s, err := c.home.start(ctx)
	if err != nil {
		return fmt.Errorf("after %s: %w", after, err)
	}
	err = c.await(ctx, s, mark, after)
	from := time.Now()
	s.kill()
	if err == nil && !s.killed() {
		err = fmt.Errorf("after %s the daemon ended by itself: %w; its log: %s", after, s.err, s.tail())
	}
	c.died(from, time.Now())
	return err
}

func (c *crasher) await(ctx context.Context, s *subject, mark []int, after string) error {
	for deadline := time.Now().Add(recoverWait); ; {
		open, some := c.r.book.openBefore(mark)
		if open <= c.r.book.told() {
			c.res.Recovery = max(c.res.Recovery, ms(time.Since(s.started)))
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s %d messages had no answer for %s, such as %v", after, open, recoverWait, some)
		}
		if err := pause(ctx, s, 5*time.Millisecond); err != nil {
			return fmt.Errorf("after %s: %w: %s", after, err, s.tail())
		}
	}
}

// finish lets the daemon answer what is left, stops it and closes the books.
func (c *crasher) finish(ctx context.Context) error {
	s, err := c.home.start(ctx)
	if err != nil {
		return err
	}
	if err := c.await(ctx, s, c.r.book.mark(), "the last kill"); err != nil {
		c.note("%v", err) // the books tell
	}
	if err := s.stop(); err != nil {
		return err
	}
	for _, n := range c.r.book.mark() {
		c.res.Asked += n
	}
	var strays []string
	c.res.Faults, strays = c.r.book.close()
	for _, text := range strays {
		c.note("a reply without a token in %s", text)
	}
	for _, text := range c.r.refused() {
		if text != cutShort {
			c.res.Refused++
			c.note("the model refused a request: %s", text)
		}
	}
	c.excuses()
	if err := c.readCounts(); err != nil {
		return err
	}
	log, err := os.ReadFile(c.home.log())
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	c.res.Logged = strings.Count(string(log), "may_appear_twice=true") + strings.Count(string(log), `"may_appear_twice":true`)
	return nil
}

// excuses sorts out which doubled replies could not be avoided.
func (c *crasher) excuses() {
	for i := range c.r.book.chats {
		for n, a := range c.r.book.chats[i].asked {
			for _, at := range a.again {
				gap, ok := c.excused(a.first, at)
				if i >= crashTelegram || !ok {
					c.note("%s came again after %s without an excuse", token(i, n), at.Sub(a.first).Round(time.Millisecond))
					continue
				}
				c.res.Excused++
				c.res.Faults.Doubled--
				c.res.Longest = max(c.res.Longest, ms(gap))
			}
		}
	}
}

// excused looks for a kill soon after a reply and before its repetition.
func (c *crasher) excused(first, again time.Time) (gap time.Duration, ok bool) {
	for _, k := range c.kills {
		if gap := k.from.Sub(first); first.Before(k.to.Add(underway)) && gap <= excuse && again.After(k.from) {
			return max(gap, 0), true
		}
	}
	return 0, false
}

// readCounts looks for calls that were run twice.
func (c *crasher) readCounts() error {
	f, err := os.Open(c.counts)
	if err != nil {
		return fmt.Errorf("read the counts: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	keys, what := map[string]string{}, map[[2]int]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		c.res.Counted++
		line := lines.Text()
		key, _, _ := strings.Cut(line, " ")
		twice := keys[key]
		keys[key] = line
		for _, t := range tokens(line) {
			if before, ok := what[t]; ok {
				twice = before
			}
			what[t] = line
		}
		if twice != "" {
			c.res.Repeated++
			c.note("a tool was run twice: %s, then %s", twice, line)
		}
	}
	return lines.Err()
}

// note keeps a remark for the report; the first few are enough.
func (c *crasher) note(format string, args ...any) {
	if len(c.res.Notes) < 20 {
		c.res.Notes = append(c.res.Notes, fmt.Sprintf(format, args...))
	}
}

// resumeResult is how soon interrupted conversations are answered.
type resumeResult struct {
	Chats   int     `json:"chats"`
	ToReady float64 `json:"start_to_ready_ms"`
	First   float64 `json:"start_to_first_answer_ms"`
	All     float64 `json:"start_to_all_answers_ms"`
	Faults  faults  `json:"faults"`
}

// runResume kills the daemon while chats wait for a model that hangs, and
// starts it again with a model that answers at once.
func (l *loadtest) runResume(ctx context.Context, chats int) (res resumeResult, err error) {
	r, err := newRig(ctx, rigConfig{telegram: chats})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	res.Chats = chats
	h, err := l.newHome(ctx, r, false, false)
	if err != nil {
		return res, err
	}
	s, err := h.start(ctx)
	if err != nil {
		return res, err
	}
	r.model.hang(true)
	for i := range r.say {
		r.say[i](question(i, r.book.ask(i)))
	}
	for r.model.hanging.Load() < int64(chats) {
		if err := pause(ctx, s, 5*time.Millisecond); err != nil {
			return res, errors.Join(err, s.stop())
		}
	}
	s.kill()
	r.model.hang(false)
	if s, err = h.start(ctx); err != nil {
		return res, err
	}
	for deadline := time.Now().Add(recoverWait); r.book.open() > 0 && time.Now().Before(deadline); {
		if err := pause(ctx, s, time.Millisecond); err != nil {
			return res, errors.Join(err, s.stop())
		}
	}
	if err := s.stop(); err != nil {
		return res, err
	}
	res.ToReady = ms(s.toReady)
	var first, last time.Time
	for i := range r.book.chats {
		a := r.book.chats[i].asked[0]
		if a.answered && (first.IsZero() || a.first.Before(first)) {
			first = a.first
		}
		if a.first.After(last) {
			last = a.first
		}
	}
	res.First, res.All = ms(first.Sub(s.started)), ms(last.Sub(s.started))
	res.Faults, _ = r.book.close()
	return res, nil
}
