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

// memoryLimit is where the heap is collected more often instead. Of thousands of
// conversations that go on at once after a start the stacks alone are so large
// that it would grow to three times as much. With the ledger in memory there is
// no such limit, since what is alive may exceed it.
const memoryLimit = 384 << 20

// setCollector is called once, when the configuration is known.
func setCollector(driver string) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && driver != "memory" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := program{
		in: os.Stdin, out: os.Stdout, errOut: os.Stderr,
		env: os.Getenv, signals: signals, exit: os.Exit,
		newApp: func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
			setCollector(cfg.Store.Driver)
			return newApp(cfg, log, opts)
		},
	}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}
