// Dragoman stands between chat platforms and language models: it carries
// messages to a tool-using model and the answers back to the conversation that
// asked. README.md tells how to run it.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

func main() {
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
