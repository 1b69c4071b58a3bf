package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests of this file are those of what a loop of this kind has to get right;
// each is named after its line in docs/tool-rules.md.

// group is a conversation of several people, with tools, over some days, and all
// the requests that the model got.
type group struct {
	*testing.T
	agent   *Agent
	ledger  *mem.Store
	mu      sync.Mutex // the API's goroutine
	bodies  [][]byte
	summary int // how often it was summarised
}

func newGroup(t *testing.T, cfg Config) *group {
	t.Helper()
	g := &group{T: t, ledger: mem.New()}
	api := providerstest.NewServer(providerstest.ServerConfig{Reply: func(r providerstest.Request) providerstest.Response {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.bodies = append(g.bodies, bytes.Clone(r.Body))
		if last := r.Last(); last.Role == providers.RoleUser || strings.HasPrefix(last.Content, "first") {
			return providerstest.Calls(providerstest.Call{Name: "look", Arguments: `{"n": ` + fmt.Sprint(len(g.bodies)%2) + `, "what":"x"}`})
		}
		return providerstest.Text("That is it, as far as I can see.")
	}})
	t.Cleanup(api.Close)
	provider, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", Transport: api.Transport(), MaxAttempts: 1, AttemptTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tools = tools.NewToolRegistry()
	rounds := 0
	for _, name := range []string{"write", "look", "ask"} {
		cfg.Tools.Register(tools.Func(name, "does "+name, func(context.Context, struct {
			N    int    `json:"n,omitempty"`
			What string `json:"what,omitempty"`
		},
		) *tools.ToolResult {
			rounds++
			return tools.NewToolResult([]string{"second ", "first "}[rounds%2] + strings.Repeat("what is there ", 100))
		}))
	}
	cfg.Provider, cfg.Model, cfg.MaxIterations, cfg.History, cfg.Log = provider, "m", 5, g.ledger, slog.New(slog.DiscardHandler)
	if cfg.Compactor != nil {
		cfg.Compactor.Log = cfg.Log
	}
	g.agent = New(cfg)
	return g
}

// turn has a person say something, and the conversation summarised if it is due,
// as the gateway does.
func (g *group) turn(n int, at time.Time) {
	g.Helper()
	m := message(fmt.Sprintf("Question %d, of some words, about this and that.", n))
	m.Group, m.Sender.Name = true, []string{"Ann", "Bob", "Çelik"}[n%3]
	out, err := g.agent.Run(g.Context(), Turn{ID: fmt.Sprint("turn", n), Messages: []bus.InboundMessage{m}, Started: at})
	if err != nil || out.Answer == "" || out.Rounds != 3 {
		g.Fatalf("turn %d: %+v, %v", n, out, err)
	}
	apply := func(tx store.Tx) {
		if _, err := g.ledger.Apply(g.Context(), tx); err != nil {
			g.Fatal(err)
		}
	}
	apply(store.Tx{History: out.History})
	if !out.Compact {
		return
	}
	draft, err := g.agent.Compact(g.Context(), m.SessionKey, false)
	if err != nil {
		g.Fatal(err)
	}
	s, ok, err := g.agent.Settle(g.Context(), draft)
	if err != nil || !ok {
		g.Fatal(ok, err)
	}
	apply(store.Tx{Summaries: []store.Summary{s}})
	g.summary++
}

// breaks counts the requests that do not go on from the one before: what comes
// before the messages and behind them is the same, and the messages are the same
// bytes with more behind them.
func (g *group) breaks() (n int) {
	g.Helper()
	var before struct{ head, messages []byte }
	for _, body := range g.bodies {
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(body, &parts); err != nil {
			g.Fatal(err)
		}
		messages := []byte(parts["messages"])
		at := bytes.Index(body, messages)
		head := append(bytes.Clone(body[:at]), body[at+len(messages):]...)
		if before.messages != nil {
			if !bytes.Equal(head, before.head) {
				g.Fatalf("beside the messages it differs:\n%s\n%s", before.head, head)
			}
			if !bytes.HasPrefix(messages, bytes.TrimSuffix(before.messages, []byte("]"))) {
				n++
			}
		}
		before.head, before.messages = head, messages
	}
	return n
}

