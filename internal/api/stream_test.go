// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/access"
)

// An event is a frame of a stream.
type event struct {
	id   string
	name string
	data map[string]any
}

func (e event) step() string {
	payload, _ := e.data["payload"].(map[string]any)
	step, _ := payload["nodeId"].(string)
	return step
}

// stream opens a stream and calls fn with its frames until fn returns false or the stream
// ends. It returns the answer, and why the stream ended.
func (s *server) stream(token, path string, headers []string, fn func(event) bool) (*http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	return res, frames(res.Body, fn)
}

// frames reads server-sent events.
func frames(r io.Reader, fn func(event) bool) error {
	in := bufio.NewReader(r)
	var e event
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				return err
			}
		case "":
			if e.name != "" && !fn(e) {
				return nil
			}
			e = event{}
		}
	}
}

// events reads the events of a run after a cursor.
func (s *server) events(token, run, query string, fn func(event) bool) {
	s.t.Helper()
	res, err := s.stream(token, "/v1/recipe-executions/"+run+"/events"+query, nil, func(e event) bool { return e.id == "" || fn(e) })
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("events: %d, %v", res.StatusCode, err)
	}
}

// X175, X176, X178 to X184, R43: headers, names, ids and cursors of a stream.
func TestX183_Stream(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	run := s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)
	path := "/v1/recipe-executions/" + run + "/events"
	var all []event
	res, err := s.stream(dev, path, nil, func(e event) bool { all = append(all, e); return true })
	if err != nil || len(all) < 4 || all[len(all)-1].name != "run.completed" {
		t.Fatalf("%v, %v", all, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for i, e := range all {
		if e.id != strconv.Itoa(i+1) || e.data["eventId"] != float64(i+1) || e.data["type"] != e.name || e.data["runId"] != run || e.data["workflowId"] != "greet" {
			t.Errorf("event %d: %+v", i+1, e)
		}
	}
	// X182: the parameter beats the header.
	for _, tt := range []struct {
		query  string
		header []string
		first  string
	}{
		{"?afterEventId=1", nil, "2"},
		{"", []string{"Last-Event-ID", "2"}, "3"},
		{"?afterEventId=1", []string{"Last-Event-ID", "2"}, "2"},
	} {
		first := ""
		if _, err := s.stream(dev, path+tt.query, tt.header, func(e event) bool { first = e.id; return false }); err != nil || first != tt.first {
			t.Errorf("%s %v: begins with %q, want %s, %v", tt.query, tt.header, first, tt.first, err)
		}
	}
	// A cursor at or past the end of a run that has ended: nothing will come.
	for _, after := range []int{len(all), len(all) + 5} {
		s.call(dev, "GET", path+"?afterEventId="+strconv.Itoa(after), nil).want(204)
	}
	s.call(dev, "GET", path+"?afterEventId=-1", nil).want(400)
	s.call(dev, "GET", path+"?afterEventId=x", nil).want(400)
	var nodes []string
	if _, err := s.stream(dev, path+"?types=node.*", nil, func(e event) bool { nodes = append(nodes, e.name); return true }); err != nil || len(nodes) == 0 || strings.Join(nodes, " ") != strings.Repeat("node.completed ", len(nodes)-1)+"node.completed" {
		t.Errorf("types: %v, %v", nodes, err)
	}
}

// X197, R30: the path of the flow source has its 22 types of events and no others, unless
// they are asked for; the path of jobs has all.
func TestX197_FlowEvents(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.grant("acme", 1000)
	s.register(dev, `{"name":"paid","version":"1.0.0","steps":[{"id":"a","action":{"name":"costly"}}],"creditEstimation":{"strategy":"fixed","fixedCredits":10,"maxCredits":50}}`)
	run := s.execute(dev, "paid", `{}`)
	names := func(path string) (list []string) {
		if _, err := s.stream(dev, path, nil, func(e event) bool { list = append(list, e.name); return true }); err != nil {
			t.Error(err)
		}
		return list
	}
	all := names("/jobs/" + run + "/events")
	flow := names("/execute/workflows/" + run + "/events?afterEventId=0")
	if !slices.Contains(all, "credits.settled") || len(flow) >= len(all) || slices.ContainsFunc(flow, func(n string) bool { return !strings.HasPrefix(n, "run.") && !strings.HasPrefix(n, "node.") }) {
		t.Errorf("all %v, flow %v", all, flow)
	}
	if got := names("/execute/workflows/" + run + "/events?types=credits.*"); len(got) == 0 || slices.ContainsFunc(got, func(n string) bool { return !strings.HasPrefix(n, "credits.") }) {
		t.Errorf("types: %v", got)
	}
	s.register(dev, waits)
	other := s.execute(dev, "waits", `{}`)
	if s.call(dev, "POST", "/execute/workflows/"+other+"/stop", nil).want(200).text("status") != "cancelled" {
		t.Error("it is not stopped")
	}
}

// A21: a key that is revoked ends its requests and streams at once.
func TestA21_RevokedKeyEndsStreams(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	owner := s.key("acme", access.Owner)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	var revoked time.Time
	var last event
	_, err := s.stream(dev, "/v1/recipe-executions/"+run+"/events", nil, func(e event) bool {
		if e.name == "node.waiting" {
			id := s.call(dev, "GET", "/v1/me", nil).want(200).text("key")
			s.call(owner, "DELETE", "/v1/keys/"+id, nil).want(200)
			revoked = time.Now()
		}
		last = e
		return true
	})
	if took := time.Since(revoked); revoked.IsZero() || took > time.Second || err != nil {
		t.Errorf("the stream ended %s after the key, %v", took, err)
	}
	if last.name != "reset" || last.data["code"] != "UNAUTHORIZED" {
		t.Errorf("the last frame is %+v", last)
	}
	s.call(dev, "GET", "/v1/me", nil).want(401)
}

// The feed of an account has every change once, from any cursor.
func TestFeedStream(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.grant("acme", 100)
	s.register(dev, greet)
	run := s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)
	var all []event
	_, err := s.stream(dev, "/v1/feed", nil, func(e event) bool {
		if e.id != "" {
			all = append(all, e)
		}
		return e.data["runId"] != run || e.data["status"] != "completed"
	})
	if err != nil || len(all) < 2 || all[0].name != "credits.entry" || all[0].data["kind"] != "grant" {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, e := range all {
		if e.id != strconv.Itoa(i+1) {
			t.Errorf("change %d has the number %s", i+1, e.id)
		}
	}
	again := ""
	if _, err := s.stream(dev, "/v1/feed?afterEventId=1", nil, func(e event) bool { again = e.id; return false }); err != nil || again != "2" {
		t.Errorf("after 1: %s, %v", again, err)
	}
	s.call(dev, "GET", "/v1/feed?afterEventId=999", nil).want(422)
}
