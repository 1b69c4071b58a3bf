package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests whose name begins with TestCase are named in docs/cases.md.

// kills is a ledger that stores no more ends of turns, as if the process had
// been killed while something ignored the /stop.
func kills(ledger store.Store, also func(store.Tx) bool) *faulty {
	f := &faulty{Store: ledger}
	f.breakWhen(func(tx store.Tx) bool { return len(tx.End) > 0 || len(tx.Marks) > 0 || also != nil && also(tx) })
	return f
}

// What /stop has said holds after a kill too: neither the turn it has ended goes
// on, nor what it has set aside, in memory or in the ledger.
func TestCaseStopHoldsAfterAKill(t *testing.T) {
	onLedgers(t, func(t *testing.T, open func() store.Store) {
		t.Helper()
		ledger := kills(open(), nil)
		r := start(t, stuckModel(), on(ledger))
		r.say(r.ch.from("1", "a", "first"))
		synctest.Wait()
		for i := range maxWaiting + 10 {
			r.say(r.ch.from("1", "a", fmt.Sprint("more ", i)))
		}
		r.say(r.ch.from("1", "b", "another's"), r.ch.from("1", "a", "/stop"))
		time.Sleep(time.Minute)
		if got := r.ch.texts("1"); !slices.Contains(got, "Stopped: my answer, 74 waiting messages of yours.") {
			t.Errorf("sent %q", got)
		}
		r.end()
		if err := ledger.Store.Close(); err != nil {
			t.Fatal(err)
		}
		r = start(t, fakeModel(echo), on(open()))
		time.Sleep(time.Minute)
		r.wantTexts("1", "re: another's")
		if open := left(t, r.store); open != "" {
			t.Errorf("still open: %s", open)
		}
		if entries, err := r.store.History(t.Context(), "fake:1", 100); err != nil || !fine(agent.Past(entries)) {
			t.Errorf("the history is not valid: %+v, %v", entries, err)
		}
	})
}

// The history says once that a turn was stopped, whoever writes it: the turn, or
// after a kill the next start.
func TestStoppedTurnIsInTheHistoryOnce(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				ledger := openFile(t, dir)
				first := &faulty{Store: ledger}
				if killed {
					first = kills(ledger, nil)
				}
				r := start(t, stuckModel(), on(first))
				r.say(r.ch.from("1", "a", "question"))
				time.Sleep(time.Minute)
				r.say(r.ch.from("1", "a", "/stop"))
				time.Sleep(time.Minute)
				r.wantTexts("1", "Stopped: my answer.")
				r.end()
				if err := ledger.Close(); err != nil {
					t.Fatal(err)
				}
				r = start(t, fakeModel(echo), on(openFile(t, dir)))
				synctest.Wait()
				entries, err := r.store.History(t.Context(), "fake:1", 100)
				if err != nil || len(entries) != 2 || entries[0].Message.Content != "question" || entries[1].Message.Content != textStopped {
					t.Errorf("history %+v, %v", entries, err)
				}
			})
		})
	}
}

// A turn whose beginning was never written, and a summary, are stopped for good
// too.
func TestStopHoldsWithoutABeginning(t *testing.T) {
	for _, text := range []string{"question", "/compact"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := mem.New()
				unbegun := func(tx store.Tx) bool { return tx.Begin != nil || len(tx.Done) > 0 && len(tx.Send) == 0 }
				stuck := false
				model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
					if stuck {
						return stuckForGood(ctx)
					}
					return echo(ctx, m, d)
				})
				r := start(t, nil, on(keep{ledger}), compacting(model))
				for range 5 {
					r.say(r.ch.from("1", "a", strings.Repeat("many words ", 100)))
					synctest.Wait()
				}
				r.end()
				stuck = true
				r2 := start(t, nil, on(kills(ledger, unbegun)), compacting(model))
				r2.ch.next = 100
				r2.say(r2.ch.from("1", "a", text))
				synctest.Wait()
				r2.say(r2.ch.from("1", "a", "/stop"))
				r2.wantTexts("1", "Stopped: my answer.")
				r2.end()
				stuck = false
				r3 := start(t, nil, on(keep{ledger}), compacting(model))
				time.Sleep(time.Minute)
				r3.wantTexts("1")
				if open := left(t, r3.store); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}

