package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// A request is valid whatever a history has been through: calls without results,
// results without calls, ids that come again in a later turn, and what a cut left.
// It is mended last, behind the cutting, and only in the copy that is sent.
func TestFieldHistoryValidity(t *testing.T) {
	t.Run("ids used again in later turns are paired by place", func(t *testing.T) {
		in := messages{
			person("a"), calls("call_0"), result("call_0", "of a"), answer("x"),
			person("b"), calls("call_0"), // stopped by a crash
			person("c"), calls("call_0"), result("call_0", "of c"), answer("z"),
		}
		got := Governor{}.Shape(in)
		want := []string{"of a", textNoResult, "of c"}
		var results []string
		for i, m := range got {
			if m.Role != providers.RoleTool {
				continue
			}
			results = append(results, m.Content)
			if got[i-1].ToolCalls[0].ID != m.ToolCallID {
				t.Errorf("%q is the result of %s, not of %s", m.Content, m.ToolCallID, got[i-1].ToolCalls[0].ID)
			}
		}
		if diff := cmp.Diff(want, results); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("many calls that were never answered", func(t *testing.T) {
		in := messages{system("s")}
		for i := range 75 {
			in = append(in, person(fmt.Sprint("q", i)), calls(fmt.Sprint("id", i), fmt.Sprint("more", i)))
		}
		got := Governor{}.Shape(in)
		if err := openAIRules(got); err != nil {
			t.Error(err)
		}
		if n := strings.Count(outline(got), "tool "); n != 150 {
			t.Errorf("%d results were filled in, want 150", n)
		}
	})
	t.Run("mended behind the cut", func(t *testing.T) {
		// Whatever the bound is, no cut leaves a result whose call is gone.
		in := conversation(12)
		for limit := Tokens(in); limit > 0; limit -= 7 {
			got := Governor{MaxTokens: limit}.Shape(in)
			if err := requestRules(append(slices.Clip(got), person("and?"))); err != nil {
				t.Fatalf("within %d tokens: %v", limit, err)
			}
		}
	})
	t.Run("for any history", func(t *testing.T) {
		for seed := range uint64(1000) {
			r := rand.New(rand.NewPCG(seed, 77))
			checkShape(t, randomGovernor(r), randomHistory(r))
		}
	})
	t.Run("what an API wants back stays with its reply", func(t *testing.T) {
		opaque := json.RawMessage(`{"anthropic":[{"type":"thinking","thinking":"` + strings.Repeat("hm ", 300) + `","signature":"s"}]}`)
		with := calls("1")
		with.Opaque = opaque
		paused := answer("")
		paused.Opaque = opaque
		in := messages{person("a"), with, result("1", "r"), paused, answer("x"), person("b")}
		if got := (Governor{}).Shape(in); !cmp.Equal(in, got) {
			t.Errorf("it was changed: %s", outline(got))
		}
		bare := slices.Clone(in)
		bare[1].Opaque, bare[3].Opaque = nil, nil
		if n := Tokens(in) - Tokens(bare); n < 2*len(opaque)/4 {
			t.Errorf("it counts %d tokens, and has %d bytes", n, 2*len(opaque))
		}
		if fits(in, Tokens(in)-1) || !fits(in, Tokens(in)) {
			t.Error("fits and Tokens do not agree")
		}
		// The empty id, then an unmatched call: mended, and still with its own.
		with.ToolCalls[0].ID = ""
		if got := (Governor{}).Shape(messages{person("a"), with}); string(got[1].Opaque) != string(opaque) {
			t.Errorf("it was lost: %s", outline(got))
		}
	})
}

// What is dropped is dropped in whole turns, never a call without its results,
// never the turn that is going on; and as long as there is a hand to summarise,
// nothing is dropped that no summary tells of.
func TestFieldTrimming(t *testing.T) {
	in := conversation(30)
	for i := 1; i < len(in); i += 4 { // each turn has two calls side by side, and two steps
		two := calls(fmt.Sprint("a", i), fmt.Sprint("b", i))
		in[i+1] = two
		in[i+2].ToolCallID = fmt.Sprint("a", i)
	}
	in = append(Governor{}.Shape(in), person("the newest"), calls("now"), result("now", "r"))
	turns := func(ms messages) (begins []int) {
		for i := range ms {
			if ms[i].Role == providers.RoleUser {
				begins = append(begins, i)
			}
		}
		return begins
	}
	begins := turns(in)
	for limit := Tokens(in); limit > 300; limit -= 101 {
		got := Governor{MaxTokens: limit}.Shape(in)
		kept := len(turns(got))
		want := join(in[:1], in[begins[len(begins)-kept]:])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("within %d tokens something else than whole turns is left: %s", limit, outline(got))
		}
		if Tokens(got) > limit {
			t.Fatalf("%d tokens, want %d at most", Tokens(got), limit)
		}
	}

	g := newGroup(t, Config{HistoryMessages: 100, Compactor: &Compactor{Trigger: 12_000, Target: 6000, Entries: 75}, Governor: Governor{MaxTokens: 16_000}})
	for n := range 40 {
		g.turn(n, time.Date(2026, 11, 27, 12, n, 0, 0, time.UTC))
	}
	if g.summary == 0 {
		t.Error("nothing was summarised")
	}
	for i, body := range g.bodies {
		if text := string(body); !strings.Contains(text, "Question 0,") && !strings.Contains(text, summaryHead[:20]) {
			t.Fatalf("request %d has lost its beginning", i+1)
		}
	}
}

// A conversation that the model finds too long is summarised and sent once more,
// with all that the turn has done; and only its typed error says so, not words
// that look like one.
func TestFieldContextOverflow(t *testing.T) {
	tooLong := providerstest.Response{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`}
	other := providerstest.Response{Status: 400, Body: `{"error":{"message":"max_tokens is too large: the context length of your plan was exceeded by tokens of a token","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}`}
	for name, tc := range map[string]struct {
		refusal  providerstest.Response
		requests int
		answered bool
	}{
		"too long":                {tooLong, 3, true},
		"words that look like it": {other, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []providerstest.Request
			refused := false
			model := func(r providerstest.Request) providerstest.Response {
				requests = append(requests, r)
				switch {
				case r.Last().Content == "use":
					return providerstest.Calls(providerstest.Call{Name: "note", Arguments: `{"text":"it"}`})
				case r.Last().Role == providers.RoleTool && !refused:
					refused = true
					return tc.refusal
				}
				return providerstest.Text("re: " + r.Last().Content)
			}
			onLedgers(t, model, func(c *talker) {
				c.agent.cfg.Compactor = &Compactor{}
				for i := range 8 {
					c.say(c.Context(), fmt.Sprint("Something said before, number ", i, strings.Repeat(" and more", 50)))
				}
				requests, refused = nil, false
				got := c.say(c.Context(), "use")
				if len(requests) != tc.requests || (got == "re: noted it") != tc.answered {
					c.Fatalf("%q after %d requests", got, len(requests))
				}
				if !tc.answered {
					return
				}
				before, after := requests[1].Messages, requests[2].Messages
				if len(after) >= len(before) || !isSummary(&after[1]) {
					c.Errorf("%d messages were sent after %d", len(after), len(before))
				}
				if diff := cmp.Diff(before[len(before)-3:], after[len(after)-3:]); diff != "" {
					c.Errorf("what the turn has done is not what it was: %s", diff)
				}
			})
		})
	}
}
