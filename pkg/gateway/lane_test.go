package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

// slowReturn is a store whose Apply can be held up after it has applied.
type slowReturn struct {
	store.Store
	hold func(store.Tx) // blocks as long as the caller is to wait
}

func (slowReturn) Close() error { return nil }

func (s slowReturn) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	res, err := s.Store.Apply(ctx, tx)
	if s.hold != nil {
		s.hold(tx)
	}
	return res, err
}

// questions is a model that notes what it is asked and answers after a while.
type questions struct {
	takes time.Duration
	mu    sync.Mutex
	asked []string
}

func (q *questions) Chat(_ context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	time.Sleep(q.takes)
	q.mu.Lock()
	defer q.mu.Unlock()
	text := m[len(m)-1].Content
	q.asked = append(q.asked, text)
	return reply("re: " + text)
}

func (q *questions) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.asked)
}

// A message that is in the ledger already but still on its way to a lane that
// reads the ledger has one turn, not two.
func TestMessageOnItsWayIsNotReadBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ledger := slowReturn{mem.New(), func(tx store.Tx) {
			if len(tx.Admit) > 0 && tx.Admit[0].Text == "late" {
				<-release
			}
		}}
		model := &questions{takes: time.Millisecond}
		r := start(t, model, func(c *Config) { c.Store = ledger })
		for i := range maxWaiting + 2 {
			r.say(r.ch.from("1", fmt.Sprint("u", i), fmt.Sprint(i)))
		}
		late := r.ch.from("1", "late", "late")
		published := make(chan struct{})
		go func() {
			defer close(published)
			r.say(late)
		}()
		time.Sleep(time.Second) // all the others are answered
		if n := len(model.all()); n != maxWaiting+2 {
			t.Errorf("%d questions while one is on its way, want %d", n, maxWaiting+2)
		}
		close(release)
		<-published
		time.Sleep(time.Second)
		asked := model.all()
		if n := len(asked); n != maxWaiting+3 || asked[n-1] != "late" {
			t.Errorf("%d questions, the last of them %q", n, asked[n-1])
		}
		if open := left(t, r.store); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}

// /stop also sets aside what waits in the ledger only, and nobody else's.
func TestStopReachesWhatWaitsInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &questions{takes: time.Minute}
		r := start(t, model, func(c *Config) { c.TurnTimeout = 0 })
		r.say(r.ch.from("1", "a", "first"))
		synctest.Wait()
		for i := range 3 * maxWaiting {
			r.say(r.ch.from("1", "a", fmt.Sprint("more", i)))
			if i%maxWaiting == 0 {
				r.say(r.ch.from("1", "b", fmt.Sprint("b", i)))
			}
		}
		r.say(r.ch.from("1", "a", "/stop"), r.ch.from("1", "a", "after"))
		synctest.Wait()
		if got := r.ch.texts("1"); !slices.Contains(got, "Stopped: my answer, 192 waiting messages of yours.") {
			t.Errorf("sent %q", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := strings.Split(strings.Join(model.all(), "\n"), "\n"), []string{"first", "b0", "b64", "b128", "after"}; !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
		if open := left(t, r.store); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}

// A /stop that comes together with the question stops it, wherever the worker
// happens to be.
func TestStopRightBehindTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuckModel())
		for i := range 2000 {
			chat := fmt.Sprint(i)
			r.say(r.ch.from(chat, "a", "hi"), r.ch.from(chat, "a", "/stop"))
		}
		if lanes, _ := r.alive(); lanes != 0 {
			t.Errorf("%d questions of 2000 go on after /stop", lanes)
		}
	})
}

// Photos of an album, or a sticker and then words, are one thing.
func TestWhatCannotBeReadIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo), func(c *Config) { c.TurnsPerMinute = 10 })
		photo := func() bus.InboundMessage {
			m := r.ch.from("1", "a", "")
			m.Media = []bus.Media{{Kind: "photo"}}
			return m
		}
		var album []bus.InboundMessage
		for range 10 {
			album = append(album, photo())
		}
		r.say(album...)
		synctest.Wait()
		got := r.ch.texts("1")
		if len(got) > 2 || !strings.HasPrefix(got[0], "I cannot see a photo yet") {
			t.Errorf("an album was answered %q", got)
		}
	})
}

// What several commands stand between is bounded like other commands.
func TestFloodOfFreshStartsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		for range 100 {
			r.say(r.ch.from("1", "a", "/new"))
		}
		synctest.Wait()
		fresh := 0
		for _, text := range r.ch.texts("1") {
			if strings.HasPrefix(text, "A fresh start") {
				fresh++
			}
		}
		if fresh != commandBurst {
			t.Errorf("100 fresh starts at once were answered %d times", fresh)
		}
	})
}

// In a group nobody keeps others waiting for longer than it takes a slow
// sender's next turn to come, whatever they flood it with.
func TestAFloodKeepsNobodyElseWaiting(t *testing.T) {
	for name, flood := range map[string]func(f *fakeChannel, i int) bus.InboundMessage{
		"words":    func(f *fakeChannel, i int) bus.InboundMessage { return f.from("1", "a", fmt.Sprint(i)) },
		"stickers": sticker,
		"mixed": func(f *fakeChannel, i int) bus.InboundMessage {
			if i%2 == 0 {
				return sticker(f, i)
			}
			return f.from("1", "a", fmt.Sprint(i))
		},
		"starts": func(f *fakeChannel, i int) bus.InboundMessage {
			if i%2 == 0 {
				return f.from("1", "a", "/new")
			}
			return f.from("1", "a", fmt.Sprint(i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, fakeModel(echo), func(c *Config) { c.TurnsPerMinute = 10 })
				for i := range 3 * maxWaiting {
					r.say(flood(r.ch, i))
				}
				r.say(r.ch.from("1", "b", "mine"))
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if got := r.ch.texts("1"); !slices.Contains(got, "re: mine") {
					t.Errorf("after 90 s b has no answer among %d messages", len(got))
				}
			})
		})
	}
}

func sticker(f *fakeChannel, _ int) bus.InboundMessage {
	m := f.from("1", "a", "")
	m.Media = []bus.Media{{Kind: "sticker"}}
	return m
}

// What a crash left over is taken up again: messages in order, commands too.
func TestLeftoversAreTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := keep{mem.New()}
		ch := newFakeChannel("fake")
		tx := store.Tx{Admit: []bus.InboundMessage{ch.from("1", "a", "/help")}}
		for i := range 2*maxWaiting + 1 {
			tx.Admit = append(tx.Admit, ch.from("1", fmt.Sprint("u", i), fmt.Sprint(i)))
		}
		for i := range tx.Admit {
			m := &tx.Admit[i]
			m.Principal, m.SessionKey = bus.Principal(m.Channel, m.Sender.ID), m.String()
		}
		if _, err := ledger.Apply(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		r := start(t, fakeModel(echo), func(c *Config) { c.Store = ledger })
		synctest.Wait()
		got := r.ch.texts("1")
		if len(got) != 2*maxWaiting+2 || got[0] != helpText || got[len(got)-1] != fmt.Sprint("re: ", 2*maxWaiting) {
			t.Errorf("%d answers: %.60q", len(got), got)
		}
		if open := left(t, ledger); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}