// hurried is a ledger that does something before a write that it picks, once.
type hurried struct {
	store.Store
	pick func(store.Tx) bool
	do   func()
}

func (hurried) Close() error { return nil }

func (h *hurried) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if do := h.do; do != nil && h.pick(tx) {
		h.do = nil
		do()
	}
	return h.Store.Apply(ctx, tx)
}

// Either /stop says that it has stopped the answer or there is an answer, at
// whatever moment it comes.
func TestStopIsTrueAtEveryMoment(t *testing.T) {
	const nothing = "There is nothing to stop."
	var reply func()
	model := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
		if reply != nil {
			reply()
		}
		if m[len(m)-1].Content == "panic" {
			panic("boom")
		}
		return echo(ctx, m, d)
	})
	for name, c := range map[string]struct {
		text string
		pick func(store.Tx) bool // nil: with the model's reply
		want []string
	}{
		"with the reply":           {text: "hi", want: []string{"Stopped: my answer."}},
		"with a panic":             {text: "panic", want: []string{"Stopped: my answer."}},
		"before the end":           {text: "hi", pick: func(tx store.Tx) bool { return len(tx.End) > 0 }, want: []string{nothing, "re: hi"}},
		"before a retry":           {text: "/retry", pick: func(tx store.Tx) bool { return len(tx.Undo) > 0 }, want: []string{"Stopped: my answer."}},
		"before a summary is kept": {text: "/compact", pick: func(tx store.Tx) bool { return len(tx.Summaries) > 0 }, want: []string{nothing, textCompact}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reply = nil
				ledger := &hurried{Store: mem.New(), pick: c.pick}
				r := start(t, nil, on(ledger), compacting(model))
				for range 5 {
					r.say(r.ch.from("1", "a", strings.Repeat("many words ", 100)))
					synctest.Wait()
				}
				before := len(r.ch.texts("1"))
				question, stop := r.ch.from("1", "a", c.text), r.ch.from("1", "a", "/stop")
				ledger.do = func() { r.say(stop) }
				if c.pick == nil {
					reply, ledger.pick = ledger.do, func(store.Tx) bool { return false }
				}
				r.say(question)
				time.Sleep(time.Minute)
				if got := r.ch.texts("1")[before:]; !slices.Equal(got, c.want) {
					t.Errorf("sent %q, want %q", got, c.want)
				}
				if open := left(t, ledger); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}

// What others have waiting is theirs, also in words.
func TestStopClaimsNothingOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, stuckModel())
		r.say(r.ch.from("1", "a", "hi"))
		synctest.Wait()
		for i := range 2 * maxWaiting {
			r.say(r.ch.from("1", "b", fmt.Sprint(i)))
		}
		r.say(r.ch.from("1", "a", "/stop"))
		synctest.Wait()
		if got := r.ch.texts("1"); got[len(got)-1] != "Stopped: my answer." {
			t.Errorf("sent %q", got)
		}
	})
}

// recovering is a full disk on which there is room already for what has to do
// with a /stop.
type recovering struct{ *ill }

func (s recovering) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if len(tx.Admit) > 0 || len(tx.Facts) > 0 && tx.Facts[0].Key != illFact {
		return s.Store.Apply(ctx, tx)
	}
	return s.ill.Apply(ctx, tx)
}

// What a tool wants to say while the disk is full is not said any more once its
// turn has been stopped, however long ago the tool gave up waiting.
func TestStopEndsWhatWaitsForTheLedger(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newIll()
				var g *Gateway
				tool := funcTool(func(ctx context.Context) *tools.ToolResult {
					ledger.set(true)
					ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					if _, err := g.PublishOutbound(ctx, out("1", "k", "said")); err == nil {
						t.Error("it was sent")
					}
					return tools.NewToolResult("over")
				})
				r := start(t, fakeModel(toolThen), withTool(tool), on(recovering{ledger}))
				g = r.Gateway
				r.say(r.ch.from("1", "a", "hi"))
				time.Sleep(after)
				r.say(r.ch.from("1", "a", "/stop"))
				r.wantTexts("1", "Stopped: my answer.")
				ledger.set(false)
				time.Sleep(time.Minute)
				r.wantTexts("1", "Stopped: my answer.")
				if open := left(t, ledger); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}
