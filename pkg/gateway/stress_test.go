package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

var tokens = regexp.MustCompile(`\bq[0-9]+\b`)

// weather is a store, a model and a platform that fail now and then.
type weather struct {
	store.Store
	mu   sync.Mutex
	rand *rand.Rand
	bad  bool

	order map[string][]string // tokens by chat and person, as they were admitted
}

func (*weather) Close() error { return nil }

// fails says yes once in n times, while the weather is bad.
func (w *weather) fails(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bad && w.rand.IntN(n) == 0
}

func (w *weather) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rand.Int64N(int64(d)))
}

func (w *weather) set(bad bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = bad
}

func (w *weather) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	// A step that cannot be stored ends its turn with an apology, so they can.
	if len(tx.Steps) == 0 && w.fails(6) {
		return store.Result{}, errDisk
	}
	return w.Store.Apply(ctx, tx)
}

func (w *weather) Waiting(ctx context.Context, at bus.Address, after int64, limit int) ([]store.Inbound, error) {
	if w.fails(6) {
		return nil, errDisk
	}
	return w.Store.Waiting(ctx, at, after, limit)
}

// Chat repeats the tokens of a question, now and then after calling a tool that
// reports back later.
func (w *weather) Chat(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	select {
	case <-time.After(w.upTo(2 * time.Second)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	last := m[len(m)-1]
	if last.Role == providers.RoleTool {
		for i := len(m) - 1; last.Role == providers.RoleTool; i-- {
			last = m[i]
			if last.Role == providers.RoleAssistant {
				last = m[i-1]
			}
		}
	} else if strings.Contains(last.Content, "task") && !strings.Contains(last.Content, "has finished") {
		return callTool("later", nil)
	}
	return reply("answer " + strings.Join(tokens.FindAllString(last.Content, -1), " "))
}

// send fails now and then, sometimes after the message was delivered.
func (w *weather) send(bus.OutboundMessage, int) error {
	switch {
	case w.fails(10):
		return &channels.RateLimitError{RetryAfter: time.Second}
	case w.fails(10):
		return channels.ErrNotReady
	}
	return nil
}

// offer publishes a message as an adapter does, until it is stored.
func offer(ctx context.Context, g *Gateway, m ...bus.InboundMessage) bool {
	for ctx.Err() == nil {
		err := g.PublishInbound(ctx, bus.Batch{Messages: m})
		if err == nil {
			return true
		}
		if !errors.Is(err, errDisk) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// Whatever fails and however often the daemon is restarted, every question is
// answered in its own chat, in order, and nothing is left over.
func TestEverythingFailsNowAndThen(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStorm(t, seed) })
		})
	}
}

func runStorm(t *testing.T, seed uint64) {
	t.Helper()
	const chats, people, each = 6, 3, 12
	w := &weather{Store: mem.New(), rand: rand.New(rand.NewPCG(seed, 1)), bad: true, order: map[string][]string{}}
	ch := newFakeChannel("fake")
	ch.failing = w.send
	life := func() (*Gateway, func()) {
		registry := tools.NewToolRegistry()
		registry.Register(later{3 * time.Second, tools.NewToolResult("done")})
		w.set(false) // a ledger that cannot be read at the start ends Run
		defer w.set(true)
		r := start(t, w, func(c *Config) {
			c.Store, c.Channels, c.Tools = w, []channels.Channel{ch}, registry
			c.Grace = w.upTo(3 * time.Second)
			c.MaxParallelTurns = 4
		})
		return r.Gateway, func() {
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	var questions sync.Map // token: chat
	n := 0
	var batches [][]bus.InboundMessage
	for range each {
		for c := range chats {
			for p := range people {
				n++
				text := fmt.Sprintf("q%d", n)
				if n%5 == 0 {
					text += " task"
				}
				questions.Store(fmt.Sprintf("q%d", n), fmt.Sprint(c))
				batches = append(batches, []bus.InboundMessage{ch.from(fmt.Sprint(c), fmt.Sprint("p", p), text)})
			}
		}
		batches = append(batches, []bus.InboundMessage{ch.from("0", "p0", "/tasks"), ch.from("1", "p0", "/help")})
	}
	for len(batches) > 0 {
		g, stop := life()
		ctx, cancel := context.WithTimeout(t.Context(), w.upTo(4*time.Second))
		var adapters sync.WaitGroup
		part := batches[:min(len(batches), 40)]
		rest := make([][]bus.InboundMessage, len(part))
		for i, b := range part {
			// A chat's messages come in order, those of different chats do not.
			if i > 0 && b[0].ChatID == part[i-1][0].ChatID {
				adapters.Wait()
			}
			adapters.Go(func() {
				if !offer(ctx, g, b...) {
					rest[i] = b
					return
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				who := b[0].ChatID + " " + b[0].Sender.ID
				w.order[who] = append(w.order[who], tokens.FindAllString(b[0].Text, -1)...)
			})
			if i%chats == 0 {
				adapters.Wait()
				time.Sleep(w.upTo(50 * time.Millisecond))
			}
		}
		adapters.Wait()
		cancel()
		stop()
		left := slices.DeleteFunc(rest, func(b []bus.InboundMessage) bool { return b == nil })
		batches = append(left, batches[len(part):]...)
	}
	_, stop := life()
	w.set(false)
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	if open := left(t, w.Store); open != "" {
		t.Errorf("still open: %s", open)
	}
	stop()
	checkStorm(t, ch, &questions, n)
	checkOrder(t, ch, w.order)
}

// checkStorm compares what was sent with what was asked.
func checkStorm(t *testing.T, ch *fakeChannel, questions *sync.Map, n int) {
	t.Helper()
	answers := map[string]int{}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	keys := map[string]int{}
	for _, m := range ch.sent {
		if keys[m.Key]++; keys[m.Key] > 1 {
			t.Errorf("%q was sent again", m.Text)
		}
		for _, token := range tokens.FindAllString(m.Text, -1) {
			if chat, _ := questions.Load(token); chat != m.ChatID {
				t.Errorf("%s was asked in chat %v and answered in %s", token, chat, m.ChatID)
			}
			if strings.HasPrefix(m.Text, "answer") {
				answers[token]++
			}
		}
	}
	doubled := 0
	for _, c := range answers {
		if c > 1 {
			doubled++
		}
	}
	if doubled > 0 || len(answers) != n {
		t.Errorf("%d of %d questions were answered, %d of them twice, with %d messages", len(answers), n, doubled, len(ch.sent))
	}
}

// checkOrder tells whether each person was answered in the order they asked.
func checkOrder(t *testing.T, ch *fakeChannel, order map[string][]string) {
	t.Helper()
	who := map[string]string{}
	for person, list := range order {
		for _, token := range list {
			who[token] = person
		}
	}
	got := map[string][]string{}
	for _, m := range ch.sent {
		for _, token := range tokens.FindAllString(m.Text, -1) {
			got[who[token]] = append(got[who[token]], token)
		}
	}
	for person, want := range order {
		if !slices.Equal(got[person], want) {
			t.Errorf("%s asked %v and was answered %v", person, want, got[person])
		}
	}
}
