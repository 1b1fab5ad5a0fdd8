// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The processes that idle and recover start are this test binary.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(run(context.Background(), time.Now(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// keys are the keys of a line, in order; readers depend on them.
const keys = `"shape","n","seconds","steps_per_s","p50_us","p99_us","fsync_p50_us","ratio","cpu_us_per_step","bytes_per_step","rss_mb","run"`

// smoke runs the command and returns its lines.
func smoke(t *testing.T, args ...string) []Line {
	t.Helper()
	var out, log bytes.Buffer
	args = append([]string{"-smoke", "-dir", t.TempDir()}, args...)
	if code := run(t.Context(), time.Now(), args, strings.NewReader(""), &out, &log); code != 0 {
		t.Fatalf("bench %v ends with %d:\n%s", args, code, log.String())
	}
	var lines []Line
	for text := range strings.Lines(out.String()) {
		var l Line
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, l)
		at := 0
		for key := range strings.SplitSeq(keys, ",") {
			i := strings.Index(text[at:], key+":")
			if i < 0 {
				t.Fatalf("the line of %s has no %s after the keys before it:\n%s", l.Shape, key, text)
			}
			at += i
		}
	}
	return lines
}

// floorless are the shapes without floors of the store.
var floorless = []string{"fairness", "disk", "children", "towers", "books", "execute", "get", "get-large", "ready", "subscribers", "readers", "overload", "remote", "jobs", "streams", "streams-anthropic", "streams-killed"}

// Every shape runs, and its lines have the keys that readers expect: also flat, nested and deeply nested runs (X215).

func TestSmoke(t *testing.T) {
	lines := smoke(t)
	seen := map[string]bool{}
	for _, l := range lines {
		seen[l.Shape] = true
		if l.Run != "1" || l.N < 1 || l.Seconds <= 0 || l.RSSMB <= 0 && cpu() > 0 {
			t.Errorf("%s is not whole: %+v", l.Shape, l)
		}
		if l.Set["sqlite"] == "" || l.Set["synchronous"] != "FULL" || l.Set["gomaxprocs"] == "" || l.Set["gogc"] != cmp.Or(os.Getenv("GOGC"), "200") {
			t.Errorf("%s does not say with which settings: %v", l.Shape, l.Set)
		}
		// A chain has one sync per step and one for its start, whatever its length.
		if got := l.More["syncs_per_step"]; l.Shape == "chain" && got != 1 {
			t.Errorf("a chain of %d has %v syncs a step", l.N, got)
		}
		if got := l.More["syncs_per_run"]; l.Shape == "transforms" && got != 1 {
			t.Errorf("transforms in a row have %v syncs a run, want 1", got)
		}
		if again := l.More["again"]; l.Shape == "streams-killed" && again != float64(l.N) {
			t.Errorf("%v of %d streams have begun again after the kill", again, l.N)
		}
		if wrong, ok := l.More["wrong"]; strings.HasPrefix(l.Shape, "streams") && (!ok || wrong != 0) {
			t.Errorf("%s: %v of %d clients have another text than the result", l.Shape, wrong, l.N)
		}
		switch l.Shape {
		case "chain", "fan", "many", "metered", "slow", "submit", "transforms", "lanes":
			for _, name := range []string{"p50_us", "p99_us", "ratio", "bytes_per_step"} {
				if v, ok := l.figure(name); !ok || v <= 0 {
					t.Errorf("%s %d has no %s", l.Shape, l.N, name)
				}
			}
			if len(l.Hist) == 0 {
				t.Errorf("%s %d does not say how large its commits were", l.Shape, l.N)
			}
		}
		for _, name := range []string{"fsync_p50_us", "overwrite_p50_us", "store_p50_us", "memory_us_per_step"} {
			if v, ok := l.figure(name); !slices.Contains(floorless, l.Shape) && (!ok || v <= 0) {
				t.Errorf("%s %d has no %s", l.Shape, l.N, name)
			}
		}
	}
	for _, b := range bars {
		if !seen[b.shape] {
			t.Errorf("there is a bar for %s and no line", b.shape)
		}
	}
	for _, s := range shapes {
		if s.name != "wide" && !seen[s.name] {
			t.Errorf("%s printed no line", s.name)
		}
	}
	for _, v := range compareWithBars(lines) {
		if v.none && v.bar.shape != "steady" && cpu() > 0 { // nothing is trimmed in a second
			t.Errorf("a bar has nothing to be compared with: %v", v)
		}
	}
}

