package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// attempts is a channel that notes what it is told of each attempt.
type attempts struct {
	hooked
	seen []string
	fail func(n int) error
}

func (a *attempts) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	since := "never"
	if !m.Since.IsZero() {
		since = time.Since(m.Since).Truncate(time.Minute).String()
	}
	a.seen = append(a.seen, fmt.Sprintf("%s since %s after %q", m.Text, since, m.After))
	if err := a.fail(len(a.seen)); err != nil {
		return bus.Receipt{}, err
	}
	return a.hooked.Send(ctx, m)
}

// A channel is told from when on a message may have been sent, and what was
// delivered before it: within one process, and by the next one, which knows it
// where the same text could be mistaken for another.
func TestAttemptsKnowWhatMayHaveBeenSent(t *testing.T) {
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		down := errors.New("down")
		a := &attempts{fail: func(n int) error {
			switch n {
			case 1, 3:
				return fmt.Errorf("cut: %w", channels.ErrUnknownOutcome)
			case 4:
				return fmt.Errorf("not connected: %w", channels.ErrNotReady)
			case 6:
				time.Sleep(3 * time.Minute)
				return down
			}
			return nil
		}}
		a.fakeChannel = newFakeChannel("fake")
		withChannel := func(c *Config) { c.Channels = []channels.Channel{a} }
		r := start(t, fakeModel(echo), on(open()), withChannel)
		note := func(key string) store.Outbound {
			m := bus.OutboundMessage{Address: bus.Address{Channel: "fake", ChatID: "1"}, Key: key, Text: "same"}
			return store.Outbound{Message: m, Created: time.Now()}
		}
		r.note(t.Context(), bus.InboundMessage{}, store.Tx{Send: []store.Outbound{note("k1"), note("k2"), note("k3")}})
		time.Sleep(10 * time.Second)
		r.end() // while the third one is under way
		synctest.Wait()
		time.Sleep(time.Minute)
		r = start(t, fakeModel(echo), on(open()), withChannel)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{
			`same since never after ""`, `same since 0s after ""`, // k1
			`same since never after "1"`, `same since 0s after "1"`, `same since 0s after "1"`, // k2
			`same since never after "2"`, `same since 4m0s after "2"`, // k3
		}
		if fmt.Sprint(a.seen) != fmt.Sprint(want) {
			t.Errorf("attempts\n%q\nwant\n%q", a.seen, want)
		}
		if open := left(t, r.store); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}
