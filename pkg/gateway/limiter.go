package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// keyedLimiter is a set of token buckets by key. A bucket that is full again is
// forgotten, so that those who have gone leave nothing behind.
type keyedLimiter struct {
	mu    sync.Mutex // asked from workers and senders of all conversations
	m     map[string]*bucket
	sweep time.Time // when full buckets were last removed
}

type bucket struct {
	*rate.Limiter
	told bool // the person knows that they have to wait
}

const sweepEvery = time.Minute

func newKeyedLimiter() *keyedLimiter { return &keyedLimiter{m: map[string]*bucket{}} }

// reserve takes a token and returns how long to wait until it counts.
func (k *keyedLimiter) reserve(key string, limit rate.Limit, burst int) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.get(key, limit, burst).Reserve().Delay()
}

// try takes a token if there is one. Otherwise it returns how long until there
// is, and whether this is the first time since the bucket was full.
func (k *keyedLimiter) try(key string, limit rate.Limit, burst int) (wait time.Duration, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.get(key, limit, burst)
	now := time.Now()
	if b.TokensAt(now) >= float64(burst) {
		b.told = false
	}
	if b.AllowN(now, 1) {
		return 0, false
	}
	first = !b.told
	b.told = true
	missing := 1 - b.TokensAt(now)
	return max(time.Duration(missing/float64(limit)*float64(time.Second)), time.Millisecond), first
}

func (k *keyedLimiter) get(key string, limit rate.Limit, burst int) *bucket {
	if now := time.Now(); now.Sub(k.sweep) > sweepEvery {
		k.sweep = now
		kept := make(map[string]*bucket)
		for key, b := range k.m {
			if b.TokensAt(now) < float64(b.Burst()) {
				kept[key] = b
			}
		}
		k.m = kept
	}
	b, ok := k.m[key]
	if !ok {
		b = &bucket{Limiter: rate.NewLimiter(limit, burst)}
		k.m[key] = b
	}
	return b
}

// onceSet remembers keys, at most twice limit of them: when it is full the
// older half is forgotten.
type onceSet struct {
	mu         sync.Mutex // asked from the goroutines of all adapters
	limit      int
	young, old map[string]struct{}
}

func newOnceSet(limit int) *onceSet { return &onceSet{limit: limit, young: map[string]struct{}{}} }

// first reports whether key has not been seen before.
func (o *onceSet) first(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.young[key]; ok {
		return false
	}
	if _, ok := o.old[key]; ok {
		return false
	}
	if len(o.young) >= o.limit {
		o.old, o.young = o.young, map[string]struct{}{}
	}
	o.young[key] = struct{}{}
	return true
}

func (o *onceSet) forget(keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		delete(o.young, key)
		delete(o.old, key)
	}
}

func (s *senders) ratesFor(p *port, to bus.Address) (r channels.Rates) {
	if p.rater == nil {
		return r
	}
	defer func() {
		if v := recover(); v != nil {
			s.g.panicked(to, v)
		}
	}()
	return p.rater.RatesFor(to)
}

// window gives a token bucket that never lets more than n through in any
// window: what it holds when full and what flows in meanwhile add up to n.
func window(n float64) (limit rate.Limit, burst int) {
	burst = max(int(n/10), 1)
	return rate.Limit(max(n-float64(burst), n/2)), burst
}

// spare takes what the account's rate has left for something that may as well
// not be sent, and reports whether there was anything.
func (s *senders) spare(p *port, to bus.Address) bool {
	s.mu.Lock()
	paused := time.Now().Before(s.paused[to.Channel])
	s.mu.Unlock()
	if paused {
		return false
	}
	r := s.ratesFor(p, to)
	if r.GlobalPerSec <= 0 {
		return true
	}
	limit, burst := window(r.GlobalPerSec)
	wait, _ := s.rates.try("all/"+to.Channel, limit, burst)
	return wait == 0
}
