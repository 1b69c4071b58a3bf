package openai_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// options returns what the API is sent for options, model and messages apart.
func options(t *testing.T, model string, tools []providers.ToolDefinition, set map[string]any) map[string]any {
	t.Helper()
	var seen providerstest.Request
	p := open(t, func(r providerstest.Request) providerstest.Response { seen = r; return providerstest.Text("ok") })
	if _, err := p.Chat(t.Context(), hello(), tools, model, set); err != nil {
		t.Fatalf("%s with %v: %v", model, set, err)
	}
	delete(seen.Options, "stream") // the SDK always says false
	return seen.Options
}

func TestOptions(t *testing.T) {
	tools := []providers.ToolDefinition{{Type: "function", Function: providers.ToolFunctionDefinition{Name: "f"}}}
	type o = map[string]any
	cases := map[string]struct {
		model string
		tools []providers.ToolDefinition
		set   o
		want  o
	}{
		"none":                 {"m", nil, nil, o{}},
		"unknown":              {"m", nil, o{"colour": "red", "nothing": nil, "max_tokens": nil}, o{}},
		"max_tokens":           {"m", nil, o{"max_tokens": 10}, o{"max_tokens": 10.0}},
		"max_tokens, float":    {"m", nil, o{"max_tokens": 10.0}, o{"max_tokens": 10.0}},
		"max_tokens, number":   {"m", nil, o{"max_tokens": json.Number("10")}, o{"max_tokens": 10.0}},
		"new name":             {"m", nil, o{"max_completion_tokens": int64(10)}, o{"max_completion_tokens": 10.0}},
		"sampling":             {"m", nil, o{"temperature": 0.5, "top_p": float32(0.25), "presence_penalty": 1, "frequency_penalty": -1.5}, o{"temperature": 0.5, "top_p": 0.25, "presence_penalty": 1.0, "frequency_penalty": -1.5}},
		"rest":                 {"m", nil, o{"seed": 7, "stop": []any{"a", "b"}, "user": "u", "reasoning_effort": "low", "verbosity": "low", "service_tier": "flex"}, o{"seed": 7.0, "stop": []any{"a", "b"}, "user": "u", "reasoning_effort": "low", "verbosity": "low", "service_tier": "flex"}},
		"one stop":             {"m", nil, o{"stop": "a"}, o{"stop": []any{"a"}}},
		"many stops":           {"m", nil, o{"stop": []string{"a"}}, o{"stop": []any{"a"}}},
		"objects":              {"m", nil, o{"response_format": o{"type": "json_object"}, "logit_bias": o{"5": 1}, "chat_template_kwargs": o{"enable_thinking": false}}, o{"response_format": o{"type": "json_object"}, "logit_bias": o{"5": 1.0}, "chat_template_kwargs": o{"enable_thinking": false}}},
		"tool options":         {"m", tools, o{"tool_choice": "auto", "parallel_tool_calls": false}, o{"tool_choice": "auto", "parallel_tool_calls": false}},
		"tool options, none":   {"m", nil, o{"tool_choice": "auto", "parallel_tool_calls": false}, o{}},
		"gpt-5":                {"gpt-5-mini", nil, o{"max_tokens": 10, "temperature": 0.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": 1, "logit_bias": o{"5": 1}}, o{"max_completion_tokens": 10.0}},
		"gpt-5, both":          {"gpt-5-mini", nil, o{"max_tokens": 10, "max_completion_tokens": 20}, o{"max_completion_tokens": 20.0}},
		"o-series":             {"o3", nil, o{"max_tokens": 10, "temperature": 0.5}, o{"max_completion_tokens": 10.0}},
		"gpt-5 by a router":    {"openai/gpt-5", nil, o{"max_tokens": 10, "temperature": 0.5}, o{"max_completion_tokens": 10.0}},
		"gpt-oss is none":      {"openai/gpt-oss-20b", nil, o{"max_tokens": 10, "temperature": 0.5}, o{"max_tokens": 10.0, "temperature": 0.5}},
		"gpt-5 keeps the rest": {"gpt-5", tools, o{"reasoning_effort": "minimal", "tool_choice": "required"}, o{"reasoning_effort": "minimal", "tool_choice": "required"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := options(t, c.model, c.tools, c.set); !reflect.DeepEqual(got, c.want) {
				t.Errorf("sent %v, want %v", got, c.want)
			}
		})
	}
	// Zero is a value: the most predictable answers.
	if got, ok := options(t, "m", nil, o{"temperature": 0})["temperature"].(float64); !ok || got > 1e-6 {
		t.Errorf("temperature 0 is sent as %v", got)
	}
	for _, bad := range []o{{"max_tokens": "many"}, {"max_tokens": 0}, {"max_tokens": -1}, {"temperature": "warm"}, {"stop": 5}, {"stop": []any{1}}, {"user": 5}, {"logit_bias": "x"}, {"response_format": 3}, {"seed": "x"}} {
		_, err := open(t, nil).Chat(t.Context(), hello(), nil, "m", bad)
		for name := range bad {
			if providers.KindOf(err) != providers.KindInvalidRequest || !strings.Contains(err.Error(), name) {
				t.Errorf("%v gave %v, want an invalid request that names it", bad, err)
			}
		}
	}
}

func TestToolNamesTheAPIRefuses(t *testing.T) {
	names := []string{"größe", strings.Repeat("long", 30), "mcp.files/read file", "mcp.files:read file", "read_file"}
	var tools []providers.ToolDefinition
	for _, n := range names {
		tools = append(tools, providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{Name: n, Parameters: map[string]any{}}})
	}
	p := open(t, func(r providerstest.Request) providerstest.Response {
		if len(r.Messages) > 1 { // the history has the names the tools have
			for i, c := range r.Messages[1].ToolCalls {
				if c.Name != r.Tools[i].Function.Name {
					t.Errorf("call %d is named %q, its tool %q", i, c.Name, r.Tools[i].Function.Name)
				}
			}
			return providerstest.Text("ok")
		}
		var calls []providerstest.Call
		for _, d := range r.Tools {
			calls = append(calls, providerstest.Call{Name: d.Function.Name, Arguments: "{}"})
		}
		return providerstest.Calls(append(calls, providerstest.Call{Name: "never heard of", Arguments: "{}"})...)
	})
	resp, err := p.Chat(t.Context(), hello(), tools, "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	messages := append(hello(), providers.Message{Role: providers.RoleAssistant, ToolCalls: resp.ToolCalls})
	for i, c := range resp.ToolCalls {
		if want := append(names, "never heard of")[i]; c.Name != want || c.Function.Name != want {
			t.Errorf("call %d is of %q, want %q", i, c.Name, want)
		}
		messages = append(messages, providers.Message{Role: providers.RoleTool, ToolCallID: c.ID, Content: "x"})
	}
	messages[1].ToolCalls, messages = messages[1].ToolCalls[:5], messages[:len(messages)-1]
	if _, err := p.Chat(t.Context(), messages, tools, "m", nil); err != nil {
		t.Error(err)
	}
}

func TestSchemasTheAPIRefuses(t *testing.T) {
	shared := map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string"}}}
	for name, params := range map[string]map[string]any{
		"nil": nil, "empty": {}, "no properties": {"type": "object"}, "no type": {"properties": map[string]any{}}, "shared": shared,
	} {
		tools := []providers.ToolDefinition{{Type: "function", Function: providers.ToolFunctionDefinition{Name: "f", Parameters: params}}}
		before := len(params)
		for range 3 { // the second time it comes from the cache
			options(t, "m", tools, nil)
		}
		if len(params) != before {
			t.Errorf("%s: the schema was changed to %v", name, params)
		}
	}
	bad := []providers.ToolDefinition{{Type: "function", Function: providers.ToolFunctionDefinition{Name: "odd", Parameters: map[string]any{"x": func() {}}}}}
	if _, err := open(t, nil).Chat(t.Context(), hello(), bad, "m", nil); providers.KindOf(err) != providers.KindInvalidRequest || !strings.Contains(err.Error(), "odd") {
		t.Errorf("a schema that is not JSON gave %v", err)
	}
}

// The same schema at many addresses, and more of them than the cache holds.
func TestSchemaCacheIsBounded(t *testing.T) {
	var seen providerstest.Request
	p := open(t, func(r providerstest.Request) providerstest.Response { seen = r; return providerstest.Text("ok") })
	for i := range 1100 {
		tools := []providers.ToolDefinition{{Type: "function", Function: providers.ToolFunctionDefinition{
			Name: "f", Parameters: map[string]any{"type": "object", "properties": map[string]any{}, "n": i},
		}}}
		if _, err := p.Chat(t.Context(), hello(), tools, "m", nil); err != nil {
			t.Fatal(err)
		}
		if got := seen.Tools[0].Function.Parameters["n"]; got != float64(i) {
			t.Fatalf("schema %d was sent as %v", i, got)
		}
	}
}

func TestEmptyMessages(t *testing.T) {
	messages := []providers.Message{
		{Role: providers.RoleSystem}, {Role: providers.RoleUser}, {Role: providers.RoleAssistant}, {Role: providers.RoleUser, Content: "x"},
	}
	if _, err := open(t, nil).Chat(t.Context(), messages, nil, "m", nil); err != nil {
		t.Error(err)
	}
}

func TestAnswersOfOddServers(t *testing.T) {
	answer := func(message string) providerstest.Response {
		return providerstest.Response{Status: 200, Body: `{"choices":[{"index":0,"finish_reason":"stop","message":` + message + `}]}`}
	}
	cases := map[string]struct{ message, want string }{
		"thinking":       {`{"role":"assistant","content":"<think>\nhm, hello\n</think>\n\nHello!"}`, "Hello!"},
		"cut thinking":   {`{"role":"assistant","content":"<think>\nhm"}`, ""},
		"talk about it":  {`{"role":"assistant","content":"Use <think> and </think>."}`, "Use <think> and </think>."},
		"refusal":        {`{"role":"assistant","content":null,"refusal":"I must not."}`, "I must not."},
		"reasoning":      {`{"role":"assistant","content":"Yes.","reasoning_content":"let me see","reasoning":"x"}`, "Yes."},
		"content parts":  {`{"role":"assistant","content":[{"type":"text","text":"one"}]}`, "one"},
		"unknown fields": {`{"role":"assistant","content":"Yes.","audio":null,"annotations":[],"x":{"y":1}}`, "Yes."},
	}
	for name, c := range cases {
		resp, err := open(t, func(providerstest.Request) providerstest.Response { return answer(c.message) }).Chat(t.Context(), hello(), nil, "m", nil)
		if err != nil || resp.Content != c.want || resp.Usage != nil {
			t.Errorf("%s: got %+v, %v, want %q", name, resp, err, c.want)
		}
	}
}

func TestNewRefusesBadAddresses(t *testing.T) {
	for _, base := range []string{"localhost:11434", "ftp://x/v1", "http://", "/v1", "http://user:s3cret-pw@bad host/v1", "https://x/v1?key=s3cret-pw", "://"} {
		_, err := openai.New(openai.Config{BaseURL: base})
		if err == nil || !strings.Contains(err.Error(), "base_url") || strings.Contains(err.Error(), "s3cret-pw") {
			t.Errorf("%q gave %v", base, err)
		}
	}
	for _, base := range []string{"", "https://api.openai.com/v1", "http://127.0.0.1:11434/v1/", "http://[::1]:8080", " http://x/v1 ", "http://x/v1/chat/completions"} {
		if _, err := openai.New(openai.Config{BaseURL: base}); err != nil {
			t.Errorf("%q gave %v", base, err)
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{``, `{}`, `"{}"`, `"\"{}\""`, `null`, `[`, `{"a":1}`, `"null"`, `{"a":`, `1e999`, "\x00", `{"a":"\ud800"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Skip()
		}
		p := open(t, func(r providerstest.Request) providerstest.Response {
			if len(r.Messages) > 1 {
				return providerstest.Text("ok")
			}
			return providerstest.Response{Status: 200, Body: `{"choices":[{"message":{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":` + string(raw) + `}}]}}]}`}
		})
		resp, err := p.Chat(t.Context(), hello(), nil, "m", nil)
		if err != nil || len(resp.ToolCalls) != 1 || resp.ToolCalls[0].Arguments == nil {
			t.Fatalf("%q gave %+v, %v", text, resp, err)
		}
		// Whatever it was, the history with it is taken.
		messages := append(hello(), providers.Message{Role: providers.RoleAssistant, ToolCalls: resp.ToolCalls},
			providers.Message{Role: providers.RoleTool, ToolCallID: "c", Content: "x"})
		if _, err := p.Chat(t.Context(), messages, nil, "m", nil); err != nil {
			t.Fatalf("%q, sent back, gave %v", text, errors.Unwrap(err))
		}
	})
}
