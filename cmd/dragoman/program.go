package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/logger"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
	"github.com/spf13/cobra"
)

// appOptions is what a subcommand adds to the configuration.
type appOptions struct {
	// In and Out are the terminal, for the console channel.
	In  io.Reader
	Out io.Writer
	// Version is what the program calls itself.
	Version string
	// Hide blots out the configuration's secrets; nil: nothing is hidden.
	Hide func(string) string
	// Check: the app will not run; it is only to say whether it could.
	Check bool
	// FindWall looks for a sandbox; nil: sandbox.Find.
	FindWall func(context.Context, sandbox.Options) (*sandbox.Wall, error)
}

// runner is the whole daemon, ready to run: *app.
type runner interface {
	// Run blocks until ctx has ended and everything is put away, or until
	// nothing is left to do, and returns nil then. Any other end is an error.
	Run(ctx context.Context) error
}

// program is the command line program with everything it touches, so that a
// test can run it.
type program struct {
	in          io.Reader
	out, errOut io.Writer
	env         func(string) string
	signals     <-chan os.Signal
	exit        func(code int) // ends the process at once
	// newApp wires an app and opens its ledger.
	newApp func(*config.Config, *slog.Logger, appOptions) (runner, error)

	redact  *logger.Redactor
	started bool // the command line was understood
}

// run executes a command line and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	p.redact = logger.NewRedactor(p.errOut)
	root := p.command() //nolint:contextcheck // cobra hands the context to each command
	root.SetArgs(args)
	ctx, stop := p.untilSignal(ctx)
	defer stop()
	err := root.ExecuteContext(ctx)
	if err != nil && !p.started {
		err = &usageError{err}
	}
	p.report(err)
	return exitCode(err)
}

// report tells the operator what went wrong, one line a problem.
func (p *program) report(err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.redact, "dragoman: %s\n", line)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintln(p.errOut, "dragoman: see \"dragoman --help\"")
	}
}

// command builds the command tree.
func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:                        "dragoman",
		SuggestionsMinimumDistance: 2,
		Short:                      "A chat bot gateway: chat platforms on one side, a tool-using model on the other",
		Long: `Dragoman carries messages from Telegram, Discord, a web page or the terminal to
a tool-using language model, and the answers back to the conversation that asked.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRun:  func(*cobra.Command, []string) { p.started = true },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	group(root)
	p.versionFlag(root)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.errOut)
	root.AddCommand(p.gatewayCommand(), p.chatCommand(), p.configCommand(), p.healthCommand(), p.versionCommand(),
		p.sessionsCommand(), p.whyCommand(), p.replayCommand(), p.backupCommand(), p.restoreCommand())
	return root
}

// group makes a command that only holds others: alone it shows its help, with a
// word nobody knows it is an error.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		err := fmt.Errorf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w: did you mean %q?", err, near[0])
		}
		return &usageError{err}
	}
}

// configFlag gives a command --config.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "",
		"configuration file (default: ./config.yaml, then dragoman/config.yaml in the user's configuration folder, then built-in defaults)")
}

// load reads the configuration, and hides its secrets in all that is written
// to standard error from then on.
func (p *program) load(path string) (*config.Config, error) {
	cfg, err := config.Load(path, p.env)
	if err != nil {
		return nil, err
	}
	cfg.OnSecret(p.redact.Add)
	return cfg, nil
}

// untilSignal returns a context that ends at the first signal. The second one
// ends the process, whatever it is doing. stop waits for the watcher.
func (p *program) untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for n := 1; ; n++ {
			select {
			case sig := <-p.signals:
				if n > 1 {
					p.exit(exitKilled)
					return
				}
				cancel(fmt.Errorf("signal: %s", sig))
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		close(quit)
		<-gone
		cancel(nil)
	}
}
