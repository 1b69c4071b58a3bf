//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests of this file try the model adapters on a mock that is not ours, the
// npm package @copilotkit/aimock, which they install into a folder that is
// removed again:
//
//	go test -tags interop -run Models ./test/interop
//
// They need Node.js 20 and npm, and skip without. Ollama is spoken to as the
// daemon does it, by its OpenAI-compatible paths; its own /api/chat, which the
// mock has too, is not.
const aimock = "@copilotkit/aimock@1.43.0"

const apiKey = "sk-interop-0123456789"

const longAnswer = "This is an answer that is long enough to be cut into a good number of pieces, with öäü and 👋 in it."

// fixtures are the mock's script.
var fixtures = map[string]any{"fixtures": []any{
	fixture(match{"userMessage": "what is in a and b", "hasToolResult": false}, match{"content": "I look.", "toolCalls": []any{
		match{"name": "read_file", "arguments": `{"path":"a","big":12345678901234567890}`}, match{"name": "read_file", "arguments": `{"path":"b"}`},
	}}, nil),
	fixture(match{"userMessage": "what is in a and b", "hasToolResult": true}, match{"content": "Both say hello.", "usage": match{"prompt_tokens": 70, "input_tokens": 70, "completion_tokens": 5, "output_tokens": 5}}, nil),
	fixture(match{"userMessage": "think"}, match{"content": "Four.", "reasoning": "Two and two."}, nil),
	fixture(match{"userMessage": "break off"}, match{"content": longAnswer}, match{"latency": 40, "disconnectAfterMs": 400, "chunkSize": 5}),
	fixture(match{"userMessage": "hello"}, match{"content": longAnswer}, match{"chunkSize": 5}),
}}

type match = map[string]any

func fixture(of, response, more match) match {
	f := match{"match": of, "response": response}
	maps.Copy(f, more)
	return f
}

// mock is a running aimock.
type mock struct{ url string }

// startMock installs the mock and starts it.
func startMock(t *testing.T) mock {
	t.Helper()
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("%s is not here: install Node.js 20 and npm to run this test", command)
		}
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error", aimock)
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install %s: %v\n%s", aimock, err, out)
	}
	script, err := json.Marshal(fixtures)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "fixtures.json")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "node", filepath.Join(dir, "node_modules/@copilotkit/aimock/dist/cli.js"), "-p", "0", "-f", file, "--strict")
	cmd.Env = append(os.Environ(), "AIMOCK_API_KEYS="+apiKey)
	var said bytes.Buffer
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
			if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
				listening <- strings.TrimSpace(url)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		close(listening)
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		_ = in.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("the mock said:\n%s", said.String())
		}
	})
	url, ok := <-listening
	if !ok {
		t.Fatal("the mock did not start")
	}
	return mock{url}
}

// control tells the mock what to do to the requests that follow.
func (m mock) control(t *testing.T, method, path string, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, m.url+"/__aimock/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+apiKey)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, answer)
	}
}

// protocol is one way to speak to the mock.
type protocol struct {
	name, model string
	open        func(t *testing.T, m mock, key config.Secret) providers.LLMProvider
}

