// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/store"
)

// A place is a data directory with the actions of its server.
type place struct {
	t       testing.TB
	dir     string
	actions *node.Actions
	began   chan int      // the number of each attempt of "hold"
	release chan struct{} // ends them
}

func newPlace(t testing.TB) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), began: make(chan int, 10), release: make(chan struct{})}
	p.actions = node.NewActions(nil, action.Action{Name: "hold", Version: "1.0.0", Description: "Waits.", Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
		p.began <- task.Attempt
		select {
		case <-p.release:
			return action.Result{Output: map[string]any{"attempt": task.Attempt}}, nil
		case <-ctx.Done():
			return action.Result{}, ctx.Err()
		}
	}})
	t.Cleanup(p.actions.Close)
	return p
}

func (p *place) config() service.Config {
	return service.Config{
		Node: node.Config{Dir: p.dir, Actions: p.actions}, Account: engine.LocalAccount, MaxSource: 1 << 20, Release: "test",
	}
}

func (p *place) open(change func(*service.Config)) (*service.Service, error) {
	p.t.Helper()
	st, err := node.OpenStore(p.t.Context(), p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := p.config()
	if change != nil {
		change(&cfg)
	}
	return service.Open(p.t.Context(), st, cfg)
}

// must opens a service on loopback and returns its address.
func (p *place) must(change func(*service.Config)) (*service.Service, string) {
	p.t.Helper()
	s, err := p.open(change)
	if err != nil {
		p.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		p.t.Fatal(err)
	}
	return s, "http://" + ln.Addr().String()
}

func (p *place) close(s *service.Service) {
	p.t.Helper()
	if err := s.Close(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a request, and returns the status and the answer.
func ask(t testing.TB, method, url, token, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, data)
	}
	return res.StatusCode, out
}

// The first key is made when no key admits anybody, and only then. It works, has the role
// admin, and is not in the store.
func TestFirstKey(t *testing.T) {
	p := newPlace(t)
	s, _ := p.must(func(cfg *service.Config) { cfg.Node.Idle = true })
	if s.FirstKey != "" {
		t.Error("a service that only looks makes a key")
	}
	p.close(s)
	s, url := p.must(nil)
	first := s.FirstKey
	if first == "" {
		t.Fatal("a fresh directory has no first key")
	}
	status, me := ask(t, "GET", url+"/v1/me", first, "")
	scopes, _ := me["scopes"].([]any)
	if status != 200 || me["account"] != engine.LocalAccount || !slices.Contains(scopes, any(string(access.ServerAdmin))) {
		t.Errorf("the first key: %d %v", status, me)
	}
	for _, token := range []string{"", first + "x", first[:len(first)-1]} {
		if status, problem := ask(t, "GET", url+"/v1/me", token, ""); status != 401 || problem["code"] != string(fault.Unauthorized) {
			t.Errorf("without the key: %d %v", status, problem)
		}
	}
	if list, _, err := s.Node.Records(t.Context(), recordsOfKeys); err != nil || len(list) != 1 || strings.Contains(string(list[0].Data), first[32:]) {
		t.Errorf("the keys are %v, %v", list, err)
	}
	id := me["key"].(string)
	p.close(s)

	s, url = p.must(nil)
	if s.FirstKey != "" {
		t.Error("a second first key")
	}
	if status, _ := ask(t, "GET", url+"/v1/me", first, ""); status != 200 {
		t.Errorf("after a restart: %d", status)
	}
	if status, problem := ask(t, "DELETE", url+"/v1/keys/"+id, first, ""); status != 200 {
		t.Errorf("the key revokes itself: %d %v", status, problem)
	}
	if status, _ := ask(t, "GET", url+"/v1/me", first, ""); status != 401 {
		t.Errorf("a revoked key: %d", status)
	}
	p.close(s)

	admin := strings.Repeat("k", 40)
	s, url = p.must(func(cfg *service.Config) { cfg.AdminToken = admin })
	if s.FirstKey != "" {
		t.Error("a first key beside that of the environment")
	}
	if status, _ := ask(t, "GET", url+"/v1/me", admin, ""); status != 200 {
		t.Errorf("the key of the environment: %d", status)
	}
	p.close(s)
	s, _ = p.must(nil)
	if s.FirstKey == "" || s.FirstKey == first {
		t.Error("all keys are revoked, and there is no first key")
	}
	p.close(s)
}

var recordsOfKeys = store.RecordQuery{Kind: access.Kind}

// A service that cannot be opened leaves the directory to the next one.
func TestOpenOrLeave(t *testing.T) {
	p := newPlace(t)
	if s, err := p.open(func(cfg *service.Config) { cfg.AdminToken = "short" }); !errors.Is(err, fault.ConfigInvalid) || s != nil {
		t.Errorf("a short key: %v, %v", s, err)
	}
	if s, err := p.open(func(cfg *service.Config) { cfg.Node.Dir = filepath.Join(p.dir, "\x00") }); err == nil || s != nil {
		t.Errorf("no directory for files: %v, %v", s, err)
	}
	s, _ := p.must(nil)
	p.close(s)
}

// A04: a server that checks no keys listens where only programs of this machine reach it.
func TestA04_OpenMeansLocal(t *testing.T) {
	p := newPlace(t)
	s, url := p.must(func(cfg *service.Config) { cfg.Open = true })
	if status, me := ask(t, "GET", url+"/v1/me", "", ""); status != 200 || me["account"] != engine.LocalAccount || s.FirstKey != "" {
		t.Errorf("without keys: %d %v", status, me)
	}
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		if err := s.Serve(ln); !errors.Is(err, fault.ConfigInvalid) {
			t.Errorf("it listens on %s: %v", address, err)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener on %s is still open: %v", address, err)
		}
	}
	if err := s.Serve(elsewhere{}); !errors.Is(err, fault.ConfigInvalid) {
		t.Errorf("it listens at an address of an unknown kind: %v", err)
	}
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		t.Errorf("on a socket: %v", err)
	}
	p.close(s)

	s, _ = p.must(nil)
	if ln, err = net.Listen("tcp", "0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		t.Errorf("with keys, beyond loopback: %v", err)
	}
	p.close(s)
}

