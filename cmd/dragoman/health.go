package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) healthCommand() *cobra.Command {
	var path, listen string
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the running daemon whether it is well",
		Long: `Ask the running daemon whether it is ready: whether each of its channels has
completed a poll or a heartbeat. The exit code is 0 if it is. The daemon must
have health.listen set (DRAGOMAN_HEALTH_LISTEN).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if listen == "" {
				cfg, err := p.load(path)
				if err != nil {
					return err
				}
				if listen = cfg.Health.Listen; listen == "" {
					return cfg.Errorf("health.listen", "the endpoint is off: set it, for example to 127.0.0.1:8081")
				}
			}
			return askHealth(cmd.Context(), listen, live)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&listen, "listen", "", "where the daemon listens, host:port (default: health.listen of the configuration)")
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the process answers (/healthz)")
	return cmd
}

// askHealth returns nil if the daemon that listens at listen is well.
func askHealth(ctx context.Context, listen string, live bool) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return &usageError{fmt.Errorf("expected host:port, found %q", listen)}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost" // what listens everywhere also listens here
	}
	page := "/readyz"
	if live {
		page = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+page, http.NoBody)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	// A transport of its own: no proxy stands between us and ourselves.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("health: nothing answers at %s: %w", listen, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("health: read the answer of %s: %w", listen, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: not ready (HTTP %d): %s", resp.StatusCode, strings.Join(strings.Fields(string(body)), " "))
	}
	return nil
}
