//go:build !otlp

package main

import (
	"log/slog"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

// A program without traces refuses a configuration that asks for them, and says
// which one has them.
func TestTracesAreRefused(t *testing.T) {
	s := newShell(t, nil)
	s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
		return newApp(cfg, log, opts)
	}
	code := s.run(t.Context(), []string{"config", "check", file(t, "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\"}\n")})
	want := "dragoman: config.yaml:1: telemetry.otlp_endpoint: this program was built without traces: use the container image, or build it with -tags otlp\n"
	if code != exitConfig || s.errOut.String() != want {
		t.Errorf("exit code %d, and it says %q, want %q", code, s.errOut.String(), want)
	}
}
