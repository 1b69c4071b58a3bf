package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// What the fake model is called and asked for.
const (
	modelName = "fake-1"
	modelKey  = "sk-loadtest-0123456789"
	toolName  = "list_dir"
	toolArgs  = `{"path":"."}`
	countTool = "count_once" // of the build with fail points; must not run twice
)

// template is what every request of the daemon begins with: its system prompt
// and its tools. The bare program sends the same.
type template struct {
	System string                     `json:"system"`
	Tools  []providers.ToolDefinition `json:"tools"`
}

// script is the fake model's mind: so many rounds with a tool, then an answer
// with the tokens of the question.
type script struct {
	rounds  int
	delay   time.Duration
	jitter  time.Duration // up to so much more
	once    bool          // every other chat's tool is one that must not run twice
	trouble atomic.Pointer[func(string) providerstest.Response]
	hanging atomic.Int64 // requests that were left without an answer

	mu    sync.Mutex // requests come on many goroutines
	first template
	seen  bool
	bytes int64 // of all requests' bodies
	count int64
}

func (s *script) reply(r providerstest.Request) providerstest.Response {
	s.note(r)
	question, done := "", 0
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == providers.RoleUser {
			question = m.Content
			break
		}
		if m.Role == providers.RoleTool {
			done++
		}
	}
	if trouble := s.trouble.Load(); trouble != nil {
		return (*trouble)(question)
	}
	delay := s.delay
	if s.jitter > 0 {
		delay += rand.N(s.jitter)
	}
	if done < s.rounds {
		return providerstest.Response{Delay: delay, ToolCalls: []providerstest.Call{s.call(question)}}
	}
	return providerstest.Response{Delay: delay, Content: answer(question)}
}

// call is what the model does in a round with a tool.
func (s *script) call(question string) providerstest.Call {
	found := tokens(question)
	if !s.once || len(found) == 0 || found[0][0]%2 == 1 {
		return providerstest.Call{Name: toolName, Arguments: toolArgs}
	}
	var what strings.Builder
	for _, t := range found {
		what.WriteString(token(t[0], t[1]))
	}
	return providerstest.Call{Name: countTool, Arguments: `{"what":"` + what.String() + `"}`}
}

// hang makes the model leave everything without an answer, or answer again.
func (s *script) hang(on bool) {
	if !on {
		s.trouble.Store(nil)
		return
	}
	s.hanging.Store(0)
	trouble := func(string) providerstest.Response {
		s.hanging.Add(1)
		return providerstest.Response{Hang: true}
	}
	s.trouble.Store(&trouble)
}

// answer repeats the tokens of a question, in order.
func answer(question string) string {
	var b strings.Builder
	b.WriteString("Here you are:")
	for _, t := range tokens(question) {
		b.WriteByte(' ')
		b.WriteString(token(t[0], t[1]))
	}
	return b.String()
}

func (s *script) note(r providerstest.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(len(r.Body))
	s.count++
	if !s.seen {
		s.seen = true
		s.first.Tools = r.Tools
		if len(r.Messages) > 0 && r.Messages[0].Role == providers.RoleSystem {
			s.first.System = r.Messages[0].Content
		}
	}
}

// meanBody returns the mean size of a request.
func (s *script) meanBody() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return 0
	}
	return s.bytes / s.count
}

// save writes the template of what was asked.
func (s *script) save(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.first)
	if err != nil {
		return fmt.Errorf("write the template: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the template: %w", err)
	}
	return nil
}
