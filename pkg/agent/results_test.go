package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// sessions is what is stored, by session.
type sessions map[string][]store.Entry

func (s sessions) History(_ context.Context, session string, limit int) ([]store.Entry, error) {
	e := s[session]
	return e[max(0, len(e)-limit):], nil
}

var invitation = regexp.MustCompile(`call read_result with (\{.*?\})`)

// reader is a model that calls dump and then reads on for as long as it is told
// how.
type reader struct {
	t     *testing.T
	bound int
	first string // what it was shown of the result
	parts []string
}

func (r *reader) Chat(_ context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	if err := requestRules(m); err != nil {
		r.t.Error(err)
	}
	last := m[len(m)-1]
	if last.Role != providers.RoleTool {
		return call(fmt.Sprint("dump", len(m)), "dump", `{}`), nil
	}
	if len(last.Content) > r.bound || !utf8.ValidString(last.Content) {
		r.t.Errorf("the result has %d bytes of %d", len(last.Content), r.bound)
	}
	if r.first == "" {
		r.first = last.Content
	} else {
		if strings.Contains(last.Content, "left out here") {
			r.t.Errorf("a part is cut: %q", last.Content)
		}
		text, _, _ := strings.Cut(last.Content, "\n[These are bytes")
		r.parts = append(r.parts, text)
	}
	args := invitation.FindStringSubmatch(last.Content)
	if args == nil {
		return text("done"), nil
	}
	return call(fmt.Sprint("read", len(r.parts)), "read_result", args[1]), nil
}

func call(id, name, args string) *providers.LLMResponse {
	return &providers.LLMResponse{ToolCalls: []providers.ToolCall{{ID: id, Name: name, Function: &providers.FunctionCall{Name: name, Arguments: args}}}}
}

// withDump is an agent whose tools are dump, which returns whole, and
// read_result.
func withDump(p providers.LLMProvider, g Governor, h History, whole string) *Agent {
	registry := tools.NewToolRegistry()
	a := New(Config{
		Provider: p, Tools: registry, History: h, Governor: g, MaxIterations: 500, HistoryMessages: 10, Log: slog.New(slog.DiscardHandler),
	})
	registry.Register(builtin.NewReadResultTool(a.ReadResult))
	registry.Register(tools.Func("dump", "says a lot", func(context.Context, struct{}) *tools.ToolResult { return tools.NewToolResult(whole) }))
	return a
}

// What a notice leaves out can be read, part by part, and the parts together
// are the whole.
func TestReadResultReadsTheRest(t *testing.T) {
	rows := make([]map[string]any, 3000)
	for i := range rows {
		rows[i] = map[string]any{"n": i, "name": "Zoë", "mark": "👩‍👩‍👧"}
	}
	line, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, whole := range map[string]string{
		"one line of JSON": string(line), "lines": strings.Repeat("a line of usual length\n", 4000),
		"little": strings.Repeat("wörds ", 2000), "emoji": strings.Repeat("👩‍👩‍👧", 5000), "Chinese": strings.Repeat("言葉", 12_000), "one byte too long": strings.Repeat("x", 1537),
	} {
		for _, g := range []Governor{ForWindow(128 << 10), ForWindow(8 << 10), {MaxResultBytes: 1536}, {MaxResultBytes: 1}} {
			bound := max(g.MaxResultBytes, minCut)
			if len(whole) <= bound || len(whole) > 60*bound {
				continue
			}
			t.Run(fmt.Sprint(name, " ", g), func(t *testing.T) {
				r := &reader{t: t, bound: bound}
				a := withDump(r, g, sessions{}, whole)
				out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}})
				if err != nil {
					t.Fatal(err)
				}
				head, _, cut := strings.Cut(r.first, "\n[")
				if got := head + strings.Join(r.parts, ""); out.Answer != "done" || !cut || got != whole {
					t.Errorf("%q: %d bytes of %d were read in %d parts", out.Answer, len(got), len(whole), len(r.parts))
				}
				if whole != out.History[2].Message.Content {
					t.Error("the history does not hold the whole")
				}
				r = &reader{t: t, bound: bound}
				a.cfg.Provider = r
				if res := a.RunTask(t.Context(), tools.Call{Channel: "c", ChatID: "1", Turn: "t", ID: "call"}, "count"); res.ForLLM != "done" {
					t.Errorf("the sub-agent: %+v", res)
				}
				if head, _, _ := strings.Cut(r.first, "\n["); head+strings.Join(r.parts, "") != whole {
					t.Error("the sub-agent did not read it all")
				}
			})
		}
	}
}

