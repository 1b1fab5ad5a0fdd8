// SPDX-License-Identifier: Apache-2.0

// Package egress opens every outgoing connection of Roux (I19).
//
// It decides which addresses, ports and schemes may be reached. An address is checked
// when the socket is about to connect, after name resolution, so the address that was
// checked is the address that is used. A redirect, DNS rebinding or an unusual notation
// of an address cannot bypass the check (A17, A18). Addresses that are not public are
// refused unless their range is allowed.
//
// It never reads proxy settings, never sends what may be a secret along with a redirect
// to another host, and knows nothing of actions, runs or files.
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

// Config configures a Client. Its zero value allows public addresses.
type Config struct {
	// Allow lists ranges that are allowed although they are not public, such as
	// 10.0.0.0/8; see [ParseAllow]. Within them every port is allowed.
	Allow []netip.Prefix
	// RootCAs are the certificate authorities for servers. Default: the system's.
	RootCAs *x509.CertPool
	// Resolver resolves names. Default: the system's. Its answers are not trusted: the
	// address is checked, not the name.
	Resolver *net.Resolver
}

// The limits of a connection and a response. A caller's context may end them
// earlier.
const (
	dialTimeout    = 10 * time.Second
	tlsTimeout     = 10 * time.Second
	headerTimeout  = 2 * time.Minute // until the first byte of the response
	maxHeaderBytes = 64 << 10        // of one response
	maxIdle        = 256             // connections kept open between requests
	maxIdlePerHost = 64
)

// A Client sends requests to addresses that the guard allows. It is safe for concurrent
// use.
type Client struct {
	transport *http.Transport
}

// New returns a client. Call Close when it is no longer needed.
func New(cfg Config) *Client {
	g := newGuard(cfg.Allow)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: cfg.Resolver, ControlContext: g.control}
	t := &http.Transport{
		// No Proxy, because a proxy would connect for us and bypass the check.
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs},
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		ForceAttemptHTTP2:      true,
	}
	return &Client{transport: t}
}

// HTTP returns a client for a library that needs one of the standard library's. It follows
// no redirect.
func (c *Client) HTTP(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: c, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// splitByFamily splits prefixes by address family.
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
