package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

func TestStrike(t *testing.T) {
	steps := func(n int) []store.Step { return make([]store.Step, n) }
	for _, tc := range []struct {
		name  string
		was   store.Mark
		steps int
		want  store.Mark
		alone bool
	}{
		{"first time, nothing done", store.Mark{}, 0, store.Mark{Strikes: 1}, false},
		{"first time, something done", store.Mark{}, 3, store.Mark{Steps: 3}, false},
		{"again, nothing new", store.Mark{Steps: 3, Strikes: 1}, 3, store.Mark{Steps: 3, Strikes: 2}, false},
		{"again, a new step clears it", store.Mark{Steps: 3, Strikes: 2}, 4, store.Mark{Steps: 4}, false},
		{"alone, but it went on", store.Mark{Steps: 3, Strikes: 3, Alone: true}, 4, store.Mark{Steps: 4}, false},
		{"alone", store.Mark{Steps: 3, Strikes: 3, Alone: true}, 3, store.Mark{Steps: 3, Strikes: 4}, true},
		{"it waited for others to be alone", store.Mark{Steps: 3, Strikes: 5}, 3, store.Mark{Steps: 3, Strikes: 5}, false},
		{"alone, and again", store.Mark{Steps: 3, Strikes: 5, Alone: true}, 3, store.Mark{Steps: 3, Strikes: 6}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			turn := store.Turn{ID: "t", Steps: steps(tc.steps), Mark: tc.was}
			tc.want.Turn = "t"
			if got := strike(&turn); got != tc.alone || turn.Mark != tc.want {
				t.Errorf("alone %t, mark %+v; want %t, %+v", got, turn.Mark, tc.alone, tc.want)
			}
		})
	}
}

// crashing is a store whose process does not end in order: nothing is noted about
// the turns that were running.
type crashing struct{ store.Store }

func (c crashing) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if len(tx.Marks) > 0 && tx.Marks[0].Steps < 0 {
		return store.Result{}, nil
	}
	return c.Store.Apply(ctx, tx)
}

// Stopping the daemon in order is held against no turn.
func TestStoppingIsNoStrike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := func(c *Config) { c.Grace = time.Second }
		r := start(t, stuckModel(), quick)
		r.say(r.ch.from("1", "a", "hello"))
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		for range 2 * maxStrikes {
			again := start(t, stuckModel(), quick, func(c *Config) { c.Store = r.store })
			synctest.Wait()
			if err := again.stop(); err != nil {
				t.Fatal(err)
			}
		}
		last := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		last.wantTexts("1", "re: hello")
	})
}

// A turn that ends the process each time is found out: it runs alone, and if
// even that ends the process it is set aside and its sender told. Everybody
// else is answered meanwhile.
func TestPoisonedTurnIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beside, alone atomic.Int32
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if strings.Contains(m[len(m)-1].Content, "poison") {
				if beside.Load() == 0 {
					alone.Add(1)
				}
				<-ctx.Done() // the process ends here
				return nil, ctx.Err()
			}
			beside.Add(1)
			defer beside.Add(-1)
			time.Sleep(time.Second)
			return reply("fine")
		})
		quick := func(c *Config) { c.Grace = 3 * time.Second }
		r := start(t, model, quick, func(c *Config) { c.Store = crashing{c.Store} })
		r.say(r.ch.from("1", "a", "poison"))
		synctest.Wait()
		ledger := r.store
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		for i := range maxStrikes + maxAlone + 1 {
			again := start(t, model, quick, func(c *Config) { c.Store = ledger })
			synctest.Wait()
			if i < maxStrikes+maxAlone {
				again.wantTexts("1")
			}
			last := i == maxStrikes+maxAlone
			if last {
				again.wantTexts("1", textSetAside)
				again.ch.next = 100 // another message than the first
				again.say(again.ch.from("1", "a", "hello"))
				time.Sleep(2 * time.Second)
				again.wantTexts("1", textSetAside, "fine")
				past, err := again.store.History(t.Context(), bus.Address{Channel: "fake", ChatID: "1"}.String(), 10)
				if err != nil || len(past) < 2 || past[0].Message.Content != "poison" || past[1].Message.Content != textSetAside {
					t.Errorf("the history is %v, %v, want the question and what was told", past, err)
				}
			}
			if err := again.stop(); err != nil {
				t.Fatal(err)
			}
		}
		if alone.Load() == 0 {
			t.Error("the turn never ran alone")
		}
	})
}

