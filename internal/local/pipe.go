// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// A Pipe is a listener in memory, for a process that serves itself.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipe returns a listener that is open.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// Dial opens a connection to whoever accepts it.
func (p *Pipe) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Transport returns a transport of requests to whoever accepts them.
func (p *Pipe) Transport() *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) },
		DisableCompression: true,
	}
}
