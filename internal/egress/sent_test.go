// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/roux-engine/roux/fault"
)

// A script is a server that does with the nth request of all its connections what the nth function
// says.
type script struct {
	net.Listener
	heard atomic.Int64 // requests, with their bodies
}

func play(t *testing.T, lines ...func(c net.Conn)) *script {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{Listener: ln}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for r := bufio.NewReader(c); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					n := int(s.heard.Add(1))
					if n > len(lines) || lines[n-1] == nil {
						return // the connection breaks
					}
					lines[n-1](c)
				}
			}()
		}
	}()
	return s
}

func say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func post(t *testing.T, url, method string) *http.Request {
	t.Helper()
	var body io.Reader
	if HasEffect(method) {
		body = strings.NewReader("charge the card")
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "key")
	return req
}

func loopback(t *testing.T) *Client {
	t.Helper()
	c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	t.Cleanup(c.Close)
	return c
}

// I4: what broke before a request was sent has a known outcome, what broke after that an unknown
// one, unless the request has no effect.
func TestI4_WhatBroke(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	plain := play(t) // it speaks no TLS
	dropped := tlsServer(t)
	moved := "HTTP/1.1 303 See Other\r\nLocation: /done\r\nContent-Length: 0\r\n\r\n"
	repeat := "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://" + closed.Addr().String() + "/\r\nContent-Length: 0\r\n\r\n"
	for _, tt := range []struct {
		name, method, url string
		unknown           bool
	}{
		{"no such host", "POST", "http://nowhere.invalid/", false},
		{"nothing listens", "POST", "http://" + closed.Addr().String(), false},
		{"an address that is not allowed", "POST", "http://127.0.0.2/", false},
		{"no TLS", "POST", "https://" + plain.Addr().String(), false},
		{"the certificate is not trusted", "POST", dropped, false},
		{"no answer", "POST", "http://" + play(t).Addr().String(), true},
		{"no answer", "PUT", "http://" + play(t).Addr().String(), true},
		{"no answer", "GET", "http://" + play(t).Addr().String(), false},
		{"no HTTP", "DELETE", "http://" + play(t, say("what?\r\n\r\n")).Addr().String(), true},
		{"half a header", "PATCH", "http://" + play(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le"); _ = c.Close() }).Addr().String(), true},
		{"see other, and that breaks", "POST", "http://" + play(t, say(moved)).Addr().String(), true},
		{"repeat it where nothing listens", "POST", "http://" + play(t, say(repeat)).Addr().String(), false},
	} {
		t.Run(tt.name+" "+tt.method, func(t *testing.T) {
			resp, err := loopback(t).Do(post(t, tt.url, tt.method))
			if err == nil {
				_ = resp.Body.Close()
				t.Fatal("it succeeded")
			}
			if fault.OutcomeUnknown(err) != tt.unknown {
				t.Errorf("the outcome is unknown: %v, want %v (%v)", !tt.unknown, tt.unknown, err)
			}
		})
	}
}

func tlsServer(t *testing.T) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = nil
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// I4: a request with an effect is sent once. net/http would repeat one that has an idempotency key,
// on a connection that was used before and broke without an answer.
func TestI4_SentOnce(t *testing.T) {
	for method, want := range map[string]int64{"POST": 2, "PATCH": 2, "GET": 3} {
		s := play(t, say(fine), nil, say(fine))
		c := loopback(t)
		url := "http://" + s.Addr().String()
		resp, err := c.RoundTrip(post(t, url, method))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		resp, err = c.RoundTrip(post(t, url, method))
		if err == nil {
			_ = resp.Body.Close()
		}
		if n := s.heard.Load(); n != want || (err == nil) != (method == "GET") || fault.OutcomeUnknown(err) != (method != "GET") {
			t.Errorf("%s: %d requests, want %d; %v", method, n, want, err)
		}
	}
}

// The key still arrives, under its name, and the caller's request is as it was.
func TestKeyArrives(t *testing.T) {
	got := make(chan string, 1)
	h := serve(t, "127.0.0.1:0", func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Idempotency-Key") })
	req := post(t, "http://"+h.Addr().String(), "POST")
	resp, err := loopback(t).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if key := <-got; key != "key" || req.Header.Get("Idempotency-Key") != "key" || resp.Request != req {
		t.Errorf("the server got the key %q, the request has %v", key, req.Header)
	}
}

// What ends a request is its context's cause, which says itself what became of the attempt. A body
// that cannot be read is one that was sent in part.
func TestI4_ContextAndBody(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := play(t, func(c net.Conn) { cancel(why); _, _ = c.Read(make([]byte, 1)) })
	_, err := loopback(t).RoundTrip(post(t, "http://"+s.Addr().String(), "POST").WithContext(ctx)) //nolint:bodyclose // it fails
	if !errors.Is(err, why) || fault.OutcomeUnknown(err) {
		t.Errorf("%v", err)
	}
	req := post(t, "http://"+play(t, say(fine)).Addr().String(), "POST")
	req.Body, req.GetBody = io.NopCloser(iotest.ErrReader(why)), nil
	if _, err = loopback(t).RoundTrip(req); !fault.OutcomeUnknown(err) { //nolint:bodyclose // it fails
		t.Errorf("the body broke off: %v", err)
	}
}
