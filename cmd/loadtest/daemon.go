package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
)

// subject is the program under test while it runs against a rig.
type subject struct {
	*process
	rig     *rig
	toPoll  time.Duration // from start to the first poll
	toReady time.Duration // from start to ready; for the bare program the same as toPoll
}

// startWait is how long a program may take until it is ready.
const startWait = 30 * time.Second

// daemonConfig is what the daemon runs with: what people run it with, but
// without the limits that are there to be polite to people and platforms.
const daemonConfig = `data_dir: %[1]s
agent: {model: main, turns_per_minute: 0, history_messages: %[2]d}
models:
  main: {provider: openai, base_url: "%[3]s", api_key: "%[4]s", model: %[5]s, max_concurrent: 0}
channels:
  telegram:
    token: "%[6]s"
    api_base: "%[7]s"
    allow_users: ["*"]
    rate: {global_per_sec: 0, per_chat_per_sec: 0, per_group_per_min: 0}
%[8]sstore: %[9]s
health: {listen: "%[10]s"}
`

// home is a daemon's configuration and data, which outlive its processes.
type home struct {
	rig    *rig
	dir    string
	health string
	daemon string   // its binary
	env    []string // of every process
}

// newHome writes a configuration. withWeb adds the web chat; withDiscord adds
// Discord even without chats there.
func (l *loadtest) newHome(ctx context.Context, r *rig, withDiscord, withWeb bool) (*home, error) {
	dir, err := os.MkdirTemp(l.dir, "daemon-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	h := &home{rig: r, dir: dir, daemon: l.daemon}
	if h.health, err = freePort(ctx); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if l.data != "" {
		data = l.data
	}
	var more strings.Builder
	if withDiscord {
		fmt.Fprintf(&more, "  discord: {token: %q, api_base: %q, allow_users: [\"*\"], rate: {global_per_sec: 0, per_chat_per_sec: 0}}\n",
			discordtest.Token, r.discordURL)
	}
	if withWeb {
		more.WriteString("  webchat: {listen: \"127.0.0.1:0\"}\n")
	}
	config := fmt.Sprintf(daemonConfig, data, l.history, r.modelURL, modelKey, modelName,
		telegramtest.Token, r.telegramURL, more.String(), storeConfig(l.store, l.retention), h.health)
	if err := os.WriteFile(h.config(), []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return h, nil
}

// storeConfig is the store's section: memory, or sqlite with its durability, and
// a retention if there is one.
func storeConfig(name, retention string) string {
	section := "driver: memory"
	if name != storeMemory {
		section = "driver: sqlite, durability: " + name
	}
	if retention != "" {
		section += ", retention: " + retention
	}
	return "{" + section + "}"
}

func (h *home) config() string { return filepath.Join(h.dir, "config.yaml") }
func (h *home) log() string    { return filepath.Join(h.dir, "log") }
func (h *home) readyz() string { return "http://" + h.health + "/readyz" }

// launch starts a process and does not wait for anything.
func (h *home) launch(ctx context.Context, env ...string) (*subject, error) {
	select {
	case <-h.rig.firstPoll: // of an earlier process
	default:
	}
	p, err := startProcess(ctx, h.log(), append(slices.Clip(h.env), env...), h.daemon, "gateway", "--config", h.config())
	if err != nil {
		return nil, err
	}
	return &subject{process: p, rig: h.rig}, nil
}

// start launches a process and waits until it is ready.
func (h *home) start(ctx context.Context) (*subject, error) {
	s, err := h.launch(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx, h.readyz()); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// startDaemon runs the daemon in a folder of its own and waits until it is
// ready.
func (l *loadtest) startDaemon(ctx context.Context, r *rig, withDiscord, withWeb bool) (*subject, error) {
	h, err := l.newHome(ctx, r, withDiscord, withWeb)
	if err != nil {
		return nil, err
	}
	if err := l.fillPast(ctx, r, filepath.Join(h.dir, "data")); err != nil {
		return nil, err
	}
	return h.start(ctx)
}

// startBare runs the bare program and waits for its first poll.
func (l *loadtest) startBare(ctx context.Context, r *rig, template string, rounds int) (*subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own program: %w", err)
	}
	dir, err := os.MkdirTemp(l.dir, "bare-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	p, err := startProcess(ctx, filepath.Join(dir, "log"), nil, self, bareCommand,
		"-telegram", r.telegramURL, "-token", telegramtest.Token, "-model", r.modelURL,
		"-rounds", fmt.Sprint(rounds), "-history", fmt.Sprint(l.history), "-template", template)
	if err != nil {
		return nil, err
	}
	s := &subject{process: p, rig: r}
	if err := s.awaitPoll(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	s.toReady = s.toPoll
	return s, nil
}

func (s *subject) awaitPoll(ctx context.Context) error {
	select {
	case at := <-s.rig.firstPoll:
		s.toPoll = at.Sub(s.started)
		return nil
	case <-s.ended:
		return fmt.Errorf("the program ended before its first poll: %w; its log: %s", s.err, s.tail())
	case <-time.After(startWait):
		return fmt.Errorf("no poll after %s; the log: %s", startWait, s.tail())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitReady asks until the daemon says it is ready.
func (s *subject) awaitReady(ctx context.Context, url string) error {
	if err := s.awaitPoll(ctx); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(startWait)
	for {
		if ready(ctx, client, url) {
			s.toReady = time.Since(s.started)
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-s.ended:
			return fmt.Errorf("the program ended before it was ready: %w; its log: %s", s.err, s.tail())
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s; the log: %s", startWait, s.tail())
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing in it is read
	return resp.StatusCode == http.StatusOK
}

// freePort finds a loopback address nobody listens on.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return addr, nil
}
