package gateway

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests of this file are named in docs/cases.md.

// onLedgers plays a case on each kind of ledger. open gives the ledger as the
// next start of the daemon finds it.
func onLedgers(t *testing.T, play func(t *testing.T, open func() store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ledger := mem.New()
			play(t, func() store.Store { return keep{ledger} })
		})
	})
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			play(t, func() store.Store { return openFile(t, dir) })
		})
	})
}

func openFile(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := sqlite.Open(dir, sqlite.Options{Durability: sqlite.Fast})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func on(ledger store.Store) func(*Config) { return func(c *Config) { c.Store = ledger } }

// end stops a gateway, so that its ledger can be opened again.
func (r *rig) end() {
	r.t.Helper()
	if err := r.stop(); err != nil {
		r.t.Fatalf("Run: %v", err)
	}
}

// hooked is a channel that asks before it sends and shows the typing sign, and
// tells when it has sent.
type hooked struct {
	*fakeChannel
	before func(ctx context.Context, what string, to bus.Address) error
	after  func(m bus.OutboundMessage)
}

func (h *hooked) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if h.before != nil {
		if err := h.before(ctx, "send", m.Address); err != nil {
			return bus.Receipt{}, err
		}
	}
	r, err := h.fakeChannel.Send(ctx, m)
	if err == nil && h.after != nil {
		h.after(m)
	}
	return r, err
}

func (h *hooked) Typing(ctx context.Context, to bus.Address) error {
	if h.before != nil {
		if err := h.before(ctx, "typing", to); err != nil {
			return err
		}
	}
	return h.fakeChannel.Typing(ctx, to)
}

// hook starts a gateway with one hooked channel.
func hook(t *testing.T, model providers.LLMProvider, h *hooked, change ...func(*Config)) *rig {
	t.Helper()
	h.fakeChannel = newFakeChannel("fake")
	r := start(t, model, append(change, func(c *Config) { c.Channels = []channels.Channel{h} })...)
	r.ch = h.fakeChannel
	return r
}

// Whatever it is that takes long in one conversation, nobody else waits for it.
func TestCaseSlowChatBlocksNobody(t *testing.T) {
	for _, where := range []string{"model", "tool", "send", "typing", "summary"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := func(ctx context.Context, what, chat string) error {
					if what != where || chat != "slow" {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
					call, _ := tools.CallFrom(ctx)
					what := "model"
					if strings.Contains(m[len(m)-1].Content, "> ") { // the material of a summary, which belongs to no call
						what, call.ChatID = "summary", "slow"
					}
					if err := stuck(ctx, what, call.ChatID); err != nil {
						return nil, err
					}
					if where == "tool" && !lastIsTool(m) {
						return callTool("func", nil)
					}
					if where == "typing" && call.ChatID == "slow" {
						time.Sleep(time.Second)
					}
					return reply("done")
				})
				tool := funcTool(func(ctx context.Context) *tools.ToolResult {
					call, _ := tools.CallFrom(ctx)
					return tools.NewToolResult(fmt.Sprint(stuck(ctx, "tool", call.ChatID)))
				})
				h := &hooked{before: func(ctx context.Context, what string, to bus.Address) error { return stuck(ctx, what, to.ChatID) }}
				r := hook(t, nil, h, withTool(tool), compacting(model))
				for range 5 {
					r.say(r.ch.from("slow", "a", strings.Repeat("many words ", 100)))
					synctest.Wait()
				}
				r.say(r.ch.from("slow", "a", "/compact"))
				time.Sleep(2 * time.Second)
				began := time.Now()
				for i := range 20 {
					r.say(r.ch.from(fmt.Sprint(i), "b", "quick"))
				}
				for i := range 20 {
					r.wantTexts(fmt.Sprint(i), "done")
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("the others waited for %s", took)
				}
			})
		})
	}
}

