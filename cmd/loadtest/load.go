package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// The two programs that are measured.
const (
	whoDaemon = "daemon"
	whoBare   = "bare"
)

// loadResult is one measured run.
type loadResult struct {
	Who         string  `json:"who"`
	Store       string  `json:"store,omitempty"`
	Chats       int     `json:"chats"`
	Rounds      int     `json:"rounds"`
	Ahead       int     `json:"ahead"`
	Seconds     float64 `json:"seconds"`
	Turns       int     `json:"turns"` // answered within the measured window
	TurnsPerSec float64 `json:"turns_per_sec"`
	CPUPerTurn  float64 `json:"cpu_ms_per_turn"`
	latency
	RequestBytes int64   `json:"model_request_bytes"` // mean
	Start        memory  `json:"memory_at_start"`
	Load         memory  `json:"memory_under_load"`
	ToPoll       float64 `json:"start_to_poll_ms"`
	ToReady      float64 `json:"start_to_ready_ms"`
	Faults       faults  `json:"faults"`
	Refused      int     `json:"model_refusals"`
}

// question is what every chat writes, over and over.
func question(chat, n int) string {
	return "Could you have a look at the files and tell me about " + token(chat, n) + ", please?"
}

// answerWait is how long a message may stay without an answer before it counts
// as lost.
const answerWait = 30 * time.Second

// load runs one program under load.
func (l *loadtest) load(ctx context.Context, who string, rounds int) (loadResult, error) {
	cfg := rigConfig{telegram: l.chats, rounds: rounds, delay: l.modelDelay}
	if who == whoDaemon {
		cfg.discord = l.discordChats
	}
	r, err := newRig(ctx, cfg)
	if err != nil {
		return loadResult{}, err
	}
	res, err := l.loadRig(ctx, r, who, rounds)
	return res, errors.Join(err, r.close())
}

func (l *loadtest) loadRig(ctx context.Context, r *rig, who string, rounds int) (loadResult, error) {
	template := filepath.Join(l.dir, fmt.Sprintf("template-%d.json", rounds))
	var s *subject
	var err error
	store := ""
	if who == whoDaemon {
		store = l.ledger()
		s, err = l.startDaemon(ctx, r, l.discordChats > 0, false)
	} else {
		s, err = l.startBare(ctx, r, template, rounds)
	}
	if err != nil {
		return loadResult{}, err
	}
	res := loadResult{Who: who, Store: store, Chats: len(r.say), Rounds: rounds, Ahead: l.ahead, ToPoll: ms(s.toPoll), ToReady: ms(s.toReady)}
	res.Start, err = s.memory()
	if err == nil {
		err = l.drive(ctx, s, &res)
	}
	// Stopping makes the program send what it still holds: a doubled reply would
	// come now at the latest.
	if err = errors.Join(err, s.stop()); err != nil {
		return loadResult{}, err
	}
	if who == whoDaemon {
		if err := r.model.save(template); err != nil {
			return loadResult{}, err
		}
	}
	var strays []string
	res.Faults, strays = r.book.close()
	for _, text := range strays {
		l.note("%s: a reply without a token in %s", who, text)
	}
	refused := r.refused()
	res.Refused = len(refused)
	if len(refused) > 0 {
		l.note("%s: the model refused a request: %s", who, refused[0])
	}
	res.latency = r.book.latency()
	res.RequestBytes = r.model.meanBody()
	return res, nil
}

// drive lets every chat write, wait for its answer and write again, and
// measures a window after a warm-up. With ahead above 1 a chat has so many
// messages on the way at once, which is what can come out of order.
func (l *loadtest) drive(ctx context.Context, s *subject, res *loadResult) error {
	var stop atomic.Bool
	var chats sync.WaitGroup
	for i := range len(s.rig.say) * l.ahead {
		chats.Go(func() {
			for !stop.Load() {
				if !s.rig.askAndWait(ctx, i%len(s.rig.say)) {
					return
				}
			}
		})
	}
	defer func() {
		stop.Store(true)
		chats.Wait()
	}()
	if err := pause(ctx, s, l.warmUp()); err != nil {
		return err
	}
	cpu, err := s.cpu()
	if err != nil {
		return err
	}
	s.rig.book.count(true)
	began := time.Now()
	if err := pause(ctx, s, l.duration); err != nil {
		return err
	}
	res.Turns = s.rig.book.count(false)
	took := time.Since(began)
	used, err := s.cpu()
	if err != nil {
		return err
	}
	if res.Load, err = s.memory(); err != nil {
		return err
	}
	res.Seconds = took.Seconds()
	res.TurnsPerSec = float64(res.Turns) / took.Seconds()
	if res.Turns > 0 {
		res.CPUPerTurn = ms(used-cpu) / float64(res.Turns)
	}
	return nil
}

// warmUp lets connections open and caches fill before anything is measured.
func (l *loadtest) warmUp() time.Duration { return min(l.duration/5, 3*time.Second) }

// askAndWait writes one message in a chat and waits for its answer.
func (r *rig) askAndWait(ctx context.Context, chat int) bool {
	c := &r.book.chats[chat]
	c.writing.Lock()
	r.say[chat](question(chat, r.book.ask(chat)) + pad(r.pad))
	c.writing.Unlock()
	late := time.NewTimer(answerWait)
	defer late.Stop()
	select {
	case <-c.heard:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// pause waits while the program runs.
func pause(ctx context.Context, s *subject, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-s.ended:
		return errors.New("the program ended under load")
	case <-ctx.Done():
		return ctx.Err()
	}
}
