package gateway

import (
	"context"
	"crypto/subtle"
	"slices"
	"strings"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// ownerFact keeps who claimed the bot.
const ownerFact = "gateway/owner"

// ownership knows the owners, and the code that makes the first one. The code
// has 50 bits, too many to be guessed at the rate at which commands are
// answered.
type ownership struct {
	configured []string
	store      store.Store

	mu      sync.Mutex // the code is claimed once, whichever adapter asks
	claimed string     // who claimed the bot, "" if nobody
	code    string     // lower case; "" when there is an owner
}

// load reads who claimed the bot and returns the code to announce, "" if there
// is an owner already.
func (o *ownership) load(ctx context.Context) (string, error) {
	claimed, err := o.store.Fact(ctx, ownerFact)
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed = claimed
	if len(o.configured) > 0 || claimed != "" {
		o.code = ""
	}
	return o.code, nil
}

func (o *ownership) has(principal string) bool {
	if slices.Contains(o.configured, principal) {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claimed != "" && o.claimed == principal
}

// claims reports whether m looks like an attempt to claim the bot: then it is
// looked at even from a stranger.
func (o *ownership) claims(m bus.InboundMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.code != "" && !m.Group && m.Command == "start" && m.Args != ""
}

// claim makes the sender of m the owner if the code is right, and reports
// whether it did. Storing that is left to the caller.
func (o *ownership) claim(m bus.InboundMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	given := strings.ToLower(strings.TrimSpace(m.Args))
	if o.code == "" || m.Group {
		return false
	}
	if subtle.ConstantTimeCompare([]byte(given), []byte(o.code)) != 1 {
		return false
	}
	o.claimed, o.code = m.Principal, ""
	return true
}
