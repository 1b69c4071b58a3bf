package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox"
)

// trialTime is how long it may take to find out whether there is a sandbox.
const trialTime = 30 * time.Second

// addExec registers exec if the configuration names somebody for it and the
// machine has a sandbox that holds. Without one there is no exec, and the log
// says why: everything else the bot can do needs none.
func (a *app) addExec() error {
	cfg := a.cfg.Tools.Exec
	if err := sandbox.CheckCommands(cfg.Commands); err != nil {
		return a.cfg.Errorf("tools.exec.commands", "%v", err)
	}
	if len(cfg.Allow) == 0 {
		return nil
	}
	if a.opts.Check { // it will not be run, so what is offered is enough
		return a.register(sandbox.NewExecOffer(cfg.Timeout, cfg.Commands))
	}
	tool, wall, err := a.exec(cfg)
	if err != nil {
		a.log.Error("exec is configured but stays off, and no command will be run", "err", err)
		return nil
	}
	if err := a.register(tool); err != nil {
		return err
	}
	a.log.Info("commands are run in a sandbox", "sandbox", wall.Name(), "network", cfg.Network, "allowed", len(cfg.Allow))
	return nil
}

// register adds exec to the tools.
func (a *app) register(exec *sandbox.Tool) error {
	if err := a.tools.RegisterTool(exec); err != nil {
		return fmt.Errorf("register a tool: %w", err)
	}
	a.withoutExec = a.tools.View(func(name string) bool { return name != exec.Name() })
	return nil
}

// exec builds the tool and the wall behind which it works.
func (a *app) exec(cfg config.Exec) (*sandbox.Tool, *sandbox.Wall, error) {
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	if err := os.MkdirAll(a.cfg.DataDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("exec: %w", err)
	}
	find := a.opts.FindWall
	if find == nil {
		find = sandbox.Find
	}
	wall, err := find(ctx, sandbox.Options{
		Limits:  sandbox.Limits{Time: cfg.Timeout, Memory: int64(cfg.MemoryMB) << 20, Processes: cfg.Processes, FileSize: int64(cfg.FileMB) << 20},
		Network: cfg.Network, Dir: a.cfg.DataDir, Hidden: a.cfg.Path(), Log: a.log,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("exec: %w", err)
	}
	tool, err := sandbox.NewExecTool(wall, a.workspace, a.mayExec, cfg.Commands, a.log)
	if err != nil {
		return nil, nil, fmt.Errorf("exec: %w", err)
	}
	return tool, wall, nil
}

// mayExec says whether commands are run for somebody.
func (a *app) mayExec(principal string) bool {
	allow := a.cfg.Tools.Exec.Allow
	if principal == config.Owner { // a word of the configuration, nobody's name
		return false
	}
	return slices.Contains(allow, principal) || slices.Contains(allow, config.Owner) && a.gateway.IsOwner(principal)
}

// toolsFor is what a principal is offered: exec is not shown to those for whom
// it would refuse.
func (a *app) toolsFor(principal string) *tools.ToolRegistry {
	if a.withoutExec == nil || a.mayExec(principal) {
		return a.tools
	}
	return a.withoutExec
}
