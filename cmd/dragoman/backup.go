package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/spf13/cobra"
)

func (p *program) backupCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Copy the ledger into a new file, also while the daemon runs", Args: cobra.ExactArgs(1),
		Long: `Copy the ledger into a new file, also while the daemon runs. The copy is the
ledger at one moment, whole, and readable by its owner only: it holds what people
have written. The files of the workspaces are not in it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "-" {
				return &usageError{errors.New("a backup goes to a file, not to standard output: name a new file")}
			}
			return p.look(path, func(l ledger) error {
				err := l.Backup(args[0])
				if errors.Is(err, fs.ErrExist) {
					return fmt.Errorf("%s is there already: name a new file", args[0])
				}
				if err == nil {
					fmt.Fprintf(p.out, "%s holds the ledger\n", args[0])
				}
				return err
			})
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func (p *program) restoreCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Put a backup in the place of the ledger; the daemon must not run", Args: cobra.ExactArgs(1),
		Long: `Check a backup and put a copy of it in the place of the ledger. The ledger that
was there is kept beside it under another name. What had been under way when the
backup was made is carried on at the next start, so an answer that was given
since may be given again.`,
		RunE: func(_ *cobra.Command, args []string) error { return p.restore(path, args[0]) },
	}
	configFlag(cmd, &path)
	return cmd
}

func (p *program) restore(path, file string) error {
	cfg, err := p.loadFile(path)
	if err != nil {
		return err
	}
	aside, u, err := sqlite.Restore(cfg.DataDir, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s is the ledger in %s now\n", file, cfg.DataDir)
	if aside != "" {
		fmt.Fprintf(p.out, "the one before is %s\n", aside)
	}
	if u != (sqlite.Unfinished{}) {
		fmt.Fprintf(p.out, "the next start carries on: messages without an answer %d (turns under way %d), texts not sent %d, reminders %d, background tasks %d\n",
			u.Messages, u.Turns, u.Unsent, u.Reminders, u.Tasks)
	}
	return nil
}
