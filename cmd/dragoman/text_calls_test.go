package main

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/metrics"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// A model with tool_calls: text is offered no tools and calls them in its text;
// any other's text is text.
func TestToolCallsInText(t *testing.T) {
	const text = `<tool>{"server_name":"local","tool_name":"remind","arguments":{"in":"5s"}}</tool>`
	for how, calls := range map[string]int{config.ToolCallsText: 1, config.ToolCallsNative: 0} {
		t.Run(how, func(t *testing.T) {
			offered := make(chan int, 1)
			fake := providerstest.NewServer(providerstest.ServerConfig{Reply: func(r providerstest.Request) providerstest.Response {
				offered <- len(r.Tools)
				return providerstest.Text(text)
			}})
			defer fake.Close()
			server := httptest.NewServer(fake)
			defer server.Close()
			cfg, err := config.Load(file(t, fmt.Sprintf("data_dir: %q\nmodels: {main: {provider: openai, base_url: %q, model: fake, tool_calls: %s}}\n", t.TempDir(), server.URL+"/v1", how)), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler), metrics: metrics.New("")}
			model, err := a.model()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range a.closers {
				defer c()
			}
			tool := providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{Name: "remind", Description: "Remind.", Parameters: map[string]any{"type": "object"}}}
			resp, err := model.Chat(t.Context(), []providers.Message{{Role: providers.RoleUser, Content: "hi"}}, []providers.ToolDefinition{tool}, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := <-offered; n != 1-calls || len(resp.ToolCalls) != calls {
				t.Errorf("%d tools were offered, and the reply is %+v", n, resp)
			}
		})
	}
}
