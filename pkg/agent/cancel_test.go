package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// ending is how a turn ends before its time.
type ending string

const (
	stopping ending = "stopped"
	late     ending = "timed out"
	shutdown ending = "shut down" // the turn stays in the ledger
	crash    ending = "crashed"   // nothing is written from then on
)

// world is what outlives a process: the ledger, and what tools have done.
type world struct {
	t      *testing.T
	name   string
	ledger *mem.Store
	mu     sync.Mutex     // some calls run side by side
	done   map[string]int // by the key of the call
}

func (w *world) did(name string, c tools.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[name+" "+c.Key()]++
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ledger: mem.New(), done: map[string]int{}}
	var past []store.Entry
	for i, m := range conversation(20)[1:] {
		past = append(past, store.Entry{Session: "s", Turn: fmt.Sprint("before ", i/4), Message: m})
	}
	w.put(store.Tx{History: past})
	return w
}

func (w *world) put(tx store.Tx) {
	w.t.Helper()
	if _, err := w.ledger.Apply(context.WithoutCancel(w.t.Context()), tx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("%s: %s", w.name, fmt.Sprintf(format, args...))
}

// process is one run of the agent in a world. Whatever waits on its context goes
// by point first and last.
type process struct {
	*world
	ctx    context.Context //nolint:containedctx // of its one turn
	cancel context.CancelCauseFunc
	at     int // the point at which it ends, 0 for none
	how    ending
	seen   int
	dead   bool
}

const patienceOfTurn = time.Minute

func (p *process) point() {
	if p.seen++; p.seen != p.at {
		return
	}
	switch p.how {
	case stopping:
		p.cancel(ErrStopped)
	case late:
		time.Sleep(2 * patienceOfTurn)
	case crash:
		p.dead = true
		fallthrough
	case shutdown:
		p.cancel(errors.New("the end"))
	}
}

func (p *process) History(ctx context.Context, session string, limit int) ([]store.Entry, error) {
	p.point()
	entries, err := p.ledger.History(ctx, session, limit)
	p.point()
	return entries, err
}

func (p *process) journal(ctx context.Context, tx store.Tx, wait bool) error {
	p.point()
	if p.dead {
		return errors.New("there is no process any more")
	}
	if tx.Steps[0].Kind == store.StepEnd && p.how != shutdown {
		ctx = context.WithoutCancel(ctx)
	}
	var err error
	if wait {
		_, err = p.ledger.Apply(ctx, tx)
	} else {
		p.ledger.Post(tx)
	}
	p.point()
	return err
}

// windowOfTest is how much the model reads: the conversation, but not with the
// long result that comes in the turn.
const windowOfTest = 9000

func (p *process) Chat(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	if err := requestRules(m); err != nil {
		p.fail("request: %v", err)
	}
	p.point()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer p.point() // a reply that comes together with the end
	if strings.HasSuffix(m[len(m)-1].Content, "Write the summary now.") {
		return text("They asked questions."), nil
	}
	if Tokens(m) > windowOfTest {
		return nil, errOverflow
	}
	question := 0
	for i := range m {
		if m[i].Role == providers.RoleUser {
			question = i
		}
	}
	if m[question].Content != "go" {
		return text("as you say"), nil
	}
	round := 0
	for i := range m[question:] {
		if m[question+i].Role == providers.RoleAssistant {
			round++
		}
	}
	switch round {
	case 0:
		resp := together(round, "harmful", "harmless", "background", "harmful")
		resp.ToolCalls[3].ID = resp.ToolCalls[0].ID // some models do
		return resp, nil
	case 1:
		return together(round, "harmful", "long", "unknown"), nil
	case 2:
		return together(round, "harmful", "harmless_look", "harmful_look", "harmless_look", "harmful_look", "harmful"), nil
	}
	return text("done"), nil
}

func together(round int, names ...string) *providers.LLMResponse {
	resp := &providers.LLMResponse{Content: "one moment"}
	for i, name := range names {
		resp.ToolCalls = append(resp.ToolCalls, providers.ToolCall{ID: fmt.Sprintf("call_%d_%d", round, i), Name: name})
	}
	return resp
}

// besides is a tool whose calls run side by side.
type besides struct{ tools.Tool }

func (besides) ParallelSafe(map[string]interface{}) bool { return true }

func (p *process) registry() *tools.ToolRegistry {
	r := tools.NewToolRegistry()
	tool := func(name, says string) tools.Tool {
		return tools.Func(name, "does something", func(ctx context.Context, _ struct{}) *tools.ToolResult {
			c, _ := tools.CallFrom(ctx)
			p.point()
			p.did(name, c)
			p.point()
			return tools.NewToolResult(says)
		})
	}
	r.Register(tool("harmful", "it is done"))
	r.Register(repeatable{tool("harmless", "")})
	look := func(name string) tools.Tool {
		return besides{tools.Func(name, "looks", func(ctx context.Context, _ struct{}) *tools.ToolResult {
			c, _ := tools.CallFrom(ctx)
			p.did(name, c)
			return tools.NewToolResult("it is there")
		})}
	}
	r.Register(repeatable{look("harmless_look")})
	r.Register(look("harmful_look"))
	r.Register(tool("long", strings.Repeat("a long result ", 3000)))
	r.Register(tools.AsyncFunc("background", "works on", func(ctx context.Context, _ struct{}, _ tools.AsyncCallback) *tools.ToolResult {
		p.point()
		tools.Go(ctx, func(ctx context.Context) { <-ctx.Done() })
		return tools.AsyncResult("begun in the background")
	}))
	return r
}

// run takes up the turn that is open, or begins the one that answers a question,
// and commits what came of it as the gateway does. It returns how many points
// there were and whether the turn is over.
func (w *world) run(question string, at int, how ending) (points int, over bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancelCause(w.t.Context())
	defer cancel(nil)
	ctx, done := context.WithTimeout(ctx, patienceOfTurn)
	defer done()
	p := &process{world: w, ctx: ctx, cancel: cancel, at: at, how: how}
	registry := p.registry()
	a := New(Config{
		Provider: p, Tools: registry, History: p, Governor: ForWindow(64 << 10), Compactor: &Compactor{Provider: p},
		MaxIterations: 8, HistoryMessages: 500, Log: slog.New(slog.DiscardHandler),
	})
	registry.Register(builtin.NewReadResultTool(a.ReadResult))

	m := message(question)
	m.SessionKey = "s"
	turn := store.Turn{ID: "turn " + question, Address: m.Address, Session: "s", Started: time.Now()}
	open, err := w.ledger.OpenTurns(context.WithoutCancel(ctx))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(open) > 0 {
		turn = open[0]
	} else {
		w.put(store.Tx{Begin: &turn})
	}
	out, err := a.Run(ctx, Turn{
		ID: turn.ID, Messages: []bus.InboundMessage{m}, Steps: turn.Steps, Started: turn.Started, Journal: p.journal,
		AsyncCallback: func(tools.Call) tools.AsyncCallback { return func(context.Context, *tools.ToolResult) {} },
		Pending:       func(c tools.Call) store.Task { return store.Task{ID: c.Key(), State: store.TaskPending} },
		OnEvent:       func(tools.Event) { p.point() },
	})
	gone, end := context.WithCancel(context.WithoutCancel(ctx))
	end()
	_ = registry.Shutdown(gone) // it reports what it ends

	w.check("the outcome", out.History)
	if p.dead || err != nil && context.Cause(ctx) != nil && p.how == shutdown && p.seen >= p.at {
		return p.seen, false
	}
	if err != nil && p.at == 0 {
		w.fail("%v", err)
	}
	tx := store.Tx{History: out.History, End: []string{turn.ID}}
	if out.Summary != nil {
		tx.Summaries = []store.Summary{*out.Summary}
	}
	w.put(tx)
	return p.seen, true
}

// check holds entries against the rules: they are valid as they are.
func (w *world) check(what string, entries []store.Entry) {
	w.t.Helper()
	var all []providers.Message
	for _, e := range entries {
		if e.Message.Role == providers.RoleTool && e.Message.Content == "" {
			e.Message.Content = "what the loop puts there"
		}
		all = append(all, e.Message)
	}
	if len(all) == 0 {
		return
	}
	if err := errors.Join(openAIRules(all), anthropicRules(all)); err != nil {
		w.fail("%s: %v: %s", what, err, outline(all))
	}
	if shaped := (Governor{}).Shape(all); &shaped[0] != &all[0] {
		w.fail("%s: the governor has something to mend: %s", what, outline(all))
	}
	for i := range all {
		for k, tc := range all[i].ToolCalls {
			if id := all[i+1+k].ToolCallID; id != tc.ID {
				w.fail("%s: result %d behind message %d is of call %s: %s", what, k, i, id, outline(all))
			}
		}
	}
}

// end runs what is open to its end and asks one more question.
func (w *world) end() {
	w.t.Helper()
	open, err := w.ledger.OpenTurns(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(open) > 0 {
		if _, over := w.run("go", 0, ""); !over {
			w.fail("the turn did not end")
		}
	}
	w.run("and now?", 0, "")
	entries, err := w.ledger.History(w.t.Context(), "s", 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	last := entries[len(entries)-2:]
	if last[0].Message.Content != "and now?" || last[1].Message.Content != "as you say" {
		w.fail("the next answer is %q", last[1].Message.Content)
	}
	w.check("the ledger", entries)
	for call, n := range w.done {
		if n > 1 && !strings.HasPrefix(call, "harmless") {
			w.fail("%s was run %d times", call, n)
		}
	}
	tasks, err := w.ledger.OpenTasks(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	told := slices.ContainsFunc(entries, func(e store.Entry) bool { return e.Message.Content == "begun in the background" })
	if told && len(tasks) != 1 {
		w.fail("the model was told of a task, the ledger holds %d", len(tasks))
	}
}

// A turn of several rounds, with many calls in a reply, background work and a
// compaction, can be stopped, run out of time, be shut down or lose its process
// wherever something waits, also when it is taken up again: what it leaves is
// valid, what it sends is valid, and nothing is done twice.
func TestHistoryIsValidWhereverATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.name = "whole"
		points, over := w.run("go", 0, "")
		w.end()
		entries, err := w.ledger.History(t.Context(), "s", 1000)
		if err != nil || !over || points < 50 || !entries[0].Summary || w.done["harmful "+tools.Call{Turn: "turn go", Round: 3, ID: "call_2_0"}.Key()] != 1 {
			t.Fatalf("%d points, over %t, %d entries, %v", points, over, len(entries), w.done)
		}
		endings := []ending{stopping, late, shutdown, crash}
		for at := 1; at <= points; at++ {
			for _, how := range endings {
				w := newWorld(t)
				w.name = fmt.Sprintf("%s at %d", how, at)
				w.run("go", at, how)
				w.end()
			}
		}
		// Twice, and three times.
		r := rand.New(rand.NewPCG(1, 6))
		for range 300 {
			w := newWorld(t)
			for over := false; !over && strings.Count(w.name, ",") < 3; {
				at, how := 1+r.IntN(points), endings[2+r.IntN(2)]
				if r.IntN(4) == 0 {
					how = endings[r.IntN(2)]
				}
				w.name += fmt.Sprintf("%s at %d, ", how, at)
				_, over = w.run("go", at, how)
			}
			w.end()
		}
	})
}
