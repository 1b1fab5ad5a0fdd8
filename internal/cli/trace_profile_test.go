// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/view"
)

// profiled runs a recipe, which ends with a code, and returns the data directory and what reads its profile.
func profiled(t *testing.T, src string, ends int) (data string, profile func(args ...string) treeProfile) {
	t.Helper()
	dir := t.TempDir()
	data, recipe := filepath.Join(dir, "data"), filepath.Join(dir, "recipe.yaml")
	if err := os.WriteFile(recipe, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, talk, code := inProcess("", "run", recipe, "--data", data, "-q"); code != ends {
		t.Fatalf("exit %d: %s", code, talk)
	}
	return data, func(args ...string) (p treeProfile) {
		t.Helper()
		out, talk, code := inProcess("", append([]string{"trace", "@last", "--data", data, "--runs", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, talk)
		}
		return p
	}
}

// X213: the profile of a tree of runs has every run once, and all of its parts add up.
func TestX213_Profile(t *testing.T) {
	const src = `name: many
steps:
  - id: each
    loop:
      over: lists.range(30)
      as: n
      maxConcurrency: 4
      steps: [{id: one, recipe: {inline: {name: small, steps: [{id: work, action: {name: effect}}]}}}]
  - {id: pause, wait: {duration: 20ms}, dependsOn: [each]}
  - {id: last, recipe: {inline: {name: "a; b", steps: [{id: work, action: {name: effect}}, {id: stop, fail: {message: it ends}}]}}, dependsOn: [pause], continue_on_error: true}
`
	data, profile := profiled(t, src, 0)
	all := profile("--children", "all")
	runs, own, wait, steps, attempts := map[string]int{}, 0.0, 0.0, int64(0), int64(0)
	for i, r := range all.List {
		runs[fmt.Sprint(r.Recipe, " ", r.Depth, " ", r.Status)]++
		own, wait, steps, attempts = own+r.OwnMs, wait+r.WaitMs, steps+r.Steps, attempts+r.Attempts
		if r.TookMs <= 0 || r.Depth == 1 && (r.OwnMs <= 0 || r.OwnMs > r.TookMs || r.Credits.String() != "2") {
			t.Errorf("the profile of a run is %+v", r)
		}
		if i > 0 && r.OwnMs > all.List[i-1].OwnMs {
			t.Errorf("run %d worked longer than the one before it", i)
		}
	}
	if want := map[string]int{"many 0 completed": 1, "small 1 completed": 30, "a; b 1 failed": 1}; fmt.Sprint(runs) != fmt.Sprint(want) || all.Runs != 32 || all.Missing != 0 {
		t.Errorf("the runs are %v, want %v", runs, want)
	}
	// Of the root: the loop, its 30 items, the pause and the last step; of the runs inside it 30 and 2.
	if all.Steps != 33+32 || all.Attempts != 31+31 || all.Steps != steps || all.Attempts != attempts || all.WaitMs < 20 || all.WaitMs-wait > 1e-6 || all.OwnMs-own > 1e-6 {
		t.Errorf("in all %+v; the runs have %d steps, %d attempts, %v ms at work and %v ms waited", all, steps, attempts, own, wait)
	}
	if some := profile("--children", "3"); len(some.List) != 3 || some.Runs != 32 || some.OwnMs != all.OwnMs || some.List[2].Run != all.List[2].Run {
		t.Errorf("of three runs it says %+v", some)
	}

	folded := func(what string) (lines map[string]int64, sum int64) {
		t.Helper()
		out, talk, code := inProcess("", "trace", "@last", "--data", data, "--folded", what)
		lines = map[string]int64{}
		for line := range strings.Lines(out) {
			m := regexp.MustCompile(`^(.+) (\d+)\n$`).FindStringSubmatch(line) // as speedscope and inferno read it
			if m == nil {
				t.Fatalf("exit %d: %q %s", code, line, talk)
			}
			n, _ := strconv.ParseInt(m[2], 10, 64)
			lines[m[1]], sum = n, sum+n
		}
		return lines, sum
	}
	lines, sum := folded("own")
	if len(lines) != 2 || lines["many;each;one;small;work"] <= 0 || lines["many;last;a: b;work"] <= 0 {
		t.Errorf("the stacks are %v", lines)
	}
	if diff := float64(sum)/1000 - all.OwnMs; diff > 0.1 || diff < -0.1 {
		t.Errorf("the stacks have %d µs, and the runs %v ms", sum, all.OwnMs)
	}
	if lines, _ = folded("wait"); lines["many;pause"] < 20_000 {
		t.Errorf("the stacks of what waited are %v", lines)
	}
}

// X104, X213: a child run that goes on as another attempt is one run of the profile.
func TestX213_ProfileOfOneThatGoesOn(t *testing.T) {
	const src = `name: again
steps:
  - id: gather
    recipe:
      resume: true
      inline:
        name: gather
        steps:
          - {id: work, action: {name: effect}}
          - {id: check, fail: {code: SERVICE_UNAVAILABLE, message: not there yet}}
    retryPolicy: {maxAttempts: 3, initialDelay: 1ms}
`
	_, profile := profiled(t, src, 1)
	p := profile()
	// The root has three attempts, and the run inside it one.
	if p.Runs != 2 || len(p.List) != 2 || p.Attempts != 4 {
		t.Errorf("the profile is %+v", p)
	}
}

// X213: a profile of a large tree holds what it shows, and no more.
func TestX213_ProfileIsBounded(t *testing.T) {
	tree := treeProfile{most: 20}
	for i := range 10_000 {
		tree.add(view.RunProfile{OwnMs: float64(i * 7 % 10_000)})
	}
	if n := cap(tree.List); n > 3_000 {
		t.Errorf("it holds %d runs", n)
	}
	tree.cut(0)
	if tree.Runs != 10_000 || len(tree.List) != 20 || !slices.IsSortedFunc(tree.List, func(a, b view.RunProfile) int { return int(b.OwnMs - a.OwnMs) }) || tree.List[19].OwnMs != 9_980 {
		t.Errorf("of %d runs it shows %v", tree.Runs, tree.List)
	}
	x := profiling{stacks: map[string]*stackTime{}}
	for i := range maxStacks + 1_000 {
		x.stack([]string{"root", strconv.Itoa(i)}, view.StepTime{Own: 1})
	}
	if other := x.stacks["root;"+otherStacks]; len(x.stacks) != maxStacks+1 || other == nil || other.OwnUs != 1_000 {
		t.Errorf("it holds %d stacks, and of others %+v", len(x.stacks), other)
	}
}
