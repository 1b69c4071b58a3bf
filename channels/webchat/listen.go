package webchat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/dragoman-chat/dragoman/channels"
)

// open listens, or says what the operator has to change.
func (c *Channel) open(ctx context.Context) (net.Listener, error) {
	if key, why := c.cfg.mistake(); key != "" {
		return nil, c.setupError("%s: %s", key, why)
	}
	ln, err := c.listen(ctx, "tcp", c.cfg.Listen)
	if err != nil {
		return nil, c.listenError(err)
	}
	if c.cfg.Token == "" && !isLoopback(ln.Addr()) {
		if err := ln.Close(); err != nil {
			return nil, fmt.Errorf("webchat: close: %w", err)
		}
		return nil, c.setupError("listen: %s", c.cfg.needsToken())
	}
	if c.cfg.Token != "" && len(c.cfg.Token) < minToken {
		c.log.Warn("the web chat's token is short, use at least 16 random characters")
	}
	return ln, nil
}

const minToken = 16

func (c *Channel) setupError(format string, args ...any) error {
	return channels.Setupf("channels.%s.%s", c.name, fmt.Sprintf(format, args...))
}

// mistake says what is wrong without a look at the network: the key, "" if
// nothing is, and a sentence.
func (c *Config) mistake() (key, why string) {
	host, port, err := net.SplitHostPort(c.Listen)
	if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil {
		return "listen", fmt.Sprintf("%q is not an address: write host:port, for example 127.0.0.1:8080", c.Listen)
	}
	if ip := net.ParseIP(host); c.Token == "" && (host == "" || ip != nil && !ip.IsLoopback()) {
		return "listen", c.needsToken()
	}
	if name := publicHost(c.AllowedHosts); name != "" && c.Token == "" {
		return "allowed_hosts", fmt.Sprintf("the page is to be reached as %s: set token as well, at least 16 random characters", name)
	}
	return "", ""
}

func (c *Config) needsToken() string {
	return c.Listen + " can be reached from other machines: set token (at least 16 random characters), or listen on 127.0.0.1:8080"
}

func (c *Channel) listenError(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return takenError{c.setupError("listen: %s is taken by another program: stop that one, or choose another port", c.cfg.Listen)}
	case errors.Is(err, syscall.EACCES):
		return c.setupError("listen: this user may not listen on %s: choose a port above 1023", c.cfg.Listen)
	default:
		return c.setupError("listen: cannot listen on %s, choose another address: %s", c.cfg.Listen, reason(err))
	}
}

// takenError is a taken port. Its text says so in other words than the system's.
type takenError struct{ error }

func (e takenError) Unwrap() []error { return []error{e.error, syscall.EADDRINUSE} }

// reason is the innermost text of err, which does not repeat the address.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return err.Error()
}

// isLoopback reports whether only this machine can reach addr. A listener that
// has no IP address (an in-memory one) is not on any network.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// publicHost returns the first of hosts that is not a name of this machine.
func publicHost(hosts []string) string {
	for _, h := range hosts {
		name := strings.ToLower(hostOnly(h))
		ip := net.ParseIP(name)
		if name == "localhost" || strings.HasSuffix(name, ".localhost") || ip != nil && ip.IsLoopback() {
			continue
		}
		return h
	}
	return ""
}

// hostOnly is hostport without its port and without the brackets of IPv6.
func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

// pageURL is where a person opens the page.
func pageURL(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "http://localhost/"
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port)) + "/"
}
