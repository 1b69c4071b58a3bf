// Package offline is the provider the product starts with: it needs no key and
// no network, is no language model and says so, and understands a few fixed
// phrases, enough to use every built-in tool from any chat.
//
// It is deterministic: the same conversation and the same clock give the same
// reply.
package offline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Provider answers by itself. It has no state and is safe for concurrent use.
type Provider struct{ now func() time.Time }

// Option configures a Provider.
type Option func(*Provider)

// WithClock sets the clock, for tests.
func WithClock(now func() time.Time) Option { return func(p *Provider) { p.now = now } }

// New returns the offline provider.
func New(opts ...Option) *Provider {
	p := &Provider{now: time.Now}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// Chat implements providers.LLMProvider. It never blocks, reads neither model
// nor options, and fails only if ctx has ended. It calls a tool only if tools
// offers it, and answers with the results once they are there.
func (p *Provider) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := len(messages); n > 0 && messages[n-1].Role == providers.RoleTool {
		return say(report(messages)), nil
	}
	s := readScene(messages)
	reply := plan{offered: offered(tools)}
	for _, c := range s.commands() {
		p.do(&reply, c, s)
	}
	return reply.response(messages), nil
}

func say(text string) *providers.LLMResponse {
	return &providers.LLMResponse{Content: text, FinishReason: providers.FinishStop}
}

func offered(tools []providers.ToolDefinition) map[string]bool {
	names := make(map[string]bool, len(tools))
	for i := range tools {
		names[tools[i].Function.Name] = true
	}
	return names
}

// plan collects a reply: texts, and calls of tools.
type plan struct {
	offered map[string]bool
	texts   []string
	calls   []providers.ToolCall
}

func (r *plan) say(format string, args ...any) {
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

// call adds a call, or says that the tool is not there.
func (r *plan) call(tool string, args map[string]any) {
	if !r.offered[tool] {
		r.say("I would need the tool `%s` for that, and it is not available here.", tool)
		return
	}
	text, err := json.Marshal(args)
	if err != nil {
		r.say("I cannot put that into a call of `%s`.", tool)
		return
	}
	r.calls = append(r.calls, providers.ToolCall{
		Type: "function", Name: tool, Arguments: args,
		Function: &providers.FunctionCall{Name: tool, Arguments: string(text)},
	})
}

func (r *plan) response(messages []providers.Message) *providers.LLMResponse {
	resp := say(strings.Join(r.texts, "\n\n"))
	if len(r.calls) == 0 {
		return resp
	}
	id := "call_" + fingerprint(messages)
	for i := range r.calls {
		r.calls[i].ID = id + "_" + strconv.Itoa(i+1)
	}
	resp.ToolCalls, resp.FinishReason = r.calls, providers.FinishToolCalls
	return resp
}

// fingerprint makes ids that differ from turn to turn without any state.
func fingerprint(messages []providers.Message) string {
	h := sha256.New()
	for i := max(len(messages)-20, 0); i < len(messages); i++ {
		m := &messages[i]
		h.Write([]byte(m.Role + "\x00" + m.Content + "\x00" + m.ToolCallID + "\x00"))
		for j := range m.ToolCalls {
			h.Write([]byte(m.ToolCalls[j].ID + "\x00"))
		}
	}
	h.Write([]byte(strconv.Itoa(len(messages))))
	return hex.EncodeToString(h.Sum(nil)[:8])
}
