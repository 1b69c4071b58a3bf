package main

import (
	"context"
	"log/slog"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/spf13/cobra"
)

func (p *program) chatCommand() *cobra.Command {
	var path string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk to the bot in this terminal",
		Long: `Talk to the bot in this terminal, with the models and tools of the
configuration and none of its channels; nothing said here is kept. A line that
ends in a backslash goes on in the next. /help lists the commands, and /quit or
Ctrl-D ends it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.chat(cmd.Context(), path, verbose)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the whole log, not only errors")
	return cmd
}

func (p *program) chat(ctx context.Context, path string, verbose bool) error {
	cfg, err := config.LoadOnly("console", path, p.env)
	if err != nil {
		return err
	}
	cfg.OnSecret(p.redact.Add)
	level := "error" // the log shares the terminal with the conversation
	if verbose {
		level = cfg.Log.Level
	}
	log := logger.New(p.redact, level, cfg.Log.Format)
	slog.SetDefault(log)
	a, err := p.newApp(cfg, log, appOptions{In: p.in, Out: p.out, Version: version(), Hide: p.redact.Hide})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
