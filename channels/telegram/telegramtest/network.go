package telegramtest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Network is a network in memory with one server on it. It works within
// testing/synctest.
type Network struct {
	mu     sync.Mutex
	down   bool
	conns  map[net.Conn]struct{}
	accept chan net.Conn
	closed chan struct{}
}

// Serve puts h on a network of its own until the test ends.
func Serve(tb testing.TB, h http.Handler) *Network {
	tb.Helper()
	n := &Network{conns: make(map[net.Conn]struct{}), accept: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)} //nolint:forbidigo // http.Server wants one
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener{n}) // always http.ErrServerClosed
	}()
	tb.Cleanup(func() {
		close(n.closed)
		n.SetDown(true)
		_ = server.Close() // nothing is left to be lost
		<-done
	})
	return n
}

// SetDown cuts the cable, or mends it: what is open breaks, and nothing can be
// opened.
func (n *Network) SetDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		for c := range n.conns {
			_ = c.Close() // a pipe's Close cannot fail
		}
		clear(n.conns)
	}
}

// DialContext opens a connection to the server, whatever the address.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: syscall.ECONNREFUSED}
	n.mu.Lock()
	if n.down {
		n.mu.Unlock()
		return nil, refused
	}
	client, server := net.Pipe()
	n.conns[client], n.conns[server] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case n.accept <- server:
		return client, nil
	case <-n.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Transport returns an HTTP transport that reaches the server.
func (n *Network) Transport() *http.Transport {
	return &http.Transport{DialContext: n.DialContext, MaxIdleConnsPerHost: 100}
}

type addr string

func (a addr) Network() string { return "memory" }
func (a addr) String() string  { return string(a) }

// listener is the server's end.
type listener struct{ n *Network }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.n.accept:
		return c, nil
	case <-l.n.closed:
		return nil, errors.New("telegramtest: network closed")
	}
}

func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return addr("memory") }
