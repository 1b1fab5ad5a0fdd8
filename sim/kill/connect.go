// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// A webClient sends requests to the server of a round.
type webClient = http.Client

// newWebClient returns a client whose connections are not cut.
func newWebClient() *webClient {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: starters}}
}

// errCut is the end of a connection that is cut at a random byte.
var errCut = errors.New("the connection is cut")

// A cutConn is a connection that is cut after a number of bytes from the server.
type cutConn struct {
	net.Conn
	left atomic.Int64
}

func (c *cutConn) Read(p []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		_ = c.Close()
		return 0, errCut
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.left.Add(int64(-n))
	return n, err
}

// cutClient returns a client for one connection, which is cut after that number of bytes.
func cutClient(bytes int64) *webClient {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		cut := &cutConn{Conn: c}
		cut.left.Store(bytes)
		return cut, nil
	}}}
}
