package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/console"
	"github.com/dragoman-chat/dragoman/channels/discord"
	"github.com/dragoman-chat/dragoman/channels/telegram"
	"github.com/dragoman-chat/dragoman/channels/webchat"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
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

var channelTypes = map[string]channelType{
	"telegram": channel(telegram.DefaultConfig, func(a *app, name string, cfg telegram.Config, facts *state.State) (channels.Channel, error) {
		return telegram.New(name, cfg, facts, a.log), a.ownBot("telegram", name, cfg.Token)
	}),
	"discord": channel(discord.DefaultConfig, func(a *app, name string, cfg discord.Config, facts *state.State) (channels.Channel, error) {
		return discord.New(name, cfg, facts, a.log), a.ownBot("discord", name, cfg.Token)
	}),
	"webchat": channel(webchat.DefaultConfig, func(a *app, name string, cfg webchat.Config, facts *state.State) (channels.Channel, error) {
		return webchat.New(name, cfg, facts, a.log, webchat.WithHistory(a.webHistory),
			webchat.WithHandler("GET /healthz", a.healthz()), webchat.WithHandler("GET /readyz", a.readyz())), nil
	}),
	"console": channel(func() struct{} { return struct{}{} }, func(a *app, name string, _ struct{}, _ *state.State) (channels.Channel, error) {
		return console.New(name, a.opts.In, a.opts.Out, a.log), nil
	}),
}

var providerTypes = map[string]func(m config.Model, log *slog.Logger) (providers.LLMProvider, error){
	"openai": func(m config.Model, log *slog.Logger) (providers.LLMProvider, error) {
		return openai.New(openai.Config{BaseURL: m.BaseURL, APIKey: m.APIKey, Model: m.Model, AttemptTimeout: m.Timeout, Logger: log})
	},
	"anthropic": func(m config.Model, log *slog.Logger) (providers.LLMProvider, error) {
		return anthropic.New(anthropic.Config{BaseURL: m.BaseURL, APIKey: m.APIKey, Model: m.Model, AttemptTimeout: m.Timeout, Logger: log})
	},
	"offline": func(config.Model, *slog.Logger) (providers.LLMProvider, error) { return offline.New(), nil },
}

var storeTypes = map[string]func(cfg *config.Config, log *slog.Logger) (store.Store, error){
	"sqlite": func(cfg *config.Config, log *slog.Logger) (store.Store, error) {
		keep := cfg.Store.Retention
		return sqlite.Open(cfg.DataDir, sqlite.Options{
			Durability: sqlite.Durability(cfg.Store.Durability), Log: log,
			Retention: sqlite.Retention{Journal: orForEver(keep.Journal), Dedupe: orForEver(keep.Dedupe), History: keep.History},
		})
	},
	"memory": func(cfg *config.Config, _ *slog.Logger) (store.Store, error) {
		return mem.NewKeeping(cfg.Store.Retention.History), nil
	},
}

// orForEver makes a configured 0 what the ledger calls for ever.
func orForEver(keep time.Duration) time.Duration {
	if keep == 0 {
		return -1
	}
	return keep
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
	func(a *app) tools.Tool { return builtin.NewEditFileTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewAppendFileTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewListDirTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewSearchFilesTool(a.workspace) },
	func(a *app) tools.Tool { return builtin.NewReadResultTool(a.agent.ReadResult) },
}

// channelType is how a channel is configured and made.
type channelType struct {
	defaults func() any // a pointer to what its section is decoded into
	make     func(a *app, s config.Section, facts *state.State) (channels.Channel, error)
}

// channel is the type of the channels that build makes, configured by a C.
func channel[C any](defaults func() C, build func(a *app, name string, cfg C, facts *state.State) (channels.Channel, error)) channelType {
	return channelType{
		defaults: func() any { return new(defaults()) },
		make: func(a *app, s config.Section, facts *state.State) (channels.Channel, error) {
			cfg := defaults()
			if err := s.Decode(&cfg); err != nil {
				return nil, err
			}
			return build(a, s.Name(), cfg, facts)
		},
	}
}

// ownBot returns an error if a channel of the same kind has the token already:
// each would take what is meant for the other.
func (a *app) ownBot(kind, name string, token config.Secret) error {
	if a.bots == nil {
		a.bots = map[string]string{}
	}
	key := kind + " " + string(token)
	if other := a.bots[key]; other != "" {
		return a.cfg.Errorf("channels."+name+".token", "channels.%s has the same: each channel needs a bot of its own", other)
	}
	a.bots[key] = name
	return nil
}

// known is what a configuration may name. There is a console only where there
// is a terminal.
func known(opts appOptions) config.Names {
	names := config.Names{
		Channels:  slices.Sorted(maps.Keys(channelTypes)),
		Providers: slices.Sorted(maps.Keys(providerTypes)),
		Stores:    slices.Sorted(maps.Keys(storeTypes)),
	}
	if opts.In == nil {
		names.Channels = slices.DeleteFunc(names.Channels, func(name string) bool { return name == "console" })
		names.Refused = map[string]string{"console": `the console is what "dragoman chat" uses: remove it here`}
	}
	return names
}
