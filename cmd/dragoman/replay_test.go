package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

// A turn in which exec was offered can be run again, and so can one of somebody
// for whom there was none, or while no wall held. It takes no sandbox. With
// another configuration the tools differ, and replay says so.
func TestExecIsOfferedAgainInAReplay(t *testing.T) {
	const same = "2 of 2 requests are alike"
	const differ = "request 1: it differs from the one that was sent: the tools differ\n"
	config := func(c *scene, exec string) string {
		return file(t, fmt.Sprintf("data_dir: %s\nstore: {driver: sqlite}\ntimezone: UTC\nchannels: {telegram: {type: telegram, token: \"1:a\"}}\ntools: {exec: {%s}}\n", c.dir, exec))
	}
	wall := aWall(t)
	for _, tc := range []struct {
		then, now string
		walled    bool
		claimed   string
		want      string
	}{
		{then: `allow: ["telegram:5"]`, walled: true, want: same},
		{then: `allow: ["telegram:5"], timeout: 7s, commands: [ls, cat]`, walled: true, want: same},
		{then: `allow: ["telegram:5"]`, want: same},
		{then: `allow: ["telegram:6"]`, walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], commands: [no-such-program]`, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5", owner]`, claimed: "telegram:5", walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: [owner]`, claimed: "telegram:5", walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: [owner]`, claimed: "telegram:6", walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:6"]`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: []`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], timeout: 7s`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], commands: [ls]`, walled: true, want: differ},
		{then: `allow: ["telegram:5"], commands: [ls, cat]`, now: `allow: ["telegram:5"], commands: [ls]`, walled: true, want: differ},
	} {
		t.Run(fmt.Sprint(tc.then, " ", tc.now, " ", tc.walled, " ", tc.claimed), func(t *testing.T) {
			c := newScene(t, "")
			if c.wall = noWall; tc.walled {
				c.wall = wall
			}
			c.file = config(c, tc.then)
			c.live("1", "one")
			if tc.claimed != "" {
				c.put(store.Tx{Facts: []store.Fact{{Key: "gateway/owner", Value: tc.claimed}}})
			}
			if tc.now != "" {
				c.file = config(c, tc.now)
			}
			code, text := c.run("replay", "turn-1")
			if (code == 0) != (tc.want == same) || !strings.Contains(text, tc.want) {
				t.Errorf("%d, %swant %s", code, text, tc.want)
			}
		})
	}
}

// stubborn is a model that calls tools in its text, one that does not exist for
// as long as it is offered any.
type stubborn struct {
	lister
	text providers.LLMProvider
}

// written is the text of a model, whatever it is asked.
type written string

func (w written) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]any) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Content: string(w), FinishReason: providers.FinishStop}, nil
}

func (m *stubborn) Chat(ctx context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]any) (*providers.LLMResponse, error) {
	if len(defs) == 0 {
		return m.lister.Chat(ctx, messages, defs, model, options)
	}
	m.asked = append(m.asked, providers.Fingerprint(messages, providers.ToolsDigest(defs), model, options))
	return m.text.Chat(ctx, messages, defs, model, options)
}

// A turn that ended because the model wrote the same call in vain is run again
// to its end.
func TestReplayOfATurnInCircles(t *testing.T) {
	for name, text := range map[string]string{
		"unreadable": "<tool>{no}</tool>",
		"unknown":    `<tool>{"tool_name":"sub","arguments":{"a":1}}</tool>`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newScene(t, "models: {main: {provider: openai, base_url: \"http://127.0.0.1:1/v1\", model: m, tool_calls: text}}\n")
			c.liveSince("1", "one", time.Now(), &stubborn{text: textcall.Wrap(written(text))})
			code, out := c.run("replay", "turn-1")
			if want := "turn turn-1 would send the same again: 5 of 5 requests are alike, byte for byte\n"; code != 0 || out != want {
				t.Errorf("%d, %swant %s", code, out, want)
			}
		})
	}
}

// Whoever names only the data directory is told what else a replay goes by.
func TestReplayWithoutAConfigurationSaysSo(t *testing.T) {
	c := newScene(t, "agent: {system_prompt: Be brief.}\n")
	c.live("1", "one")
	s := newShell(t, nil, "DRAGOMAN_DATA_DIR", c.dir)
	code := s.run(t.Context(), []string{"replay", "turn-1"})
	if got := s.errOut.String(); code != exitFailure || !strings.Contains(got, "message 1 of ") || !strings.Contains(got, "no configuration file was read") || !strings.Contains(got, "--config") {
		t.Errorf("%d, %s", code, got)
	}
	c.file = file(t, fmt.Sprintf("data_dir: %s\nagent: {system_prompt: Be long.}\n", c.dir))
	if _, got := c.run("replay", "turn-1"); !strings.Contains(got, "message 1 of ") || strings.Contains(got, "--config") {
		t.Error(got)
	}
}
