package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/webchat"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/dragoman-chat/dragoman/pkg/metrics"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

// app is the whole daemon. This file is the only place where its parts are put
// together.
type app struct {
	cfg     *config.Config
	log     *slog.Logger
	opts    appOptions
	store   store.Store
	tools   *tools.ToolRegistry
	metrics *metrics.Metrics
	tracer  tracer // nil: no traces are made
	agent   *agent.Agent
	gateway *gateway.Gateway
	list    []channels.Channel
	probes  []prober          // of the model in use and of those that stand in for it
	closers []func()          // what the models leave open
	bots    map[string]string // which channel has a token

	withoutExec *tools.ToolRegistry // for whom commands are not run; nil: there is no exec
}

// Background work: how much of it may run for one chat, and in all.
const (
	tasksPerChat = 4
	tasksInAll   = 64
)

// redacting returns what takes the configuration's secrets, and what looks like a
// key of anybody, out of what tools say.
func redacting(hide func(string) string) func(string) string {
	return func(text string) string {
		if hide != nil {
			text = hide(text)
		}
		return logger.HideTokens(text)
	}
}

// newApp wires an app. It opens the ledger, unless opts.Check, and nothing else.
func newApp(cfg *config.Config, log *slog.Logger, opts appOptions) (a *app, err error) {
	if err := cfg.Check(known(opts)); err != nil {
		return nil, err
	}
	a = &app{
		cfg: cfg, log: log, opts: opts, metrics: metrics.New(opts.Version),
		tools: tools.NewToolRegistryWith(tools.Options{
			Logger: log, InstallAtRegister: true, ToolTimeout: cfg.Tools.Timeout, Redact: redacting(opts.Hide),
		}),
	}
	if a.tracer, err = newTracer(cfg, opts, log); err != nil {
		return nil, err
	}
	driver := cfg.Store.Driver
	if opts.Check {
		driver = "memory"
	}
	if a.store, err = storeTypes[driver](cfg, log); err != nil {
		return nil, err
	}
	defer func(opened store.Store) {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}(a.store)
	model, err := a.model()
	if err != nil {
		return nil, err
	}
	governor := agent.ForWindow(a.window())
	turns := agent.Config{
		Governor: governor, Compactor: compactor(cfg, model, governor, log),
		Provider: model, Model: cfg.Agent.Model, Tools: a.tools, ToolsFor: a.toolsFor, History: a.store, Zone: a.zone, Log: log,
		SystemPrompt: cfg.Agent.SystemPrompt, MaxIterations: cfg.Agent.MaxIterations, HistoryMessages: cfg.Agent.HistoryMessages,
	}
	a.tools.Use(a.metrics.Tool)
	if a.tracer != nil {
		turns.Around = a.tracer.Agent
		a.tools.Use(a.tracer.Tool)
	}
	a.agent = agent.New(turns)
	if a.list, err = a.channels(); err != nil {
		return nil, err
	}
	a.gateway = gateway.New(gateway.Config{
		Channels: a.list, Store: a.store, Agent: a.agent, Tools: a.tools, Log: log,
		Owners: cfg.Owners, Announce: a.announce(), Grace: cfg.ShutdownGrace,
		MaxParallelTurns: cfg.Agent.MaxParallelTurns, TurnTimeout: cfg.Agent.TurnTimeout, TurnsPerMinute: cfg.Agent.TurnsPerMinute,
		OnTurn: a.metrics.Turn, OnSend: a.metrics.Send,
	})
	a.metrics.Watch(a.gateway, a.tools)
	a.tools.LimitAsync(tasksPerChat, tasksInAll)
	for _, make := range toolTypes {
		if err = a.tools.RegisterTool(make(a)); err != nil {
			return nil, fmt.Errorf("register a tool: %w", err)
		}
	}
	if err = a.addExec(); err != nil {
		return nil, err
	}
	return a, nil
}