// Every request is the one before with something added, bytes and all, over
// turns, people and days; but for those behind a summary or a cut, which are few.
func TestFieldPromptCaching(t *testing.T) {
	const turns = 50
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	zone := func(context.Context, bus.Address) *time.Location { return berlin }
	start := time.Date(2026, 11, 27, 22, 30, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		cfg         Config
		cuts, least int // requests that begin anew, and how many do at least
	}{
		"all of it fits": {Config{HistoryMessages: 1000}, 0, 0},
		"summarised":     {Config{HistoryMessages: 100, Compactor: &Compactor{Trigger: 20_000, Target: 10_000, Entries: 75}, Governor: Governor{MaxTokens: 30_000}}, 0, 2},
		"cut":            {Config{HistoryMessages: 1000, Governor: Governor{MaxTokens: 24_000, MaxResultBytes: 2000}}, 12, 4},
		"results cut":    {Config{HistoryMessages: 1000, Governor: Governor{MaxResultBytes: 600}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.Zone = zone
			g := newGroup(t, tc.cfg)
			for n := range turns {
				g.turn(n, start.Add(time.Duration(n)*time.Hour))
			}
			got := g.breaks()
			if most := g.summary + tc.cuts; got > most || got < tc.least || g.summary > turns/8 {
				t.Errorf("of %d requests %d begin anew, want %d at most; %d summaries", len(g.bodies), got, most, g.summary)
			}
			last := string(g.bodies[len(g.bodies)-1])
			if !strings.Contains(last, "oday is Sunday, 29 November 2026") || strings.Count(last, dayText) > 3 {
				t.Error("the model is not told the date, or too often")
			}
		})
	}
}

// The date that a conversation knows is the one its newest turn began on, however
// much of it was cut away, and is not told again and again.
func TestANewDayIsTold(t *testing.T) {
	g := newGroup(t, Config{HistoryMessages: 1000, Governor: Governor{MaxTokens: 6000}})
	day := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	told := 0
	for n := range 30 {
		if n == 10 {
			day = day.AddDate(0, 0, 1)
		}
		g.turn(n, day)
		last := string(g.bodies[len(g.bodies)-1])
		if k := strings.Count(last, dayText+day.Format("Monday, 2 January 2006")); k > 2 || (n < 10) != (k == 0) {
			t.Errorf("turn %d: it is told %d times", n, k)
		}
	}
	entries, err := g.ledger.History(t.Context(), talkSession, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if tellsDay(&entries[i].Message) {
			told++
			if !Event(entries[i].Message.Content) || entries[i+1].Message.Role != providers.RoleUser || entries[i+1].Turn != entries[i].Turn {
				t.Errorf("it stands before %+v", entries[i+1])
			}
		}
	}
	if told < 2 || told > 7 {
		t.Errorf("it is kept %d times", told)
	}
	question, turn, err := g.agent.LastQuestion(t.Context(), talkSession)
	if err != nil || turn != "turn29" || !strings.Contains(question, "Question 29") {
		t.Errorf("the last question is %q of %s, %v", question, turn, err)
	}
}

// With OnDelta a reply is told in pieces; what comes of the turn is the same.
func TestRunTellsPieces(t *testing.T) {
	run := func(onDelta func(providers.Delta)) Outcome {
		t.Helper()
		a := New(Config{Provider: pieces{}, Tools: tools.NewToolRegistry(), History: past(nil), MaxIterations: 5, Log: slog.New(slog.DiscardHandler)})
		out, err := a.Run(t.Context(), Turn{ID: "t", Messages: []bus.InboundMessage{message("hi")}, OnDelta: onDelta})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var told []providers.Delta
	got := run(func(d providers.Delta) { told = append(told, d) })
	if diff := cmp.Diff([]providers.Delta{{Reasoning: "hm"}, {Text: "Hello "}, {Text: "there"}}, told); diff != "" {
		t.Error(diff)
	}
	if want := run(nil); got.Answer != want.Answer || got.Answer != "Hello there" {
		t.Errorf("%q, want %q", got.Answer, want.Answer)
	}
}

// pieces is a model that tells its reply in pieces, if it is asked to.
type pieces struct{}

func (pieces) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return text("Hello there"), nil
}

func (p pieces) ChatStream(ctx context.Context, m []providers.Message, d []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	for _, d := range []providers.Delta{{Reasoning: "hm"}, {Text: "Hello "}, {Text: "there"}} {
		onDelta(d)
	}
	return p.Chat(ctx, m, d, model, options)
}
