package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is the program under test, running on its own so that what it costs
// can be told from what the rig costs.
type process struct {
	cmd     *exec.Cmd
	log     *os.File
	started time.Time
	ended   chan struct{}
	err     error // why it ended, after ended is closed
}

// stopGrace is how long the program may take to stop.
const stopGrace = 30 * time.Second

// startProcess runs a program whose log is added to a file. env is what its
// environment has beside this one's.
func startProcess(ctx context.Context, logFile string, env []string, name string, args ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the log: %w", err)
	}
	p := &process{log: log, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, name, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = filepath.Dir(logFile)
	p.cmd.Env = append(os.Environ(), env...)
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// stop ends the program the way an operator does and reports if it did not end
// well.
func (p *process) stop() error {
	defer func() { _ = p.log.Close() }() // nothing is written to it any more
	select {
	case <-p.ended:
		return fmt.Errorf("the program ended by itself (%w); its log: %s", p.err, p.tail())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the program: %w", err)
	}
	select {
	case <-p.ended:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill() // it has ended meanwhile, or it ends now
		<-p.ended
		return fmt.Errorf("the program had not stopped after %s", stopGrace)
	}
	if p.err != nil {
		return fmt.Errorf("the program stopped with %w; its log: %s", p.err, p.tail())
	}
	return nil
}

// kill ends the program the way a power cut does and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // if it has ended already, all the better
	<-p.ended
	_ = p.log.Close()
}

// killed reports whether the program was ended by SIGKILL.
func (p *process) killed() bool {
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// tail returns the end of the log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// clockTick is the unit of /proc/PID/stat, the same on every Linux.
const clockTick = 10 * time.Millisecond

// cpu returns the processor time the program has used.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	// The second field, the name in parentheses, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, fmt.Errorf("read the processor time: %q", text)
	}
	user, err1 := strconv.Atoi(fields[utime])
	system, err2 := strconv.Atoi(fields[stime])
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

func (p *process) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), file)
}

// memory is what /proc/PID/status says, in MB of 1024 KB.
type memory struct {
	RSS     float64 `json:"rss_mb"`      // VmRSS: all resident memory
	Anon    float64 `json:"rss_anon_mb"` // RssAnon: without the pages of the binary
	Peak    float64 `json:"rss_peak_mb"` // VmHWM
	Threads int     `json:"threads"`
}

func (p *process) memory() (m memory, err error) {
	text, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return m, fmt.Errorf("read the memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		n, _ := strconv.Atoi(fields[0]) // other lines are no numbers and are not looked at
		switch name {
		case "VmRSS":
			m.RSS = float64(n) / 1024
		case "RssAnon":
			m.Anon = float64(n) / 1024
		case "VmHWM":
			m.Peak = float64(n) / 1024
		case "Threads":
			m.Threads = n
		}
	}
	return m, nil
}

// build compiles the daemon as it is shipped, or with a tag.
func build(ctx context.Context, dir, tag string) (string, error) {
	path := filepath.Join(dir, "dragoman"+tag)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", tag, "-ldflags", "-s -w", "-o", path,
		"github.com/dragoman-chat/dragoman/cmd/dragoman")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the daemon: %w: %s", err, out)
	}
	return path, nil
}
