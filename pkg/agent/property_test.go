package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// randomHistory is a conversation as crashes, cancellations and odd models may
// leave it. Every message has a mark of its own.
func randomHistory(r *rand.Rand) messages {
	marks := 0
	mark := func(text string) string { marks++; return fmt.Sprintf("#%d# %s", marks, text) }
	units := []string{"word ", "строка\n", "语言", "👍🏽", "\x80\xfe", `{"a": 1}`, "\x00\u200b", "שלום\u202e", "\r\n\t "}
	text := func() string {
		size := []int{0, 3, 20, 200, 3000}[r.IntN(5)]
		if r.IntN(500) == 0 {
			size = 100_000
		}
		return mark(strings.Repeat(units[r.IntN(len(units))], size/4))
	}
	id := func() string {
		return []string{"", "0", "1", "call_4_0", fmt.Sprint("id", r.IntN(1000)), " ", strings.Repeat("functions.x:", 30)}[r.IntN(7)]
	}
	var h messages
	for range r.IntN(3) {
		h = append(h, system(text()))
	}
	if r.IntN(4) == 0 {
		h = append(h, SummaryMessage(text()))
	}
	for range r.IntN(12) {
		h = append(h, person(text()))
		for range r.IntN(4) {
			m := says(providers.RoleAssistant, []string{"", mark("")}[r.IntN(2)])
			var answers messages
			n := r.IntN(4)
			if r.IntN(40) == 0 {
				n = 20
			}
			for range n {
				tc := providers.ToolCall{ID: id(), Name: []string{"", "tool", "read_file"}[r.IntN(3)]}
				if r.IntN(2) == 0 {
					tc.Function = &providers.FunctionCall{Name: tc.Name, Arguments: `{"start_line":` + fmt.Sprint(r.IntN(9)) + `}`}
				}
				m.ToolCalls = append(m.ToolCalls, tc)
				answers = append(answers, result(tc.ID, text()))
			}
			h = append(append(h, m), answers...)
			if r.IntN(6) == 0 {
				h = append(h, person(text()))
			}
		}
		h = append(h, answer(text()))
	}
	return damage(r, h, id)
}

func damage(r *rand.Rand, h messages, id func() string) messages {
	for range r.IntN(6) * r.IntN(3) {
		if len(h) == 0 {
			break
		}
		i, j := r.IntN(len(h)), r.IntN(len(h))
		switch r.IntN(7) {
		case 0:
			h = slices.Delete(h, i, i+1)
		case 1:
			h = slices.Insert(h, i, h[i]) // the twin is the only mark that comes twice
		case 2:
			h[i], h[j] = h[j], h[i]
		case 3:
			h[i].ToolCallID = id()
		case 4:
			h[i].Content = []string{"", " \n"}[r.IntN(2)]
		case 5:
			h[i].Role = []string{"system", "user", "assistant", "tool", "function"}[r.IntN(5)]
		case 6:
			h = h[:i] // as after a crash
		}
	}
	return h
}

func randomGovernor(r *rand.Rand) Governor {
	return Governor{MaxTokens: []int{0, 1, 100, 700, 3000, 20_000}[r.IntN(6)], MaxResultBytes: []int{0, 1, 600, 5000}[r.IntN(4)]}
}

// checkShape holds what Shape promises against one conversation.
func checkShape(t *testing.T, g Governor, in messages) {
	t.Helper()
	before, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	got := g.Shape(in)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%+v: %s\nin:  %s\nout: %s", g, fmt.Sprintf(format, args...), before, outline(got))
	}
	if after, _ := json.Marshal(in); string(before) != string(after) {
		fail("the argument was changed")
	}
	if err := openAIRules(got); err != nil {
		fail("OpenAI: %v", err)
	}
	if err := anthropicRules(got); err != nil && len(anthropicForm(in)) > 0 {
		fail("Anthropic: %v", err)
	}
	if again := g.Shape(got); !cmp.Equal(got, again) {
		fail("the second pass changes something: %s", outline(again))
	} else if len(got) > 0 && &got[0] != &again[0] && (g.MaxTokens <= 0 || fits(got, g.MaxTokens)) {
		fail("the second pass copies")
	}
	checkKept(t, g, in, got, fail)
}

