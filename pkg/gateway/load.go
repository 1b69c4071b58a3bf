package gateway

import "time"

// Load is what a gateway has before it at a moment. What waits for a channel
// that is not configured does not count.
type Load struct {
	Turns   int // turns that run, or wait for their slot
	Waiting int // messages that wait for their turn
	Unsent  int // messages that wait for their platform, or are being sent

	// How long the first of them waits; 0 if none does.
	OldestWaiting, OldestUnsent time.Duration
}

// Load returns how much there is to do. It takes a few steps for each
// conversation that is alive. Safe for concurrent use.
func (g *Gateway) Load() Load {
	var l Load
	now := time.Now()
	g.lanes.mu.Lock()
	for _, ln := range g.lanes.m {
		if ln.running != nil {
			l.Turns++
		}
		l.Waiting += len(ln.waiting) + len(ln.behind)
		// What is only in the ledger is younger, or is read when the turns of before
		// a restart are over.
		if len(ln.waiting) > 0 {
			l.OldestWaiting = max(l.OldestWaiting, now.Sub(ln.waiting[0].Admitted))
		}
	}
	g.lanes.mu.Unlock()
	g.senders.mu.Lock()
	defer g.senders.mu.Unlock()
	for _, ln := range g.senders.m {
		l.Unsent += len(ln.queue)
		first := ln.first
		if !first.IsZero() {
			l.Unsent++
		} else if len(ln.queue) > 0 {
			first = ln.queue[0].Created
		}
		if !first.IsZero() {
			l.OldestUnsent = max(l.OldestUnsent, now.Sub(first))
		}
	}
	return l
}