// model builds the chain of models that answers: the agent's and its fallbacks.
func (a *app) model() (providers.LLMProvider, error) {
	names := append([]string{a.cfg.Agent.Model}, a.cfg.Models[a.cfg.Agent.Model].Fallback...)
	chain := make([]providers.Model, 0, len(names))
	for _, name := range names {
		m := a.cfg.Models[name]
		p, err := a.withKeys(name, m)
		if err != nil {
			return nil, err
		}
		check, _ := p.(providers.Checker)
		a.probes = append(a.probes, prober{name, check})
		if a.tracer != nil {
			p = a.tracer.Model(m.Provider, m.Address(), p)
		}
		p = a.metrics.Model(name, p)
		if m.ToolCalls == config.ToolCallsText {
			p = textcall.Wrap(p)
		}
		chain = append(chain, providers.Model{Name: name, Provider: providers.Limit(p, m.MaxConcurrent), Model: m.Model, Options: m.Options})
	}
	return providers.Chain(a.log, chain...), nil
}

// withKeys makes the provider of a model, once for each of its keys.
func (a *app) withKeys(name string, m config.Model) (providers.LLMProvider, error) {
	var list []providers.LLMProvider
	for _, m.APIKey = range m.Keys() {
		p, err := providerTypes[m.Provider](m, a.log)
		if err != nil {
			return nil, a.cfg.Errorf("models."+name, "%v", err)
		}
		if c, ok := p.(interface{ Close() }); ok {
			a.closers = append(a.closers, c.Close)
		}
		list = append(list, p)
	}
	return providers.Keys(a.log, name, list...), nil
}

// window is how many tokens the smallest model of the chain reads and writes.
func (a *app) window() int {
	main := a.cfg.Models[a.cfg.Agent.Model]
	window := main.ContextTokens
	for _, name := range main.Fallback {
		window = min(window, a.cfg.Models[name].ContextTokens)
	}
	return window
}

// compactor summarises a conversation when it takes three quarters of what the
// model reads, or of the messages a turn loads; a third is kept. Where a turn
// loads only a few messages on purpose, their number is no reason.
func compactor(cfg *config.Config, model providers.LLMProvider, g agent.Governor, log *slog.Logger) *agent.Compactor {
	const few = 50
	c := &agent.Compactor{Provider: model, Model: cfg.Agent.Model, Trigger: g.MaxTokens / 4 * 3, Target: g.MaxTokens / 3, Input: g.MaxTokens, Log: log}
	if n := cfg.Agent.HistoryMessages; n >= few {
		c.Entries = n / 4 * 3
	}
	return c
}

// channels builds the configured channels, in the order of their names. All
// mistakes in their sections are reported together.
func (a *app) channels() ([]channels.Channel, error) {
	var list []channels.Channel
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Channels)) {
		s := a.cfg.Channels[name]
		c, err := channelTypes[s.Type()].make(a, s, state.New(a.store, "channel/"+name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, c)
	}
	return list, errors.Join(errs...)
}

// announce tells the operator the code that makes somebody the owner. Nobody
// has to claim a bot that only the person at the terminal can reach.
func (a *app) announce() func(string) {
	if !slices.ContainsFunc(a.list, func(c channels.Channel) bool { _, own := c.(channels.OwnerChannel); return !own }) {
		return nil
	}
	return func(code string) {
		a.log.Warn("nobody owns this bot yet; to become its owner, send it in a private chat: /start " + code) //nolint:sloglint // the line is meant to be copied
	}
}

