// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// raw is a TCP server: it answers every connection with fn.
func raw(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			fn(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

func secure(t *testing.T, cfg *tls.Config) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("safe")) }))
	srv.TLS = cfg
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// F26: errors below HTTP are SERVICE_UNAVAILABLE, and their messages contain nothing that
// the server sent.
func TestF26_Reasons(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	reply := func(text string) string {
		return raw(t, func(c net.Conn) { _, _ = c.Write([]byte(text)) })
	}
	self := secure(t, nil)
	old := secure(t, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	roots := x509.NewCertPool()
	roots.AddCert(self.Certificate())
	dns := names(t, map[string][][]string{"self.example.": {{"127.0.0.1"}}})
	_, tlsPort, _ := net.SplitHostPort(self.Listener.Addr().String())

	for _, tt := range []struct{ name, url, want string }{
		{"nothing listens", "http://" + gone.Addr().String(), "the connection was refused; nothing listens there"},
		{"no such name", "http://nowhere.example", "there is no such host"},
		{"reset", "http://" + raw(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), "the connection was reset"},
		{"closed", "http://" + raw(t, func(net.Conn) {}), "the connection was closed before the answer was complete"},
		{"another protocol", "http://" + reply("220 hunter2 ESMTP\r\n"), "its answer is not HTTP"},
		{"bad header", "http://" + reply("HTTP/1.1 200 OK\r\nhunter2\r\n\r\n"), "its answer is not HTTP"},
		{"flood of headers", "http://" + reply("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Flood: hunter2\r\n", 8000)+"\r\n"), "the headers of its answer exceed 64 KiB"},
		{"no TLS", "https://" + reply("HTTP/1.1 400 Bad Request\r\n\r\nhunter2"), "it does not speak TLS"},
		{"old TLS", old.URL, "it refused the TLS handshake; TLS 1.2 or newer is needed"},
		{"unknown signer", self.URL, "its certificate is signed by an authority that this machine does not trust"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.1")})
			_, _, err := get(t, c, tt.url)
			if !errors.Is(err, fault.ServiceUnavailable) || !strings.HasSuffix(err.Error(), ": "+tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), "hunter2") {
					t.Errorf("the other side's words: %v", e)
				}
			}
		})
	}
	c := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.1"), RootCAs: roots})
	if resp, body, err := get(t, c, self.URL); err != nil || body != "safe" || resp.TLS.Version < tls.VersionTLS12 {
		t.Errorf("with its signer: %q, %v", body, err)
	}
	if _, _, err := get(t, c, "https://self.example:"+tlsPort); err == nil || !strings.Contains(err.Error(), "its certificate is for another name") {
		t.Errorf("another name: %v", err)
	}
}

// HTTP/2 goes through the same dialer.
func TestA17_HTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("two")) }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	resp, body, err := get(t, client(t, Config{Allow: opened(t, "127.0.0.1"), RootCAs: roots}), srv.URL)
	if err != nil || body != "two" || resp.ProtoMajor != 2 {
		t.Errorf("%q, %v", body, err)
	}
	if _, _, err := get(t, client(t, Config{RootCAs: roots}), srv.URL); !errors.Is(err, fault.EgressRefused) {
		t.Errorf("closed: %v", err)
	}
}

// F26: a request to a server that accepts and sends nothing ends with the caller's
// context, and the error is the context's cause.
func TestF26_Hang(t *testing.T) {
	for _, why := range []error{fault.New(fault.StepTimeout, "too slow"), context.Canceled} {
		release, heard := make(chan struct{}), make(chan struct{})
		address := raw(t, func(net.Conn) { close(heard); <-release })
		ctx, cancel := context.WithCancelCause(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-heard; cancel(why) }()
		_, err = client(t, Config{Allow: opened(t, "127.0.0.1")}).Do(req)
		close(release)
		if !errors.Is(err, why) || errors.Is(err, fault.ServiceUnavailable) {
			t.Errorf("%v, want %v", err, why)
		}
	}
}

// The timeouts of the transport are set: every phase of an exchange has a
// limit.
func TestF26_EveryPhaseEnds(t *testing.T) {
	tr := New(Config{}).transport
	if tr.TLSHandshakeTimeout <= 0 || tr.ResponseHeaderTimeout <= 0 || tr.IdleConnTimeout <= 0 || dialTimeout > time.Minute {
		t.Error("a phase without a limit")
	}
	if tr.TLSClientConfig.MinVersion < tls.VersionTLS12 || tr.TLSClientConfig.InsecureSkipVerify || tr.MaxResponseHeaderBytes <= 0 {
		t.Error("TLS or header limits are weaker than promised")
	}
}