// ways is how a turn can end that has taken a second. What the person sees of
// it is none of this table's business.
var ways = map[string]struct {
	model func(ctx context.Context) (*providers.LLMResponse, error)
	event func(r *rig, question bus.InboundMessage) // that ends it from outside
}{
	"answer":        {model: func(context.Context) (*providers.LLMResponse, error) { return reply("an answer") }},
	"nothing":       {model: func(context.Context) (*providers.LLMResponse, error) { return reply(" ") }},
	"failure":       {model: func(context.Context) (*providers.LLMResponse, error) { return nil, errors.New("broken") }},
	"panic":         {model: func(context.Context) (*providers.LLMResponse, error) { panic("boom") }},
	"endless tools": {model: func(context.Context) (*providers.LLMResponse, error) { return callTool("func", nil) }},
	"time limit":    {model: stuckForGood},
	"stop": {model: stuckForGood, event: func(r *rig, _ bus.InboundMessage) {
		r.say(r.ch.from("1", "b", "/stop"))
	}},
	"taken back": {model: stuckForGood, event: func(r *rig, question bus.InboundMessage) {
		r.say(amended(question, bus.KindDeleted, ""))
	}},
}

func stuckForGood(ctx context.Context) (*providers.LLMResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// endIn plays a turn that ends in one of the ways, with what event does and with
// what is said meanwhile, until nothing moves any more.
func endIn(r *rig, way string, meanwhile ...bus.InboundMessage) {
	question := r.ch.from("1", "a", "first")
	r.say(question)
	time.Sleep(500 * time.Millisecond)
	r.say(meanwhile...)
	if event := ways[way].event; event != nil {
		event(r, question)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

// ending is the model of that turn; it answers everything else by echo.
func ending(way string) fakeModel {
	return func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
		last := m[len(m)-1].Content
		if last != "first" && !lastIsTool(m) || len(d) == 0 {
			return echo(ctx, m, d)
		}
		select {
		case <-time.After(time.Second):
			return ways[way].model(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func minute(c *Config) { c.TurnTimeout = time.Minute }

// What waits behind a turn has its own one, in whatever way the first one ends.
func TestCaseWaitingIsDrainedHoweverTheTurnEnds(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tool := funcTool(func(context.Context) *tools.ToolResult { return tools.NewToolResult("again") })
				r := start(t, ending(way), minute, withTool(tool))
				endIn(r, way, r.ch.from("1", "a", "second"), r.ch.from("1", "c", "third"), r.ch.from("1", "a", "fourth"))
				got := strings.Join(r.ch.texts("1"), "|")
				if !strings.HasSuffix(got, "re: second\nfourth|re: third") || strings.Count(got, "re: ") > 3 {
					t.Errorf("sent %q", got)
				}
				if open := left(t, r.store); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}

// The typing sign ends with the turn, in whatever way that ends, and whatever
// the platform says to the sign.
func TestCaseTypingStopsHoweverTheTurnEnds(t *testing.T) {
	for way := range ways {
		for name, refused := range map[string]error{"shown": nil, "refused": errors.New("sign refused")} {
			t.Run(way+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tool := funcTool(func(context.Context) *tools.ToolResult { return tools.NewToolResult("again") })
					signs := 0
					h := &hooked{before: func(_ context.Context, what string, _ bus.Address) error {
						if what == "typing" {
							signs++
							return refused
						}
						return nil
					}}
					r := hook(t, ending(way), h, minute, withTool(tool))
					endIn(r, way)
					before := signs
					time.Sleep(time.Hour)
					if before == 0 || signs != before {
						t.Errorf("%d signs during the turn, %d after it", before, signs-before)
					}
					want := 1
					if way == "taken back" {
						want = 0
					}
					if got := r.ch.texts("1"); len(got) != want {
						t.Errorf("sent %q", got)
					}
				})
			})
		}
	}
}

// Nobody looks at a silent screen: whoever waits for a slow model, for a slot,
// or behind somebody else's question sees that the bot is at work, and a turn
// that takes too long ends with a word.
func TestCaseBusyIsNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if strings.HasPrefix(m[len(m)-1].Content, "hard") {
				return stuckForGood(ctx)
			}
			return echo(ctx, m, d)
		})
		r := start(t, model, func(c *Config) { c.MaxParallelTurns = 1 })
		r.say(r.ch.from("1", "a", "hard"))
		synctest.Wait()
		r.say(r.ch.from("1", "b", "behind"), r.ch.from("2", "c", "no slot"))
		seen := map[string]int{}
		for at := 10 * time.Second; at < 5*time.Minute; at += 10 * time.Second {
			time.Sleep(10 * time.Second)
			signs := map[string]int{}
			r.ch.mu.Lock()
			for _, to := range r.ch.typed {
				signs[to.ChatID]++
			}
			r.ch.mu.Unlock()
			if signs["1"] <= seen["1"] || signs["2"] <= seen["2"] {
				t.Fatalf("no sign of life for ten seconds after %s: %v, before %v", at, signs, seen)
			}
			seen = signs
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := r.ch.texts("1")
		if len(got) != 2 || !strings.Contains(got[0], "longer than I am allowed") || got[1] != "re: behind" {
			t.Errorf("sent %q", got)
		}
		r.wantTexts("2", "re: no slot")
	})
}

