package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestAnswersInTheConversationThatAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		for i := range 50 {
			chat := fmt.Sprint("c", i)
			r.say(r.ch.from(chat, chat, "hello from "+chat))
		}
		for i := range 50 {
			chat := fmt.Sprint("c", i)
			r.wantTexts(chat, "re: hello from "+chat)
		}
		if lanes, senders := r.alive(); lanes+senders != 0 {
			t.Errorf("%d lanes and %d senders are left of conversations that are over", lanes, senders)
		}
	})
}

func TestDuplicateIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		m := r.ch.from("1", "1", "once")
		r.say(m, m)
		r.say(m)
		r.wantTexts("1", "re: once")
	})
}

// A slow chat delays no other, and what its sender adds meanwhile is one turn.
func TestWaitingMessagesOfOneSenderAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(time.Second)
			return echo(ctx, m, nil)
		})
		r := start(t, slow)
		r.say(r.ch.from("1", "a", "one"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "two"), r.ch.from("1", "b", "other"), r.ch.from("1", "a", "three"))
		r.say(r.ch.from("2", "c", "elsewhere"))
		time.Sleep(1100 * time.Millisecond)
		r.wantTexts("2", "re: elsewhere")
		r.wantTexts("1", "re: one")
		time.Sleep(2 * time.Second)
		r.wantTexts("1", "re: one", "re: two\nthree", "re: other")
	})
}

// Nobody's words run with another's rights, however the messages interleave.
func TestNeverJoinsSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mixed atomic.Bool
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(10 * time.Millisecond)
			text := m[len(m)-1].Content
			call, _ := tools.CallFrom(ctx)
			for line := range strings.SplitSeq(text, "\n") {
				if !strings.HasPrefix(line, call.SenderID+" ") {
					mixed.Store(true)
				}
			}
			return reply("ok")
		})
		r := start(t, model)
		for i := range 200 {
			who := fmt.Sprint("u", i%7)
			r.say(r.ch.from("1", who, fmt.Sprintf("%s says %d", who, i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if mixed.Load() {
			t.Error("a turn held words of somebody else than its principal")
		}
	})
}

func TestHistoryAndNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			var seen []string
			for _, x := range m[1:] {
				seen = append(seen, x.Content)
			}
			return reply(strings.Join(seen, "|"))
		})
		r := start(t, model)
		r.say(r.ch.from("1", "a", "x"))
		r.wantTexts("1", "x")
		r.say(r.ch.from("1", "a", "y"))
		r.wantTexts("1", "x", "x|x|y")
		r.say(r.ch.from("1", "a", "/new"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "z"))
		r.wantTexts("1", "x", "x|x|y", "A fresh start. What is it about?", "z")
	})
}

func TestPanicIsAnsweredThereAndInvisibleElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if strings.Contains(m[len(m)-1].Content, "bad") {
				panic("boom")
			}
			return echo(ctx, m, nil)
		})
		r := start(t, model)
		r.say(r.ch.from("1", "a", "bad"), r.ch.from("2", "b", "good"))
		r.wantTexts("2", "re: good")
		got := r.ch.texts("1")
		if len(got) != 1 || !strings.Contains(got[0], "went wrong") || strings.Contains(got[0], "boom") {
			t.Errorf("after a panic the chat was sent %q", got)
		}
		r.say(r.ch.from("1", "a", "again"))
		synctest.Wait()
		if got := r.ch.texts("1"); len(got) != 2 || !strings.HasSuffix(got[1], "again") {
			t.Errorf("the chat does not work after a panic: %q", got)
		}
	})
}

func TestModelFailureIsSaidOnceAndKindly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(context.Context, []providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) {
			return nil, &providers.Error{Kind: providers.KindOverloaded, Status: 503, Message: "upstream secret detail"}
		})
		r := start(t, model)
		r.say(r.ch.from("1", "a", "hello"))
		r.wantTexts("1", "The language model is too busy to answer at the moment. Please ask again in a minute, with /retry.")
	})
}

func TestTurnsAreBoundedAndFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		var mu sync.Mutex
		var order []string
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			n := now.Add(1)
			defer now.Add(-1)
			most.Store(max(most.Load(), n))
			mu.Lock()
			order = append(order, m[len(m)-1].Content)
			mu.Unlock()
			time.Sleep(time.Second)
			return reply("ok")
		})
		r := start(t, model, func(c *Config) { c.MaxParallelTurns = 3 })
		var want []string
		for i := range 12 {
			text := fmt.Sprintf("%02d", i)
			want = append(want, text)
			r.say(r.ch.from("chat"+text, "u"+text, text))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if most.Load() != 3 {
			t.Errorf("%d turns ran at once, want 3", most.Load())
		}
		// Three start together, so only the order between groups of three is fixed.
		for i := 0; i < 12; i += 3 {
			slices.Sort(order[i : i+3])
		}
		if !slices.Equal(order, want) {
			t.Errorf("turns ran in the order %v", order)
		}
	})
}

func TestTurnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r := start(t, model, func(c *Config) { c.TurnTimeout = time.Minute })
		r.say(r.ch.from("1", "a", "hello"))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := r.ch.texts("1"); len(got) != 1 || !strings.Contains(got[0], "longer than I am allowed") {
			t.Errorf("after the time limit the chat was sent %q", got)
		}
	})
}

