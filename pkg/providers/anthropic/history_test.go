package anthropic_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic/anthropictest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// Whatever happened to a history, killed in a tool, broken off, trimmed, by
// another model: the API, which would refuse it for ever, never sees it so.
func TestNoHistoryIsRefused(t *testing.T) {
	s := anthropictest.NewServer(providerstest.ServerConfig{})
	p, err := anthropic.New(anthropic.Config{BaseURL: "http://fake", Transport: s.Transport(), MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		messages := randomHistory(rnd)
		var tools []providers.ToolDefinition
		if rnd.IntN(2) == 0 {
			tools = []providers.ToolDefinition{tool("f")}
		}
		options := o{"reasoning_effort": []any{nil, "low", "none"}[rnd.IntN(3)]}
		model := []string{"claude-sonnet-4-5", "claude-opus-4-6", "claude-haiku-5-5"}[rnd.IntN(3)]
		if _, err := p.Chat(t.Context(), messages, tools, model, options); err != nil {
			raw, _ := json.MarshalIndent(messages, "", " ")
			t.Fatalf("seed %d: %v\n%s", seed, err, raw)
		}
	}
	if refusals := s.Refusals(); len(refusals) > 0 {
		t.Errorf("%d requests were refused, first: %s", len(refusals), refusals[0])
	}
}

// signed are opaque parts the fake takes, and some that are none of its.
func signed(t *testing.T) []json.RawMessage {
	t.Helper()
	resp, err := open(t, func(providerstest.Request) providerstest.Response {
		return providerstest.Response{Content: "text", Reasoning: "hm", ToolCalls: []providerstest.Call{{ID: "a", Name: "f", Arguments: "{}"}}}
	}).Chat(t.Context(), hello(), nil, "claude-sonnet-4-5", nil)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Anthropic []json.RawMessage `json:"anthropic"`
	}
	if err := json.Unmarshal(resp.Opaque, &list); err != nil {
		t.Fatal(err)
	}
	only, err := json.Marshal(map[string]any{"anthropic": list.Anthropic[:1]})
	if err != nil {
		t.Fatal(err)
	}
	return []json.RawMessage{
		resp.Opaque, only, json.RawMessage(`{"anthropic":[]}`), json.RawMessage(`{"anthropic":[{"x":1}]}`), json.RawMessage(`{"openai":1}`), json.RawMessage(`null`),
		json.RawMessage(`{"anthropic":[{"type":"text","text":"text"},{"type":"redacted_thinking","data":"encrypted"}]}`),
	}
}

func TestNoOpaquePartIsRefused(t *testing.T) {
	opaque := signed(t)
	s := anthropictest.NewServer(providerstest.ServerConfig{})
	p, err := anthropic.New(anthropic.Config{BaseURL: "http://fake", Transport: s.Transport(), MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		messages := randomHistory(rnd)
		for i := range messages {
			if messages[i].Role == providers.RoleAssistant && rnd.IntN(2) == 0 {
				messages[i].Opaque = opaque[rnd.IntN(len(opaque))]
			}
		}
		options := o{"reasoning_effort": []any{nil, "low"}[rnd.IntN(2)]}
		if _, err := p.Chat(t.Context(), messages, nil, "claude-sonnet-4-5", options); err != nil {
			raw, _ := json.MarshalIndent(messages, "", " ")
			t.Fatalf("seed %d: %v\n%s", seed, err, raw)
		}
	}
	if refusals := s.Refusals(); len(refusals) > 0 {
		t.Errorf("%d requests were refused, first: %s", len(refusals), refusals[0])
	}
}

func randomHistory(rnd *rand.Rand) []providers.Message {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	ids := func() string { return pick("a", "a", "b", "c", "", "x y", "a_2", "call", "größe") }
	text := func() string { return pick("text", "text", "", " \n", "ends in space ", "a\x00\xffb") }
	messages := make([]providers.Message, 1+rnd.IntN(12))
	for i := range messages {
		m := &messages[i]
		m.Role, m.Content = pick(providers.RoleUser, providers.RoleAssistant, providers.RoleAssistant, providers.RoleTool, providers.RoleTool, providers.RoleSystem, "odd"), text()
		switch m.Role {
		case providers.RoleTool:
			m.ToolCallID = ids()
		case providers.RoleAssistant:
			for range rnd.IntN(4) {
				m.ToolCalls = append(m.ToolCalls, call(ids(), pick("f", "g", "", "odd name"), pick(`{}`, `{"a":1}`, `{"a"`, ``, `null`, `[1]`, `"{}"`)))
			}
		}
	}
	// Something has to be said: nobody asks a model nothing.
	return append([]providers.Message{{Role: pick(providers.RoleUser, providers.RoleAssistant), Content: "begin"}}, messages...)
}
