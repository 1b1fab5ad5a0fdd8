// SPDX-License-Identifier: Apache-2.0

// Package egress is the one way out: every connection that Roux opens to the
// outside is dialled here (I19).
//
// It decides which addresses, ports and schemes may be reached. An address is
// checked when the socket is about to connect, after the name was resolved, so
// the address that was checked is the address that is used: neither a redirect,
// nor a name that changes its answer, nor a strange way to write an address gets
// around it (A17, A18). What is not a public address is refused unless its range
// was opened.
//
// It never reads proxy settings, never follows a redirect to another host with
// what may be a secret, and knows nothing of actions, runs or files.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// Config says what may be reached. Its zero value allows public addresses.
type Config struct {
	// Allow opens ranges that are not public, such as 10.0.0.0/8; see
	// [ParseAllow]. Within them every port is open.
	Allow []netip.Prefix
	// RootCAs are who may vouch for a server. Default: the system's.
	RootCAs *x509.CertPool
	// Resolver turns names into addresses. Default: the system's. What it says
	// is never trusted: the address is checked, not the name.
	Resolver *net.Resolver
}

// What a connection and an answer may take. A caller's context cuts shorter.
const (
	dialTimeout    = 10 * time.Second
	tlsTimeout     = 10 * time.Second
	headerTimeout  = 2 * time.Minute // until the first byte of the answer
	maxHeaderBytes = 64 << 10        // of one answer
	maxIdle        = 64              // connections kept open between requests
)

// A Client sends requests through the guard. It is safe for concurrent use.
type Client struct {
	transport *http.Transport
}

// New returns a client; close its idle connections when it is done with.
func New(cfg Config) *Client {
	g := newGuard(cfg.Allow)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: cfg.Resolver, ControlContext: g.control}
	t := &http.Transport{
		// No Proxy: a proxy would connect for us, past the check.
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs},
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		ForceAttemptHTTP2:      true,
	}
	return &Client{transport: t}
}

// Close drops the connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// ranges splits prefixes by family, as the guard compares them.
func splitByFamily(allow []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, p := range allow {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return slices.Clip(v4), slices.Clip(v6)
}