// The bound of a part is that of the request it goes into.
func TestReadResultAfterAnOverflow(t *testing.T) {
	whole := strings.Repeat("0123456789", 20_000)
	g := ForWindow(64 << 10)
	r := &reader{t: t, bound: g.MaxResultBytes}
	refused := false
	a := withDump(nil, g, sessions{}, whole)
	a.cfg.Provider = model(func(m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
		if !refused && len(r.parts) == 1 {
			refused = true
			r.first, r.parts = "", nil // it reads the second part as if it were the first
			r.bound = 0
			return nil, errOverflow
		}
		if r.bound == 0 {
			r.bound = len(m[len(m)-1].Content) + 20 // the offsets may yet grow
		}
		return r.Chat(t.Context(), m, d, "", nil)
	})
	out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}})
	if err != nil || !refused || out.Answer != "done" || len(r.parts) < 5 || r.bound >= g.MaxResultBytes/2 {
		t.Errorf("%q, %v: %d parts of at most %d bytes", out.Answer, err, len(r.parts), r.bound)
	}
}

// A call that a crash interrupted is made again, and finds what was recorded.
func TestReadResultAfterResumption(t *testing.T) {
	whole := strings.Repeat("wörds ", 1000)
	g := Governor{MaxResultBytes: 1000}
	assistant := func(r *providers.LLMResponse) providers.Message {
		return providers.Message{Role: providers.RoleAssistant, ToolCalls: r.ToolCalls}
	}
	read := call("2", "read_result", fmt.Sprintf(`{"id": "%s", "offset": 0}`, resultID(whole)))
	steps := []store.Step{
		{Round: 1, Kind: store.StepReply, Message: assistant(call("1", "dump", `{}`))},
		{Round: 1, Kind: store.StepBegin, CallID: "1", Tool: "dump"},
		{Round: 1, Kind: store.StepEnd, CallID: "1", Message: result("1", whole)},
		{Round: 2, Kind: store.StepReply, Message: assistant(read)},
		{Round: 2, Kind: store.StepBegin, CallID: "2", Tool: "read_result"},
	}
	r := &reader{t: t, bound: 1000, first: "seen"}
	out, err := withDump(r, g, sessions{}, "").Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}, Steps: steps})
	if err != nil || out.Answer != "done" || strings.Join(r.parts, "") != whole {
		t.Errorf("%+v, %v", out, err)
	}
}

// A result is found for as long as the conversation holds it, and by no other
// conversation.
func TestReadResultFindsOnlyItsOwn(t *testing.T) {
	whole := strings.Repeat("secret ", 500)
	id := resultID(whole)
	turns := func(n int) []store.Entry {
		entries := []store.Entry{{Message: person("q")}, {Message: calls("1")}, {Message: result("1", whole)}, {Message: answer("a")}}
		return append(entries, talk(n)...)
	}
	h := sessions{"mine": turns(20), "summarised": turns(5)[4:], "theirs": turns(0)}
	a := withDump(nil, Governor{MaxResultBytes: 1000}, h, "")
	for name, tc := range map[string]struct {
		session, id string
		offset      int
		refused     bool
		want        string
	}{
		"further back than a turn loads": {"mine", id, 0, false, "secret secret"},
		"no longer there":                {"summarised", id, 0, true, "holds no result with the id"},
		"another conversation":           {"other", id, 0, true, "holds no result with the id"},
		"no conversation":                {"", id, 0, true, "holds no result with the id"},
		"a wrong id":                     {"mine", "1", 0, true, "holds no result with the id"},
		"an offset too far":              {"mine", id, len(whole), true, "offset goes from 0 to 3499"},
		"an offset before it":            {"mine", id, -1, true, "offset goes from 0 to 3499"},
		"the last byte":                  {"mine", id, len(whole) - 1, false, " \n[These are bytes 3499 to 3500, the end of the result.]"},
	} {
		got := a.ReadResult(t.Context(), tools.Call{SessionKey: tc.session}, tc.id, tc.offset)
		if !strings.Contains(got.ForLLM, tc.want) || got.IsError != tc.refused || tc.refused && strings.Contains(got.ForLLM, "secret") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Nor through a running turn of another conversation.
	var got string
	p := model(func(m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
		if got = m[len(m)-1].Content; m[len(m)-1].Role == providers.RoleTool {
			return text("done"), nil
		}
		return call("1", "read_result", fmt.Sprintf(`{"id": "%s", "offset": 0}`, id)), nil
	})
	if _, err := withDump(p, Governor{}, h, "").Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("go")}}); err != nil || !strings.Contains(got, "holds no result") {
		t.Errorf("%v: %q", err, got)
	}
	a.cfg.History = broken{}
	if got := a.ReadResult(t.Context(), tools.Call{SessionKey: "mine"}, id, 0); !got.IsError || got.Err == nil || strings.Contains(got.ForLLM, "disk") {
		t.Errorf("%+v", got)
	}
}

type broken struct{}

func (broken) History(context.Context, string, int) ([]store.Entry, error) {
	return nil, errors.New("disk")
}
