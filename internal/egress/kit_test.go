// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
)

func TestMain(m *testing.M) {
	// Before the first request: the standard library reads proxy settings once.
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		_ = os.Setenv(v, "http://127.0.0.1:1")
	}
	goleak.VerifyTestMain(m)
}

// A host is a listener on an address of this machine that counts connections and passes
// them to a handler.
type host struct {
	net.Listener
	mu   sync.Mutex
	hits int
}

func (h *host) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err == nil {
		h.mu.Lock()
		h.hits++
		h.mu.Unlock()
	}
	return c, err
}

func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hits
}

func (h *host) port() string {
	_, port, _ := net.SplitHostPort(h.Addr().String())
	return port
}

func serve(t *testing.T, address string, handler http.HandlerFunc) *host {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil && runtime.GOOS != "linux" {
		t.Skipf("this system has one loopback address: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Listener: ln}
	srv := &http.Server{Handler: handler}
	go func() { _ = srv.Serve(h) }()
	t.Cleanup(func() { _ = srv.Close() })
	return h
}

// A nameServer answers questions over UDP with the addresses of its table.
type nameServer struct {
	conn net.PacketConn
	mu   sync.Mutex
	// answers for each name, one list per query; the last one is repeated.
	answers map[string][][]string
	asked   map[string]int
}

func names(t *testing.T, answers map[string][][]string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answers: answers, asked: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.reply(buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) questions(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

func (s *nameServer) reply(q []byte) []byte {
	name, end := "", 12
	for end < len(q) && q[end] != 0 {
		name += string(q[end+1:end+1+int(q[end])]) + "."
		end += 1 + int(q[end])
	}
	end += 5 // the root, type and class
	if end > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[end-4:])
	r := append([]byte{}, q[:2]...)
	r = append(r, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0) // an answer, one question
	r = append(r, q[12:end]...)
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known := s.answers[strings.ToLower(name)]
	if !known {
		list, known = s.answers["*"]
	}
	if !known {
		r[3] |= 3 // there is no such name
		return r
	}
	const a, aaaa = 1, 28
	if kind == a {
		s.asked[name]++
	}
	turn := list[min(max(s.asked[name], 1), len(list))-1]
	for _, text := range turn {
		ip := netip.MustParseAddr(text)
		if ip.Is4() != (kind == a) || ip.Is6() != (kind == aaaa) {
			continue
		}
		raw := ip.AsSlice()
		r[7]++
		r = append(r, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		r = append(r, raw...)
	}
	return r
}

func client(t *testing.T, cfg Config) *Client {
	t.Helper()
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func opened(t *testing.T, text string) []netip.Prefix {
	t.Helper()
	allow, err := ParseAllow(text)
	if err != nil {
		t.Fatal(err)
	}
	return allow
}

// get requests a URL as the action does, and returns the body.
func get(t *testing.T, c *Client, text string) (*http.Response, string, error) {
	t.Helper()
	u, err := ParseURL(text)
	if err != nil {
		return nil, "", err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, c, req)
}

func send(t *testing.T, c *Client, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		var f *fault.Error
		if !errors.As(err, &f) {
			t.Errorf("%s: %v (%T) is not typed", req.URL, err, err)
		}
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data), nil
}