// Messages of a new conversation that come at the same moment, or milliseconds
// apart, are all answered, each once.
func TestCaseMessagesMillisecondsApart(t *testing.T) {
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		r := start(t, fakeModel(echo), on(open()))
		const chats, each = 20, 3
		var publishing sync.WaitGroup
		for c := range chats {
			for n := range each {
				m := r.ch.from(fmt.Sprint(c), fmt.Sprint("u", n), fmt.Sprintf("c%d n%d", c, n))
				publishing.Go(func() {
					time.Sleep(time.Duration(n*c) * time.Millisecond) // at once in chat 0
					if err := r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{m}}); err != nil {
						t.Errorf("PublishInbound: %v", err)
					}
				})
			}
		}
		publishing.Wait()
		time.Sleep(time.Minute)
		for c := range chats {
			got := r.ch.texts(fmt.Sprint(c))
			slices.Sort(got)
			want := make([]string, each)
			for n := range want {
				want[n] = fmt.Sprintf("re: c%d n%d", c, n)
			}
			if !slices.Equal(got, want) {
				t.Errorf("chat %d was sent %q", c, got)
			}
		}
	})
}

// A worker that retires takes no message with it: each answer here brings the
// next question in the moment in which the worker has nothing more to do.
func TestCaseReapingDropsNothing(t *testing.T) {
	const chats, each = 20, 20
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		var r *rig
		h := &hooked{after: func(m bus.OutboundMessage) {
			var n int
			if _, err := fmt.Sscanf(m.Text, "re: %d", &n); err != nil {
				t.Errorf("sent %q", m.Text)
			}
			if n < each {
				next := r.ch.from(m.ChatID, "a", fmt.Sprint(n+1))
				if err := r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{next}}); err != nil {
					t.Errorf("PublishInbound: %v", err)
				}
			}
		}}
		r = hook(t, fakeModel(echo), h, on(open()))
		var want []string
		for n := range each {
			want = append(want, fmt.Sprint("re: ", n+1))
		}
		for c := range chats {
			r.say(r.ch.from(fmt.Sprint(c), "a", "1"))
		}
		time.Sleep(time.Minute)
		for c := range chats {
			r.wantTexts(fmt.Sprint(c), want...)
		}
		if lanes, senders := r.alive(); lanes+senders != 0 {
			t.Errorf("%d lanes and %d senders are left", lanes, senders)
		}
	})
}

// asksAndHangs starts the task for "go" and then hangs, whatever it is asked.
func asksAndHangs(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if last := m[len(m)-1].Content; lastIsTool(m) || last == "go" {
		return asksLater(ctx, m, d)
	}
	return stuckForGood(ctx)
}

