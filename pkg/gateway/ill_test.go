package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/agent"
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

// Close leaves the ledger to the next gateway, without what it never took.
func (s *ill) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
	return nil
}

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

// A note is stored together with what it is about, or as soon as it can be, and
// said once.
func TestFullDiskLosesNoNote(t *testing.T) {
	t.Run("overflow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ledger := newFaulty()
			r := start(t, fakeModel(echo), func(c *Config) { c.Store = ledger })
			release := make(chan struct{})
			r.lanes.chore(bus.Address{Channel: "fake", ChatID: "1"}, func() { <-release })
			synctest.Wait()
			ledger.breakWhen(func(tx store.Tx) bool { return len(tx.Send) > 0 && len(tx.Done) == 0 })
			for range maxWaiting + 5 {
				r.say(r.ch.from("1", "a", "x"))
			}
			close(release)
			time.Sleep(time.Minute)
			r.wantTexts("1")
			ledger.breakWhen(nil)
			time.Sleep(time.Minute)
			if got := r.ch.texts("1"); len(got) == 0 || !strings.HasPrefix(got[0], "More than 64 messages") || strings.HasPrefix(got[1], "More") {
				t.Errorf("the chat was sent %.60q", got)
			}
		})
	})
	t.Run("owner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ledger, code := newFaulty(), ""
			r := start(t, fakeModel(echo), func(c *Config) { c.Store, c.Owners, c.Announce = ledger, nil, func(s string) { code = s } })
			ledger.breakWhen(func(tx store.Tx) bool { return len(tx.Facts) > 0 })
			r.say(r.ch.from("1", "a", "/start "+code))
			time.Sleep(time.Minute)
			r.wantTexts("1")
			ledger.breakWhen(nil)
			time.Sleep(time.Minute)
			if got := r.ch.texts("1"); len(got) != 1 || !strings.HasPrefix(got[0], "You are my owner now") {
				t.Errorf("the chat was sent %.60q", got)
			}
			if who, err := ledger.Fact(t.Context(), ownerFact); who != "fake:a" || err != nil {
				t.Errorf("the owner in the ledger is %q, %v", who, err)
			}
		})
	})
	t.Run("undeliverable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ledger := newIll()
			r := start(t, fakeModel(echo), func(c *Config) { c.Store = ledger })
			r.ch.limit = 10
			r.ch.failing = func(m bus.OutboundMessage, _ int) error {
				if strings.Contains(textUndeliverable, m.Text) {
					return nil
				}
				if ledger.Health() == nil {
					ledger.fill(time.Minute)
				}
				return fmt.Errorf("refused: %w", channels.ErrPermanent)
			}
			r.say(r.ch.from("1", "a", "one two three four"))
			time.Sleep(time.Hour)
			if got := strings.Join(r.ch.texts("1"), " "); got != textUndeliverable {
				t.Errorf("the chat was sent %q", got)
			}
			if open := left(t, ledger); open != "" {
				t.Errorf("still open: %s", open)
			}
			if c := r.Counts(); c.GivenUp < 2 || c.TurnsDone != 1 || c.LedgerWaits == 0 {
				t.Errorf("counted %+v", c)
			}
		})
	})
}

// An error that is no illness of the ledger ends the turn at once.
func TestRefusedStepEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newFaulty()
		ledger.breakWhen(func(tx store.Tx) bool { return len(tx.Steps) > 0 && tx.Steps[0].Kind == store.StepBegin })
		r := start(t, fakeModel(toolThen), withTool(funcTool(func(context.Context) *tools.ToolResult {
			t.Error("a tool ran whose beginning was not stored")
			return tools.SilentResult("")
		})), func(c *Config) { c.Store = ledger })
		r.say(r.ch.from("1", "a", "go"))
		r.wantTexts("1", agent.Apology(nil))
	})
}

// The end does not wait for a full disk, and the next start does.
func TestStopAndStartOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, ran := newIll(), 0
		tool := withTool(funcTool(func(context.Context) *tools.ToolResult {
			ran++
			return &tools.ToolResult{ForLLM: "done", ForUser: "shown"}
		}))
		r := start(t, fakeModel(toolThen), tool, func(c *Config) { c.Store, c.Grace = ledger, time.Second })
		r.say(r.ch.from("1", "a", "go"))
		ledger.set(true)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end took %s", took)
		}
		r.wantTexts("1")
		time.AfterFunc(time.Minute, func() { ledger.set(false) })
		again := start(t, fakeModel(toolThen), tool, func(c *Config) { c.Store = ledger })
		synctest.Wait()
		if err := again.Ready(); err != nil {
			t.Errorf("started, but not ready: %v", err)
		}
		time.Sleep(time.Minute)
		again.wantTexts("1", "shown", "done")
		if ran != 1 {
			t.Errorf("the tool ran %d times", ran)
		}
		if c := r.Counts(); c.TurnsDone+c.TurnsFailed != 0 {
			t.Errorf("a turn that was left counts as over: %+v", c)
		}
	})
}
