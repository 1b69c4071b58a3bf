package openai_test

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// read is what becomes of a whole answer.
func read(t *testing.T, body string) *providers.LLMResponse {
	t.Helper()
	resp, err := open(t, func(providerstest.Request) providerstest.Response {
		return providerstest.Response{Status: http.StatusOK, Body: body}
	}).Chat(t.Context(), hello(), nil, "m", nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return resp
}

func TestFinishReasonsOfServers(t *testing.T) {
	for reason, want := range map[string]string{
		"stop": "stop", "end_turn": "stop", "STOP": "stop", "eos": "stop", "": "stop",
		"tool_calls": "tool_calls", "tool_use": "tool_calls", "function_call": "tool_calls",
		"length": "length", "max_tokens": "length", "MAX_TOKENS": "length", "model_length": "length",
		"content_filter": "content_filter", "SAFETY": "content_filter", "sensitive": "content_filter",
		"refusal": providers.FinishRefusal, "pause_turn": providers.FinishPause, "bored": "bored",
	} {
		if got := read(t, `{"choices":[{"message":{"content":"x"},"finish_reason":"`+reason+`"}]}`); got.FinishReason != want {
			t.Errorf("%q became %q, want %q", reason, got.FinishReason, want)
		}
	}
	if got := read(t, `{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}`); got.FinishReason != providers.FinishToolCalls {
		t.Errorf("a call without a reason gave %q", got.FinishReason)
	}
	if got := read(t, `{"choices":[{"message":{"content":null,"refusal":"I must not."},"finish_reason":"stop"}]}`); got.FinishReason != providers.FinishRefusal || got.Content != "I must not." {
		t.Errorf("a refusal became %+v", got)
	}
}

func TestUsageOfServers(t *testing.T) {
	for usage, want := range map[string]*providers.Usage{
		`null`:                   nil,
		`{"prompt_tokens":0}`:    nil,
		`{"prompt_tokens":"so"}`: nil,
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}`: {
			PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15, CacheReadTokens: 8, CacheWriteTokens: 2, ReasoningTokens: 3,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":3}`: {PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15, CacheReadTokens: 7},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":null}`:                             {PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15},
	} {
		if got := read(t, `{"choices":[{"message":{"content":"x"}}],"usage":`+usage+`}`).Usage; !reflect.DeepEqual(got, want) {
			t.Errorf("%s was read as %+v, want %+v", usage, got, want)
		}
	}
}

// A list is not what a tool can be called with. None of it is lost, so that the
// model is told so, and nothing is run with no arguments instead.
func TestArgumentsThatAreAList(t *testing.T) {
	for list, want := range map[string]string{
		`[{"path":"x"}]`: `[{"path":"x"}]`, `[{"text":"x"}]`: `[{"text":"x"}]`, `["x"]`: `["x"]`, `[1]`: `[1]`,
		`[]`: `{}`, `[ ]`: `{}`, // an empty object, to some servers
	} {
		got := read(t, `{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":`+list+`}}]}}]}`)
		if len(got.ToolCalls) != 1 || len(got.ToolCalls[0].Arguments) != 0 || got.ToolCalls[0].Function.Arguments != want {
			t.Errorf("%s: read as %+v", list, got.ToolCalls[0].Function)
		}
	}
}

// Several servers write the arguments of a call as JSON, not as a text of it.
func TestArgumentsThatAreAnObject(t *testing.T) {
	got := read(t, `{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"path":"x","n":[1,{"y":null}]}}},{"id":"b","function":{"name":"f","arguments":null}}]}}]}`)
	want := map[string]any{"path": "x", "n": []any{1.0, map[string]any{"y": nil}}}
	if len(got.ToolCalls) != 2 || !reflect.DeepEqual(got.ToolCalls[0].Arguments, want) || got.ToolCalls[0].Function.Arguments != `{"path":"x","n":[1,{"y":null}]}` || len(got.ToolCalls[1].Arguments) != 0 {
		t.Errorf("read as %+v", got.ToolCalls)
	}
}
