package textcall_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

// teller is a model that tells its reply in the pieces it is given.
type teller struct {
	pieces  []string
	thought string
	finish  string
	native  []providers.ToolCall
	err     error // behind the last piece
}

func (m *teller) reply() (*providers.LLMResponse, error) {
	if m.err != nil {
		return nil, m.err
	}
	return &providers.LLMResponse{Content: strings.Join(m.pieces, ""), FinishReason: m.finish, ToolCalls: m.native}, nil
}

func (m *teller) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return m.reply()
}

func (m *teller) ChatStream(_ context.Context, _ []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	if m.thought != "" {
		onDelta(providers.Delta{Reasoning: m.thought})
	}
	for _, p := range m.pieces {
		onDelta(providers.Delta{Text: p})
	}
	return m.reply()
}

// stream asks as the loop does, and returns what was told.
func stream(t *testing.T, p providers.LLMProvider) (told []providers.Delta, resp *providers.LLMResponse, err error) {
	t.Helper()
	resp, err = providers.Stream(t.Context(), textcall.Wrap(p), []providers.Message{says("hi")}, nil, "m", nil, func(d providers.Delta) { told = append(told, d) })
	return told, resp, err
}

// Text is told at once, also where it shares a piece with a tag; a block never
// is, thoughts only as such.
func TestWrapStreams(t *testing.T) {
	p := &teller{thought: "so", finish: providers.FinishStop, pieces: []string{
		"<thi", "nk>hm", "m</thi", "nk>\n\n", "Let me", " see.<to", "ol>{\"tool_name\"", ":\"a\"}</to", "ol> And <", "b>. ",
		"<tool_call>{\"name\":\"b\"}</tool_call>!", "\n~~~\n<tool>{}</tool>\n~~~\n", "<tool> is", " a tag, <too",
	}}
	told, resp, err := stream(t, p)
	want := []providers.Delta{
		{Reasoning: "so"},
		{Reasoning: "hm"},
		{Reasoning: "m"},
		{Text: "Let me"},
		{Text: " see."},
		{Text: " And "},
		{Text: "<b>. "},
		{Text: "!"},
		{Text: "\n~~~\n<tool>{}</tool>\n~~~\n"},
		{Text: "<tool> is"},
		{Text: " a tag, "},
		{Text: "<too"},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	if err != nil || len(resp.ToolCalls) != 2 || resp.FinishReason != providers.FinishToolCalls {
		t.Errorf("%+v, %v", resp, err)
	}

	// A model that does not stream has it all in one piece.
	told, _, err = stream(t, &writer{texts: []string{"Now: <tool>{\"tool_name\":\"a\"}</tool>"}})
	if diff := cmp.Diff([]providers.Delta{{Text: "Now: "}}, told); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}

	// What is held back when a reply breaks off is never told.
	p = &teller{pieces: []string{"I do ", "<tool>{"}, err: errors.New("connection lost")}
	told, resp, err = stream(t, p)
	if diff := cmp.Diff([]providers.Delta{{Text: "I do "}}, told); diff != "" || resp != nil || !errors.Is(err, p.err) {
		t.Errorf("%s %+v, %v", diff, resp, err)
	}
}

// Native calls that come nevertheless are calls, and the text beside them is not
// searched for any.
func TestWrapStreamsNativeCalls(t *testing.T) {
	p := &teller{pieces: []string{"I look. ", `<tool>{"tool_name":"a"}</tool>`}, native: []providers.ToolCall{{ID: "1", Name: "look"}}, finish: providers.FinishToolCalls}
	told, resp, err := stream(t, p)
	if err != nil || len(resp.ToolCalls) != 1 || resp.ToolCalls[0].Name != "look" || len(told) != 1 || told[0].Text != "I look. " {
		t.Errorf("%+v, %+v, %v", told, resp, err)
	}
}

// Whatever a model writes and however it comes, the reply is the one that Chat
// returns for the whole text, and what was told is its content, but for the space
// around it.
func TestWrapStreamsForAnyReply(t *testing.T) {
	parts := []string{
		"word ", "\n", "  ", "é👍", "<", "<b>", "`", "```", "~~~\n", "<tool>", "</tool>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<thinking>", "</thinking>",
		`<tool>{"tool_name":"a","arguments":{"x":"</tool>"}}</tool>`, "<tool>\n<tool_name>a</tool_name></tool>", `<tool_call>{"name":"b"}`, `<tool>{"tool_name"`, "{}", `"`, "<![CDATA[", "]]>",
	}
	ids := cmpopts.IgnoreFields(providers.ToolCall{}, "ID")
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var text strings.Builder
		for range r.IntN(14) {
			text.WriteString(parts[r.IntN(len(parts))])
		}
		p := &teller{finish: []string{providers.FinishStop, providers.FinishLength, providers.FinishContentFilter}[r.IntN(3)]}
		for rest := text.String(); rest != ""; {
			n := min(1+r.IntN(1+r.IntN(20)), len(rest))
			p.pieces = append(p.pieces, rest[:n])
			rest = rest[n:]
		}
		told, got, err := stream(t, p)
		want, wantErr := textcall.Wrap(p).Chat(t.Context(), []providers.Message{says("hi")}, nil, "m", nil)
		if diff := cmp.Diff(want, got, ids); diff != "" || err != nil || wantErr != nil {
			t.Fatalf("%q: %s %v %v", p.pieces, diff, err, wantErr)
		}
		var all strings.Builder
		for _, d := range told {
			all.WriteString(d.Text)
		}
		shown, content := strings.TrimSpace(all.String()), strings.TrimSpace(got.Content)
		if shown != content && (!endsThoughts(text.String()) || !strings.HasSuffix(shown, content)) {
			t.Fatalf("%q: %q was told of %q", p.pieces, shown, content)
		}
	}
}

// endsThoughts reports whether a text closes thoughts, which it may do without
// having begun them.
func endsThoughts(text string) bool { return strings.Contains(text, "</think") }

func TestWrapIsAChecker(t *testing.T) {
	if _, ok := textcall.Wrap(&teller{}).(providers.Checker); ok {
		t.Error("it can be asked what the model behind it cannot")
	}
	c, ok := textcall.Wrap(checked{}).(providers.Checker)
	if !ok || c.Check(t.Context()) == nil {
		t.Error("it does not ask the model behind it")
	}
	if _, ok := textcall.Wrap(checked{}).(providers.Streamer); !ok {
		t.Error("it does not stream")
	}
}

type checked struct{ quiet }

func (checked) Check(context.Context) error { return errors.New("no key") }

func ExampleWrap() {
	model := textcall.Wrap(&teller{finish: providers.FinishStop, pieces: []string{"I look it ", "up.\n<tool>{\"tool_name\": \"look\"", "}</tool>"}})
	resp, err := providers.Stream(context.Background(), model, nil, nil, "m", nil, func(d providers.Delta) { fmt.Printf("%q ", d.Text) })
	fmt.Println(resp.ToolCalls[0].Name, err)
	// Output: "I look it " "up.\n" look <nil>
}
