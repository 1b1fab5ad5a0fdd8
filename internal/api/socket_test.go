// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/roux-engine/roux/internal/access"
)

// A client is the other end of a socket.
type client struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
}

func (s *server) dial(t *testing.T, header http.Header, protocols ...string) (*client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, strings.Replace(s.url, "http", "ws", 1)+"/v1/socket", &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t, conn, ctx}, nil
}

func (c *client) say(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear() (m map[string]any) {
	c.t.Helper()
	_, data, err := c.conn.Read(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// X185: many runs over one socket, each from its cursor, without gap or duplicate; bad
// messages are answered and end nothing.
func TestX185_Socket(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	s.register(dev, waits)
	first := s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)
	second := s.execute(dev, "waits", `{}`)
	if _, err := s.dial(t, nil); err == nil {
		t.Error("a socket without a key")
	}
	if _, err := s.dial(t, http.Header{"Authorization": {"Bearer " + dev}, "Origin": {"http://elsewhere.example"}}); err == nil {
		t.Error("a socket of another origin (A23)")
	}
	c, err := s.dial(t, nil, "roux.v1", "roux.key."+dev)
	if err != nil {
		t.Fatal(err)
	}
	if c.conn.Subprotocol() != "roux.v1" {
		t.Errorf("the subprotocol is %q", c.conn.Subprotocol())
	}
	for _, bad := range []string{`{`, `{"type":"dance"}`, `{"type":"subscribe","runId":"run_x"}`, `{"type":"unsubscribe","runId":"run_x"}`, `{"type":1}`} {
		c.say(bad)
		if m := c.hear(); m["type"] != "error" || m["code"] == "" || m["remedy"] == "" {
			t.Errorf("%s is answered with %v", bad, m)
		}
	}
	c.say(`{"type":"ping"}`)
	if m := c.hear(); m["type"] != "pong" {
		t.Errorf("ping: %v", m)
	}
	c.say(`{"type":"subscribe","runId":"` + second + `"}`)
	c.say(`{"type":"subscribe","runId":"` + first + `","afterEventId":1}`)
	next := map[string]int{first: 2, second: 1}
	ended := map[string]bool{}
	for !ended[first] || !ended[second] {
		m := c.hear()
		run, _ := m["runId"].(string)
		switch m["type"] {
		case "subscribed":
		case "ended":
			ended[run] = true
		default:
			if m["eventId"] != float64(next[run]) {
				t.Errorf("run %s: event %v, want %d", run, m["eventId"], next[run])
			}
			next[run]++
			if m["type"] == "node.waiting" {
				s.call(dev, "POST", "/v1/recipe-executions/"+second+"/signal", `{"name":"approved"}`).want(200)
			}
		}
	}
	c.say(`{"type":"subscribe","runId":"` + first + `","afterEventId":` + strconv.Itoa(next[first]-1) + `}`)
	if a, b := c.hear(), c.hear(); a["type"] != "subscribed" || b["type"] != "ended" {
		t.Errorf("after the end: %v, %v", a, b)
	}
	// A21: the socket ends with its key.
	third := s.execute(dev, "waits", `{}`)
	c.say(`{"type":"subscribe","runId":"` + third + `"}`)
	for m := c.hear(); m["type"] != "node.waiting"; m = c.hear() {
	}
	owner := s.key("acme", access.Owner)
	s.call(owner, "DELETE", "/v1/keys/"+s.call(dev, "GET", "/v1/me", nil).text("key"), nil).want(200)
	begin := time.Now()
	for {
		if _, _, err := c.conn.Read(c.ctx); err != nil {
			if time.Since(begin) > time.Second {
				t.Errorf("it ended after %s: %v", time.Since(begin), err)
			}
			break
		}
	}
}
