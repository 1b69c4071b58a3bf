package anthropic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic/anthropictest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type o = map[string]any

func user(text string) providers.Message {
	return providers.Message{Role: providers.RoleUser, Content: text}
}

func hello() []providers.Message { return []providers.Message{user("hello")} }

func calls(text string, list ...providers.ToolCall) providers.Message {
	return providers.Message{Role: providers.RoleAssistant, Content: text, ToolCalls: list}
}

func call(id, name, args string) providers.ToolCall {
	c := providers.ToolCall{ID: id, Type: "function", Name: name, Function: &providers.FunctionCall{Name: name, Arguments: args}}
	_ = json.Unmarshal([]byte(args), &c.Arguments) // a broken one has none
	return c
}

func result(id, text string) providers.Message {
	return providers.Message{Role: providers.RoleTool, ToolCallID: id, Content: text}
}

func tool(name string) providers.ToolDefinition {
	return providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{
		Name: name, Description: "Does <what> its name says.",
		Parameters: o{"type": "object", "required": []string{"path"}, "properties": o{"path": o{"type": "string"}, "n": o{"type": "integer"}}},
	}}
}

// ask sends one request and returns it as it came.
func ask(t *testing.T, messages []providers.Message, tools []providers.ToolDefinition, model string, options o) providerstest.Request {
	t.Helper()
	p, s := openWith(t, nil, anthropic.Config{})
	if _, err := p.Chat(t.Context(), messages, tools, model, options); err != nil {
		t.Fatalf("%s with %v: %v", model, options, err)
	}
	return s.Requests()[0]
}

