package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/spf13/cobra"
)

func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Look at the configuration", SuggestionsMinimumDistance: 2}
	group(cmd)
	var path string
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration and show what would run",
		Long: `Check the configuration and show what would run, without secrets. Nothing is
started and nothing is connected to. The exit code is 0, or 78 if there is a
mistake.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				if path != "" {
					return &usageError{fmt.Errorf("name the file once: %q or --config %q", args[0], path)}
				}
				path = args[0]
			}
			return p.configCheck(path)
		},
	}
	configFlag(check, &path)
	cmd.AddCommand(check)
	return cmd
}

func (p *program) configCheck(path string) error {
	cfg, err := p.load(path)
	if err != nil {
		return err
	}
	// Wiring the app decodes every adapter's section; it is not run.
	if _, err := p.newApp(cfg, slog.New(slog.DiscardHandler), appOptions{In: p.in, Out: p.out, Version: version(), Check: true}); err != nil {
		return err
	}
	return summary(p.out, cfg)
}

// summary prints what would run.
func summary(w io.Writer, cfg *config.Config) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(tab, name+"\t"+format+"\n", args...) }
	row("configuration", "%s", source(cfg))
	row("data folder", "%s", cfg.DataDir)
	row("time zone", "%s", cfg.Timezone)
	row("owners", "%s", owners(cfg))
	row("asks", "%s", cfg.Agent.Model)
	for _, name := range slices.Sorted(maps.Keys(cfg.Models)) {
		row("model "+name, "%s", describe(cfg.Models[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Channels)) {
		row("channel "+name, "%s", cfg.Channels[name].Type())
	}
	row("store", "%s (%s)", cfg.Store.Driver, cfg.Store.Durability)
	row("workspace", "%s", cfg.Tools.Workspace)
	row("log", "%s as %s", cfg.Log.Level, cfg.Log.Format)
	row("health endpoint", "%s", cmp.Or(cfg.Health.Listen, "off"))
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("config check: %w", err)
	}
	return nil
}

func owners(cfg *config.Config) string {
	if len(cfg.Owners) == 0 {
		return "nobody yet: the first start prints a code that claims the bot"
	}
	out := make([]string, len(cfg.Owners))
	for i, o := range cfg.Owners {
		out[i] = o
		if channel, _, _ := strings.Cut(o, ":"); !slices.Contains(slices.Collect(maps.Keys(cfg.Channels)), channel) {
			out[i] += " (there is no channel of that name)"
		}
	}
	return strings.Join(out, ", ")
}

// describe says what a model is, without its key.
func describe(m config.Model) string {
	out := m.Provider
	if m.Model != "" {
		out += " " + m.Model
	}
	if u, err := url.Parse(m.BaseURL); err == nil && m.BaseURL != "" {
		u.User, u.RawQuery = nil, "" // some services take their key there
		out += " at " + u.String()
	}
	if len(m.Fallback) > 0 {
		out += ", then " + strings.Join(m.Fallback, ", ")
	}
	return out
}