// checkKept holds that what has to stay stays, in its order, and that the rest
// goes when it must.
func checkKept(t *testing.T, g Governor, in, got messages, fail func(string, ...any)) {
	t.Helper()
	valid := Governor{}.Shape(in)
	at := 0
	for _, m := range got { // a subsequence, but for what Shape writes itself
		if m.Content == textStepsLeft {
			continue
		}
		for at < len(valid) && (valid[at].Role != m.Role || valid[at].ToolCallID != m.ToolCallID || !sameText(m.Content, valid[at].Content) || !cmp.Equal(m.ToolCalls, valid[at].ToolCalls)) {
			at++
		}
		if at++; at > len(valid) {
			fail("%.50q is out of order, or from nowhere", m.Content)
		}
	}
	lastUser, systems := "", 0
	for _, m := range valid {
		if m.Role == providers.RoleUser {
			lastUser = m.Content
		}
	}
	for systems < len(valid) && valid[systems].Role == providers.RoleSystem {
		if systems >= len(got) || got[systems].Content != valid[systems].Content {
			fail("a system message is gone")
		}
		systems++
	}
	if lastUser != "" && !slices.ContainsFunc(got, func(m providers.Message) bool { return m.Role == providers.RoleUser && sameText(m.Content, lastUser) }) {
		fail("what the person said last is gone")
	}
	if g.MaxTokens > 0 && Tokens(got) > g.MaxTokens && smallest(valid) <= g.MaxTokens {
		fail("%d tokens, though %d would do", Tokens(got), smallest(valid))
	}
}

// sameText reports whether got is want, whole or cut.
func sameText(got, want string) bool {
	head, rest, cut := strings.Cut(got, "\n[")
	if got == want || !cut {
		return got == want
	}
	_, tail, _ := strings.Cut(rest, "]\n")
	return strings.Contains(rest, " left out here") && strings.HasPrefix(want, head) && strings.HasSuffix(want, tail)
}

// smallest is what at most is left when everything that can go is gone.
func smallest(valid messages) int {
	lead := leading(valid)
	notice := person(textStepsLeft)
	least, turn := 0, 0
	for i := range valid {
		short := min(messageTokens(&valid[i]), minCut/2+tokensPerMessage)
		switch {
		case i < lead && valid[i].Role == providers.RoleSystem:
			least += messageTokens(&valid[i])
		case i < lead:
			least += short
		case valid[i].Role == providers.RoleUser:
			if beginsTurn(&valid[i], &valid[max(i-1, 0)]) || i == lead {
				turn = 0
			}
			turn += short + messageTokens(&notice)
		}
	}
	return least + turn + messageTokens(&notice)
}

func TestShapeHoldsItsPromisesForAnyHistory(t *testing.T) {
	rounds := uint64(1500)
	if testing.Short() {
		rounds = 500
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(seed, 3))
		checkShape(t, randomGovernor(r), randomHistory(r))
	}
}

func FuzzShape(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		program := make([]byte, 4+2*r.IntN(40))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		f.Add(program, r.IntN(5000), r.IntN(3000))
	}
	f.Add([]byte{0, 8, 1, 8, 2, 1, 3, 9, 3, 9, 1, 0, 4, 3, 3, 11}, 100, 0)
	f.Fuzz(func(t *testing.T, program []byte, tokens, bytes int) {
		if len(program) <= 200 {
			checkShape(t, Governor{MaxTokens: tokens, MaxResultBytes: bytes}, written(program))
		}
	})
}

// written makes a conversation of a program: of each two bytes the first says
// who speaks, the second how much and by which id.
func written(program []byte) (h messages) {
	ids := []string{"", "a", "b", "c", "call_1_0", "call_3_1", "call_5_0", "call_1_0x"}
	texts := []string{"word ", "言", "\n", "\xf0\x9f"}
	for i := 0; i+1 < len(program); i += 2 {
		who, what := program[i], program[i+1]
		id, size := ids[what&7], int(what>>3)
		content := strings.Repeat(texts[size&3], size*size)
		if size > 0 {
			content = fmt.Sprintf("#%d#", i) + content
		}
		switch who % 6 {
		case 0:
			h = append(h, system(content))
		case 1:
			h = append(h, person(content))
		case 2:
			h = append(h, calls(id, ids[who>>5]))
		case 3:
			h = append(h, result(id, content))
		case 4:
			h = append(h, renamed(calls(id), []string{"", "read_file"}[size&1]))
		case 5:
			h = append(h, answer(content))
		}
	}
	return h
}
