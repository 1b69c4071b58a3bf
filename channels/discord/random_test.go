package discord

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
)

// chaos is a bot to which everything happens that can.
type chaos struct {
	*rig
	*rand.Rand
	ann, bob discordtest.User
	places   []string
	want     map[string][]string // channel -> what was said there
	said     int
	sent     int
}

// TestRandom: whatever happens, in whatever order, each message arrives once,
// and in each channel in its order.
func TestRandom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, discordtest.Options{History: 10000}, func(r *rig) {
				c := &chaos{rig: r, Rand: rand.New(rand.NewPCG(seed, 0)), want: map[string][]string{}}
				c.begin()
				for range 60 {
					c.step()
				}
				c.end()
			})
		})
	}
}

func (c *chaos) begin() {
	c.Helper()
	c.cfg.CatchUp = CatchUp{MaxAge: 1000 * time.Hour, MaxMessages: 10000}
	c.renew()
	c.ann, c.bob = c.srv.AddUser("ann", ""), c.srv.AddUser("bob", "")
	guild := c.srv.AddGuild("Guild")
	general := c.srv.AddChannel(guild, "general")
	c.places = []string{c.srv.AddDM(c.ann), c.srv.AddDM(c.bob), general, c.srv.AddChannel(guild, "random"), c.srv.AddThread(general, "thread")}
	c.connect()
	c.places = append(c.places, c.srv.AddQuietThread(general, "quiet"))
	for _, id := range c.places {
		c.say(id)
	}
	synctest.Wait()
}

func (c *chaos) place() string { return c.places[c.IntN(len(c.places))] }

func (c *chaos) say(channel string) {
	c.said++
	text := fmt.Sprint(c.said)
	c.want[channel] = append(c.want[channel], text)
	by := c.ann
	if channel == c.places[1] {
		by = c.bob
	}
	c.srv.Say(channel, by, text)
}

func (c *chaos) talk() {
	for range c.IntN(20) {
		c.say(c.place())
	}
}

// away ends the adapter and starts a new one, with talk in between. A crash is
// an end at which nothing is stored any more.
func (c *chaos) away(crash bool) {
	c.Helper()
	c.in.fail(map[bool]int{true: 1 << 30}[crash])
	c.talk()
	if c.IntN(2) == 0 {
		synctest.Wait()
	}
	c.stop()
	c.talk()
	time.Sleep(time.Duration(c.IntN(100)) * time.Second)
	c.in.fail(0)
	c.renew()
	c.start()
	c.talk()
}

func (c *chaos) step() {
	c.Helper()
	switch c.IntN(16) {
	case 0:
		c.srv.DropSockets()
	case 1: // again and again, also while a gap is being read
		for range 1 + c.IntN(4) {
			c.srv.InvalidateSessions(false)
			c.talk()
			time.Sleep(time.Duration(c.IntN(6)) * time.Second)
			c.talk()
		}
	case 2:
		c.srv.CloseSockets(discordtest.CloseSessionTimedOut, "")
	case 3:
		c.away(false)
	case 4:
		c.away(true)
	case 5:
		c.srv.SetDown(true)
		c.srv.ForgetSessions()
		c.talk()
		time.Sleep(time.Duration(c.IntN(100)) * time.Second)
		c.srv.SetDown(false)
	case 6:
		c.srv.ThrottleReads(c.place(), 1+c.IntN(3), time.Duration(c.IntN(30))*time.Second)
	case 7:
		c.srv.FailReads(c.place(), 1+c.IntN(3), []int{0, http.StatusBadGateway}[c.IntN(2)])
	case 8:
		c.in.fail(c.IntN(4))
	case 9:
		c.facts.failNext(c.IntN(4))
	case 10, 11:
		c.sent++
		_, _ = c.send(message(c.place(), fmt.Sprint("k", c.sent), "an answer")) // whether it can be sent is no concern here
	case 12:
		time.Sleep(time.Duration(c.IntN(60)) * time.Second)
	case 13:
		synctest.Wait()
	default:
		c.talk()
	}
}

func (c *chaos) end() {
	c.Helper()
	c.in.fail(0)
	time.Sleep(time.Hour) // all trouble is over
	c.until("connected", func(s discordtest.Stats) bool { return s.Connected == 1 })
	for _, id := range c.places { // a thread nobody tells of comes up with its next message
		c.say(id)
	}
	got := map[string][]string{}
	for range c.said {
		m := c.next()
		got[m.ChatID] = append(got[m.ChatID], m.Text)
	}
	for i, id := range c.places {
		if !slices.Equal(got[id], c.want[id]) {
			c.Errorf("channel %d: got %q, want %q", i, got[id], c.want[id])
		}
	}
	c.quietFor(time.Hour)
}