// elsewhere is a listener at an address that is neither TCP's nor a socket.
type elsewhere struct{}

func (elsewhere) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (elsewhere) Close() error              { return nil }
func (elsewhere) Addr() net.Addr            { return &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// F45: Close ends streams, waits for nothing longer than it may, and leaves what runs to the
// next start, which attempts it again and completes it. What was registered and the key
// are there as before.
func TestF45_CloseAndReopen(t *testing.T) {
	p := newPlace(t)
	s, url := p.must(nil)
	key := s.FirstKey
	status, out := ask(t, "POST", url+"/v1/recipes", key, `{"name": "held", "version": "1.0.0", "steps": [{"id": "wait", "action": {"name": "hold"}}]}`)
	if status != 201 {
		t.Fatal(status, out)
	}
	status, out = ask(t, "POST", url+"/v1/recipes/held/execute", key, `{}`)
	if status != 202 {
		t.Fatal(status, out)
	}
	run := out["executionId"].(string)
	if attempt := <-p.began; attempt != 1 {
		t.Fatalf("attempt %d comes first", attempt)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/recipe-executions/"+run+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	ended := make(chan error, 1)
	following := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stream.Body)
		for n := 0; lines.Scan(); n++ {
			if n == 0 {
				close(following)
			}
		}
		ended <- lines.Err()
	}()
	<-following
	ask(t, "POST", url+"/v1/recipes", key, `{"name": "other", "version": "1.0.0", "steps": [{"id": "wait", "action": {"name": "hold"}}]}`)
	_, out = ask(t, "GET", url+"/v1/recipes?limit=1", key, "")
	next, _ := out["next"].(string)
	now, cancel := context.WithCancel(t.Context())
	cancel() // no time for the attempt
	if err := s.Close(now); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		t.Error("a closed service takes connections")
	}

	s, url = p.must(nil)
	if s.FirstKey != "" {
		t.Error("a second first key")
	}
	if attempt := <-p.began; attempt != 2 {
		t.Errorf("attempt %d comes after the restart", attempt)
	}
	close(p.release)
	if head, err := s.Node.Engine.Wait(t.Context(), engine.LocalAccount, run); err != nil || head.Status != "completed" {
		t.Errorf("the run: %+v, %v", head, err)
	}
	if status, out = ask(t, "GET", url+"/v1/recipe-executions/"+run, key, ""); status != 200 || out["status"] != "completed" {
		t.Errorf("the run: %d %v", status, out)
	}
	if status, out = ask(t, "GET", url+"/v1/recipes/held", key, ""); status != 200 || out["version"] != "1.0.0" {
		t.Errorf("the recipe: %d %v", status, out)
	}
	if status, out = ask(t, "GET", url+next, key, ""); status != 200 || len(out["data"].([]any)) != 1 || out["hasMore"] != false {
		t.Errorf("the list goes on with %d %v", status, out)
	}
	p.close(s)
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}
