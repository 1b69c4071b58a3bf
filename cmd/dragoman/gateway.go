package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/spf13/cobra"
)

func (p *program) gatewayCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run the daemon",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.gateway(cmd.Context(), path)
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func (p *program) gateway(ctx context.Context, path string) error {
	cfg, err := p.load(path)
	if err != nil {
		return err
	}
	log := logger.New(p.redact, cfg.Log.Level, cfg.Log.Format)
	// What is built in takes its logger by hand; this one is for tools that
	// use the component form.
	slog.SetDefault(log)
	a, err := p.newApp(cfg, log, appOptions{Version: version(), Hide: p.redact.Hide})
	if err != nil {
		return err
	}
	start := time.Now()
	log.LogAttrs(ctx, slog.LevelInfo, "starting",
		slog.String("version", version()), slog.String("config", source(cfg)), slog.String("model", describe(cfg.Models[cfg.Agent.Model])))
	if err := a.Run(ctx); err != nil {
		return err
	}
	log.LogAttrs(ctx, slog.LevelInfo, "stopped", slog.Duration("duration", time.Since(start)))
	return nil
}

// source says where a configuration comes from.
func source(cfg *config.Config) string {
	if cfg.Path() == "" {
		return "environment and defaults"
	}
	return cfg.Path()
}
