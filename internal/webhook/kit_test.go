// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const acme = "acme"

// A world is a server of webhooks that can be killed and started again. It lives in a
// bubble of synctest, so its time is virtual; its network is net.Pipe, over which client and
// receiver speak real HTTP.
type world struct {
	t     *testing.T
	st    *memory.Store
	e     *engine.Engine
	h     *Hooks
	dir   string
	rules func(account string) engine.AccountRules
	logs  io.Writer
	work  *plan.Plan // of the runs of users
	fail  func(ctx context.Context) error

	receiver *receiver
	records  *records
}

// records are those of the store, changed by its owner. stop, when set, is asked before each
// change.
type records struct {
	*memory.Store
	e    *engine.Engine
	stop atomic.Pointer[func(changes []store.RecordChange) error]
}

func (r *records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if stop := r.stop.Load(); stop != nil {
		if err := (*stop)(changes); err != nil {
			return nil, err
		}
	}
	return r.e.PutRecords(ctx, changes...)
}

// A receiver takes messages.
type receiver struct {
	conns  chan net.Conn
	server *http.Server
	client *http.Transport

	mu     sync.Mutex
	answer func(*message1, http.ResponseWriter) // nil = 200
	got    []*message1
}

// A message1 is a message as it was received.
type message1 struct {
	at      time.Time
	path    string
	headers http.Header
	body    []byte
	data    struct {
		Type string
		Data Data
	}
}

func (r *receiver) Accept() (net.Conn, error) {
	c, ok := <-r.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (r *receiver) Close() error   { return nil }
func (r *receiver) Addr() net.Addr { return &net.TCPAddr{} }

func newReceiver(t *testing.T) *receiver {
	r := &receiver{conns: make(chan net.Conn)}
	r.server = &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	r.client = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case r.conns <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	go func() { _ = r.server.Serve(r) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		close(r.conns)
		_ = r.server.Close()
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	m := &message1{at: time.Now(), path: req.URL.Path, headers: req.Header.Clone(), body: body}
	_ = json.Unmarshal(body, &m.data)
	r.mu.Lock()
	r.got = append(r.got, m)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(m, w)
	}
}

// send is what egress does, but for the guard.
func (r *receiver) send(req *http.Request) (*http.Response, error) {
	resp, err := r.client.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		return nil, fault.New(fault.ServiceUnavailable, "%v", err)
	}
	return resp, nil
}

func (r *receiver) answers(fn func(*message1, http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = fn
}

func (r *receiver) messages() []*message1 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*message1(nil), r.got...)
}

func status(code int) func(*message1, http.ResponseWriter) {
	return func(_ *message1, w http.ResponseWriter) { w.WriteHeader(code) }
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), st: memory.New(memory.Options{}), logs: testWriter{t}, receiver: newReceiver(t)}
	w.rules = func(account string) engine.AccountRules { return engine.AccountRules{Unmetered: true} }
	a := w.action()
	p, _, _, diags := compile.Source("work.yaml", []byte("name: work\nsteps:\n  - {id: act, action: {name: act}}\n"), compile.Options{Actions: catalogue.New(&a)})
	if p == nil {
		t.Fatal(diags)
	}
	w.work = p
	w.boot()
	t.Cleanup(w.kill)
	return w
}

func (w *world) action() action.Action {
	return action.Action{Name: "act", Version: "1.0.0", Cost: 1, Run: func(ctx context.Context, _ *action.Task) (action.Result, error) {
		if w.fail != nil {
			return action.Result{}, w.fail(ctx)
		}
		return action.Result{Output: map[string]any{"done": true}}, nil
	}}
}

// boot starts the server.
func (w *world) boot() {
	w.t.Helper()
	w.records = &records{Store: w.st}
	ids := journal.NewIDs(neverEnds{}, time.Now)
	var err error
	w.h, err = New(Config{
		Records: w.records, Sealer: secrets.NewSealer(w.dir, func(string) string { return "" }), NewID: func() (string, error) { return ids.ID(IDPrefix) },
		Send: w.receiver.send, Now: time.Now, Logger: slog.New(slog.NewTextHandler(w.logs, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	act, deliver := w.action(), w.h.Action()
	w.e, err = engine.Open(w.t.Context(), engine.Config{
		Store: w.st, Actions: catalogue.New(&act, &deliver), Accounts: w.rules, Logger: slog.New(slog.NewTextHandler(w.logs, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.records.e = w.e
	w.h.Attach(Host{Engine: w.e, Store: w.st})
	if err := w.h.Start(w.t.Context(), w.execution); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) execution(ctx context.Context, account, run string) (json.RawMessage, error) {
	head, err := w.e.Head(ctx, account, run)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"id": head.Run, "state": head.Status})
}

// neverEnds is a source of bytes for ids.
type neverEnds struct{}

func (neverEnds) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(time.Now().UnixNano() >> (i % 8 * 8))
	}
	return len(b), nil
}

// kill ends the process without warning: what it had not made durable is lost.
func (w *world) kill() {
	next := w.st.Crash(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.h.Stop()
	_, _ = w.e.Stop(ctx)
	w.st = next
}

// restart kills the server and starts it again.
func (w *world) restart() {
	w.t.Helper()
	w.kill()
	w.boot()
}

// hook makes a hook.
func (w *world) hook(events ...string) *Created {
	w.t.Helper()
	url := "http://receiver.example/in"
	c, err := w.h.Create(w.t.Context(), acme, "key_1", &Spec{URL: &url, Events: events})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// run runs a recipe to its end.
func (w *world) run(account string) string {
	w.t.Helper()
	started, err := w.e.Start(w.t.Context(), engine.StartRequest{Account: account, Plan: w.work, Recipe: "work"})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.e.Wait(w.t.Context(), account, started.Run); err != nil {
		w.t.Fatal(err)
	}
	return started.Run
}

// deliveries returns those of a hook, the oldest first.
func (w *world) deliveries(hook string) []*Delivery {
	w.t.Helper()
	var all []*Delivery
	for place := ""; ; {
		list, next, err := w.h.Deliveries(w.t.Context(), acme, hook, place, 7)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, list...)
		if next == "" {
			break
		}
		place = next
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// verified fails the test unless a message verifies with a secret as receivers check it.
func (w *world) verified(secret string, m *message1) {
	w.t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err == nil {
		err = v.Verify(m.body, m.headers)
	}
	if err != nil {
		w.t.Errorf("the message %s does not verify: %v", m.headers.Get(HeaderID), err)
	}
}

func text(d *Delivery) string {
	out := fmt.Sprintf("%s %s", d.Event, d.State)
	for _, a := range d.Attempts {
		out += fmt.Sprintf(" %d:%d:%s", a.Number, a.Status, a.Code)
	}
	return out
}

// settle waits until nothing is left to do at this moment.
func (w *world) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}
