// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/access"
)

// A08: a body that comes drop by drop ends after its time, however often a byte comes, and the
// answer says why. The connection is closed.
func TestA08_Drip(t *testing.T) {
	type text struct {
		Body struct {
			Name string `json:"name"`
		}
	}
	type raw struct {
		RawBody []byte `contentType:"text/plain"`
	}
	for _, tt := range []struct {
		name, path, header string
		time               time.Duration // in which the body must come
	}{
		{"a body that is decoded", "/v1/drip", "Content-Type: application/json", bodyTime},
		{"a body as it is", "/v1/drip/raw", "Content-Type: text/plain", readTime},
		{"a stream that is refused", "/v1/drip/stream?x=1", "Content-Type: application/json", readTime},
		{"a body whose answer is kept", "/v1/drip", "Content-Type: application/json\r\nIdempotency-Key: k", readTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The clock of the router is behind, so that the time is over soon.
			late := func() time.Time { return time.Now().Add(300*time.Millisecond - tt.time) }
			rt := New(Config{Open: access.Anyone("acme"), Rate: -1, Logger: slog.New(slog.DiscardHandler), Now: late, Tags: map[string]string{"drip": "Drops."}})
			Handle(rt, Op("drip-post", http.MethodPost, "/v1/drip", "Take"), Needs(access.RunsRead), func(context.Context, *text) (*struct{}, error) { return nil, nil })
			plain := Needs(access.RunsRead)
			plain.Accepts = []string{"text/plain"}
			Handle(rt, Op("drip-raw", http.MethodPost, "/v1/drip/raw", "Take"), plain, func(context.Context, *raw) (*struct{}, error) { return nil, nil })
			stream := plain
			stream.Stream, stream.OwnBody = true, true
			Handle(rt, Op("drip-stream", http.MethodPost, "/v1/drip/stream", "Take"), stream, func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
			if err := rt.Start(); err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(rt)
			defer web.Close()
			conn, err := net.Dial("tcp", strings.TrimPrefix(web.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: 100000\r\n\r\n", tt.path, tt.header)
			drops, stop := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(drops)
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						if _, err := conn.Write([]byte(" ")); err != nil {
							return
						}
					case <-stop:
						return
					}
				}
			}()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			close(stop)
			<-drops
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if refused := strings.Contains(tt.path, "?"); (res.StatusCode != http.StatusRequestTimeout) != refused || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("the answer is %s, %v", res.Status, res.Header)
			}
		})
	}
}
