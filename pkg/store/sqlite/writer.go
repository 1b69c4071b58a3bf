package sqlite

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/failpoint"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

const (
	queueSize = 1024                   // jobs that wait for the writer
	mostRows  = 2048                   // in one commit, near enough
	mostHeld  = 4096                   // posted changes that wait for the disk to be cured
	retry     = 500 * time.Millisecond // how often that is tried
	pace      = 3 * time.Millisecond   // between the beginnings of two commits
)

// job is a change on its way to the disk. Whoever makes it may wait for done;
// until then it belongs to the writer.
type job struct {
	change *change
	err    error         // why the change was refused, or why it failed
	done   chan struct{} // nil if it was posted: nobody waits

	at       time.Time
	admitted []int64 // the seq of each admitted message, 0 for a duplicate
	amended  []store.Inbound
	queued   []int64 // like admitted, for outbox rows
}

// writer is the goroutine that owns the ledger. It takes all that waits, writes
// it in one transaction, and then answers.
type writer struct {
	ledger *ledger
	log    *slog.Logger
	queue  chan *job
	stop   <-chan struct{} // closed: write what is queued and end
	ended  chan struct{}

	began  time.Time // the last commit
	held   []*job    // posted changes the disk would not take, in order
	ill    error     // why the disk would not take the last write
	sweep  *sweeper
	health atomic.Pointer[error]
	lost   error // set before ended is closed: what was posted and not written
}

func (w *writer) run() {
	defer close(w.ended)
	timer := time.NewTimer(w.sweep.every)
	defer timer.Stop()
	for {
		queue := w.queue
		if len(w.held) >= mostHeld {
			queue = nil // whoever posts waits with us for the disk
		}
		select {
		case j := <-queue:
			jobs := w.gather(j)
			if w.ill != nil {
				w.settle(jobs, false, w.ill) // it is tried when the timer says so, not by everybody
				continue
			}
			if w.write(jobs); w.ill != nil {
				timer.Reset(retry)
			}
		case <-timer.C:
			timer.Reset(w.rest())
		case <-w.stop:
			w.end()
			return
		}
	}
}

// gather takes what else waits, up to the size of one commit. Right behind
// another commit it waits a little for more: under load a commit, and each page
// it writes, is then shared by many; a change that comes alone is not delayed.
func (w *writer) gather(first *job) []*job {
	jobs, rows := []*job{first}, first.change.size()
	pause := time.NewTimer(pace - time.Since(w.began))
	defer pause.Stop()
	for over := false; rows < mostRows && !over; {
		var j *job
		select {
		case j = <-w.queue:
		default:
			if over = time.Since(w.began) >= pace; over {
				continue
			}
			select {
			case j = <-w.queue:
			case <-pause.C:
				continue
			}
		}
		jobs = append(jobs, j)
		rows += j.change.size()
	}
	w.began = time.Now()
	return jobs
}

// write writes what was held and then jobs. If one of them is at fault, each is
// written for itself so that the others pass.
func (w *writer) write(jobs []*job) {
	jobs = append(w.held, jobs...)
	w.held = nil
	wrote, err := w.commit(jobs)
	if err == nil || !ours(err) || len(jobs) == 1 {
		w.settle(jobs, wrote, err)
		return
	}
	for i := range jobs {
		wrote, err := w.commit(jobs[i : i+1])
		if err != nil && !ours(err) {
			w.settle(jobs[i:], wrote, err)
			return
		}
		w.settle(jobs[i:i+1], wrote, err)
	}
}

// commit writes jobs in one transaction and reports whether there was anything
// to write.
func (w *writer) commit(jobs []*job) (wrote bool, err error) {
	some := make([]*job, 0, len(jobs))
	for _, j := range jobs {
		if !j.change.empty() {
			some = append(some, j)
		}
	}
	if len(some) == 0 {
		return false, nil
	}
	failpoint.Hit("store/before")
	err = w.ledger.write(some)
	failpoint.Hit("store/after")
	return true, err
}

// settle answers jobs. What the disk would not take fails if somebody waits for
// it, and is held if it was posted. Behind something held nothing passes, so
// the order stays.
func (w *writer) settle(jobs []*job, wrote bool, err error) {
	sick := err != nil && !ours(err)
	if sick || wrote && err == nil {
		w.setHealth(err)
	}
	if err != nil {
		err = fmt.Errorf("store: apply: %w", err)
	}
	for _, j := range jobs {
		switch {
		case j.done != nil:
			j.err = err
			close(j.done)
		case j.err != nil: // refused when it was posted
			w.refuse(j.err)
		case sick:
			w.held = append(w.held, j)
		case err != nil:
			w.refuse(err)
		}
	}
}

// refuse makes known that a posted change is at fault itself.
func (w *writer) refuse(err error) {
	w.log.Error("a posted change was refused", "err", err)
	if w.ill == nil {
		w.health.Store(&err)
	}
}

// setHealth notes how the last write went: ill says why the disk would not take
// it.
func (w *writer) setHealth(ill error) {
	switch {
	case ill != nil && w.ill == nil:
		w.log.Error("the ledger cannot be written", "err", ill)
	case ill == nil && w.ill != nil:
		w.log.Info("the ledger can be written again")
	}
	w.ill = ill
	if ill == nil {
		w.health.Store(nil)
		return
	}
	err := fmt.Errorf("store: %w", ill)
	w.health.Store(&err)
}

// rest is what the writer does when its timer says so: see whether the disk is
// cured, or a step of cleaning up. It returns when to do so next.
func (w *writer) rest() time.Duration {
	if w.ill != nil {
		if len(w.held) > 0 {
			w.write(nil)
		} else {
			err := w.ledger.probe()
			w.settle(nil, true, err)
		}
		if w.ill != nil {
			return retry
		}
		return w.sweep.every
	}
	now := time.Now()
	if !w.sweep.steady(now, now.Sub(w.sweep.opened), w.log) {
		return w.sweep.every
	}
	more, err := w.sweep.step(w.ledger, now)
	switch {
	case err != nil:
		w.setHealth(fmt.Errorf("clean up: %w", err))
		return retry
	case more:
		return sweepPause
	}
	return w.sweep.every
}

// end writes what is queued. The connection stays open for whoever closes it.
func (w *writer) end() {
	for {
		select {
		case j := <-w.queue:
			w.write(w.gather(j))
			continue
		default:
		}
		break
	}
	if len(w.held) > 0 {
		w.write(nil)
	}
	if len(w.held) > 0 {
		w.lost = fmt.Errorf("store: close: %d posted changes are lost: %w", len(w.held), *w.health.Load())
	}
}
