package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// idleResult is what the daemon takes while nobody writes.
type idleResult struct {
	Seconds float64 `json:"seconds"`
	memory
	CPU     float64 `json:"cpu_ms"`
	ToPoll  float64 `json:"start_to_poll_ms"`
	ToReady float64 `json:"start_to_ready_ms"`
}

// runIdle measures the daemon with Telegram, Discord and web chat on.
func (l *loadtest) runIdle(ctx context.Context) (res idleResult, err error) {
	err = l.with(ctx, rigConfig{telegram: 1, discord: 1}, true, true, func(s *subject) error {
		if err := pause(ctx, s, l.idle); err != nil {
			return err
		}
		res = idleResult{Seconds: l.idle.Seconds(), ToPoll: ms(s.toPoll), ToReady: ms(s.toReady)}
		cpu, err := s.cpu()
		if err != nil {
			return err
		}
		res.CPU = ms(cpu)
		res.memory, err = s.memory()
		return err
	})
	return res, err
}

// burstResult is how long chats that write together wait for their answers.
type burstResult struct {
	Chats int     `json:"chats"`
	Delay float64 `json:"model_delay_ms"`
	latency
	Faults faults `json:"faults"`
}

// bursts is how often the chats write together; the first time warms up.
const bursts = 4

// runBurst lets chats write at one moment to a slow model, a few times.
func (l *loadtest) runBurst(ctx context.Context) (res burstResult, err error) {
	delay := l.modelDelay
	if delay == 0 {
		delay = time.Second
	}
	res = burstResult{Chats: l.burst, Delay: ms(delay)}
	var book *book
	err = l.with(ctx, rigConfig{telegram: l.burst, delay: delay}, false, false, func(s *subject) error {
		book = s.rig.book
		for n := range bursts {
			book.count(n > 0)
			var chats sync.WaitGroup
			for i := range s.rig.say {
				chats.Go(func() { s.rig.askAndWait(ctx, i) })
			}
			chats.Wait()
		}
		return ctx.Err()
	})
	if book != nil {
		res.latency = book.latency()
		res.Faults, _ = book.close()
	}
	return res, err
}

// manyResult is what chats leave that have each spoken once.
type manyResult struct {
	Chats   int     `json:"chats"`
	Seconds float64 `json:"seconds"`
	Before  memory  `json:"memory_before"`
	Peak    memory  `json:"memory_at_the_end"`
	After   memory  `json:"memory_after_a_rest"`
	PerChat float64 `json:"anon_bytes_per_chat"`
	Faults  faults  `json:"faults"`
}

// manyAtOnce is how many of the chats wait for an answer at a time.
const manyAtOnce = 200

// runMany lets each of very many chats write once.
func (l *loadtest) runMany(ctx context.Context) (res manyResult, err error) {
	res.Chats = l.many
	var book *book
	err = l.with(ctx, rigConfig{telegram: l.many}, false, false, func(s *subject) error {
		book = s.rig.book
		if res.Before, err = s.memory(); err != nil {
			return err
		}
		began := time.Now()
		next := make(chan int)
		var askers sync.WaitGroup
		for range manyAtOnce {
			askers.Go(func() {
				for i := range next {
					s.rig.askAndWait(ctx, i)
				}
			})
		}
		for i := range l.many {
			next <- i
		}
		close(next)
		askers.Wait()
		res.Seconds = time.Since(began).Seconds()
		if res.Peak, err = s.memory(); err != nil {
			return err
		}
		if err := pause(ctx, s, l.rest); err != nil {
			return err
		}
		res.After, err = s.memory()
		return err
	})
	if book != nil {
		res.Faults, _ = book.close()
	}
	res.PerChat = (res.After.Anon - res.Before.Anon) * (1 << 20) / float64(max(l.many, 1))
	return res, err
}

// with runs f while the daemon runs against a rig, and stops both.
func (l *loadtest) with(ctx context.Context, cfg rigConfig, discord, web bool, f func(*subject) error) error {
	r, err := newRig(ctx, cfg)
	if err != nil {
		return err
	}
	s, err := l.startDaemon(ctx, r, discord, web)
	if err != nil {
		return errors.Join(err, r.close())
	}
	err = f(s)
	err = errors.Join(err, s.stop())
	if refused := r.refused(); len(refused) > 0 {
		err = errors.Join(err, fmt.Errorf("the model refused a request: %s", refused[0]))
	}
	return errors.Join(err, r.close())
}
