package main

import (
	"context"
	"log/slog"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/console"
	"github.com/dragoman-chat/dragoman/channels/discord"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	"github.com/dragoman-chat/dragoman/channels/webchat"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/offline"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

// What the program is built with: one line for each channel, provider, store
// and tool. To add one, write its package and its line here.

var channelTypes = map[string]func(a *app, s config.Section, facts *state.State) (channels.Channel, error){
	"telegram": func(a *app, s config.Section, facts *state.State) (channels.Channel, error) {
		cfg := telegram.DefaultConfig()
		err := s.Decode(&cfg)
		return telegram.New(s.Name(), cfg, facts, a.log), err
	},
	"discord": func(a *app, s config.Section, facts *state.State) (channels.Channel, error) {
		cfg := discord.DefaultConfig()
		err := s.Decode(&cfg)
		return discord.New(s.Name(), cfg, facts, a.log), err
	},
	"webchat": func(a *app, s config.Section, facts *state.State) (channels.Channel, error) {
		cfg := webchat.DefaultConfig()
		err := s.Decode(&cfg)
		return webchat.New(s.Name(), cfg, facts, a.log, webchat.WithHistory(a.webHistory),
			webchat.WithHandler("GET /healthz", a.healthz()), webchat.WithHandler("GET /readyz", a.readyz())), err
	},
	"console": func(a *app, s config.Section, _ *state.State) (channels.Channel, error) {
		return console.New(s.Name(), a.opts.In, a.opts.Out, a.log), s.Decode(&struct{}{})
	},
}

var providerTypes = map[string]func(m config.Model, log *slog.Logger) (providers.LLMProvider, error){
	"openai": func(m config.Model, log *slog.Logger) (providers.LLMProvider, error) {
		return openai.New(openai.Config{BaseURL: m.BaseURL, APIKey: m.APIKey, AttemptTimeout: m.Timeout, Logger: log})
	},
	"offline": func(config.Model, *slog.Logger) (providers.LLMProvider, error) { return offline.New(), nil },
}

var storeTypes = map[string]func(cfg *config.Config, log *slog.Logger) (store.Store, error){
	"sqlite": func(cfg *config.Config, log *slog.Logger) (store.Store, error) {
		return sqlite.Open(cfg.DataDir, sqlite.Options{Durability: sqlite.Durability(cfg.Store.Durability), Log: log})
	},
	"memory": func(*config.Config, *slog.Logger) (store.Store, error) { return mem.New(), nil },
}

var toolTypes = []func(a *app) tools.Tool{
	func(a *app) tools.Tool {
		return builtin.NewMessageTool(builtin.WithOutbox(a.gateway), builtin.WithReach(a.mayReach))
	},
	func(a *app) tools.Tool {
		return builtin.NewSpawnTool(func(ctx context.Context, call tools.Call, task string) *tools.ToolResult {
			return a.agent.RunTask(ctx, call, task)
		})
	},
	func(a *app) tools.Tool { return builtin.NewRemindTool(a.gateway, a.zone, nil) },
	func(a *app) tools.Tool { return builtin.NewReadFileTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewWriteFileTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewListDirTool(a.workspace) },
}
