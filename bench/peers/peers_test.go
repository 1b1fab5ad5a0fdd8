// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The process of a peer would be this test binary, which would begin its tests anew.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		fmt.Fprintln(os.Stderr, "a test has started a peer")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestMarks: an execution counts once however often its code runs, and a shape
// whose steps did not all run has no figures.
func TestMarks(t *testing.T) {
	m := newMarks(10)
	s := shapes{marks: m, starters: 2}
	s.start = func(_ context.Context, k kind, id string, n int) error {
		for range n {
			m.step()
		}
		m.reached(id)
		m.reached(id)
		return nil
	}
	if err := s.Many(t.Context(), 2, 3); err != nil {
		t.Fatal(err)
	}
	if len(m.seen) != 2 || m.n.Load() != 6 {
		t.Errorf("%d executions and %d steps, want 2 and 6", len(m.seen), m.n.Load())
	}
	if _, err := m.figures("chain", 7); err == nil || !strings.Contains(err.Error(), "6 steps ran, 14 were asked for") {
		t.Errorf("six steps of twice seven: %v", err)
	}
	for i, at := range []time.Duration{0, 1, 2, 100, 101, 102} {
		m.steps[i].Store(int64(at * time.Microsecond))
	}
	if f, err := m.figures("chain", 3); err != nil || f.Runs != 2 || f.P50 != 1 || f.P99 != 1 {
		t.Errorf("two chains of steps at a distance of 1 µs: %+v, %v", f, err)
	}
	m.reset()
	if err := s.Submit(t.Context(), 3); err != nil || len(m.lags) != 3 {
		t.Errorf("%d lags, %v; want 3", len(m.lags), err)
	}
	m.reset()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.start = func(context.Context, kind, string, int) error { return nil }
	if err := s.Chain(ctx, 1); err == nil || !strings.Contains(err.Error(), "0 of 1 executions") {
		t.Errorf("an execution that never ends: %v", err)
	}
}

func TestPercentiles(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Microsecond)
	}
	if p50, p99 := percentiles(d); p50 != 51 || p99 != 100 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
}

// TestUsage: this process has memory, its children's count, and a stranger's do not.
func TestUsage(t *testing.T) {
	_, held, err := usage(os.Getpid())
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	if held < 1<<20 {
		t.Errorf("this process holds %d bytes", held)
	}
	all := map[int]process{1: {}, 2: {parent: 1}, 3: {parent: 2}, 4: {parent: 1}}
	if got := tree(all, []int{2}); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("the tree of 2 is %v, want 2 and 3", got)
	}
}

// TestSyncsAreCountedOnce: a call that is interrupted in the log is one call.
func TestSyncsAreCountedOnce(t *testing.T) {
	c := &counter{dir: t.TempDir()}
	log := "1 fdatasync(3 <unfinished ...>\n2 fsync(4)  = 0\n1 <... fdatasync resumed>) = 0\n1 --- SIGURG ---\n"
	if err := os.WriteFile(filepath.Join(c.dir, "child"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.count(); got != 2 {
		t.Errorf("%d syncs, want 2", got)
	}
}

// TestTable: medians are taken figure by figure, ratios say by how much Roux is
// ahead, a peer that does not sync is no rival, and a missed bar is an error.
func TestTable(t *testing.T) {
	s := &session{options: options{runs: 3, peers: []string{rouxName, "dbos-sqlite", "dbos-postgres", "restate"}, shapes: []string{"chain", "many"}},
		missing: map[string]string{"restate": "no npm"}}
	add := func(peer, shape string, p50, rate float64) {
		s.lines = append(s.lines, line{Peer: peer, Shape: shape, figures: figures{P50: p50, Runs: 1}, StepsPerS: rate})
	}
	for _, p50 := range []float64{300, 100, 200} {
		add(rouxName, "chain", p50, 0)
	}
	add("dbos-sqlite", "chain", 150, 0)
	add("dbos-postgres", "chain", 700, 0)
	add(rouxName, "many", 0, 100_000)
	add("dbos-postgres", "many", 0, 10_000)
	tab := s.table()
	if got := tab.rows[0].median["chain"].P50; got != 200 {
		t.Errorf("median %v, want 200", got)
	}
	text := tab.markdown()
	for _, want := range []string{"· 3.50×", "· 0.75×", "not run: no npm", "**no**", "100,000"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	liar := row{spec: specOf("restate"), median: map[string]line{syncShape: {Peer: "restate"}}, syncsOf: 0.1}
	if liar.strict() || !strings.Contains(liar.synced(), "**no**") {
		t.Errorf("a peer with a tenth of a sync a step: %s", liar.synced())
	}
	err := tab.check(io.Discard)
	if err == nil || !strings.Contains(err.Error(), "many: 10.00 × the best peer (dbos-postgres), the bar is 15 ×") || strings.Contains(err.Error(), "chain") {
		t.Errorf("check: %v", err)
	}
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-peers nobody", `no peer "nobody"`},
		{"-shapes x", `no shape "x"`},
		{"-n chain=0", "want a shape and a number"},
		{"-runs 0", "want 1 or more"},
		{"again", "takes flags only"},
	} {
		if err := command(t.Context(), strings.Fields(tt.args)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	if got := digits(1234567.8); got != "1,234,568" {
		t.Errorf("digits: %s", got)
	}
}

// TestWithin: nothing is begun after the time that was given.
func TestWithin(t *testing.T) {
	err := command(t.Context(), strings.Fields("-peers dbos-sqlite -shapes chain -syncs=false -out= -within 1ns -dir "+t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "nothing was measured") {
		t.Errorf("%v", err)
	}
}

// TestReport: the table can be made again from the raw lines, with the peers
// that were not run and without those that were not asked for.
func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw.jsonl")
	raw := `{"peer":"restate","shape":"","error":"no npm here","at":"2026-01-02T03:04:05Z"}
{"peer":"roux","version":"this checkout","shape":"chain","run":1,"n":100,"runs":1,"p50_us":200,"load":1,"at":"2026-01-02T03:04:05Z"}
{"peer":"dbos-postgres","version":"v1.2.0","settings":"as it was then","shape":"chain","run":1,"n":100,"runs":1,"p50_us":500,"load":2,"at":"2026-01-02T03:04:05Z"}
`
	if err := os.WriteFile(name, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := reportOf(options{report: name, shapes: []string{"chain"}}, &table); err != nil || !strings.Contains(table.String(), "| as it was then |") {
		t.Errorf("%v, or other settings than those of the run:\n%s", err, table.String())
	}
	if first, second := strings.Index(table.String(), "| Roux"), strings.Index(table.String(), "| DBOS"); first < 0 || second < first {
		t.Errorf("Roux is not the first:\n%s", table.String())
	}
	err := command(t.Context(), []string{"-report", name, "-check", "-shapes", "chain"})
	if err == nil || !strings.Contains(err.Error(), "chain: 2.50 × the best peer (dbos-postgres), the bar is 3 ×") {
		t.Errorf("%v", err)
	}
}
