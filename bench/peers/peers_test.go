// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The process of a peer would be this test binary, which would run its tests again.
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

// fakePeer is a peer of which only the shapes are there.
type fakePeer struct{ shapes }

func (*fakePeer) Open(context.Context, env) error { return nil }
func (*fakePeer) Close() error                    { return nil }

// TestWide: as many steps in narrow executions as in one, with half between.
func TestWide(t *testing.T) {
	m := newMarks(100)
	p := &fakePeer{shapes{marks: m}}
	var sizes []int
	p.start = func(_ context.Context, _ kind, id string, n int) error {
		sizes = append(sizes, n)
		for range n {
			m.step()
		}
		m.reached(id)
		return nil
	}
	half := func() error { sizes = append(sizes, 0); return nil }
	if err := carryOut(t.Context(), p, "wide", 30, half); err != nil {
		t.Fatal(err)
	}
	if want := []int{10, 10, 10, 0, 30}; !slices.Equal(sizes, want) {
		t.Errorf("executions of %v steps, want %v", sizes, want)
	}
	if f, err := m.figures("wide", 30); err != nil || f.N != 30 || f.Runs != 4 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := m.figures("wide", 40); err == nil {
		t.Error("60 steps are enough for twice 40")
	}
	l := line{figures: figures{N: 1000}}
	if l.grown(2*time.Second, 3*time.Second); l.CPUNarrow != 2000 || l.CPUPerStep != 3000 || l.Growth != 1.5 {
		t.Errorf("%+v", l)
	}
}

// TestWaiting: an execution is found at the address it reported, and the first step
// after the event is recorded.
func TestWaiting(t *testing.T) {
	m := newMarks(1)
	p := &fakePeer{shapes{marks: m}}
	p.start = func(_ context.Context, _ kind, id string, _ int) error {
		m.waits(id, "where "+id+" waits")
		m.waits(id, "elsewhere")
		return nil
	}
	p.signal = func(_ context.Context, address string) error {
		if address != "where wait-1 waits" {
			return errors.New(address)
		}
		m.step()
		return nil
	}
	if err := carryOut(t.Context(), p, "recover", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), m.anyAddress()); err != nil {
		t.Fatal(err)
	}
	if err := m.stepped(t.Context()); err != nil {
		t.Error(err)
	}
	m.reset()
	m.failed(errors.New("it broke"))
	if err := m.stepped(t.Context()); err == nil || err.Error() != "it broke" {
		t.Errorf("%v", err)
	}
}

// TestKillTree: a process and those it has started have ended, although no process has
// waited for them.
func TestKillTree(t *testing.T) {
	if _, err := processes(); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	shell := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if err := killTree(t.Context(), shell.Process.Pid); err != nil {
		t.Fatal(err)
	}
	all, err := processes()
	if p, ok := all[child]; err != nil || ok && !p.ended {
		t.Errorf("the shell's child lives on, %v", err)
	}
	if err := shell.Wait(); err == nil {
		t.Error("the shell ended by itself")
	}
}

// TestKeptPorts: a server that comes back is where it was.
func TestKeptPorts(t *testing.T) {
	dir := t.TempDir()
	first, err := keptPorts(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := keptPorts(dir, 3); err != nil || len(first) != 3 || !slices.Equal(first, again) {
		t.Errorf("%v, then %v, %v", first, again, err)
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

// TestUsage: the memory of this process and its children counts, that of others does not.
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

// TestTable: medians are computed for each figure, ratios compare peers with Roux, a peer
// that does not sync is not compared, and a missed bar is an error.
func TestTable(t *testing.T) {
	s := &session{options: options{runs: 3, peers: []string{rouxName, "dbos-sqlite", "dbos-postgres", "restate"}, shapes: []string{"chain", "many", "wide", "recover"}},
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
	add("dbos-postgres", "wide", 0, 0)
	wide := &s.lines[len(s.lines)-1]
	wide.N, wide.Growth = 500, 1.25
	add(rouxName, "wide", 0, 0)
	tab := s.table()
	if got := tab.rows[0].median["chain"].P50; got != 200 {
		t.Errorf("median %v, want 200", got)
	}
	text := tab.markdown()
	for _, want := range []string{"· 3.50×", "· 0.75×", "not run: no npm", "**no**", "100,000", "| 1.25 [500 steps] |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "recover") {
		t.Errorf("a column of what was not measured:\n%s", text)
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

// TestReport: the table can be recreated from the raw lines, with peers that could not
// run and without those that were not requested.
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
