package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// ill is a store on a disk that is full for a while: it takes nothing, holds
// what is posted, and says so.
type ill struct {
	store.Store
	mu   sync.Mutex
	sick bool
	held []store.Tx
}

func newIll() *ill { return &ill{Store: mem.New()} }

func (*ill) Close() error { return nil }

// set makes the disk full, or free again.
func (s *ill) set(sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick = sick; sick {
		return
	}
	for _, tx := range s.held {
		s.Store.Post(tx)
	}
	s.held = nil
}

// fill makes the disk full for a while.
func (s *ill) fill(d time.Duration) {
	s.set(true)
	time.AfterFunc(d, func() { s.set(false) })
}

func (s *ill) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		return store.Result{}, errDisk
	}
	return s.Store.Apply(ctx, tx)
}

func (s *ill) Post(tx store.Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		s.held = append(s.held, tx)
		return
	}
	s.Store.Post(tx)
}

func (s *ill) History(ctx context.Context, session string, limit int) ([]store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		return nil, errDisk
	}
	return s.Store.History(ctx, session, limit)
}

func (s *ill) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		return errDisk
	}
	return s.Store.Health()
}

// toolThen calls the tool "func" once and then says what it said.
func toolThen(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if lastIsTool(m) {
		return reply(m[len(m)-1].Content)
	}
	return callTool("func", map[string]interface{}{})
}

// A disk that is full for a while, longer than a turn may take, ends no turn: it
// waits and goes on, and what tools have done is done once.
func TestFullDiskEndsNoTurn(t *testing.T) {
	for _, when := range []string{"before the model", "at the model", "in the tool"} {
		for _, full := range []time.Duration{time.Second, 4 * time.Minute, 17 * time.Minute} {
			t.Run(fmt.Sprint(when, " ", full), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ledger := newIll()
					ran := 0
					tool := funcTool(func(context.Context) *tools.ToolResult {
						if ran++; when == "in the tool" {
							ledger.fill(full)
						}
						time.Sleep(2 * time.Minute)
						return &tools.ToolResult{ForLLM: "done", ForUser: "shown"}
					})
					model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
						if !lastIsTool(m) && when == "at the model" && ledger.Health() == nil {
							ledger.fill(full)
						}
						return toolThen(ctx, m, d)
					})
					r := start(t, model, withTool(tool), func(c *Config) { c.Store = ledger })
					m := r.ch.from("1", "a", "go")
					r.say(m)
					if when == "before the model" {
						ledger.fill(full)
					}
					time.Sleep(time.Hour)
					r.wantTexts("1", "shown", "done")
					if ran != 1 {
						t.Errorf("the tool ran %d times", ran)
					}
					if open := left(t, ledger); open != "" {
						t.Errorf("still open: %s", open)
					}
				})
			})
		}
	}
}

// Nobody reads that something has failed that works as soon as the disk does.
func TestFullDiskFailsNothing(t *testing.T) {
	cases := map[string]struct {
		do   func(ctx context.Context, g *Gateway, call tools.Call) error
		want []string
	}{
		"a message": {func(ctx context.Context, g *Gateway, call tools.Call) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := g.PublishOutbound(ctx, out("1", call.Key(), "said"))
			if errors.Is(err, bus.ErrQueued) {
				return nil
			}
			return err
		}, []string{"said", "set"}},
		"a reminder": {func(ctx context.Context, g *Gateway, call tools.Call) error {
			return g.Remind(ctx, call, store.Schedule{ID: "r", Due: time.Now().Add(10 * time.Minute), Text: "tea"})
		}, []string{"set", "⏰ tea"}},
		"no reminder": {func(ctx context.Context, g *Gateway, _ tools.Call) error {
			_, err := g.CancelReminder(ctx, bus.Address{Channel: "fake", ChatID: "1"}, "old")
			return err
		}, []string{"set"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newIll()
				at := bus.Address{Channel: "fake", ChatID: "1"}
				old := store.Schedule{ID: "old", Address: at, SessionKey: at.String(), Due: time.Now().Add(30 * time.Minute), Text: "old"}
				if name == "no reminder" {
					if _, err := ledger.Apply(t.Context(), store.Tx{Schedules: []store.Schedule{old}}); err != nil {
						t.Fatal(err)
					}
				}
				var g *Gateway
				tool := funcTool(func(ctx context.Context) *tools.ToolResult {
					ledger.fill(time.Minute)
					call, _ := tools.CallFrom(ctx)
					if err := c.do(ctx, g, call); err != nil {
						return tools.ErrorResult(err.Error())
					}
					return tools.SilentResult("set")
				})
				r := start(t, fakeModel(toolThen), withTool(tool), func(c *Config) { c.Store = ledger })
				g = r.Gateway
				r.say(r.ch.from("1", "a", "go"))
				time.Sleep(time.Hour)
				r.wantTexts("1", c.want...)
			})
		})
	}
}