// Turns that are under suspicion run alone, but not for as long as they like.
func TestSuspectsDoNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const suspects = 3
		ledger, quick := mem.New(), func(c *Config) { c.Grace = time.Second }
		for i := range maxStrikes + 1 {
			r := start(t, stuckModel(), quick, func(c *Config) { c.Store = crashing{keep{ledger}} })
			for n := range suspects {
				if i == 0 {
					r.say(r.ch.from(fmt.Sprint(n), "a", "question"))
				}
			}
			synctest.Wait()
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		var together, most atomic.Int32
		model := fakeModel(func(context.Context, []providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
			n := together.Add(1)
			defer together.Add(-1)
			most.Store(max(most.Load(), n))
			time.Sleep(2 * time.Minute)
			return reply("fine")
		})
		again := start(t, model, func(c *Config) { c.Store = keep{ledger} })
		synctest.Wait()
		if n := most.Load(); n != 1 {
			t.Fatalf("%d turns run at once, the first of them under suspicion", n)
		}
		again.ch.next = 100
		again.say(again.ch.from("other", "b", "hello"))
		time.Sleep(suspects * aloneFor(maxStrikes+1, suspects))
		synctest.Wait()
		if n := together.Load(); n != suspects+1 {
			t.Errorf("%d turns run at once after a while, want all", n)
		}
		time.Sleep(3 * time.Minute)
		for n := range suspects {
			again.wantTexts(fmt.Sprint(n), "fine")
		}
		again.wantTexts("other", "fine")
	})
}

// Somebody who kills the process again and again, before any turn gets on, is no
// reason to set one aside.
func TestManyKillsSetNothingAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chats, kills = 12, 20
		ledger, quick := mem.New(), func(c *Config) { c.Grace = 100 * time.Millisecond }
		for i := range kills {
			r := start(t, stuckModel(), quick, func(c *Config) { c.Store = crashing{keep{ledger}} })
			for n := range chats {
				if i == 0 {
					r.say(r.ch.from(fmt.Sprint(n), "a", "question"))
				}
			}
			time.Sleep(time.Second)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = keep{ledger} })
		time.Sleep(time.Minute)
		for n := range chats {
			again.wantTexts(fmt.Sprint(n), "re: question")
		}
	})
}

// A call that may be made again begins again at each start: that is no step.
func TestBeginningAgainIsNoProgress(t *testing.T) {
	begin, end := store.Step{Kind: store.StepBegin}, store.Step{Kind: store.StepEnd}
	turn := store.Turn{ID: "t", Steps: []store.Step{{Kind: store.StepReply}, begin, begin}, Mark: store.Mark{Steps: 1, Strikes: 1}}
	if strike(&turn); turn.Mark.Strikes != 2 {
		t.Errorf("%d strikes, want 2", turn.Mark.Strikes)
	}
	turn.Steps = append(turn.Steps, end)
	if strike(&turn); turn.Mark.Strikes != 0 {
		t.Errorf("%d strikes after a step, want none", turn.Mark.Strikes)
	}
}

// lateChannel works only after it has brought what was missed.
type lateChannel struct {
	*fakeChannel
	works atomic.Bool
}

func (c *lateChannel) Health() error {
	if !c.works.Load() {
		return errors.New("not yet")
	}
	return nil
}

// A question that was changed while the daemon was away is answered as it is
// now, also if its turn had begun.
func TestTurnsOfBeforeWaitForTheFirstPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := mem.New()
		r := start(t, stuckModel(), func(c *Config) { c.Store, c.Grace = crashing{keep{ledger}}, time.Second })
		begun, waits := r.ch.from("1", "a", "old"), r.ch.from("1", "b", "old too")
		r.say(begun, waits)
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		late := &lateChannel{fakeChannel: newFakeChannel("fake")}
		late.run = func(ctx context.Context, in bus.Inbox) error {
			time.Sleep(firstPoll / 2)
			changes := []bus.InboundMessage{amended(begun, bus.KindEdited, "new"), amended(waits, bus.KindEdited, "new too")}
			if err := in.PublishInbound(ctx, bus.Batch{Messages: changes}); err != nil {
				return err
			}
			late.works.Store(true)
			<-ctx.Done()
			return nil
		}
		again := start(t, fakeModel(echo), func(c *Config) { c.Store, c.Channels = keep{ledger}, []channels.Channel{late} })
		again.ch = late.fakeChannel
		time.Sleep(time.Minute)
		again.wantTexts("1", "re: new", "re: new too")
	})
}

// What an earlier process left without a receipt it may have sent: each such
// message is sent again, and logged.
func TestUnsentMessagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := mem.New()
		var rows []store.Outbound
		for _, key := range []string{"k1", "k2"} {
			rows = append(rows, store.Outbound{Turn: "t", Message: bus.OutboundMessage{
				Address: bus.Address{Channel: "fake", ChatID: "1"}, Key: key, Text: "text " + key,
			}})
		}
		if _, err := ledger.Apply(t.Context(), store.Tx{Send: rows}); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		r := start(t, fakeModel(echo), func(c *Config) {
			c.Store, c.Log = keep{ledger}, slog.New(slog.NewTextHandler(&log, nil))
		})
		r.wantTexts("1", "text k1", "text k2")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "may_appear_twice=true"); n != 2 {
			t.Errorf("%d of 2 messages were logged: %s", n, log.String())
		}
		if want := "turns=0 conversations_waiting=0 unsent=2 tasks=0"; !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log.String())
		}
	})
}
