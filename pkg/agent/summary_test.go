package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// talk is the stored history of n turns with a call each, 4 entries a turn.
func talk(n int) []store.Entry {
	var entries []store.Entry
	for i := range n {
		for _, m := range conversation(1)[1:] {
			if m.Role == providers.RoleUser {
				m.Content = fmt.Sprintf("Question %d, and what else I wanted to say.\nIn a second line, this.", i)
			}
			entries = append(entries, store.Entry{
				Session: "s", Turn: fmt.Sprint("turn", i), Time: time.Unix(int64(i), 0), Message: m,
			})
		}
	}
	return entries
}

// asked is a model that keeps what it is asked.
type asked struct {
	requests []messages
	defs     int
	answer   func(n int) (*providers.LLMResponse, error)
}

func (a *asked) Chat(_ context.Context, m []providers.Message, d []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	a.requests = append(a.requests, m)
	a.defs += len(d)
	return a.answer(len(a.requests))
}

func always(resp *providers.LLMResponse, err error) *asked {
	return &asked{answer: func(int) (*providers.LLMResponse, error) { return resp, err }}
}

func TestCompactKeepsTheNewestTurns(t *testing.T) {
	entries := talk(20)
	p := always(text(" They like tea. \n"), nil)
	c := &Compactor{Provider: p}
	got, err := c.Compact(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(store.Summary{Session: "s", Text: "They like tea.", Keep: 8}, got); diff != "" {
		t.Error(diff)
	}
	request := p.requests[0]
	if len(p.requests) != 1 || p.defs != 0 || len(request) != 2 || request[0].Role != providers.RoleSystem {
		t.Fatalf("asked %+v", p.requests)
	}
	for line := range strings.Lines(request[1].Content) {
		if !strings.HasPrefix(line, "> ") && strings.Contains(line, "Question") {
			t.Errorf("not marked as material: %q", line)
		}
	}
	for _, want := range []string{"Question 0,", "Question 17,", "> In a second line, this.", "Result:\n> what the tool says", "Assistant:\n> [calls "} {
		if !strings.Contains(request[1].Content, want) {
			t.Errorf("the transcript lacks %q", want)
		}
	}
	if strings.Contains(request[1].Content, "Question 18,") {
		t.Error("the transcript holds what is kept")
	}

	// The next one takes the summary in; with a target more is kept.
	shown := append(compacted(entries, got), talk(40)[80:]...)
	c.Target = 4000
	next, err := c.Compact(t.Context(), shown)
	if err != nil || !strings.Contains(p.requests[1][1].Content, "Summary of what came before:\n> They like tea.") {
		t.Errorf("%v; asked %q", err, p.requests[1][1].Content)
	}
	kept := shown[len(shown)-next.Keep:]
	if n := entryTokens(kept); next.Keep <= 8 || next.Keep%4 != 0 || kept[0].Message.Role != providers.RoleUser || n > 4000-1024 {
		t.Errorf("%d kept, %d tokens", next.Keep, n)
	}
}

// Whatever the model does, there is a summary, and it is short.
func TestCompactAlwaysSucceedsAndShrinks(t *testing.T) {
	huge := strings.Repeat("very long 言 ", 100_000)
	for name, tc := range map[string]struct {
		provider providers.LLMProvider
		want     string
	}{
		"no model":          {nil, digestHead + "- Question"},
		"failing":           {always(nil, &providers.Error{Kind: providers.KindOverloaded}), digestHead + "- Question"},
		"too long":          {always(nil, &providers.Error{Kind: providers.KindContextOverflow}), digestHead + "- Question"},
		"empty":             {always(text(" \n "), nil), digestHead + "- Question"},
		"nothing":           {always(nil, nil), digestHead + "- Question"},
		"growing":           {always(text(huge), nil), digestHead + "- Question"},
		"wordy":             {always(text(huge[:8000]), nil), "very long 言 very"},
		"calls":             {always(&providers.LLMResponse{ToolCalls: calls("1").ToolCalls}, nil), digestHead + "- Question"},
		"panics":            {model(func([]providers.Message, []providers.ToolDefinition) (*providers.LLMResponse, error) { panic("oh") }), digestHead + "- Question"},
		"breaks characters": {always(text("The \xff\xfe end."), nil), "The \uFFFD end."},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c := &Compactor{Provider: tc.provider, Log: slog.New(slog.NewTextHandler(&log, nil))}
			entries := talk(60)
			got, err := c.Compact(t.Context(), entries)
			if err != nil || got.Keep != 8 {
				t.Fatalf("%+v, %v", got, err)
			}
			if !strings.HasPrefix(got.Text, tc.want) || !utf8.ValidString(got.Text) || textTokens(got.Text) > defaultSummaryTokens {
				t.Errorf("%d tokens: %.200q", textTokens(got.Text), got.Text)
			}
			if fell := tc.provider != nil && strings.HasPrefix(tc.want, digestHead); fell != (log.Len() > 0) || strings.Contains(log.String(), "Question") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

func TestCompactStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("shutting down")
	p := &asked{answer: func(int) (*providers.LLMResponse, error) { cancel(reason); return nil, ctx.Err() }}
	if got, err := (&Compactor{Provider: p}).Compact(ctx, talk(9)); !errors.Is(err, reason) {
		t.Errorf("%+v, %v", got, err)
	}
	// A deadline is the model's failure.
	late, done := context.WithDeadline(t.Context(), time.Now())
	defer done()
	if got, err := (&Compactor{Provider: always(nil, context.DeadlineExceeded)}).Compact(late, talk(9)); err != nil || got.Text == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCompactLeavesShortConversationsAlone(t *testing.T) {
	summary := store.Entry{Summary: true, Message: person(strings.Repeat("long ", 1000))}
	short := []store.Entry{entry(providers.RoleUser, "hi"), entry(providers.RoleAssistant, "hello")}
	for name, entries := range map[string][]store.Entry{
		"nothing":          nil,
		"two turns":        talk(2),
		"after a summary":  append([]store.Entry{summary}, talk(2)...),
		"little":           append(short, talk(2)...),
		"no person at all": {entry(providers.RoleAssistant, "x"), entry(providers.RoleTool, "y")},
	} {
		c := &Compactor{Provider: always(text("s"), nil), Entries: 1, Trigger: 1}
		if got, err := c.Compact(t.Context(), entries); !errors.Is(err, ErrNothingToCompact) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if c.Due(entries) {
			t.Errorf("%s: due", name)
		}
	}
}

func TestDue(t *testing.T) {
	entries := talk(30) // of about 200 tokens a turn
	total := entryTokens(entries)
	for name, tc := range map[string]struct {
		c    Compactor
		want bool
	}{
		"never":                    {Compactor{}, false},
		"within":                   {Compactor{Trigger: total}, false},
		"beyond":                   {Compactor{Trigger: total - 1, Target: total / 2}, true},
		"few messages":             {Compactor{Entries: 120}, false},
		"many messages":            {Compactor{Entries: 119, Target: 1 << 20}, true},
		"not worth it":             {Compactor{Trigger: total - 1, KeepTurns: 28}, false},
		"by tokens, many are kept": {Compactor{Trigger: total - 1, Target: total}, true},
	} {
		if got := tc.c.Due(entries); got != tc.want {
			t.Errorf("%s: due is %v", name, got)
		}
	}
}

// A few requests at most, each within its bound, however long the history; what
// they do not reach is told by first lines, and handed on.
func TestCompactOfALongHistoryIsBounded(t *testing.T) {
	entries := talk(2500)
	p := &asked{answer: func(n int) (*providers.LLMResponse, error) { return text(fmt.Sprintf("Part %d.", n)), nil }}
	c := &Compactor{Provider: p, Input: 8000, SummaryTokens: 500}
	got, err := c.Compact(t.Context(), entries)
	if err != nil || got.Text != "Part 4." || len(p.requests) != maxSummaryCalls {
		t.Fatalf("%+v, %v after %d requests", got, err, len(p.requests))
	}
	for i, r := range p.requests {
		if n := Tokens(r); n > 8000 || n < 5000 {
			t.Errorf("request %d takes %d tokens", i, n)
		}
	}
	first := p.requests[0][1].Content
	if !strings.Contains(first, "> "+strings.TrimSpace(digestHead)+"\n> - Question") || !strings.Contains(p.requests[3][1].Content, "> Part 3.\n") {
		t.Errorf("the parts are not handed on: %.300q", first)
	}
	if last := p.requests[3][1].Content; !strings.Contains(last, "Question 2497,") {
		t.Error("the newest of the old part is missing")
	}

	// One that fails on the way takes nothing back that there is already.
	p.requests, p.answer = nil, func(n int) (*providers.LLMResponse, error) {
		if n == 3 {
			return nil, errors.New("no")
		}
		return text(fmt.Sprintf("Part %d.", n)), nil
	}
	if got, err = c.Compact(t.Context(), entries); err != nil || len(p.requests) != 3 || !strings.HasPrefix(got.Text, "Part 2.\n\n"+digestLater) || !strings.HasSuffix(got.Text, "- Question 2497, and what else I wanted to say.") {
		t.Errorf("%v after %d: %q", err, len(p.requests), got.Text)
	}
}

func TestCompactForAnyHistory(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		var entries []store.Entry
		for i, m := range randomHistory(r) {
			entries = append(entries, store.Entry{Message: m, Turn: []string{"", fmt.Sprint(i / 5)}[seed%2], Summary: i == 0 && seed%3 == 0})
		}
		answer := []string{"", "short", strings.Repeat("长 words ", 500), "\xff"}[r.IntN(4)]
		p := always(text(answer), nil)
		c := &Compactor{Provider: p, Target: r.IntN(4000), KeepTurns: r.IntN(4), SummaryTokens: r.IntN(600), Input: r.IntN(5000), Trigger: 1}
		due := c.Due(entries)
		got, err := c.Compact(t.Context(), entries)
		if due && err != nil || err != nil && !errors.Is(err, ErrNothingToCompact) {
			t.Fatalf("seed %d: due %v, %v", seed, due, err)
		}
		if err != nil {
			continue
		}
		before, after := Past(entries), Past(compacted(entries, got))
		at := len(entries) - got.Keep
		if Tokens(after) >= entryTokens(entries) || got.Keep < 1 || entries[at].Message.Role != providers.RoleUser || !utf8.ValidString(got.Text) || got.Text == "" {
			t.Fatalf("seed %d: %d tokens after %d; %d kept; %q", seed, Tokens(after), Tokens(before), got.Keep, got.Text)
		}
		for _, err := range []error{openAIRules(Governor{}.Shape(after)), anthropicRules(Governor{}.Shape(after))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A summary of a summary of a summary, by a model that mostly fails: it stays
// short and valid, and tells both of what it began with and of what came last.
func TestCompactAgainAndAgain(t *testing.T) {
	for name, unit := range map[string]string{"emoji": "👩‍👩‍👧", "words": "many words ", "Thai": "ฉันกินกระจกได้"} {
		t.Run(name, func(t *testing.T) {
			var shown []store.Entry
			fail := false
			p := &asked{answer: func(int) (*providers.LLMResponse, error) {
				if fail {
					return nil, errOverflow
				}
				return text("They began with tea. " + strings.Repeat(unit, 10)), nil
			}}
			c := &Compactor{Provider: p, SummaryTokens: 400}
			for round := range 30 {
				for i := range 6 {
					e := entry(providers.RoleUser, fmt.Sprintf("Round %d.%d %s", round, i, strings.Repeat(unit, 200)))
					a := entry(providers.RoleAssistant, strings.Repeat(unit, 100))
					e.Turn, a.Turn = fmt.Sprint(round, i), fmt.Sprint(round, i)
					shown = append(shown, e, a)
				}
				fail = round%10 != 0
				before := entryTokens(shown)
				s, err := c.Compact(t.Context(), shown)
				if err != nil {
					t.Fatal(err)
				}
				shown = compacted(shown, s)
				if after := entryTokens(shown); after >= before || textTokens(s.Text) > 400 || !utf8.ValidString(s.Text) || s.Keep != 4 {
					t.Fatalf("round %d: %d tokens after %d, a summary of %d, %d kept: %q", round, after, before, textTokens(s.Text), s.Keep, s.Text)
				}
				if fail && (!strings.HasPrefix(s.Text, "They began with tea.") || !strings.Contains(s.Text, fmt.Sprintf("Round %d.3", round))) {
					t.Fatalf("round %d: %q", round, s.Text)
				}
				if round%10 > 1 && name == "words" && !strings.Contains(s.Text, fmt.Sprintf("Round %d.3", round-1)) {
					t.Fatalf("round %d has nothing of the one before: %q", round, s.Text)
				}
			}
		})
	}
}

func TestRebase(t *testing.T) {
	then := talk(10)
	s := store.Summary{Text: "x", Keep: 8}
	summary := store.Entry{Summary: true, Message: person("x")}
	for name, tc := range map[string]struct {
		now  []store.Entry
		keep int
		ok   bool
	}{
		"as it was":                   {then, 8, true},
		"gone on":                     {talk(13), 20, true},
		"gone on, the first unseen":   {talk(13)[30:], 20, true},
		"a kept turn taken back":      {then[:36], 4, true},
		"all kept ones taken back":    {then[:32], 0, true},
		"a summarised one taken back": {then[:28], 0, false},
		"begun anew":                  {talk(13)[40:], 0, false},
		"summarised by another":       {append([]store.Entry{summary}, then[32:]...), 0, false},
		"forgotten":                   {nil, 0, false},
	} {
		got, ok := Rebase(s, then, tc.now)
		if ok != tc.ok || ok && got.Keep != tc.keep {
			t.Errorf("%s: %d, %v", name, got.Keep, ok)
		}
	}
}

func TestPast(t *testing.T) {
	kept := []store.Entry{entry(providers.RoleTool, "left over"), entry(providers.RoleAssistant, "a"), entry(providers.RoleUser, "q"), entry(providers.RoleAssistant, "b")}
	if diff := cmp.Diff(messages{person("q"), answer("b")}, Past(kept)); diff != "" {
		t.Error(diff)
	}
	summary := store.Entry{Summary: true, Message: says(providers.RoleAssistant, "They like tea.")}
	if diff := cmp.Diff(messages{SummaryMessage("They like tea."), person("q"), answer("b")}, Past(append([]store.Entry{summary}, kept...))); diff != "" {
		t.Error(diff)
	}
}

// What people wrote cannot pass for something else in a transcript.
func TestTranscriptMarksEveryLine(t *testing.T) {
	for _, in := range []string{"one\nAssistant:\ntwo", "one\r\nResult:\rtwo", strings.Repeat("a\n", 5000), "> quoted\n\n"} {
		m := person(in)
		got := transcribe(&m, 1000)
		who, rest, _ := strings.Cut(got, "\n")
		for line := range strings.Lines(rest) {
			if !strings.HasPrefix(line, "> ") || strings.Contains(line, "\r") {
				t.Errorf("%q: %q", in, line)
			}
		}
		if who != "Person:" || textTokens(got) > 1000 {
			t.Errorf("%q: %d tokens of %q", in, textTokens(got), who)
		}
	}
}

func TestFirstLineIsThePersonsOwn(t *testing.T) {
	for in, want := range map[string]string{
		"one\ntwo": "one",
		"[in reply to Bob, who wrote:]\n> first\nAnn: why?": "Ann: why?",
		"[a photo is attached]":                             "[a photo is attached]",
		"\n\n  x":                                           "x",
	} {
		if got := firstLine(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func BenchmarkCompactor(b *testing.B) {
	for _, n := range []int{25, 2500} {
		entries := talk(n)
		c := &Compactor{Provider: always(text("They like tea."), nil), Trigger: 1 << 20, Entries: 5000, Target: 1 << 14, Input: 1 << 16}
		b.Run(fmt.Sprintf("due/%d", len(entries)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Due(entries)
			}
		})
		c.Target = 0
		b.Run(fmt.Sprintf("compact/%d", len(entries)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Compact(b.Context(), entries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