func TestGoldenRequests(t *testing.T) {
	thought := json.RawMessage(`{"anthropic":[{"type":"redacted_thinking","data":"encrypted=="},{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1"}]}`)
	withThought := calls("I look.", call("toolu_1", "read_file", `{"path": "a"}`))
	withThought.Opaque = thought
	other := withThought
	other.Opaque = json.RawMessage(`{"other":[{"type":"thinking"}]}`)
	cases := map[string]struct {
		messages []providers.Message
		tools    []providers.ToolDefinition
		model    string
		options  o
	}{
		"plain": {hello(), nil, "claude-haiku-4-5", nil},
		"tools": {
			[]providers.Message{
				{Role: providers.RoleSystem, Content: "Be brief."},
				user("Read a & b."),
				calls("I look.", call("toolu_1", "read_file", `{"path": "a", "n": 12345678901234567890}`), call("toolu_2", "read file.v2", `{"path":"<b>"}`)),
				result("toolu_2", "second"), result("toolu_1", "first"),
				calls("", call("functions.read:0", "read_file", `{"path":"c"}`)), result("functions.read:0", ""),
				user("And?"),
			},
			[]providers.ToolDefinition{tool("read file.v2"), tool("read_file")},
			"claude-haiku-4-5",
			o{"max_tokens": 100, "temperature": 0.5},
		},
		"odd": { // every fault a history can have
			[]providers.Message{
				calls("I was here first."), user(""), user("two in a row"), calls(" "), calls(""),
				{Role: providers.RoleSystem},
				result("nobody", "asked"),
				calls("broken", call("a", "f", `{"path": "c`), call("a", "f", `{}`), call("", "f", `[]`)), result("a", "one"), user("between"), result("a", "two"), result("a", "three"),
				calls("again", call("a", "f", `{}`)), calls("no result came"), calls("two replies"),
			},
			nil, "m", nil,
		},
		"thought":   {[]providers.Message{user("Read a."), withThought, result("toolu_1", "x")}, []providers.ToolDefinition{tool("read_file")}, "claude-sonnet-4-5", o{"reasoning_effort": "low"}},
		"unthought": {[]providers.Message{user("Read a."), other, result("toolu_1", "x")}, []providers.ToolDefinition{tool("read_file")}, "claude-sonnet-4-5", o{"reasoning_effort": "low"}},
		"adaptive":  {[]providers.Message{user("Read a."), other, result("toolu_1", "x")}, []providers.ToolDefinition{tool("read_file")}, "claude-haiku-5-5", o{"reasoning_effort": "low", "temperature": 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			body := ask(t, c.messages, c.tools, c.model, c.options).Body
			if again := ask(t, c.messages, c.tools, c.model, c.options).Body; !bytes.Equal(body, again) {
				t.Errorf("the same request is not the same again:\n%s\n%s", body, again)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(want, got.Bytes()) {
				t.Errorf("%v: the request is\n%s", err, got.String())
			}
		})
	}
}

// TestFieldPromptCaching: what was sent is the beginning of what is sent next,
// byte for byte, and is marked where the API is to keep it.
func TestFieldPromptCaching(t *testing.T) {
	mark := regexp.MustCompile(`,"cache_control":\{"type":"ephemeral"\}`)
	head := regexp.MustCompile(`^\{"max_tokens":\d+,"messages":\[`)
	tools := []providers.ToolDefinition{tool("a"), tool("b.c"), tool("d")}
	messages := []providers.Message{{Role: providers.RoleSystem, Content: "Be brief."}, user("0")}
	var before string
	for round := range 12 {
		body := string(ask(t, messages, tools, "claude-haiku-4-5", o{"max_tokens": 100, "stop": "x"}).Body)
		marks := len(mark.FindAllString(body, -1))
		if want := min(3+round, 4); marks != want {
			t.Errorf("round %d: %d marks, want %d", round, marks, want)
		}
		var req struct {
			System   []json.RawMessage `json:"system"`
			Tools    []json.RawMessage `json:"tools"`
			Messages []struct {
				Content []json.RawMessage `json:"content"`
			} `json:"messages"`
		}
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			t.Fatal(err)
		}
		last := func(list []json.RawMessage) string { return string(list[len(list)-1]) }
		n := len(req.Messages)
		for what, block := range map[string]string{"tool": last(req.Tools), "system": last(req.System), "message": last(req.Messages[n-1].Content), "one": last(req.Messages[max(0, n-3)].Content)} {
			if !mark.MatchString(block) {
				t.Errorf("round %d: the last %s has no mark: %s", round, what, block)
			}
		}
		plain := mark.ReplaceAllString(body, "")
		if !head.MatchString(plain) {
			t.Fatalf("the body begins with %.60s", plain)
		}
		said, rest, _ := strings.Cut(plain, `],"model"`)
		if !strings.HasPrefix(said, before) || before != "" && !strings.HasSuffix(plain, rest) {
			t.Errorf("round %d does not begin with the one before:\n%s\n%s", round, before, said)
		}
		before = strings.TrimSuffix(said, "]}") // results and texts of the user may follow in the same message
		id := string(rune('a' + round))
		messages = append(messages, calls("I look.", call(id, "a", `{"path": "x"}`), call("f.x:"+id, "b.c", `{}`)), result("f.x:"+id, "y"), result(id, "z"))
		if round%3 == 0 {
			messages = append(messages, user("more"))
		}
	}
}