// A finished result reaches a conversation that is busy with a turn that hangs,
// and needs no model for it, also when the daemon is restarted meanwhile.
func TestCaseResultReachesABusyConversation(t *testing.T) {
	for name, result := range map[string]*tools.ToolResult{"for the model": tools.NewToolResult("42"), "for the person": {ForLLM: "raw", ForUser: "42"}} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart ", restart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := start(t, fakeModel(asksAndHangs), minute, withTool(later{10 * time.Second, result}), func(c *Config) { c.Grace = time.Second })
					r.say(r.ch.from("1", "a", "go"))
					synctest.Wait()
					r.say(r.ch.from("1", "a", "hang"))
					time.Sleep(20 * time.Second)
					r.wantTexts("1", "working on it")
					want := []string{"That took longer", "42"}
					if restart {
						r.end()
						r = start(t, fakeModel(asksAndHangs), minute, on(r.store))
					} else {
						want = append([]string{"working on it"}, want...)
					}
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					got := r.ch.texts("1")
					if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
						t.Errorf("sent %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// A result whose announcement fails for as long as the platform and the model
// are down, over a restart too, stays unsent in the ledger until the platform
// has taken it, and is taken once.
func TestCaseResultSurvivesFailedAnnouncements(t *testing.T) {
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		down := true
		model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if down && !lastIsTool(m) && m[len(m)-1].Content != "go" {
				return nil, &providers.Error{Kind: providers.KindUnreachable}
			}
			return asksLater(ctx, m, d)
		})
		unsent := func(r *rig, want int) {
			t.Helper()
			if rows, err := r.store.Unsent(t.Context()); err != nil || len(rows) != want {
				t.Errorf("%d messages are unsent, %v; want %d", len(rows), err, want)
			}
		}
		refuse := func(bus.OutboundMessage, int) error {
			if down {
				return fmt.Errorf("down: %w", channels.ErrNotReady)
			}
			return nil
		}
		r := start(t, model, withTool(later{time.Second, tools.NewToolResult("the result")}), on(open()))
		r.say(r.ch.from("1", "a", "go"))
		time.Sleep(500 * time.Millisecond)
		r.wantTexts("1", "working on it")
		r.ch.mu.Lock()
		r.ch.failing = refuse
		r.ch.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		unsent(r, 1)
		r.end()

		again := start(t, model, on(open()), func(c *Config) { c.Channels[0].(*fakeChannel).failing = refuse })
		time.Sleep(5 * time.Minute)
		again.wantTexts("1")
		unsent(again, 1)
		again.ch.mu.Lock()
		down = false
		again.ch.mu.Unlock()
		time.Sleep(time.Minute)
		again.wantTexts("1", "the result")
		unsent(again, 0)
		again.end()

		last := start(t, model, on(open()))
		time.Sleep(time.Minute)
		last.wantTexts("1")
	})
}

// Two daemons on one ledger, which the file refuses, would still fire a reminder
// once: the claim is part of what takes it in.
func TestCaseTwoSchedulersFireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := mem.New()
		one, other := start(t, fakeModel(echo), on(keep{ledger})), start(t, fakeModel(echo), on(keep{ledger}))
		at := bus.Address{Channel: "fake", ChatID: "1"}
		tx := store.Tx{}
		const n = 50
		for i := range n {
			tx.Schedules = append(tx.Schedules, store.Schedule{ID: fmt.Sprint("s", i), Address: at, SessionKey: at.String(), Due: time.Now().Add(time.Minute), Text: fmt.Sprint("tea ", i)})
		}
		if _, err := ledger.Apply(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		one.clock.look()
		other.clock.look()
		time.Sleep(time.Hour)
		got := append(one.ch.texts("1"), other.ch.texts("1")...)
		slices.Sort(got)
		if shown := len(slices.Compact(slices.Clone(got))); len(got) != n || shown != n {
			t.Errorf("%d of %d reminders were shown, with %d messages", shown, n, len(got))
		}
	})
}
