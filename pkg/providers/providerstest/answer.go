package providerstest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The answer's wire form, whole and in pieces.
type (
	completion struct {
		ID      string     `json:"id"`
		Object  string     `json:"object"`
		Created int64      `json:"created"`
		Model   string     `json:"model"`
		Choices []choice   `json:"choices"`
		Usage   *wireUsage `json:"usage"`
	}
	choice struct {
		Index        int            `json:"index"`
		Message      *answerMessage `json:"message,omitempty"`
		Delta        *answerDelta   `json:"delta,omitempty"`
		FinishReason *string        `json:"finish_reason"` // null but in the last piece
	}
	answerMessage struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"` // null beside calls
		Refusal   *string    `json:"refusal"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []wireCall `json:"tool_calls,omitempty"`
	}
	answerDelta struct {
		Role      string      `json:"role,omitempty"`
		Content   *string     `json:"content,omitempty"`
		Refusal   *string     `json:"refusal,omitempty"`
		Reasoning string      `json:"reasoning_content,omitempty"`
		ToolCalls []callDelta `json:"tool_calls,omitempty"`
	}
	callDelta struct {
		Index    int           `json:"index"`
		ID       string        `json:"id,omitempty"`
		Type     string        `json:"type,omitempty"`
		Function functionDelta `json:"function"`
	}
	functionDelta struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	wireUsage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
		Prompt           struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Completion struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
)

// complete fills in what a script left open.
func complete(req Request, resp Response) Response {
	calls := make([]Call, len(resp.ToolCalls))
	for i, c := range resp.ToolCalls {
		if c.ID == "" {
			c.ID = "call_" + strconv.Itoa(req.N) + "_" + strconv.Itoa(i+1)
		}
		calls[i] = c
	}
	resp.ToolCalls = calls
	if resp.FinishReason == "" {
		resp.FinishReason = providers.FinishStop
		if len(calls) > 0 {
			resp.FinishReason = providers.FinishToolCalls
		}
	}
	if resp.Usage == nil {
		in, out := len(req.Body)/4+1, len(resp.Content)/4+1
		resp.Usage = &providers.Usage{PromptTokens: in, CompletionTokens: out, TotalTokens: in + out}
	}
	return resp
}

func usageOf(u *providers.Usage) *wireUsage {
	w := &wireUsage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens}
	w.Prompt.Cached, w.Completion.Reasoning = u.CacheReadTokens, u.ReasoningTokens
	return w
}

func envelope(req Request, object string, choices ...choice) completion {
	return completion{ID: "chatcmpl-" + strconv.Itoa(req.N), Object: object, Created: time.Now().Unix(), Model: req.Model, Choices: choices}
}

func (s *Server) writeCompletion(w http.ResponseWriter, r *http.Request, req Request, resp Response) {
	resp = complete(req, resp)
	msg := &answerMessage{Role: providers.RoleAssistant, Reasoning: resp.Reasoning}
	switch {
	case resp.Refusal != "":
		msg.Refusal = &resp.Refusal
	case resp.Content != "" || len(resp.ToolCalls) == 0:
		msg.Content = &resp.Content
	}
	for i := range resp.ToolCalls {
		c := &resp.ToolCalls[i]
		msg.ToolCalls = append(msg.ToolCalls, wireCall{ID: c.ID, Type: "function", Function: &wireFunction{Name: c.Name, Arguments: &c.Arguments}})
	}
	answer := envelope(req, "chat.completion", choice{Message: msg, FinishReason: &resp.FinishReason})
	answer.Usage = usageOf(resp.Usage)
	body := mustJSON(answer)
	w.Header().Set("Content-Type", "application/json")
	if resp.Cut || resp.Park {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		s.breakOff(w, r, resp)
	}
	_, _ = w.Write(body) // the caller may be gone
}

// writeStream writes the answer as server-sent events.
func (s *Server) writeStream(w http.ResponseWriter, r *http.Request, req Request, resp Response) {
	resp = complete(req, resp)
	events := pieces(req, resp)
	half := len(events) / 2
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for i, e := range events {
		if i == half && (resp.Cut || resp.Park) {
			_, _ = io.WriteString(w, "data: "+e[:len(e)/2])
			s.breakOff(w, r, resp)
		}
		if resp.Pause > 0 && !s.wait(r, resp.Pause) {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "data: "+e+"\n\n") // the caller may be gone
		_ = http.NewResponseController(w).Flush()
	}
}

// pieces are the events of an answer, as the API cuts it: the role, thoughts,
// the content, each call's name and then its arguments, why it ended, the usage
// if it was asked for, and the mark of the end.
func pieces(req Request, resp Response) []string {
	var list []string
	add := func(c completion) { list = append(list, string(mustJSON(c))) }
	delta := func(d answerDelta) {
		add(envelope(req, "chat.completion.chunk", choice{Delta: &d}))
	}
	first := answerDelta{Role: providers.RoleAssistant}
	if len(resp.ToolCalls) == 0 {
		first.Content = new(string)
	}
	delta(first)
	for _, text := range cut(resp.Reasoning) {
		delta(answerDelta{Reasoning: text})
	}
	if resp.Refusal == "" {
		for _, text := range cut(resp.Content) {
			delta(answerDelta{Content: &text})
		}
	}
	for _, text := range cut(resp.Refusal) {
		delta(answerDelta{Refusal: &text})
	}
	for i, c := range resp.ToolCalls {
		delta(answerDelta{ToolCalls: []callDelta{{Index: i, ID: c.ID, Type: "function", Function: functionDelta{Name: c.Name}}}})
		for _, text := range cut(c.Arguments) {
			delta(answerDelta{ToolCalls: []callDelta{{Index: i, Function: functionDelta{Arguments: text}}}})
		}
	}
	add(envelope(req, "chat.completion.chunk", choice{Delta: &answerDelta{}, FinishReason: &resp.FinishReason}))
	if o, _ := req.Options["stream_options"].(map[string]any); o["include_usage"] == true {
		last := envelope(req, "chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, usageOf(resp.Usage)
		add(last)
	}
	return append(list, "[DONE]")
}

// cut cuts a text into pieces of a few characters, some of them within words.
func cut(text string) (list []string) {
	for len(text) > 0 {
		n := min(5, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		list = append(list, text[:n])
		text = text[n:]
	}
	return list
}

func mustJSON(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain strings and numbers always marshal
	}
	return body
}