func protocols() []protocol {
	openAI := func(t *testing.T, m mock, key config.Secret) providers.LLMProvider {
		t.Helper()
		p, err := openai.New(openai.Config{BaseURL: m.url + "/v1", APIKey: key, MaxAttempts: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	return []protocol{
		{"openai", "gpt-5-mini", openAI},
		{"ollama by its OpenAI paths", "qwen3", openAI},
		{"anthropic", "claude-haiku-4-5", func(t *testing.T, m mock, key config.Secret) providers.LLMProvider {
			t.Helper()
			p, err := anthropic.New(anthropic.Config{BaseURL: m.url, APIKey: key, MaxAttempts: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			return p
		}},
	}
}

func TestModelsOnAMock(t *testing.T) {
	m := startMock(t)
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			model := p.open(t, m, apiKey)
			for _, streamed := range []bool{false, true} {
				name := map[bool]string{false: "whole", true: "in pieces"}[streamed]
				t.Run("tools "+name, func(t *testing.T) { toolLoop(t, p, model, streamed) })
				t.Run("answer "+name, func(t *testing.T) { answers(t, p, model, streamed) })
				if p.model == "qwen3" {
					continue // it fails the same way as openai
				}
				t.Run("failures "+name, func(t *testing.T) { failures(t, m, p, model, streamed) })
			}
			t.Run("wrong key", func(t *testing.T) {
				_, err := p.open(t, m, "sk-other").Chat(t.Context(), ask("hello"), nil, p.model, nil)
				if providers.KindOf(err) != providers.KindAuth {
					t.Errorf("got %v, want a refused key", err)
				}
			})
		})
	}
}

func ask(text string) []providers.Message {
	return []providers.Message{{Role: providers.RoleUser, Content: text}}
}

// chat asks for an answer, whole or in pieces; told is what the pieces had.
func chat(t *testing.T, p protocol, model providers.LLMProvider, text string, streamed bool) (resp *providers.LLMResponse, told, thought string, err error) {
	t.Helper()
	if !streamed {
		resp, err = model.Chat(t.Context(), ask(text), nil, p.model, nil)
		return resp, "", "", err
	}
	resp, err = providers.Stream(t.Context(), model, ask(text), nil, p.model, nil, func(d providers.Delta) { told, thought = told+d.Text, thought+d.Reasoning })
	return resp, told, thought, err
}

func toolLoop(t *testing.T, p protocol, model providers.LLMProvider, streamed bool) {
	t.Helper()
	var read []string
	registry := tools.NewToolRegistry()
	type input struct {
		Path string `json:"path" description:"Which file."`
		Big  any    `json:"big,omitempty"`
	}
	registry.Register(tools.Func("read_file", "Reads a file.", func(_ context.Context, in input) *tools.ToolResult {
		read = append(read, in.Path)
		return tools.NewToolResult("hello")
	}))
	cfg := tools.ToolLoopConfig{Provider: model, Model: p.model, Tools: registry, MaxIterations: 5}
	var told string
	if streamed {
		cfg.Stream = func(d providers.Delta) { told += d.Text }
	}
	res, err := tools.RunToolLoop(t.Context(), cfg, ask("what is in a and b"), "interop", "1")
	if err != nil {
		t.Fatal(err)
	}
	if res.Content != "Both say hello." || res.Iterations != 2 || !slices.Equal(read, []string{"a", "b"}) {
		t.Errorf("got %q after %d rounds, read %q", res.Content, res.Iterations, read)
	}
	if streamed && told != "I look.Both say hello." {
		t.Errorf("was told %q", told)
	}
	if u := res.Usage; u.PromptTokens < 70 || u.CompletionTokens < 5 || u.TotalTokens < 75 {
		t.Errorf("the usage is %+v", u)
	}
	// The mock itself reads the input for Anthropic's protocol, and rounds.
	if f := res.Messages[0].ToolCalls[0].Function; p.name != "anthropic" && !strings.Contains(f.Arguments, "12345678901234567890") {
		t.Errorf("the arguments have become %s", f.Arguments)
	}
}

func answers(t *testing.T, p protocol, model providers.LLMProvider, streamed bool) {
	t.Helper()
	resp, told, _, err := chat(t, p, model, "hello", streamed)
	if err != nil || resp.Content != longAnswer || resp.FinishReason != providers.FinishStop || streamed && told != longAnswer {
		t.Errorf("got %+v, %v, told %q", resp, err, told)
	}
	resp, told, thought, err := chat(t, p, model, "think", streamed)
	if err != nil || resp.Content != "Four." || streamed && (told != "Four." || thought != "Two and two.") {
		t.Errorf("got %+v, %v, told %q, thought %q", resp, err, told, thought)
	}
	if p.name != "anthropic" {
		return
	}
	// What it thought goes back with the reply.
	messages := append(ask("think"), providers.Message{Role: providers.RoleAssistant, Content: resp.Content, Opaque: resp.Opaque})
	if resp, err := model.Chat(t.Context(), append(messages, ask("hello")...), nil, p.model, nil); err != nil || resp.Content != longAnswer {
		t.Errorf("with the thoughts of before: %+v, %v", resp, err)
	}
}

func failures(t *testing.T, m mock, p protocol, model providers.LLMProvider, streamed bool) {
	t.Helper()
	for status, kind := range map[int]providers.ErrorKind{429: "", 500: "", 503: "", 529: "", 400: providers.KindInvalidRequest, 401: providers.KindAuth} {
		m.control(t, http.MethodPost, "error", match{"status": status, "body": match{"message": "It is as you wished."}})
		resp, _, _, err := chat(t, p, model, "hello", streamed)
		if providers.KindOf(err) != kind || err == nil && resp.Content != longAnswer {
			t.Errorf("one failure with %d: %+v, %v", status, resp, err)
		}
	}
	for fault, kinds := range map[string][]providers.ErrorKind{
		"dropRate":       {providers.KindOverloaded},
		"malformedRate":  {providers.KindUnreachable},
		"rateLimitRate":  {providers.KindRateLimit},
		"disconnectRate": {providers.KindUnreachable},
	} {
		m.control(t, http.MethodPost, "chaos", match{fault: 1})
		_, told, _, err := chat(t, p, model, "hello", streamed)
		if !slices.Contains(kinds, providers.KindOf(err)) || told != "" {
			t.Errorf("%s: %v, told %q, want one of %v", fault, err, told, kinds)
		}
		m.control(t, http.MethodDelete, "chaos", nil)
	}
	begun := time.Now()
	resp, told, _, err := chat(t, p, model, "break off", streamed)
	if streamed && (resp != nil || err == nil || told == "" || !strings.HasPrefix(longAnswer, told)) {
		t.Errorf("an answer that broke off after %s: %+v, %v, told %q", time.Since(begun), resp, err, told)
	}
}