func TestOptions(t *testing.T) {
	tools := []providers.ToolDefinition{tool("f"), tool("g.h")}
	cases := map[string]struct {
		model string
		tools []providers.ToolDefinition
		set   o
		want  o
	}{
		"none":               {"m", nil, nil, o{"max_tokens": 8192.0}},
		"unknown":            {"m", nil, o{"colour": "red", "seed": 5, "nothing": nil, "max_tokens": nil}, o{"max_tokens": 8192.0}},
		"max_tokens":         {"m", nil, o{"max_tokens": json.Number("10")}, o{"max_tokens": 10.0}},
		"both":               {"m", nil, o{"max_tokens": 10, "max_completion_tokens": int64(20)}, o{"max_tokens": 20.0}},
		"temperature":        {"claude-sonnet-4-6", nil, o{"max_tokens": 1, "temperature": 1.7, "top_p": 0.5}, o{"max_tokens": 1.0, "temperature": 1.0}},
		"zero":               {"m", nil, o{"max_tokens": 1, "temperature": 0}, o{"max_tokens": 1.0, "temperature": 0.0}},
		"top":                {"m", nil, o{"max_tokens": 1, "top_p": 0.5, "top_k": 5}, o{"max_tokens": 1.0, "top_p": 0.5, "top_k": 5.0}},
		"no sampling":        {"claude-opus-4-7", nil, o{"max_tokens": 1, "temperature": 0.5, "top_p": 0.5, "top_k": 5}, o{"max_tokens": 1.0}},
		"no sampling by 5":   {"anthropic/claude-sonnet-5", nil, o{"max_tokens": 1, "temperature": 0.5}, o{"max_tokens": 1.0}},
		"rest":               {"m", nil, o{"max_tokens": 1, "stop": []any{"a"}, "user": "u", "service_tier": "default"}, o{"max_tokens": 1.0, "stop_sequences": []any{"a"}, "metadata": o{"user_id": "u"}, "service_tier": "standard_only"}},
		"schema":             {"m", nil, o{"max_tokens": 1, "response_format": o{"type": "json_schema", "json_schema": o{"name": "x", "schema": o{"type": "object"}}}}, o{"max_tokens": 1.0, "output_config": o{"format": o{"type": "json_schema", "schema": o{"type": "object"}}}}},
		"some JSON":          {"m", nil, o{"max_tokens": 1, "response_format": o{"type": "json_object"}}, o{"max_tokens": 1.0}},
		"choice, no tools":   {"m", nil, o{"max_tokens": 1, "tool_choice": "required", "parallel_tool_calls": false}, o{"max_tokens": 1.0}},
		"choice":             {"m", tools, o{"max_tokens": 1, "tool_choice": "required", "parallel_tool_calls": false}, o{"max_tokens": 1.0, "tool_choice": o{"type": "any", "disable_parallel_tool_use": true}}},
		"choice of one":      {"m", tools, o{"max_tokens": 1, "tool_choice": o{"type": "function", "function": o{"name": "f"}}}, o{"max_tokens": 1.0, "tool_choice": o{"type": "tool", "name": "f"}}},
		"its own choice":     {"m", tools, o{"max_tokens": 1, "tool_choice": o{"type": "tool", "name": "f"}, "parallel_tool_calls": true}, o{"max_tokens": 1.0, "tool_choice": o{"type": "tool", "name": "f"}}},
		"choice none":        {"m", tools, o{"max_tokens": 1, "tool_choice": "none", "parallel_tool_calls": false}, o{"max_tokens": 1.0, "tool_choice": o{"type": "none"}}},
		"one at a time":      {"m", tools, o{"max_tokens": 1, "parallel_tool_calls": false}, o{"max_tokens": 1.0, "tool_choice": o{"type": "auto", "disable_parallel_tool_use": true}}},
		"effort by budget":   {"claude-3-7-sonnet-20250219", nil, o{"reasoning_effort": "medium", "temperature": 0.5, "top_k": 3}, o{"max_tokens": 16384.0, "thinking": o{"type": "enabled", "budget_tokens": 8192.0}}},
		"effort, dated":      {"claude-opus-4-20250514", nil, o{"reasoning_effort": "minimal", "max_tokens": 2000}, o{"max_tokens": 2000.0, "thinking": o{"type": "enabled", "budget_tokens": 1024.0}}},
		"effort":             {"claude-opus-4-6", nil, o{"reasoning_effort": "xhigh", "max_tokens": 1}, o{"max_tokens": 1.0, "thinking": o{"type": "adaptive"}, "output_config": o{"effort": "high"}}},
		"effort by 5":        {"claude-haiku-5-5", nil, o{"reasoning_effort": "xhigh", "max_tokens": 1}, o{"max_tokens": 1.0, "thinking": o{"type": "adaptive"}, "output_config": o{"effort": "xhigh"}}},
		"effort, no version": {"claude-mythos-5-preview", nil, o{"reasoning_effort": "medium", "max_tokens": 1}, o{"max_tokens": 1.0, "thinking": o{"type": "adaptive"}, "output_config": o{"effort": "medium"}}},
		"no effort":          {"claude-sonnet-4-5", nil, o{"reasoning_effort": "none", "max_tokens": 1}, o{"max_tokens": 1.0, "thinking": o{"type": "disabled"}}},
		"least effort":       {"claude-sonnet-5-5", nil, o{"reasoning_effort": "none", "max_tokens": 1}, o{"max_tokens": 1.0, "output_config": o{"effort": "low"}}},
		"thinking":           {"claude-sonnet-4-5", nil, o{"thinking": o{"type": "enabled", "budget_tokens": 1500}, "temperature": 0.1}, o{"max_tokens": 9692.0, "thinking": o{"type": "enabled", "budget_tokens": 1500.0}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := ask(t, hello(), c.tools, c.model, c.set).Options
			delete(got, "stream")
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("sent %v, want %v", got, c.want)
			}
		})
	}
	for _, bad := range []o{
		{"max_tokens": "many"},
		{"max_tokens": 0},
		{"max_tokens": 1.5},
		{"temperature": "warm"},
		{"temperature": -1},
		{"top_p": 2},
		{"stop": 5},
		{"user": 5},
		{"response_format": 3},
		{"response_format": o{"type": "json_schema"}},
		{"reasoning_effort": "much"},
		{"reasoning_effort": o{}},
		{"thinking": true},
		{"tool_choice": "some"},
		{"tool_choice": o{"type": "tool"}},
		{"parallel_tool_calls": "no"},
	} {
		_, err := open(t, nil).Chat(t.Context(), hello(), tools, "m", bad)
		for name := range bad {
			if providers.KindOf(err) != providers.KindInvalidRequest || !strings.Contains(err.Error(), name) {
				t.Errorf("%v gave %v, want an invalid request that names it", bad, err)
			}
		}
	}
	_, err := open(t, nil).Chat(t.Context(), hello(), nil, "claude-sonnet-4-5", o{"reasoning_effort": "high", "max_tokens": 4096})
	if err == nil || !strings.Contains(err.Error(), "max_tokens: 4096 leaves nothing") {
		t.Errorf("more thoughts than tokens gave %v", err)
	}
}

