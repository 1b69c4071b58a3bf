package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
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
	rounds int
	delay  time.Duration

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
	if done < s.rounds {
		return providerstest.Response{Delay: s.delay, ToolCalls: []providerstest.Call{{Name: toolName, Arguments: toolArgs}}}
	}
	return providerstest.Response{Delay: s.delay, Content: answer(question)}
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
