package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
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
	if _, err := p.newApp(cfg, slog.New(slog.DiscardHandler), appOptions{Version: version(), Check: true}); err != nil {
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
	row("owners", "%s", cmp.Or(strings.Join(cfg.Owners, ", "), "nobody in the configuration: whoever has claimed the bot by its code is in the ledger"))
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

// describe says what a model is, without its key.
func describe(m config.Model) string {
	out := m.Provider
	if out == "offline" {
		out = "offline, a stand-in that is no language model"
	}
	if m.Model != "" {
		out += " " + m.Model
	}
	if at := m.Address(); at != "" {
		out += " at " + at
	}
	if len(m.Fallback) > 0 {
		out += ", then " + strings.Join(m.Fallback, ", ")
	}
	return out
}