func TestToolNamesTheAPIRefuses(t *testing.T) {
	names := []string{"read_file", "mcp.files/read file", "mcp.files:read file", strings.Repeat("long", 30), "größe"}
	var tools []providers.ToolDefinition
	for _, n := range names {
		tools = append(tools, tool(n))
	}
	p := open(t, func(r providerstest.Request) providerstest.Response {
		var list []providerstest.Call
		for _, d := range r.Tools {
			list = append(list, providerstest.Call{Name: d.Function.Name, Arguments: "{}"})
		}
		return providerstest.Calls(append(list, providerstest.Call{Name: "never_heard_of", Arguments: "{}"})...)
	})
	resp, err := p.Chat(t.Context(), hello(), tools, "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range resp.ToolCalls {
		if want := append(slices.Clone(names), "never_heard_of")[i]; c.Name != want || c.Function.Name != want {
			t.Errorf("call %d is of %q, want %q", i, c.Name, want)
		}
	}
	// The history has the names the tools have.
	seen := ask(t, []providers.Message{user("go"), calls("", resp.ToolCalls...)}, tools, "m", nil)
	for i, d := range seen.Tools {
		if got := seen.Messages[1].ToolCalls[i].Name; got != d.Function.Name {
			t.Errorf("call %d is named %q, its tool %q", i, got, d.Function.Name)
		}
	}
	bad := []providers.ToolDefinition{{Function: providers.ToolFunctionDefinition{Name: "odd", Parameters: o{"x": func() {}}}}}
	if _, err := p.Chat(t.Context(), hello(), bad, "m", nil); providers.KindOf(err) != providers.KindInvalidRequest || !strings.Contains(err.Error(), "odd") {
		t.Errorf("a schema that is not JSON gave %v", err)
	}
	for _, params := range []o{nil, {}, {"type": "object"}, {"type": []string{"object", "null"}}} {
		ask(t, hello(), []providers.ToolDefinition{{Function: providers.ToolFunctionDefinition{Name: "f", Parameters: params}}}, "m", nil)
	}
}

