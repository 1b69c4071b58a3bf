package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// turnstile is where all that waits in a gateway goes by: the ledger, the model,
// a tool, the platform. At one of its points it holds up who goes by until
// released.
type turnstile struct {
	t       *testing.T
	at      int
	release chan struct{}

	mu   sync.Mutex // worker, sender and adapter go by
	open bool       // it counts
	seen int
	ran  map[string]int // runs of the tool, by call
}

func newTurnstile(t *testing.T, at int) *turnstile {
	t.Helper()
	return &turnstile{t: t, at: at, release: make(chan struct{}), ran: map[string]int{}}
}

// begin lets the counting begin: the gateway has started.
func (s *turnstile) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
}

// pass counts one who goes by.
func (s *turnstile) pass(ctx context.Context) {
	s.mu.Lock()
	if s.open {
		s.seen++
	}
	held := s.open && s.seen == s.at
	s.mu.Unlock()
	if !held {
		return
	}
	select {
	case <-s.release:
	case <-ctx.Done():
	}
}

// passedLedger is a ledger behind a turnstile.
type passedLedger struct {
	store.Store
	*turnstile
}

func (l passedLedger) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	l.pass(ctx)
	return l.Store.Apply(ctx, tx)
}

func (l passedLedger) Post(tx store.Tx) {
	l.pass(context.Background())
	l.Store.Post(tx)
}

func (l passedLedger) History(ctx context.Context, session string, limit int) ([]store.Entry, error) {
	l.pass(ctx)
	return l.Store.History(ctx, session, limit)
}

