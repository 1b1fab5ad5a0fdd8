// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"sync"
	"time"
)

// A proxy stands between remote workers and their server. It can drop or hold what they send to
// each other.
type proxy struct {
	ln net.Listener
	to string

	mu     sync.Mutex
	mode   proxyMode
	change chan struct{} // closed when mode changes
	conns  map[net.Conn]bool
	done   sync.WaitGroup
}

type proxyMode int

const (
	passing proxyMode = iota
	holding           // nothing arrives, and nobody learns that
	cutting           // all connections are closed, and no others are accepted
)

func newProxy(to string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{ln: ln, to: to, change: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.ln.Addr().String() }

// set changes what the proxy does.
func (p *proxy) set(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.change)
	p.change = make(chan struct{})
	if m == cutting {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// close ends the proxy.
func (p *proxy) close() {
	p.set(cutting)
	_ = p.ln.Close()
	p.done.Wait()
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(c) })
	}
}

// keep notes a connection; it returns false if there are to be none.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == cutting {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *proxy) serve(c net.Conn) {
	if !p.keep(c) {
		return
	}
	defer p.forget(c)
	d, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil || !p.keep(d) {
		return
	}
	defer p.forget(d)
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, d) })
	both.Go(func() { p.copy(d, c) })
	both.Wait()
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.hold()
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold returns when bytes may pass.
func (p *proxy) hold() {
	for {
		p.mu.Lock()
		mode, change := p.mode, p.change
		p.mu.Unlock()
		if mode != holding {
			return
		}
		<-change
	}
}
