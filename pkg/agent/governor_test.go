package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

type messages = []providers.Message

func says(role, text string) providers.Message {
	return providers.Message{Role: role, Content: text}
}
func person(text string) providers.Message { return says(providers.RoleUser, text) }
func answer(text string) providers.Message { return says(providers.RoleAssistant, text) }
func system(text string) providers.Message { return says(providers.RoleSystem, text) }
func result(id, text string) providers.Message {
	return providers.Message{Role: providers.RoleTool, ToolCallID: id, Content: text}
}

// calls is an assistant's message with calls of tools named like their ids.
func calls(ids ...string) providers.Message {
	m := providers.Message{Role: providers.RoleAssistant}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, providers.ToolCall{ID: id, Name: "tool"})
	}
	return m
}

func renamed(m providers.Message, name string) providers.Message {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		m.ToolCalls[i].Name = name
	}
	return m
}

func TestShapeRepairs(t *testing.T) {
	for _, tc := range []struct {
		name     string
		in, want messages
	}{
		{"nothing", nil, nil},
		{"a missing result", messages{person("q"), calls("1"), answer("a")}, messages{person("q"), calls("1"), result("1", textNoResult), answer("a")}},
		{"one of two missing, at the end", messages{person("q"), calls("1", "2"), result("2", "r")}, messages{person("q"), calls("1", "2"), result("2", "r"), result("1", textNoResult)}},
		{"a result without a call", messages{person("q"), result("1", "r"), answer("a")}, messages{person("q"), answer("a")}},
		{"a result twice", messages{person("q"), calls("1"), result("1", "r"), result("1", "s")}, messages{person("q"), calls("1"), result("1", "r")}},
		{"an unknown and an empty id", messages{person("q"), calls("1"), result("9", "r"), result("", "s"), result("1", "t")}, messages{person("q"), calls("1"), result("1", "t")}},
		{"a result too late", messages{person("q"), calls("1"), person("and?"), result("1", "r")}, messages{person("q"), calls("1"), result("1", textNoResult), person("and?")}},
		{"ids used again in later turns", messages{person("q"), calls("0"), result("0", "r"), person("p"), calls("0"), result("0", "s")}, messages{person("q"), calls("0"), result("0", "r"), person("p"), calls("call_4_0"), result("call_4_0", "s")}},
		{"ids twice in one reply", messages{person("q"), calls("1", "1"), result("1", "r"), result("1", "s")}, messages{person("q"), calls("1", "call_1_1"), result("1", "r"), result("call_1_1", "s")}},
		{"ids used again, without results", messages{person("q"), calls("0"), person("p"), calls("0")}, messages{person("q"), calls("0"), result("0", textNoResult), person("p"), calls("call_3_0"), result("call_3_0", textNoResult)}},
		{"no id", messages{person("q"), calls("", ""), result("", "r"), result("", "s")}, messages{person("q"), calls("call_1_0", "call_1_1"), result("call_1_0", "r"), result("call_1_1", "s")}},
		{"no name", messages{person("q"), renamed(calls("1"), ""), result("1", "r")}, messages{person("q"), renamed(calls("1"), "unnamed"), result("1", "r")}},
		{"an empty answer", messages{person("q"), answer(" \n"), person("p")}, messages{person("q"), person("p")}},
		{"empty text beside calls", messages{person("q"), {Role: "assistant", Content: " ", ToolCalls: calls("1").ToolCalls}, result("1", "r")}, messages{person("q"), calls("1"), result("1", "r")}},
		{"an empty question, an empty result", messages{person(""), calls("1"), result("1", "")}, messages{person(textNoText), calls("1"), result("1", textNoOutput)}},
		{"the rest of a turn at the beginning", messages{system("s"), result("1", "r"), answer("a"), calls("2"), result("2", "r"), person("q")}, messages{system("s"), person("q")}},
		{"no person at all", messages{system("s"), answer("a")}, messages{system("s"), person(textNoStart), answer("a")}},
		{"a result of white space", messages{person("q"), calls("1"), result("1", " \n")}, messages{person("q"), calls("1"), result("1", textNoOutput)}},
		{"a system message in between", messages{system("s"), person("q"), system("t"), answer("a"), system(" ")}, messages{system("s"), person("q"), person("t"), answer("a")}},
		{"an empty system message, an unknown role", messages{system(""), person("q"), says("function", "x")}, messages{person("q")}},
		{"fields where they do not belong", messages{{Role: "user", Content: "q", ToolCallID: "1", ToolCalls: calls("1").ToolCalls}}, messages{person("q")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Governor{}.Shape(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if len(tc.in) == 0 {
				return
			}
			if openAIRules(tc.in) == nil && anthropicRules(tc.in) == nil {
				t.Error("neither API would have refused it")
			}
			for _, err := range []error{openAIRules(got), anthropicRules(got)} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestShapeReturnsWhatIsFineAsItIs(t *testing.T) {
	in := conversation(30)
	if got := ForWindow(128 << 10).Shape(in); &got[0] != &in[0] || len(got) != len(in) {
		t.Error("a conversation that is fine was copied")
	}
	allocs := testing.AllocsPerRun(100, func() { ForWindow(128 << 10).Shape(in) })
	if allocs > 4 { // the set of ids
		t.Errorf("%.0f allocations", allocs)
	}
}

// conversation is a plain one of n turns with a call each; 4 messages a turn.
func conversation(n int) messages {
	c := messages{system("Be kind.")}
	for i := range n {
		id := fmt.Sprintf("call_%020d", i)
		c = append(c, person(fmt.Sprintf("Question %d, which has a usual length, I should think.", i)),
			calls(id), result(id, strings.Repeat("what the tool says ", 20)), answer("An answer of some words, neither short nor long."))
	}
	return c
}

func TestShapeDropsWholeTurnsOldestFirst(t *testing.T) {
	in := conversation(40)
	turn := Tokens(in[1:5])
	g := Governor{MaxTokens: 16*turn + Tokens(in[:1])}
	got := g.Shape(in)
	kept := (len(got) - 1) / 4
	if kept < 13 || kept > 16 {
		t.Errorf("%d turns were kept of a bound of 16, want at least 14 and a bit", kept)
	}
	if diff := cmp.Diff(join(in[:1], in[len(in)-4*kept:]), got); diff != "" {
		t.Error(diff)
	}

	// A summary stays.
	in = slices.Insert(in, 1, SummaryMessage("They like tea."))
	if got := g.Shape(in); !isSummary(&got[1]) || got[2].Role != providers.RoleUser || Tokens(got) > g.MaxTokens {
		t.Errorf("%d tokens, begins %+v", Tokens(got), got[:3])
	}
}

// As a conversation grows, requests begin alike most of the time.
func TestShapeMovesTheBeginningRarely(t *testing.T) {
	all := conversation(200)
	g := Governor{MaxTokens: 24 * Tokens(all[1:5])}
	moves, first := 0, ""
	for n := 50; n < 150; n++ {
		got := g.Shape(all[:1+4*n+1])
		if Tokens(got) > g.MaxTokens {
			t.Fatalf("%d tokens", Tokens(got))
		}
		if got[1].Content != first {
			first = got[1].Content
			moves++
		}
	}
	if moves > 50 {
		t.Errorf("the beginning moved %d times in 100 turns", moves)
	}
}

func TestShapeCutsHugeResults(t *testing.T) {
	g := Governor{MaxResultBytes: 1000}
	for name, unit := range map[string]string{"ASCII": "x", "Chinese": "言", "emoji": "👩‍👩‍👧", "not text at all": "\x80\xff", "lines": "0123456789\n"} {
		t.Run(name, func(t *testing.T) {
			whole := strings.Repeat(unit, 2000)
			in := messages{person("q"), calls("1"), result("1", whole)}
			got := g.Shape(in)[2].Content
			if len(got) > 1000 {
				t.Errorf("%d bytes: %q", len(got), got)
			}
			if utf8.ValidString(whole) && !utf8.ValidString(got) {
				t.Errorf("a character was cut: %q", got)
			}
			head, rest, _ := strings.Cut(got, "\n[")
			_, tail, _ := strings.Cut(rest, "]\n")
			want := fmt.Sprintf(`%d bytes of this result are left out here. To read them call read_result with {"id": "%s", "offset": %d}.]`,
				len(whole)-len(head)-len(tail), resultID(whole), len(head))
			if !strings.HasPrefix(rest, want+"\n") {
				t.Errorf("%q, want %s", rest, want)
			}
			if !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) || len(head) < 400 || len(tail) < 200 {
				t.Errorf("head %q, tail %q", head, tail)
			}
			if in[2].Content != whole {
				t.Error("the history was changed")
			}
		})
	}
}

// A turn that is too large on its own: first its results, then its steps, then
// the person's words, and these with a mark.
func TestShapeSqueezesTheNewestTurn(t *testing.T) {
	long := func(n int) string { return strings.Repeat("abc ", n/4) }
	args := calls("2")
	args.ToolCalls[0].Function = &providers.FunctionCall{Name: "tool", Arguments: `{"text":"` + long(3000) + `"}`}
	older := messages{system("s"), person("before"), answer("yes")}
	turn := messages{
		person("the question"), calls("1"), result("1", "short"), args, result("2", long(50_000)),
		calls("3"), result("3", long(2000)), person(textNoStart),
	}
	in := join(older, turn)

	got := Governor{MaxTokens: 8000}.Shape(in)
	if len(got) != len(turn)+1 || got[1].Content != "the question" || len(got[5].Content) > 32<<10 || got[7].Content != turn[6].Content {
		t.Errorf("results: %s", outline(got))
	}
	got = Governor{MaxTokens: 700}.Shape(in)
	if len(got) != 6 || got[1].Content != "the question" || got[2].Content != textStepsLeft || got[3].ToolCalls[0].ID != "3" {
		t.Errorf("steps: %s", outline(got))
	}
	turn[0].Content = long(40_000)
	got = Governor{MaxTokens: 4000}.Shape(join(older, turn))
	if n := len(got[1].Content); n > 11_000 || n < 3000 || !strings.Contains(got[1].Content, " bytes are left out here, because the message is too long.]") || Tokens(got) > 4000 {
		t.Errorf("the person's text: %s", outline(got))
	}
	got = Governor{MaxTokens: 10}.Shape(join(older, turn)) // there is no way
	if len(got) != 4 || len(got[1].Content) > minCut || got[3].Content != textNoStart {
		t.Errorf("no way: %s", outline(got))
	}
}

func outline(ms messages) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s %d bytes %d calls; ", m.Role, len(m.Content), len(m.ToolCalls))
	}
	return b.String()
}

func TestTokensCountHigh(t *testing.T) {
	for _, tc := range []struct {
		text  string
		known int // tokens of cl100k_base, measured
	}{
		{"The quick brown fox jumps over the lazy dog.", 10},
		{"Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", 22},
		{"Съешь же ещё этих мягких французских булок, да выпей чаю.", 36},
		{"我能吞下玻璃而不伤身体。", 17},
		{"ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ", 32},
		{`{"path":"notes.txt","start_line":1,"end_line":200}`, 16},
		{"12345678901234567890", 7},
	} {
		if got := textTokens(tc.text); got < tc.known || got > 2*tc.known {
			t.Errorf("%q counts %d, has %d", tc.text, got, tc.known)
		}
	}
	m := calls("1")
	m.ToolCalls[0].Arguments = map[string]any{"a": []any{"text", 1.5, nil}, "b": map[string]any{"c": true}}
	text, err := json.Marshal(m.ToolCalls[0].Arguments)
	if err != nil {
		t.Fatal(err)
	}
	if got := messageTokens(&m); got < tokensPerMessage+tokensPerCall+len(text)/3 {
		t.Errorf("arguments of %d bytes count %d", len(text), got)
	}
	if !fits(messages{m}, messageTokens(&m)) || fits(messages{m}, messageTokens(&m)-1) {
		t.Error("fits and Tokens do not agree")
	}
}

func BenchmarkShape(b *testing.B) {
	window := ForWindow(128 << 10)
	for name, in := range map[string]messages{"100 messages": conversation(25), "10,000 messages": conversation(2500)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				window.Shape(in)
			}
		})
	}
}
