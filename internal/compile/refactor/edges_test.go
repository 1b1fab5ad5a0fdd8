// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/refactor"
)

// drawnFlow draws a flow with edges of every kind. Its nodes are n0, n1 and so on.
func drawnFlow(dice *rand.Rand) (text string, nodes int) {
	pick := func(of ...string) string { return of[dice.IntN(len(of))] }
	var b strings.Builder
	b.WriteString("name: drawn\n" + pick("", "", "order: sequence\n") + pick("", "", "result_rule: strict\n", "failure_policy: fail_fast\n"))
	nodes = 3 + dice.IntN(6)
	outcomes := pick("", fmt.Sprintf("outputs: {r: steps.n%d.output}\n", nodes-1), "outputs: {r: steps.n1.output, f: steps.n0.output}\n")
	b.WriteString("nodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "%s  - id: n%d%s\n", pick("", "  # Of it.\n"), i, pick("", " # one"))
		if pick("", "", "label") != "" {
			fmt.Fprintf(&b, "    label: L%d\n", i%2)
		}
		merge := pick("", "", "concat", "array", "json_object", "last_write_wins")
		if merge != "" {
			fmt.Fprintf(&b, "    config: {merge: %s}\n", merge)
		}
		if dice.IntN(12) == 0 {
			b.WriteString("    when: input.zero == 0\n")
		}
		if given := pick("", "", "{own: input.list}"); given != "" {
			fmt.Fprintf(&b, "    inputBindings: %s\n", given)
		} else if dice.IntN(8) == 0 && i > 0 {
			fmt.Fprintf(&b, "    dependsOn: [n%d]\n", dice.IntN(i))
		}
		fmt.Fprintf(&b, "    action: {name: %s, parameters: {i: %d}}\n", pick("work", "once"), i)
	}
	b.WriteString("edges:\n")
	edges := 0
	for i := 1; i < nodes; i++ {
		key := map[string]string{} // one of each label, so that strategies agree
		for range dice.IntN(4) {
			from, label := dice.IntN(i), pick("", "a", "a", "b", "b")
			edge := fmt.Sprintf("{id: e%d, source_node_id: n%d, target_node_id: n%d", edges, from, i)
			if label != "" {
				if _, drawn := key[label]; !drawn {
					key[label] = pick("", "", "array", "json_object")
				}
				edge += ", target_param_label: " + label
				if key[label] != "" {
					edge += ", merge_strategy: " + key[label]
				}
				edge += pick("", "", ", source_output_key: hash", ", source_output_key: output")
			}
			if edge += "}"; dice.IntN(3) == 0 {
				edge = strings.NewReplacer("{", "", "}", "", ", ", "\n    ").Replace(edge)
			}
			b.WriteString(pick("", "", "  # An edge.\n", "\n") + "  - " + edge + pick("", " # why") + "\n")
			edges++
		}
	}
	text = b.String()
	if edges == 0 {
		text = strings.TrimSuffix(text, "\n") + " []\n"
	}
	return text + outcomes, nodes
}

// TestX210_EdgesChangeNoResult is TestX210_RefactorChangesNoResult for flows with edges of every kind.
func TestX210_EdgesChangeNoResult(t *testing.T) {
	seeds := uint64(120)
	if os.Getenv("ROUX_LONG") != "" {
		seeds = 4000
	}
	if testing.Short() {
		seeds = 40
	}
	e, file := opened(t)
	moved, completed, refusals := 0, 0, map[string]int{}
	for seed := range seeds {
		dice := rand.New(rand.NewPCG(seed, 9))
		text, nodes := drawnFlow(dice)
		main, err := refactor.Load("main.yaml", []byte(text), compile.Options{Actions: declared()})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		var was ended
		for range 4 {
			first := dice.IntN(nodes)
			last := first + dice.IntN(nodes-first)
			x := refactor.Extraction{First: fmt.Sprintf("n%d", first), Last: fmt.Sprintf("n%d", last), Name: "part"}
			res, err := main.Extract(x)
			if err != nil {
				refusals[short(err)]++
				continue
			}
			if was.status == "" {
				was = play(t, e, []byte(text), file)
			}
			if moved++; was.status == "completed" {
				completed++
			}
			if is := play(t, e, res.Text, file); is.status != was.status || is.outputs != was.outputs {
				t.Fatalf("seed %d, nodes %d to %d: the run was %v, and is %v\n%s\nbecame\n%s", seed, first, last, was, is, text, res.Text)
			}
			x.Path = "part.yaml"
			if _, err := main.Extract(x); err != nil {
				t.Fatalf("seed %d: in the text it works, and not in a file: %v", seed, err)
			}
		}
	}
	t.Logf("%d moved, of %d that complete; refused: %v", moved, completed, refusals)
	if moved < int(seeds) || completed < moved/5 {
		t.Errorf("%d were moved, and %d of the runs complete: the test sees too little", moved, completed)
	}
}
