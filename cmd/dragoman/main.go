// Dragoman stands between chat platforms and language models: it carries
// messages to a tool-using model and the answers back to the conversation that
// asked. README.md tells how to run it.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

// gcPercent lets the heap grow to three times what is alive before it is
// collected. At rest 3 MB are alive, so that costs little; under load the
// collector was a quarter of the work. GOGC and GOMEMLIMIT go before it.
const gcPercent = 200

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := program{
		in: os.Stdin, out: os.Stdout, errOut: os.Stderr,
		env: os.Getenv, signals: signals, exit: os.Exit,
		newApp: func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
			return newApp(cfg, log, opts)
		},
	}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}
