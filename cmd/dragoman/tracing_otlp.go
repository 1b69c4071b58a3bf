//go:build otlp

package main

import (
	"log/slog"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/tracing"
)

// newTracer makes traces as the configuration asks for.
func newTracer(cfg *config.Config, opts appOptions, log *slog.Logger) (tracer, error) {
	t := cfg.Telemetry
	if t.OTLPEndpoint == "" {
		return nil, nil
	}
	made, err := tracing.New(tracing.Options{
		Endpoint: t.OTLPEndpoint, Sample: t.Sample, Content: t.Content, Version: opts.Version, Hide: opts.Hide, Log: log,
	})
	if err != nil {
		return nil, cfg.Errorf("telemetry.otlp_endpoint", "%v", err)
	}
	return made, nil
}