// Run implements runner.
func (a *app) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var beside sync.WaitGroup
	if a.cfg.Health.Listen != "" {
		stop, err := a.serveHealth(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	beside.Go(func() {
		if err := a.probeModels(ctx); err != nil {
			cancel(err)
		}
	})
	beside.Go(func() { a.giveBack(ctx) })
	var end time.Time // of the grace; read when beside is done
	beside.Go(func() {
		<-ctx.Done()
		end = time.Now().Add(a.cfg.ShutdownGrace)
	})
	if a.tracer != nil {
		a.tracer.Start()
	}
	err := a.gateway.Run(ctx)
	cause := context.Cause(ctx) // before it is our own
	cancel(nil)
	beside.Wait()
	a.stopTracing(context.WithoutCancel(ctx), end)
	for _, c := range a.closers {
		c()
	}
	if cause != nil && !errors.Is(cause, context.Canceled) && providers.KindOf(cause) != "" {
		err = errors.Join(err, cause)
	}
	return err
}

// zone is the time zone of a conversation: its own, or the configured one.
func (a *app) zone(ctx context.Context, at bus.Address) *time.Location {
	return a.gateway.Zone(ctx, at, a.cfg.Location())
}

// workspace is the folder in which the file tools of a call work.
func (a *app) workspace(call tools.Call) (string, error) {
	root := filepath.Join(a.cfg.DataDir, "workspaces")
	if a.cfg.Tools.Workspace == config.WorkspaceShared {
		return filepath.Join(root, "shared"), nil
	}
	if call.Channel == "" || call.ChatID == "" {
		return "", errors.New("the call belongs to no conversation")
	}
	return filepath.Join(root, "chats", folder(call.Channel), folder(call.ChatID)), nil
}

// folder makes one path element of a name, distinct for distinct names.
func folder(name string) string {
	name = url.QueryEscape(name)
	if len(name) > 100 {
		return name[:60] + "-" + bus.Key(name)
	}
	if name == "." || name == ".." {
		return "dot-" + bus.Key(name)
	}
	return name
}

// mayReach says whether a call may write to a conversation other than its own:
// only for an owner.
func (a *app) mayReach(_ context.Context, call tools.Call, target bus.Address) error {
	if target == (bus.Address{Channel: call.Channel, ChatID: call.ChatID}) {
		return nil
	}
	if !slices.Contains(a.gateway.Known(), target.Channel) {
		return fmt.Errorf("there is no channel %q; there are %q", target.Channel, a.gateway.Known())
	}
	if !a.gateway.IsOwner(call.Principal) {
		return errors.New("only an owner of the bot may have it write into another conversation")
	}
	return nil
}

// webHistory is what the web chat shows of a conversation's past, and what
// waits there for its answer.
func (a *app) webHistory(ctx context.Context, at bus.Address, limit int) ([]webchat.Line, error) {
	// Open turns first: one that ends meanwhile is in the history then.
	taken, rows, err := a.open(ctx, at, limit)
	if err != nil {
		return nil, fmt.Errorf("web chat: %w", err)
	}
	entries, err := a.store.History(ctx, at.String(), limit)
	if err != nil {
		return nil, fmt.Errorf("web chat: %w", err)
	}
	lines := make([]webchat.Line, 0, len(entries)+len(rows))
	for _, e := range entries {
		for _, seq := range taken[e.Turn] {
			rows = slices.DeleteFunc(rows, func(r store.Inbound) bool { return r.Seq == seq })
		}
		if e.Message.Content == "" || len(e.Message.ToolCalls) > 0 || gateway.SaidByNobody(e) {
			continue
		}
		lines = append(lines, webchat.Line{Role: e.Message.Role, Text: e.Message.Content, Time: e.Time})
	}
	for _, r := range rows {
		if m := r.Message; m.Kind == bus.KindMessage && m.Text != "" {
			lines = append(lines, webchat.Line{Role: providers.RoleUser, Text: m.Text, Time: m.Time, Waiting: m.MessageID})
		}
	}
	return lines, nil
}

// open returns the messages of a conversation that are not answered yet, those
// of turns under way before those that wait, and which of them each turn took.
func (a *app) open(ctx context.Context, at bus.Address, limit int) (taken map[string][]int64, rows []store.Inbound, err error) {
	turns, err := a.store.OpenTurns(ctx)
	if err != nil {
		return nil, nil, err
	}
	taken = map[string][]int64{}
	for _, t := range turns {
		if t.Address != at {
			continue
		}
		taken[t.ID] = t.Inbound
		of, err := a.store.Inbound(ctx, t.Inbound)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, of...)
	}
	waiting, err := a.store.Waiting(ctx, at, 0, limit)
	return taken, append(rows, waiting...), err
}