func TestTypingOnlyForSlowTurnsAndNeverAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(time.Duration(delay.Load()))
			return echo(ctx, m, nil)
		})
		r := start(t, model)
		delay.Store(int64(200 * time.Millisecond))
		r.say(r.ch.from("1", "a", "quick"))
		time.Sleep(time.Second)
		if n := r.ch.typing(); n != 0 {
			t.Errorf("typing shown %d times for a quick answer", n)
		}
		delay.Store(int64(9 * time.Second))
		r.say(r.ch.from("1", "a", "slow"))
		time.Sleep(10 * time.Second)
		if n := r.ch.typing(); n != 3 { // at 0.3, 4.3 and 8.3 s
			t.Errorf("typing shown %d times for an answer of 9 s, want 3", n)
		}
		time.Sleep(time.Minute)
		if n := r.ch.typing(); n != 3 {
			t.Errorf("typing shown after the answer: %d times", n)
		}
	})
}

func TestStopEndsTheTurnAndSetsWaitingAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			if strings.Contains(m[len(m)-1].Content, "long") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return reply(fmt.Sprint(len(m)))
		})
		r := start(t, model)
		r.say(r.ch.from("1", "a", "long"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "more"), r.ch.from("1", "b", "mine"))
		r.say(r.ch.from("1", "a", "/stop"))
		synctest.Wait()
		// b's message has its turn: system, question, note of the stop, question.
		got := r.ch.texts("1")
		slices.Sort(got)
		if !slices.Equal(got, []string{"4", "Stopped: my answer, 1 waiting message of yours."}) {
			t.Errorf("sent %q", got)
		}
		r.say(r.ch.from("1", "a", "/stop"))
		synctest.Wait()
		if got := r.ch.texts("1"); len(got) != 3 || got[2] != "There is nothing to stop." {
			t.Errorf("sent %q", got)
		}
	})
}

func TestTurnLimitDelaysAndTellsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo), func(c *Config) { c.TurnsPerMinute = 10 })
		for i := range 12 {
			r.say(r.ch.from("1", "a", fmt.Sprint("m", i)))
			synctest.Wait()
		}
		r.say(r.ch.from("1", "b", "another person"))
		synctest.Wait()
		got := r.ch.texts("1")
		if len(got) != 12 || !strings.Contains(got[10], "asked 10 times within a minute") || got[11] != "re: another person" {
			t.Fatalf("sent %q", got)
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if got = r.ch.texts("1"); len(got) != 13 || got[12] != "re: m10\nm11" {
			t.Errorf("what was over the limit was not answered: %q", got)
		}
	})
}

func TestFullLaneWaitsInTheLedgerAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		model := fakeModel(func(_ context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, strings.Split(m[len(m)-1].Content, "\n")...)
			return reply("ok")
		})
		r := start(t, model)
		var want []string
		for i := range 5 * maxWaiting {
			text := fmt.Sprint("m", i)
			want = append(want, text)
			r.say(r.ch.from("1", fmt.Sprint("u", i), text)) // different senders are not joined
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, want) {
			t.Errorf("%d of %d messages answered, or in another order", len(asked), len(want))
		}
		notes := 0
		for _, s := range r.ch.texts("1") {
			if strings.Contains(s, "messages are waiting here") {
				notes++
			}
		}
		if notes != 1 {
			t.Errorf("the conversation was told %d times that it has to wait, want once", notes)
		}
	})
}

func TestShutdownLetsTurnsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := fakeModel(func(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			time.Sleep(5 * time.Second)
			return echo(ctx, m, nil)
		})
		r := start(t, model)
		r.say(r.ch.from("1", "a", "hello"))
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r.wantTexts("1", "re: hello")
	})
}

// What shutdown interrupts stays in the ledger, and the next start answers it;
// what only waited is answered too.
func TestInterruptedTurnGoesOnAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := fakeModel(func(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r := start(t, stuck, func(c *Config) { c.Grace = time.Second })
		r.say(r.ch.from("1", "a", "first"))
		synctest.Wait()
		r.say(r.ch.from("1", "a", "second"), r.ch.from("1", "a", "third"))
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r.wantTexts("1")
		again := start(t, fakeModel(echo), func(c *Config) { c.Store = r.store })
		again.wantTexts("1", "re: first", "re: second\nthird")
	})
}

func TestQuotesInGroupsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		direct, group := r.ch.from("1", "a", "hi"), r.ch.from("2", "a", "hi")
		group.Group, group.Mentioned = true, true
		r.say(direct, group)
		r.wantTexts("2", "re: Name a: hi")
		for _, m := range r.ch.sent {
			want := map[string]string{"1": "", "2": group.MessageID}[m.ChatID]
			if m.ReplyTo != want {
				t.Errorf("chat %s: quotes %q, want %q", m.ChatID, m.ReplyTo, want)
			}
		}
	})
}

func TestUnreadableIsAnsweredPolitely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, fakeModel(echo))
		for _, kind := range []string{"voice", "sticker", "photo", "location"} {
			m := r.ch.from(kind, "a", "")
			m.Media = []bus.Media{{Kind: kind}}
			r.say(m)
			synctest.Wait()
			if got := r.ch.texts(kind); len(got) != 1 || !strings.Contains(got[0], "yet. Could you") {
				t.Errorf("%s: sent %q", kind, got)
			}
		}
		captioned := r.ch.from("9", "a", "what is this?")
		captioned.Media = []bus.Media{{Kind: "photo"}}
		r.say(captioned)
		r.wantTexts("9", "re: [a photo is attached, which you cannot see]\nwhat is this?")
	})
}
