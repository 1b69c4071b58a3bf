package discordtest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Pipe serves in memory, over net.Pipe, so that it also works in a
// testing/synctest bubble. base goes into api_base, dial into the client.
func (s *Server) Pipe() (base string, dial func(ctx context.Context, network, addr string) (net.Conn, error), stop func()) {
	ln := &pipeListener{srv: s, conns: make(chan net.Conn), closed: make(chan struct{})}
	return "http://discord.test", ln.dial, s.Serve(ln)
}

// pipeListener is a net.Listener whose connections are pipes.
type pipeListener struct {
	srv    *Server
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if l.srv.isDown() {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: ctx.Err()}
	}
}

// Accept waits for the next dial.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and refuses further dials.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names the listener.
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "discord.test:80" }
