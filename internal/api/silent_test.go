// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/api"
	"github.com/roux-engine/roux/internal/sse"
)

// F37: a silent stream has no handler and no goroutine that sends, and goes on all the same
// when something happens. The server notices at once that its client has gone.
func TestF37_SilentStreams(t *testing.T) {
	api.SetStreamTimes(t, time.Hour, time.Second, time.Second)
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	feed := s.svc.Node.Engine.Feed()
	for _, http2 := range []bool{false, true} {
		run := s.execute(dev, "waits", `{}`)
		url, web := s.url, http.DefaultClient
		if http2 { // a stream of HTTP/2 cannot take its connection
			secure := httptest.NewUnstartedServer(s.svc.API)
			secure.EnableHTTP2 = true
			secure.StartTLS()
			defer secure.Close()
			url, web = secure.URL, secure.Client()
		}
		open := func() (*sse.Reader, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/recipe-executions/"+run+"/events", nil)
			req.Header.Set("Authorization", "Bearer "+dev)
			res, err := web.Do(req)
			if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor == 2 != http2 {
				t.Fatalf("%+v, %v", res, err)
			}
			t.Cleanup(func() { res.Body.Close() })
			in := sse.NewReader(res.Body, 0)
			for {
				f, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				if f.Name == "node.waiting" {
					return in, cancel
				}
			}
		}
		in, stop := open()
		_, leave := open()
		until(t, "nothing sends", func() bool { return goroutines("api.(*pump).send") == 0 })
		if !http2 {
			until(t, "no handler runs", func() bool { return goroutines("api.(*Server).ServeHTTP") == 0 })
		}
		leave()
		until(t, "the client that has gone is noticed", func() bool { n, _ := feed.Usage(); return n == 1 })
		s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"approved"}`).want(200)
		last := ""
		for {
			f, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			last = f.Name
		}
		if last != "run.completed" {
			t.Errorf("the stream ends with %s", last)
		}
		stop()
	}
}

// A client of HTTP/1.0, which reads no chunks, is served by a handler; the connection of a
// stream is closed at its end.
func TestX183_ConnectionOfAStream(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	for _, proto := range []string{"HTTP/1.0", "HTTP/1.1"} {
		conn, err := narrow(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(conn, "GET /v1/recipe-executions/"+run+"/events "+proto+"\r\nHost: x\r\nAuthorization: Bearer "+dev+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		text := ""
		for buf := make([]byte, 4096); !strings.Contains(text, "node.waiting"); {
			n, err := conn.Read(buf)
			if text += string(buf[:n]); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		if chunked := strings.Contains(text, "chunked"); chunked != (proto == "HTTP/1.1") || chunked && !strings.Contains(text, "Connection: close") {
			t.Errorf("%s: %s", proto, text)
		}
		if proto == "HTTP/1.0" {
			continue
		}
		s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"approved"}`).want(200)
		rest, err := io.ReadAll(conn)
		if err != nil || !strings.HasSuffix(string(rest), "\r\n0\r\n\r\n") || !strings.Contains(string(rest), "run.completed") {
			t.Errorf("it ends with %q, %v", rest, err)
		}
	}
}
