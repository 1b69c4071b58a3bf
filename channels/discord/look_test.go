package discord

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// lost sends a message whose acceptance is not heard of, and returns it as it is
// sent again.
func (r *rig) lost(m bus.OutboundMessage) bus.OutboundMessage {
	r.Helper()
	m.Since = time.Now()
	r.srv.CutAfterAccept(1)
	first := m
	first.Since = time.Time{}
	if _, err := r.send(first); !errors.Is(err, channels.ErrUnknownOutcome) {
		r.Fatalf("Send = %v, want one that wraps ErrUnknownOutcome", err)
	}
	return m
}

// outage is longer than Discord remembers a nonce.
const outage = 20 * time.Minute

// A message that was taken without our hearing of it is found as long afterwards
// as one likes, among what others have said and the bot itself; also by the next
// process.
func TestSendAgainMuchLater(t *testing.T) {
	inBubble(t, discordtest.Options{History: 1000}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		question := r.srv.Say(general, ann, "what?")
		earlier, err := r.send(message(general, "k0", "the answer"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		m := message(general, "k1", "the answer\n")
		m.ReplyTo = question
		since := time.Now() // it waited for a while
		for i := range 250 {
			r.srv.Say(general, ann, fmt.Sprint(i))
		}
		m = r.lost(m)
		m.Since = since
		time.Sleep(outage)
		r.srv.Say(general, ann, "the answer")
		for range 2 {
			receipt, err := r.send(m)
			if err != nil || receipt.MessageID == earlier.MessageID {
				t.Errorf("Send = %+v, %v", receipt, err)
			}
			if sent := r.srv.Sent(); len(sent) != 2 || sent[1].MessageID != receipt.MessageID {
				t.Errorf("sent %+v, receipt %+v", sent, receipt)
			}
			r.renew()
		}
		if strings.Contains(r.log.String(), "may_appear_twice") {
			t.Error(r.log)
		}
	})
}

// What is not there is sent: nothing that looks like it stands for it.
func TestSendAgainWhatIsNotThere(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		question, other := r.srv.Say(general, ann, "what?"), r.srv.Say(general, ann, "who?")
		m := message(general, "k", "the answer")
		m.ReplyTo, m.Since = question, time.Now()
		r.srv.Say(general, ann, "the answer") // somebody else's
		for i, like := range []bus.OutboundMessage{message(general, "k1", "the answer."), message(general, "k2", "the answer")} {
			if i == 1 {
				like.ReplyTo = other
			}
			if _, err := r.send(like); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(outage)
		before := len(r.srv.Sent())
		receipt, err := r.send(m)
		if sent := r.srv.Sent(); err != nil || len(sent) != before+1 || sent[before].MessageID != receipt.MessageID {
			t.Errorf("Send = %+v, %v; sent %+v", receipt, err, sent)
		}
	})
}

// Of two equal messages that were both to be sent, each is one: what was
// delivered before is not taken for what comes after it.
func TestSendAgainEqualMessages(t *testing.T) {
	for taken := range 3 { // how many of them Discord had
		inBubble(t, discordtest.Options{}, func(r *rig) {
			general := r.guildChannel()
			since := time.Now()
			for i := range taken {
				r.lost(message(general, fmt.Sprint("k", i), "same"))
			}
			time.Sleep(outage)
			last := ""
			for i := range 2 {
				m := message(general, fmt.Sprint("k", i), "same")
				m.Since, m.After = since, last
				receipt, err := r.send(m)
				if err != nil || receipt.MessageID == last {
					t.Errorf("of %d, %d: Send = %+v, %v", taken, i, receipt, err)
				}
				last = receipt.MessageID
			}
			if sent := r.srv.Sent(); len(sent) != 2 {
				t.Errorf("of %d: sent %+v", taken, sent)
			}
		})
	}
}

// Where it cannot be seen whether a message is there, it is sent, and the log
// says what that means; where Discord does not answer, it is looked for again.
func TestSendAgainWithoutSeeing(t *testing.T) {
	tests := map[string]struct {
		prepare func(r *rig, channel string)
		again   bool // Send fails once
		twice   bool
	}{
		"no right": {prepare: func(r *rig, c string) { r.srv.RefuseReads(c, 1) }, twice: true},
		"too much": {prepare: func(r *rig, c string) {
			r.srv.Forget(c, r.srv.Sent()[0].MessageID)
			ann := r.srv.AddUser("ann", "")
			for range 600 {
				r.srv.Say(c, ann, "chatter")
			}
		}, twice: true},
		"cut":       {prepare: func(r *rig, c string) { r.srv.FailReads(c, 2, 0) }, again: true}, // such a request is repeated once by itself
		"502":       {prepare: func(r *rig, c string) { r.srv.FailReads(c, 1, 502) }, again: true},
		"throttled": {prepare: func(r *rig, c string) { r.srv.ThrottleReads(c, 1, time.Second) }, again: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{History: 1000}, func(r *rig) {
				general := r.guildChannel()
				m := r.lost(message(general, "k", "hello"))
				tt.prepare(r, general)
				time.Sleep(outage)
				_, err := r.send(m)
				if tt.again {
					if err == nil || errors.Is(err, channels.ErrPermanent) || errors.Is(err, channels.ErrUnknownOutcome) {
						t.Errorf("Send = %v, want an error after which nothing was sent", err)
					}
					_, err = r.send(m)
				}
				want := 1
				if tt.twice {
					want = 2
				}
				if n := len(r.srv.Sent()); err != nil || n != want {
					t.Errorf("Send = %v, %d messages, want %d", err, n, want)
				}
				if said := strings.Contains(r.log.String(), "may_appear_twice=true"); said != (want == 2) {
					t.Errorf("log: %s", r.log)
				}
			})
		})
	}
}

// A message that was sent a moment ago is recognised by its nonce, without a
// look; and where nothing was ever sent nobody looks.
func TestSendDoesNotLookWithoutNeed(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		general := r.guildChannel()
		m := r.lost(message(general, "k", "hello"))
		time.Sleep(time.Minute)
		if _, err := r.send(m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(outage)
		if _, err := r.send(message(general, "k2", "hello")); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.srv.Calls() {
			if c.Method == http.MethodGet {
				t.Errorf("asked for %s", c.Path)
			}
		}
		if n := len(r.srv.Sent()); n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}