// model calls the tool twice in each of two rounds, then answers. What it is
// sent has to be valid.
func (s *turnstile) model(ctx context.Context, m []providers.Message, _ []providers.ToolDefinition) (*providers.LLMResponse, error) {
	if !fine(m) {
		s.t.Errorf("point %d: a request that is not valid: %+v", s.at, m)
	}
	s.pass(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	question := 0
	for i := range m {
		if m[i].Role == providers.RoleUser {
			question = i
		}
	}
	round := 0
	for _, x := range m[question:] {
		if x.Role == providers.RoleAssistant {
			round++
		}
	}
	if m[question].Content != "go" || round == 2 {
		return reply("re: " + m[question].Content)
	}
	call := func(n int) providers.ToolCall {
		return providers.ToolCall{ID: fmt.Sprint("call", round, n), Name: "func"}
	}
	return &providers.LLMResponse{ToolCalls: []providers.ToolCall{call(0), call(1)}}, nil
}

func (s *turnstile) tool(ctx context.Context) *tools.ToolResult {
	s.pass(ctx)
	call, _ := tools.CallFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[call.Key()]++
	return tools.NewToolResult("done")
}

func (s *turnstile) behind(ledger store.Store) func(*Config) {
	return func(c *Config) {
		c.Store, c.TurnTimeout, c.Grace, c.MaxParallelTurns = passedLedger{keep{ledger}, s}, time.Minute, time.Second, 1
		c.Tools.Register(funcTool(s.tool))
	}
}

// fine reports whether nothing has to be mended in messages.
func fine(messages []providers.Message) bool {
	shaped := agent.Governor{}.Shape(messages)
	return len(shaped) == len(messages) && (len(messages) == 0 || &shaped[0] == &messages[0])
}

// A turn can be stopped, run out of time or be shut down wherever something
// waits: then the conversation goes on, its history is valid, nothing is left
// open, no tool has run twice and no answer is sent twice.
func TestConversationGoesOnWhereverATurnEnds(t *testing.T) {
	points := 0
	synctest.Test(t, func(t *testing.T) {
		s := newTurnstile(t, 0)
		r := start(t, fakeModel(s.model), s.behind(mem.New()))
		s.begin()
		r.say(r.ch.from("1", "a", "go"))
		r.wantTexts("1", "re: go")
		points = s.seen
	})
	if points < 15 {
		t.Fatalf("%d points", points)
	}
	for at := 1; at <= points; at++ {
		for _, how := range []string{"/stop", "timeout", "shutdown"} {
			t.Run(fmt.Sprint(how, " at ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { endedAt(t, at, how) })
			})
		}
	}
}

func endedAt(t *testing.T, at int, how string) {
	t.Helper()
	s, ledger := newTurnstile(t, at), mem.New()
	r := start(t, fakeModel(s.model), s.behind(ledger))
	s.begin()
	taken := make(chan error, 1)
	question := r.ch.from("1", "a", "go")
	go func() { taken <- r.PublishInbound(t.Context(), bus.Batch{Messages: []bus.InboundMessage{question}}) }()
	synctest.Wait()
	sent := s.end(r, how)
	if err := <-taken; err != nil {
		t.Errorf("the question was not taken: %v", err)
	}
	if how == "shutdown" { // the next process
		r = start(t, fakeModel(s.model), s.behind(ledger))
		r.ch.next = 100
	}
	synctest.Wait()
	r.say(r.ch.from("1", "a", "and now?"))
	synctest.Wait()
	sent = append(sent, r.ch.texts("1")...)

	answers := 0
	for _, text := range sent {
		if text == "re: go" {
			answers++
		}
	}
	if sent[len(sent)-1] != "re: and now?" || answers > 1 || how == "shutdown" && answers == 0 {
		t.Errorf("sent %q", sent)
	}
	entries, err := ledger.History(t.Context(), "fake:1", 100)
	if err != nil || !fine(agent.Past(entries)) || len(entries) < 2 {
		t.Errorf("the history is not valid: %+v, %v", entries, err)
	}
	if open := left(t, ledger); open != "" {
		t.Errorf("still open: %s", open)
	}
	for call, n := range s.ran {
		if n > 1 {
			t.Errorf("%s was run %d times", call, n)
		}
	}
}

// end ends what is held up, and lets it go. It returns what has been sent if
// that was the end of the gateway.
func (s *turnstile) end(r *rig, how string) (sent []string) {
	switch how {
	case "/stop":
		r.say(r.ch.from("1", "a", "/stop"))
	case "timeout":
		time.Sleep(2 * time.Minute)
	case "shutdown":
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		time.Sleep(10 * time.Second)
		close(s.release)
		if err := <-stopped; err != nil {
			s.t.Error(err)
		}
		return r.ch.texts("1")
	}
	synctest.Wait()
	close(s.release)
	return nil
}

// The wait for a slot is no other.
func TestConversationGoesOnAfterTheWaitForASlot(t *testing.T) {
	for _, how := range []string{"/stop", "shutdown"} {
		synctest.Test(t, func(t *testing.T) {
			s, ledger := newTurnstile(t, 0), mem.New()
			hog := fakeModel(func(ctx context.Context, m []providers.Message, d []providers.ToolDefinition) (*providers.LLMResponse, error) {
				if strings.HasPrefix(m[len(m)-1].Content, "hold") {
					select {
					case <-s.release:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return s.model(ctx, m, d)
			})
			r := start(t, hog, s.behind(ledger))
			r.say(r.ch.from("2", "b", "hold"))
			synctest.Wait()
			r.say(r.ch.from("1", "a", "go"))
			synctest.Wait()
			sent := s.end(r, how)
			if how == "shutdown" {
				r = start(t, hog, s.behind(ledger))
				r.ch.next = 100
			}
			synctest.Wait()
			r.say(r.ch.from("1", "a", "and now?"))
			synctest.Wait()
			sent = append(sent, r.ch.texts("1")...)
			want := map[string][]string{"/stop": {"Stopped: my answer.", "re: and now?"}, "shutdown": {"re: go", "re: and now?"}}[how]
			if !slices.Equal(sent, want) || left(t, ledger) != "" {
				t.Errorf("%s: sent %q, open %q", how, sent, left(t, ledger))
			}
		})
	}
}