func TestThoughtsGoBackAsTheyCame(t *testing.T) {
	tools := []providers.ToolDefinition{tool("f")}
	p, s := openWith(t, providerstest.Sequence(
		providerstest.Response{Content: "I <look>.", ToolCalls: []providerstest.Call{{ID: "c1", Name: "f", Arguments: `{"path": "a"}`}}},
		providerstest.Response{ToolCalls: []providerstest.Call{{ID: "c2", Name: "f", Arguments: `{}`}}},
		providerstest.Text("Done."),
	), anthropic.Config{})
	messages := hello()
	var replies []*providers.LLMResponse
	for range 3 {
		var thoughts, text string
		resp, err := p.ChatStream(t.Context(), messages, tools, "claude-sonnet-4-5", o{"reasoning_effort": "low"}, func(d providers.Delta) {
			thoughts, text = thoughts+d.Reasoning, text+d.Text
		})
		if err != nil {
			t.Fatal(err)
		}
		if thoughts != anthropictest.Thought || text != resp.Content || strings.Contains(resp.Content, "think") {
			t.Errorf("was told the thoughts %q and the text %q, of %+v", thoughts, text, resp)
		}
		// The way through a ledger in JSON writes some characters differently.
		reply := providers.Message{Role: providers.RoleAssistant, Content: resp.Content, ToolCalls: resp.ToolCalls, Opaque: resp.Opaque}
		raw, err := json.Marshal(reply)
		if err != nil || json.Unmarshal(raw, &reply) != nil {
			t.Fatal(err)
		}
		messages = append(messages, reply)
		for _, c := range resp.ToolCalls {
			messages = append(messages, result(c.ID, "x"))
		}
		replies = append(replies, resp)
	}
	var keeps struct {
		Anthropic []o `json:"anthropic"`
	}
	if err := json.Unmarshal(replies[0].Opaque, &keeps); err != nil || len(keeps.Anthropic) != 3 || keeps.Anthropic[0]["thinking"] != anthropictest.Thought {
		t.Errorf("the opaque part is %s", replies[0].Opaque)
	}
	// The fake knows its signatures, and wants them: had one been missing, the
	// next request would have been refused.
	if n := bytes.Count(s.Requests()[2].Body, []byte(`"type":"thinking"`)); n != 2 {
		t.Errorf("the third request has %d thoughts, want both", n)
	}
	// Text that was changed since, or calls that were dropped, leave the thought
	// in front.
	changed := slices.Clone(messages[:3])
	changed[1].Content = "I ***."
	if _, err := p.Chat(t.Context(), changed, tools, "claude-sonnet-4-5", o{"reasoning_effort": "low"}); err != nil {
		t.Error(err)
	}
	if got := s.Requests()[3]; got.Messages[1].Content != "I ***." || !bytes.Contains(got.Body, []byte(`"signature"`)) {
		t.Errorf("a changed reply was sent as %s", got.Body)
	}
}

// A signature the service does not know, for example after base_url was changed,
// must not make every later request fail.
func TestThoughtsTheServiceRefuses(t *testing.T) {
	reply := calls("I look.", call("c1", "f", `{}`))
	reply.Opaque = json.RawMessage(`{"anthropic":[{"type":"thinking","thinking":"hm","signature":"of another"},{"type":"text","text":"I look."},{"type":"tool_use","id":"c1"}]}`)
	s := anthropictest.NewServer(providerstest.ServerConfig{})
	p, err := anthropic.New(anthropic.Config{BaseURL: "http://fake", Transport: s.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.Chat(t.Context(), []providers.Message{user("go"), reply, result("c1", "x")}, []providers.ToolDefinition{tool("f")}, "claude-sonnet-4-5", o{"reasoning_effort": "low"})
	if err != nil || resp.Content != "ok" {
		t.Fatalf("got %+v, %v", resp, err)
	}
	if len(s.Refusals()) != 1 || !strings.Contains(s.Refusals()[0], "signature") || bytes.Contains(s.Requests()[0].Body, []byte("thinking")) {
		t.Errorf("refused %q, then sent %s", s.Refusals(), s.Requests()[0].Body)
	}
}
