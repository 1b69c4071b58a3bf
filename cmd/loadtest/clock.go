package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A wall clock that jumps. Neither the machine's clock nor the program is
// touched: the daemon is built with a package time of its own, in which Now
// adds to the wall clock what an environment variable says. The monotonic clock
// and the timers go on, as they do when somebody sets the clock.

// clockEnv holds pairs such as "2s:8760h": from two seconds after the start on,
// the wall clock is a year ahead. Of those that apply the last one counts.
const clockEnv = "DRAGOMAN_CLOCK"

// What is put into package time.
const (
	nowCall  = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	leapCall = "\tsec, nsec, mono := runtimeNow()\n\tsec += leapt(mono - startNano)\n\tif mono == 0 {\n"

	leapFile = `package time

import "syscall"

type leap struct{ after, by Duration }

var leaps = readLeaps()

func readLeaps() (list []leap) {
	s, _ := syscall.Getenv("` + clockEnv + `")
	for begin, colon, i := 0, 0, 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ' ':
			if begin < i {
				after, err := ParseDuration(s[begin:colon])
				if err != nil {
					panic(err)
				}
				by, err := ParseDuration(s[colon+1 : i])
				if err != nil {
					panic(err)
				}
				list = append(list, leap{after, by})
			}
			begin = i + 1
		case s[i] == ':':
			colon = i
		}
	}
	return list
}

func leapt(age int64) int64 {
	by := Duration(0)
	for _, l := range leaps {
		if Duration(age) >= l.after {
			by = l.by
		}
	}
	return int64(by / Second)
}
`
)

// buildLeaping builds the daemon with fail points and a clock that jumps. The
// first time that takes minutes, since everything stands on package time.
func (l *loadtest) buildLeaping(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find Go: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", fmt.Errorf("read package time: %w", err)
	}
	changed := strings.Replace(string(source), nowCall, leapCall, 1)
	if changed == string(source) {
		return "", errors.New("package time reads the clock in another way than this program knows: change nowCall")
	}
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": changed, "leap.go": leapFile} {
		replace[filepath.Join(std, name)] = filepath.Join(l.dir, name)
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write package time: %w", err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	file, path := filepath.Join(l.dir, "overlay.json"), filepath.Join(l.dir, "dragomanclock")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", file, "-tags", "failpoint", "-ldflags", "-s -w", "-o", path,
		"github.com/dragoman-chat/dragoman/cmd/dragoman")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the daemon: %w: %s", err, out)
	}
	return path, nil
}

// clockJumps lets the wall clock jump while the daemon runs, and between two
// runs: a year ahead, a year back, and to where a board without a battery
// starts.
func (l *loadtest) clockJumps(ctx context.Context, c *crasher, s *subject) (*subject, error) {
	leaping, err := l.buildLeaping(ctx)
	if err != nil {
		return s, err
	}
	c.home.daemon = leaping
	plain := c.home.env
	defer func() { c.home.env = plain }()
	zero := fmt.Sprintf("-%ds", time.Now().Unix())
	for _, t := range []struct {
		clock string
		wait  time.Duration
	}{
		{"1s:8760h 3s:-8760h 5s:" + zero + " 7s:0s", 9 * time.Second},
		{"0s:" + zero + " 2s:0s", 4 * time.Second}, // set right after the start
		{"0s:8760h", 2 * time.Second},
		{"0s:-8760h", 2 * time.Second},
		{"0s:" + zero, 2 * time.Second},
		{"0s:0s", 2 * time.Second},
	} {
		c.home.env = append(slices.Clip(plain), clockEnv+"="+t.clock)
		if err := s.stop(); err != nil {
			return s, err
		}
		c.r.discord.ForgetSessions()
		if s, err = c.home.start(ctx); err != nil {
			return s, fmt.Errorf("with the clock %s: %w", t.clock, err)
		}
		if err := pause(ctx, s, t.wait); err != nil {
			return s, err
		}
	}
	return s, nil
}
