// SPDX-License-Identifier: Apache-2.0

package dag_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
)

// graphs reads the graphs of real workflows from the shared data beside the repository. Each is a
// map from a task to those before it.
func graphs(t *testing.T) map[string]map[string][]string {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../../shared")
	files, err := filepath.Glob(filepath.Join(dir, "data/dags/flowbench/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no shared data: set ROUX_SHARED to the directory that holds data/dags")
	}
	all := map[string]map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var next map[string][]string
		if err := json.Unmarshal(data, &next); err != nil {
			t.Fatal(err)
		}
		before := map[string][]string{}
		for from, list := range next {
			before[from] = append(before[from], []string{}...)
			for _, to := range list {
				before[to] = append(before[to], from)
			}
		}
		all[filepath.Base(file)] = before
	}
	return all
}

// TestRealGraphs: workflows of 12 to 539 tasks have the same plan as nodes, as nodes and edges, and as a recipe
// (X21, X23, X55, X56): each task once, after those that it depends on.
func TestRealGraphs(t *testing.T) {
	all := graphs(t)
	if len(all) != 8 {
		t.Errorf("%d graphs", len(all))
	}
	for name, before := range all {
		tasks := slices.Sorted(maps.Keys(before))
		ids := map[string]string{}
		for i, task := range tasks {
			ids[task] = fmt.Sprintf("t%d", i)
		}
		var nodes, steps, flow, edges strings.Builder
		fmt.Fprintf(&flow, "name: f\nfailure_policy: fail_fast\nresult_rule: strict\nnodes:\n")
		fmt.Fprintf(&nodes, "name: n\nnodes:\n")
		fmt.Fprintf(&steps, "name: s\norder: none\non_upstream_failure: fail\nresult: steps\nsteps:\n")
		for _, task := range tasks {
			var list []string
			for _, b := range before[task] {
				list = append(list, ids[b])
			}
			slices.Sort(list)
			wait := "[" + strings.Join(list, ", ") + "]"
			fmt.Fprintf(&nodes, "  - {id: %s, handler: echo, config: {text: %s}, dependencies: %s}\n", ids[task], ids[task], wait)
			fmt.Fprintf(&flow, "  - {id: %s, action: {name: echo, parameters: {text: %s}}}\n", ids[task], ids[task])
			for _, b := range list {
				fmt.Fprintf(&edges, "  - {source_node_id: %s, target_node_id: %s}\n", b, ids[task])
			}
			fmt.Fprintf(&steps, "  - {id: %s, action: {name: echo, parameters: {text: %s}}, dependsOn: %s}\n", ids[task], ids[task], wait)
		}
		p, q := build(t, nodes.String()), build(t, steps.String())
		f := build(t, flow.String()+"edges:\n"+edges.String())
		if len(p.Steps) != len(tasks) || p.Hash() != q.Hash() || p.Hash() != f.Hash() {
			t.Errorf("%s: %d steps of %d tasks; the plans are the same: %t, %t", name, len(p.Steps), len(tasks), p.Hash() == q.Hash(), p.Hash() == f.Hash())
		}
		for i := range p.Steps {
			st := &p.Steps[i]
			var deps []string
			for _, d := range st.Preds {
				deps = append(deps, p.Steps[d].ID)
			}
			slices.Sort(deps)
			var want []string
			for _, b := range before[tasks[slices.IndexFunc(tasks, func(task string) bool { return ids[task] == st.ID })]] {
				want = append(want, ids[b])
			}
			slices.Sort(want)
			if !slices.Equal(deps, want) {
				t.Errorf("%s: %s waits for %v, want %v", name, st.ID, deps, want)
			}
		}
	}
}

// BenchmarkCompile: 1,000 nodes with one template, and with a template each.
func BenchmarkCompile(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		var text strings.Builder
		text.WriteString("nodes:\n")
		for i := range 1000 {
			n := 0
			if distinct {
				n = i
			}
			fmt.Fprintf(&text, "  - {id: n%d, handler: echo, config: {text: \"{{ input.text }} %d\"}}\n", i, n)
		}
		b.Run(fmt.Sprintf("distinct=%t", distinct), func(b *testing.B) {
			for b.Loop() {
				if p, _, _, diags := compile.Source("n.yaml", []byte(text.String()), options()); p == nil {
					b.Fatal(diags)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
		})
	}
}
