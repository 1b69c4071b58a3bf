package webchat

import (
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of guessing: each address has so many wrong tokens at once, and gets
// one more every few seconds.
const (
	maxFailures   = 5
	failurePeriod = 10 * time.Second
	maxTracked    = 1024 // addresses remembered; beyond that they share one count
)

// failures counts wrong tokens by address. Its mutex guards the map alone.
type failures struct {
	mu     sync.Mutex
	byAddr map[string]*rate.Limiter
	rest   *rate.Limiter
	swept  time.Time // when byAddr was last rid of those with nothing left to count
}

func newFailures() *failures {
	return &failures{byAddr: map[string]*rate.Limiter{}, rest: newLimiter()}
}

func newLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(failurePeriod), maxFailures) }

// attempt counts a token that is about to be tried. ok is false when this
// address has to wait; otherwise right takes the count back after a right one.
func (f *failures) attempt(remote string, now time.Time) (right func(), ok bool) {
	r := f.limiter(remote, now).ReserveN(now, 1)
	if r.DelayFrom(now) > 0 {
		r.CancelAt(now)
		return nil, false
	}
	return func() { r.CancelAt(now) }, true
}

func (f *failures) limiter(remote string, now time.Time) *rate.Limiter {
	key := addressKey(remote)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.byAddr[key]
	if l != nil {
		return l
	}
	if len(f.byAddr) >= maxTracked && now.Sub(f.swept) >= failurePeriod {
		f.swept = now
		for k, l := range f.byAddr {
			if l.TokensAt(now) >= maxFailures {
				delete(f.byAddr, k)
			}
		}
	}
	if len(f.byAddr) >= maxTracked {
		return f.rest
	}
	l = newLimiter()
	f.byAddr[key] = l
	return l
}

// addressKey is what one household counts as: an IPv4 address, or the network
// of an IPv6 one.
func addressKey(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return host
	}
	if ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return ip.String()
}
