package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// scene is a data directory with a ledger, and a configuration for it.
type scene struct {
	t    *testing.T
	dir  string
	file string
	s    *sqlite.Store // nil: closed

	wall func(context.Context, sandbox.Options) (*sandbox.Wall, error) // for live, where exec is configured
}

func newScene(t *testing.T, extra string) *scene {
	t.Helper()
	c := &scene{t: t, dir: t.TempDir()}
	c.file = file(t, fmt.Sprintf("data_dir: %s\nstore: {driver: sqlite}\ntimezone: UTC\n%s", c.dir, extra))
	c.open()
	t.Cleanup(c.close)
	return c
}

func (c *scene) open() {
	c.t.Helper()
	s, err := sqlite.Open(c.dir, sqlite.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.s = s
}

func (c *scene) close() {
	if c.s == nil {
		return
	}
	if err := c.s.Close(); err != nil {
		c.t.Error(err)
	}
	c.s = nil
}

func (c *scene) put(tx store.Tx) store.Result {
	c.t.Helper()
	res, err := c.s.Apply(context.Background(), tx)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// run runs a subcommand and returns its exit code and all it wrote.
func (c *scene) run(args ...string) (code int, text string) {
	c.t.Helper()
	s := newShell(c.t, nil)
	code = s.run(c.t.Context(), append(args, "--config", c.file))
	return code, strings.ReplaceAll(s.out.String()+s.errOut.String(), c.dir, "DIR")
}

var (
	momentIn = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?`)
	stampIn  = regexp.MustCompile(`\d{8}T\d{6}\.\d{3}`)
	spanIn   = regexp.MustCompile(`after (-?[0-9.hmsµ]+)|, ([0-9.hmsµ]+) after`)
	pidIn    = regexp.MustCompile(`process \d+`)
)

// steady takes out of a text what changes from run to run.
func steady(text string) string {
	text = momentIn.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("-", len(s)) })
	text = spanIn.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, ",") {
			return ", SPAN after"
		}
		return "after SPAN"
	})
	return pidIn.ReplaceAllString(stampIn.ReplaceAllString(text, "STAMP"), "process PID")
}

// golden compares a text with a file under testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(home(t), "testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Error(diff)
	}
}

var startedIn, errStarted = os.Getwd()

// home is the folder of this package, wherever a test has gone since.
func home(t *testing.T) string {
	t.Helper()
	if errStarted != nil {
		t.Fatal(errStarted)
	}
	return startedIn
}

var chat7 = bus.Address{Channel: "telegram", ChatID: "-100/7"}

func spoken(role, text string) providers.Message { return providers.Message{Role: role, Content: text} }

// tell fills the ledger with a turn of two messages and two rounds, a turn that
// was interrupted, a command, a refusal, and a message that waits.
func (c *scene) tell() {
	message := func(id, text string) bus.InboundMessage {
		return bus.InboundMessage{
			Address: chat7, ID: "m:-100:" + id, MessageID: id, SessionKey: chat7.String(), Kind: bus.KindMessage,
			Sender: bus.Sender{ID: "5", Name: "Ann\x1b[2J"}, Text: text,
		}
	}
	c.put(store.Tx{Admit: []bus.InboundMessage{message("17", "what is in there?"), message("18", "and quickly\nplease")}})
	now := time.Now()
	c.put(store.Tx{Begin: &store.Turn{ID: "turn1", Address: chat7, Session: chat7.String(), Inbound: []int64{1, 2}, Started: now}})
	call := providers.ToolCall{ID: "c1", Type: "function", Name: "list_dir", Function: &providers.FunctionCall{Name: "list_dir", Arguments: `{"path":"."}`}}
	reply := providers.Message{Role: providers.RoleAssistant, ToolCalls: []providers.ToolCall{call}}
	result := providers.Message{Role: providers.RoleTool, Content: strings.Repeat("a.txt ", 50), ToolCallID: "c1"}
	c.put(store.Tx{Steps: []store.Step{
		{Turn: "turn1", Round: 1, Kind: store.StepReply, Finish: "tool_calls", Message: reply, Time: now, Took: 2 * time.Second, Usage: providers.Usage{PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120}},
		{Turn: "turn1", Round: 1, Kind: store.StepBegin, CallID: "c1", Tool: "list_dir", Time: now},
		{Turn: "turn1", Round: 1, Kind: store.StepEnd, CallID: "c1", Tool: "list_dir", Message: result, Time: now, Took: time.Millisecond},
		{Turn: "turn1", Round: 2, Kind: store.StepReply, Finish: "stop", Message: spoken("assistant", "a.txt"), Time: now, Usage: providers.Usage{PromptTokens: 300, CompletionTokens: 4, TotalTokens: 304}},
	}})
	out := func(turn, key, text string) store.Outbound {
		return store.Outbound{Turn: turn, Message: bus.OutboundMessage{Address: chat7, Key: key, ReplyTo: "17", Text: text}, Created: time.Now()}
	}
	var history []store.Entry
	for _, m := range []providers.Message{spoken("user", "what is in there?\nand quickly\nplease"), reply, result, spoken("assistant", "a.txt")} {
		history = append(history, store.Entry{Session: chat7.String(), Turn: "turn1", Message: m, Time: now})
	}
	c.put(store.Tx{History: history, End: []string{"turn1"}, Send: []store.Outbound{out("turn1", "key1", "a.txt"), out("turn1", "key1-1", "b.txt")}})
	c.put(store.Tx{Receipts: []store.Receipt{{Key: "key1", Result: bus.Receipt{MessageID: "99", Time: time.Now()}}}})
	c.put(store.Tx{Receipts: []store.Receipt{{Key: "key1-1", Failed: "blocked by the user"}}})

	c.put(store.Tx{Admit: []bus.InboundMessage{message("19", "do it")}})
	c.put(store.Tx{Begin: &store.Turn{ID: "turn2", Address: chat7, Session: chat7.String(), Inbound: []int64{3}, Started: time.Now()}})
	c.put(store.Tx{Marks: []store.Mark{{Turn: "turn2", Strikes: 1, Steps: 2}}, Steps: []store.Step{
		{Turn: "turn2", Round: 1, Kind: store.StepReply, Finish: "tool_calls", Message: reply},
		{Turn: "turn2", Round: 1, Kind: store.StepBegin, CallID: "c1", Tool: "list_dir"},
	}})
	c.put(store.Tx{Admit: []bus.InboundMessage{message("20", "/help"), message("21", "still there?")}})
	c.put(store.Tx{Done: []int64{4}, Send: []store.Outbound{
		out("", bus.Key("telegram", "m:-100:20", "done"), "this is what I can do"),
		out("", bus.Key("telegram", "m:-100:22", "refusal"), "I do not know you"),
	}})
}

func TestInspection(t *testing.T) {
	c := newScene(t, "")
	for _, args := range [][]string{{"sessions", "list"}, {"why", "17"}, {"sessions", "show", "telegram:1"}} {
		code, text := c.run(args...)
		t.Log(code, text) // an empty ledger is no fault
		if strings.Contains(text, "panic") {
			t.Error(text)
		}
	}
	c.tell()
	commands := [][]string{
		{"sessions", "list"},
		{"sessions", "show", "telegram:-100/7"},
		{"sessions", "export", "telegram:-100/7", "--format", "text"},
		{"sessions", "export", "telegram:-100/7", "--format", "xml"},
		{"sessions", "show", "nobody"},
		{"sessions", "delete", "telegram:-100/7"},
		{"why", "17"},
		{"why", "telegram:-100:18"},
		{"why", "turn1"},
		{"why", "99"},
		{"why", "19"},
		{"why", "20"},
		{"why", "21"},
		{"why", "telegram:-100:22"},
		{"why", "telegram:-100:23"},
		{"replay", "turn1"},
		{"replay", "turn9"},
	}
	var all strings.Builder
	for _, args := range commands {
		code, text := c.run(args...)
		fmt.Fprintf(&all, "$ dragoman %s\n%s[%d]\n\n", strings.Join(args, " "), text, code)
	}
	golden(t, "inspect.golden", steady(all.String()))
}

func TestSessionsExportJSON(t *testing.T) {
	c := newScene(t, "")
	c.tell()
	code, text := c.run("sessions", "export", "telegram:-100/7")
	var got struct {
		Session  string     `json:"session"`
		Messages []exported `json:"messages"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 0 {
		t.Fatal(code, err, text)
	}
	if got.Session != "telegram:-100/7" || len(got.Messages) != 4 || got.Messages[3].Message.Content != "a.txt" || got.Messages[0].Turn != "turn1" || got.Messages[0].Time.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestSessionsDelete(t *testing.T) {
	c := newScene(t, "")
	c.tell()
	if code, text := c.run("sessions", "delete", "telegram:-100/7"); code != exitTaken || !strings.Contains(text, "/forget") {
		t.Errorf("beside a daemon: %d, %s", code, text)
	}
	c.close()
	if code, text := c.run("sessions", "delete", "nobody"); code != exitFailure || !strings.Contains(text, "no session is called") {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := c.run("sessions", "delete", "telegram:-100/7"); code != 0 {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := c.run("sessions", "list"); code != 0 || text != "no conversation is stored\n" {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := c.run("why", "17"); code != 0 || strings.Contains(text, "quickly") || !strings.Contains(text, "not kept any more") {
		t.Errorf("%d, %s", code, text)
	}
}

func TestBackupAndRestore(t *testing.T) {
	c := newScene(t, "")
	c.tell()
	to := filepath.Join(t.TempDir(), "backup.db")
	for _, step := range []struct {
		before func()
		args   []string
		code   int
		want   string
	}{
		{nil, []string{"backup", to}, 0, to + " holds the ledger\n"},
		{nil, []string{"backup", to}, 1, "dragoman: " + to + " is there already: name a new file\n"},
		{nil, []string{"backup", "-"}, 2, "dragoman: a backup goes to a file, not to standard output: name a new file\ndragoman: see \"dragoman --help\"\n"},
		{nil, []string{"restore", to}, 75, "dragoman: store: restore " + to + ": process PID uses the data directory: stop it first, or give this one a directory of its own\n"},
		{c.close, []string{"restore", c.file}, 78, "dragoman: store: restore " + c.file + ": the backup cannot be used: it is damaged, try an older one: file is not a database (26)\n"},
		{nil, []string{"restore", to}, 0, to + " is the ledger in DIR now\nthe one before is DIR/ledger.db.before-STAMP\n" +
			"the next start carries on: messages without an answer 2 (turns under way 1), texts not sent 2, reminders 0, background tasks 0\n"},
		{nil, []string{"sessions", "show", "telegram:-100/7"}, 0, ""},
	} {
		if step.before != nil {
			step.before()
		}
		code, text := c.run(step.args...)
		if text = steady(text); code != step.code || step.want != "" && text != step.want {
			t.Errorf("%v: %d\n%swant %d\n%s", step.args, code, text, step.code, step.want)
		}
	}
}

func TestInspectionWithoutALedger(t *testing.T) {
	memory := file(t, "store: {driver: memory}\n")
	s := newShell(t, nil)
	if code := s.run(t.Context(), []string{"sessions", "list", "--config", memory}); code != exitConfig || !strings.Contains(s.errOut.String(), "store.driver: the ledger is kept in memory") {
		t.Errorf("%d, %s", code, s.errOut.String())
	}
	nothing := file(t, "data_dir: "+t.TempDir()+"\nstore: {driver: sqlite}\n")
	s = newShell(t, nil)
	if code := s.run(t.Context(), []string{"why", "1", "--config", nothing}); code != exitFailure || !strings.Contains(s.errOut.String(), "there is no ledger in") {
		t.Errorf("%d, %s", code, s.errOut.String())
	}
}

// lister is a model that lists a folder and then answers.
type lister struct {
	asked []string // the fingerprints of the requests
	empty int      // so many of its answers have no text
}

func (m *lister) Chat(_ context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	m.asked = append(m.asked, providers.Fingerprint(messages, providers.ToolsDigest(defs), model, options))
	if last := len(messages) - 1; messages[last].Role == providers.RoleTool || len(defs) == 0 {
		if m.empty--; m.empty >= 0 {
			return &providers.LLMResponse{FinishReason: providers.FinishStop}, nil
		}
		return &providers.LLMResponse{Content: "that is all", FinishReason: providers.FinishStop}, nil
	}
	call := providers.ToolCall{ID: "c1", Type: "function", Name: "list_dir", Function: &providers.FunctionCall{Name: "list_dir", Arguments: `{"path":"."}`}, Arguments: map[string]any{"path": "."}}
	return &providers.LLMResponse{
		ToolCalls: []providers.ToolCall{call}, FinishReason: providers.FinishToolCalls,
		Opaque: json.RawMessage(fmt.Sprintf(`{"lister": ["signed <%d> & \u00e9", 12345678901234567890]}`, len(messages))),
	}, nil
}

func (m *lister) lastAsked() string { return m.asked[len(m.asked)-1] }

// asked is a model that knows the fingerprint of its last request.
type asked interface {
	providers.LLMProvider
	lastAsked() string
}

// live runs a turn as the daemon does and records it.
func (c *scene) live(id, text string) { c.liveSince(id, text, time.Now(), &lister{}) }

// liveSince is live for a turn that began some time ago: it has been interrupted.
func (c *scene) liveSince(id, text string, began time.Time, model asked) {
	c.t.Helper()
	cfg, err := config.Load(c.file, func(string) string { return "" })
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.Store.Driver = "memory" // the scene has the ledger
	a, err := newApp(cfg, quietLog, appOptions{FindWall: c.wall})
	if err != nil {
		c.t.Fatal(err)
	}
	agentConfig := a.agent.Config()
	agentConfig.Provider, agentConfig.History = model, c.s
	agentConfig.Zone = func(context.Context, bus.Address) *time.Location { return cfg.Location() }
	runner := agent.New(agentConfig)
	m := bus.InboundMessage{Address: chat7, ID: "m:-100:" + id, MessageID: id, SessionKey: chat7.String(), Kind: bus.KindMessage, Principal: "telegram:5", Text: text}
	res := c.put(store.Tx{Admit: []bus.InboundMessage{m}})
	turn := "turn-" + id
	c.put(store.Tx{Begin: &store.Turn{ID: turn, Address: chat7, Session: chat7.String(), Inbound: []int64{res.Admitted[0].Seq}, Started: began}})
	out, err := runner.Run(c.t.Context(), agent.Turn{ID: turn, Messages: []bus.InboundMessage{m}, Started: began, Journal: func(_ context.Context, tx store.Tx, _ bool) error {
		if tx.Steps[0].Kind == store.StepReply {
			tx.Steps[0].Request = model.lastAsked()
		}
		c.put(tx)
		return nil
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(store.Tx{History: out.History, End: []string{turn}})
}

func TestReplay(t *testing.T) {
	c := newScene(t, "agent: {system_prompt: Be brief.}\n")
	c.live("1", "one")
	c.live("2", "two")
	c.put(store.Tx{Undo: []string{chat7.String()}})
	c.live("3", "three")
	c.put(store.Tx{Reset: []string{chat7.String()}})
	c.live("4", "four")
	c.live("5", "five")
	c.put(store.Tx{Summaries: []store.Summary{{Session: chat7.String(), Text: "they counted", Keep: 4}}})
	c.live("6", "six")
	c.liveSince("7", "seven", time.Now().AddDate(0, 0, -3), &lister{})
	c.liveSince("8", "eight", time.Now(), &lister{empty: 2})         // unseen
	c.liveSince("9", "nine", time.Now(), &lister{empty: 3})          // and asked for words
	c.liveSince("10", "ten", time.Now().AddDate(0, 0, 2), &lister{}) // another day
	c.liveSince("11", "eleven", time.Now().AddDate(0, 0, 2), &lister{})
	c.put(store.Tx{Undo: []string{chat7.String()}})
	c.liveSince("12", "twelve", time.Now().AddDate(0, 0, 3), &lister{})
	for n := 1; n <= 12; n++ {
		turn := fmt.Sprint("turn-", n)
		want := fmt.Sprintf("turn %s would send the same again: 2 of 2 requests are alike, byte for byte\n", turn)
		if code, text := c.run("replay", turn); code != 0 || text != want {
			t.Errorf("%d, %swant %s", code, text, want)
		}
	}
	// With another configuration the request differs, and replay says where.
	for _, tc := range []struct{ config, want string }{
		{"agent: {system_prompt: Be long.}", "request 1: it differs from the one that was sent: message 1 of "},
		{"agent: {system_prompt: Be brief., model: other}\nmodels: {other: {provider: offline}}", "request 1: it differs from the one that was sent: the model's name or options differ\n"},
	} {
		before := c.file
		c.file = file(t, fmt.Sprintf("data_dir: %s\nstore: {driver: sqlite}\ntimezone: UTC\n%s\n", c.dir, tc.config))
		if code, text := c.run("replay", "turn-4"); code != exitFailure || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %d, %s", tc.config, code, text)
		}
		c.file = before
	}
	if code, text := c.run("why", "turn-1"); code != 0 || !strings.Contains(text, "that is all") {
		t.Errorf("%d, %s", code, text)
	}
}

// An interrupted turn is run again as far as it came.
func TestReplayOfAnOpenTurn(t *testing.T) {
	c := newScene(t, "")
	c.tell()
	if code, text := c.run("replay", "turn2"); code != exitFailure || !strings.Contains(text, "does not tell what was sent") {
		t.Errorf("%d, %s", code, text)
	}
}

// play runs a fixture; its requests have to be those it holds.
func play(t *testing.T, path string) outcome {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil { //nolint:musttag // see writeFixture
		t.Fatal(err)
	}
	return rec.run(t.Context())
}

func TestReplayWritesAFixture(t *testing.T) {
	c := newScene(t, "")
	c.live("1", "one")
	c.live("2", "two")
	path := filepath.Join(t.TempDir(), "fixture.json")
	if code, text := c.run("replay", "turn-2", "--fixture", path); code != 0 || !strings.HasPrefix(text, path+" holds the record\n") {
		t.Fatalf("%d, %s", code, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if o := play(t, path); o.err != nil || o.same != 2 || !o.compared {
		t.Errorf("%+v", o)
	}
	if code, _ := c.run("replay", "turn-2", "--fixture", path); code != exitFailure {
		t.Errorf("an existing file is replaced: %d", code)
	}
	if *update {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home(t), "testdata", "replay", "two-turns.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Every turn under testdata/replay sends today what it sent when it was
// recorded. A change of the prompt or of the tools' definitions is no fault of
// theirs: a fixture carries its own.
func TestFixtures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(home(t), "testdata", "replay", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if o := play(t, path); o.err != nil || !o.compared {
				t.Errorf("after %d requests: %v", o.same, o.err)
			}
		})
	}
}

var (
	_        tools.Tool = stub{}
	quietLog            = slog.New(slog.DiscardHandler)
)
