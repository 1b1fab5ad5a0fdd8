// SPDX-License-Identifier: Apache-2.0

package api_test

import (
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
	"github.com/roux-engine/roux/internal/sse"
)

// An event is a frame of a stream.
type event struct {
	id    string
	name  string
	data  map[string]any
	retry time.Duration // what the stream had said by then
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

// frames reads server-sent events. Those without a number of their own have no id.
func frames(r io.Reader, fn func(event) bool) error {
	in := sse.NewReader(r, 0)
	for {
		f, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e := event{name: f.Name, retry: in.Retry()}
		if f.Own {
			e.id = f.ID
		}
		if err := json.Unmarshal(f.Data, &e.data); err != nil {
			return err
		}
		if !fn(e) {
			return nil
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
	s.events(dev, run, "", func(event) bool { return true }) // the stream of a run that goes on closes its connection
	var all []event
	res, err := s.stream(dev, path, nil, func(e event) bool { all = append(all, e); return true })
	if err != nil || len(all) < 4 || all[len(all)-1].name != "run.completed" {
		t.Fatalf("%v, %v", all, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform", "Connection": "keep-alive", "X-Accel-Buffering": "no",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if res.ContentLength != -1 || !slices.Equal(res.TransferEncoding, []string{"chunked"}) || len(res.Header["Transfer-Encoding"]) != 0 {
		t.Errorf("the length is %d, the encoding %v", res.ContentLength, res.TransferEncoding)
	}
	for i, e := range all {
		if e.id != strconv.Itoa(i+1) || e.data["eventId"] != float64(i+1) || e.data["sequence"] != float64(i+1) || e.retry != 2*time.Second || e.data["type"] != e.name || e.data["runId"] != run || e.data["workflowId"] != "greet" {
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

// flowTypes are the 22 types of events that a client of the flow source knows; heartbeat has
// no number.
var flowTypes = strings.Fields(`run.started run.status.changed run.completed run.failed run.cancelled run.timed_out run.recovered heartbeat
	node.queued node.started node.stream.delta node.log node.retried node.completed node.failed node.cancelled node.skipped node.timed_out node.blocked node.invalidated
	moderation.flagged contract.violated`)

// X175 to X178, X186, X197, R30: the path of the flow source has its 22 types of events and no
// others, unless they are asked for; the path of jobs has all, under the same numbers.
func TestX197_FlowEvents(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.grant("acme", 1000)
	s.register(dev, `{"name":"paid","version":"1.0.0","steps":[{"id":"each","loop":{"over":"[1,2]","as":"it","steps":[{"id":"b","transform":{"expression":"it","outputBinding":"x"}}]}},
		{"id":"a","action":{"name":"costly"}},{"id":"ask","wait":{"signal":"approved"}}],"creditEstimation":{"strategy":"fixed","fixedCredits":10,"maxCredits":50}}`)
	run := s.execute(dev, "paid", `{}`)
	signalled := false
	names := func(path string) (list []string) {
		if _, err := s.stream(dev, path, nil, func(e event) bool {
			list = append(list, e.id+" "+e.name)
			if e.name == "node.waiting" && !signalled {
				signalled = true
				s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"approved"}`).want(200)
			}
			return true
		}); err != nil {
			t.Error(err)
		}
		return list
	}
	all := names("/jobs/" + run + "/events")
	var known, others []string
	for _, one := range all {
		if _, name, _ := strings.Cut(one, " "); slices.Contains(flowTypes, name) {
			known = append(known, one)
		} else if others = append(others, name); strings.Count(strings.Join(others, " "), name) == 1 {
			if got := names("/execute/workflows/" + run + "/events?types=" + name); len(got) == 0 || !strings.HasSuffix(got[0], name) {
				t.Errorf("types=%s: %v", name, got)
			}
		}
	}
	if len(flowTypes) != 22 || len(known) < 5 || len(known) == len(all) {
		t.Errorf("%d types; of %v the flow has %v", len(flowTypes), all, known)
	}
	for _, want := range []string{"credits.settled", "node.progress", "node.waiting", "run.signalled"} {
		if !slices.Contains(others, want) {
			t.Errorf("the jobs' stream has no %s: %v", want, others)
		}
	}
	if flow := names("/execute/workflows/" + run + "/events?afterEventId=0"); !slices.Equal(flow, known) {
		t.Errorf("the flow has %v, want %v", flow, known)
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

// HEAD of a stream ends with its headers, and leaves the connection to the next request.
func TestX183_HeadOfAStream(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/v1/recipe-executions/" + run + "/events", "/v1/feed", "/jobs/" + run + "/events"} {
		for _, method := range []string{"HEAD", "HEAD"} {
			req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+dev)
			res, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			if res.Body.Close(); res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
				t.Errorf("%s %s: %d %v", method, path, res.StatusCode, res.Header)
			}
		}
	}
}