// Runs may wait before they have done anything; their memory is measured in the same way
// as bench/peers measures other engines.
func TestIdleOfNothingDone(t *testing.T) {
	lines := smoke(t, "-shapes", "idle", "-done", "0")
	if len(lines) != 1 || lines[0].StepsPerS != 0 || lines[0].More["recover_s"] <= 0 {
		t.Fatalf("got %+v", lines)
	}
	if empty, held := lines[0].More["pss_empty_mb"], lines[0].More["pss_mb"]; cpu() > 0 && (empty <= 0 || held <= empty) {
		t.Errorf("%v MB with the runs, %v MB without", held, empty)
	}
}

// What execute accepts is carried out, also when each request has a key, and no key is sent twice.
func TestKeyed(t *testing.T) {
	lines := smoke(t, "-shapes", "execute", "-keyed")
	if len(lines) != 1 || lines[0].More["accepted"] <= 0 || lines[0].More["lost"] != 0 {
		t.Fatalf("got %+v", lines)
	}
	b := &bench{keyed: true}
	send := b.starts([]tenant{{key: "k"}, {key: "l"}})
	seen := map[string]bool{}
	for range 3 {
		for conn := range 2 {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(send(conn, 0))))
			if err != nil {
				t.Fatal(err)
			}
			seen[r.Header.Get("Authorization")+" "+r.Header.Get("Idempotency-Key")] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("6 requests have %d keys: %v", len(seen), seen)
	}
}

// After several runs their medians are printed.
func TestMedians(t *testing.T) {
	lines := smoke(t, "-shapes", "fan,submit", "-runs", "3")
	byRun := map[string]int{}
	for _, l := range lines {
		byRun[l.Run]++
	}
	for _, r := range []string{"1", "2", "3", "median"} {
		if byRun[r] != 3 {
			t.Errorf("run %s has %d lines, want 3", r, byRun[r])
		}
	}
	m := medianOf([]Line{{P50US: 3, More: map[string]float64{"x": 1}}, {P50US: 1, More: map[string]float64{"x": 5}}, {P50US: 2, More: map[string]float64{"x": 2}}})
	if m.P50US != 2 || m.More["x"] != 2 || m.Run != "median" {
		t.Errorf("the median is %+v", m)
	}
}

// -check names the bars that are missed and fails.
func TestBars(t *testing.T) {
	good := Line{Shape: "many", N: 1000, StepsPerS: 100_000, CPUPerStepUS: 20}
	var out strings.Builder
	if err := check([]Line{good}, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	bad := good
	bad.CPUPerStepUS = 20.01
	if err := check([]Line{bad}, &out); err == nil || !strings.Contains(err.Error(), "CPU time") || strings.Contains(err.Error(), "steps/s") {
		t.Errorf("a missed bar is reported as %v", err)
	}
	bad.CPUPerStepUS = 0 // not measured here
	if err := check([]Line{bad}, &out); err == nil {
		t.Error("what was not measured passes")
	}
	for _, syncs := range []float64{0, 0.2} {
		l := Line{Shape: "idle", N: 5}
		l.put("syncs_per_s", syncs)
		if err := check([]Line{l}, &out); (err == nil) != (syncs == 0) {
			t.Errorf("idle with %v syncs/s: %v", syncs, err)
		}
	}
}

func TestUnknownShape(t *testing.T) {
	var out, log bytes.Buffer
	if code := run(t.Context(), time.Now(), []string{"-shapes", "chain,chian"}, strings.NewReader(""), &out, &log); code != 1 || !strings.Contains(log.String(), `"chian"`) {
		t.Errorf("bench of an unknown shape ends with %d: %s", code, log.String())
	}
}
