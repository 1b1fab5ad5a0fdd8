// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPress: each connection starts the next execution when the last is accepted, every
// execution has an id of its own, and a refused one ends the measurement.
func TestPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ids := map[string]bool{}
		start := func(_ context.Context, id string) error {
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
			return nil
		}
		a, f, err := press(t.Context(), []starter{start, start}, "end", 10*time.Millisecond)
		if err != nil || !slices.Equal(a.Each, []int{5, 5}) || f.N != 2 || f.Runs != 10 || f.P50 != 2000 || f.Seconds != 0.01 {
			t.Errorf("%+v, %+v, %v", a, f, err)
		}
		n := 0
		a.ids(func(id string) {
			n++
			if !ids[id] {
				t.Errorf("%s was not started", id)
			}
		})
		if n != 10 || len(ids) != 10 {
			t.Errorf("%d ids, %d executions; want 10", n, len(ids))
		}
		refuse := func(context.Context, string) error { return errors.New("no room") }
		if _, _, err := press(t.Context(), []starter{start, refuse}, "end", 10*time.Millisecond); err == nil || err.Error() != "no room" {
			t.Errorf("a refused execution: %v", err)
		}
	})
}

// gate is a peer whose executions a test starts.
type gate struct{ fakePeer }

func (*gate) Address() string { return "here" }

// TestAdmit: the ids of accepted executions are compared with those that have ended. What is
// lost is counted, and executions without their steps are an error.
func TestAdmit(t *testing.T) {
	m := newMarks(10)
	ends := func(part string, conn, i int) {
		for range ingressSteps {
			m.step()
		}
		m.reached(ingressID(part, conn, i))
	}
	reports, out := io.Pipe()
	in, answers := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	admitted := make(chan error, 1)
	go func() {
		admitted <- admit(ctx, &courier{out: json.NewEncoder(out), in: bufio.NewReader(in)}, &gate{}, m)
	}()
	from := json.NewDecoder(reports)
	next := func(phase string) (r report) {
		t.Helper()
		if err := from.Decode(&r); err != nil || r.Phase != phase {
			t.Fatalf("%+v, %v; want %s", r, err, phase)
		}
		return r
	}
	c := &childProcess{answer: answers}
	if r := next("begin"); r.Address != "here" {
		t.Errorf("the ingress is at %q", r.Address)
	}
	ends("warm", 0, 0)
	if err := c.tell(accepted{"warm", []int{1}}); err != nil {
		t.Fatal(err)
	}
	if r := next("warm"); r.Completed != 1 {
		t.Errorf("%d completed", r.Completed)
	}
	ends("end", 0, 0)
	ends("end", 1, 0)
	ends("warm", 0, 1) // none of these
	if err := c.tell(accepted{"end", []int{1, 2}}); err != nil {
		t.Fatal(err)
	}
	cancel() // the time is over
	if r := next("end"); r.Completed != 2 {
		t.Errorf("%d of 3 completed, want 2: one is lost", r.Completed)
	}
	if err := c.goOn(); err != nil {
		t.Fatal(err)
	}
	if err := <-admitted; err != nil {
		t.Error(err)
	}
	m.reset()
	m.reached(ingressID("end", 0, 0))
	if _, err := m.ended(t.Context(), accepted{"end", []int{1}}); err == nil || !strings.Contains(err.Error(), "1 executions of 3 steps had 0 steps") {
		t.Errorf("an execution without steps: %v", err)
	}
	if err := admit(t.Context(), nil, &fakePeer{}, m); err == nil {
		t.Error("a library has an ingress")
	}
}

// TestIngressTable: a faster peer has a ratio below one, counts are those of all runs, and
// libraries have no row.
func TestIngressTable(t *testing.T) {
	s := &session{options: options{runs: 2, peers: []string{rouxName, "dbos-sqlite", "dbos-postgres", "temporal-sqlite", "restate"}, shapes: []string{ingressShape}},
		missing: map[string]string{"temporal-sqlite": "no room"}, raw: io.Discard}
	roux := line{Peer: rouxName, Shape: ingressShape}
	roux.fromExecute(&benchLine{N: 64, StepsPerS: 2000, Seconds: 1, P50US: 1000, P99US: 5000, CPUPerStepUS: 400,
		More: map[string]float64{"accepted": 1000, "lost": 1, "client_cpu_us": 20, "drain_s": 0.5}})
	restate := line{Peer: "restate", Shape: ingressShape, Accepted: 4000, Completed: 4000, DrainS: 1, Settings: "as it was", figures: figures{N: 32, Seconds: 1, P50: 2500, P99: 9000}}
	restate.entered(2*time.Second, time.Second)
	s.lines = []line{roux, roux, restate, {Peer: "dbos-postgres", Shape: ingressShape, Error: "it fell over"}}
	tab := s.table()
	if !tab.entered() {
		t.Fatal("nothing was measured")
	}
	text := tab.ingress()
	for _, want := range []string{"| 2,000 | 1.00 / 5.00 | 400 | 20.0 | 1,998 / 2,000 | 0.50 | 666 |", "| 4,000 · 0.50× | 2.50 / 9.00 | 500 · 1.25× | 250 | 4,000 / 4,000 | 1.00 | 2,000 · 0.33×",
		"as it was; 32 connections", "not run: no room", "dbos-postgres: it fell over"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "NORMAL") || strings.Count(text, "| DBOS") != 1 {
		t.Errorf("a library has a row:\n%s", text)
	}
	if specOf("dbos-sqlite").size(ingressShape, map[string]int{ingressShape: 8}) != 0 {
		t.Error("a library is measured through an ingress")
	}
	var b strings.Builder
	if err := s.print(&b); err != nil || strings.Contains(b.String(), "peak MB") {
		t.Errorf("%v, or a table of shapes that were not measured:\n%s", err, b.String())
	}
}
