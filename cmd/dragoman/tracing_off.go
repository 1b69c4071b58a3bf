//go:build !otlp

package main

import (
	"log/slog"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

// newTracer refuses to make traces, which this program was built without.
func newTracer(cfg *config.Config, _ appOptions, _ *slog.Logger) (tracer, error) {
	if cfg.Telemetry.OTLPEndpoint == "" {
		return nil, nil //nolint:nilnil // no traces are asked for
	}
	return nil, cfg.Errorf("telemetry.otlp_endpoint", "this program was built without traces: use the container image, or build it with -tags otlp")
}
