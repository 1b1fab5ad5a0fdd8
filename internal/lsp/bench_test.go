// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/cputime"
)

// A longDialect is how long texts of a dialect are written: what is before its steps, four of those, what is behind
// them, and what each step but the first adds there. %n is the number of the step, %p that of the one before, and %b
// what it reads.
type longDialect struct {
	head  string
	steps [4]string
	tail  string
	after string
}

// longDialects are texts as people write them: most steps have eight lines, and name steps and bindings before them.
var longDialects = map[string]longDialect{
	"recipe": {head: "name: long\ninputSchema:\n  type: object\n  properties:\n    text: {type: string}\nsteps:\n", steps: [4]string{
		"  - id: step%n\n    name: Count number %n\n    action:\n      name: word-count\n      parameters:\n        text: \"{{ %b }} and %n\"\n    outputBinding: count%n\n    timeout: 30s\n",
		"  - id: step%n\n    when: count%p.words > 3\n    transform:\n      expression: '{\"n\": count%p.words * %n, \"of\": string(%b)}'\n    outputBinding: sum%n\n",
		"  - id: step%n\n    # A comment of its own.\n    action:\n      name: text-join\n      parameters:\n        items: [\"{{ %b }}\", \"number %n\"]\n    retryPolicy:\n      maxAttempts: 3\n      initialDelay: 1s\n",
		"  - id: step%n\n    condition:\n      expression: size(string(%b)) > %n\n      then:\n        - {id: then%n, transform: {expression: \"%n\"}}\n      else:\n        - {id: else%n, transform: {expression: \"'no'\"}}\n",
	}},
	"pipeline": {head: "workflow:\n  name: long\n  inputSchema:\n    type: object\n    properties:\n      text: {type: string}\n  steps:\n", steps: [4]string{
		"    - name: step%n\n      label: Count number %n\n      type: word-count\n      inputs:\n        text: \"{{ %b }} and %n\"\n      outputBinding: count%n\n      timeout_seconds: 30\n",
		"    - name: step%n\n      condition: count%p.words > 3\n      type: transform\n      expression: '{\"n\": count%p.words * %n, \"of\": string(%b)}'\n      outputBinding: sum%n\n",
		"    - name: step%n\n      # A comment of its own.\n      type: text-join\n      inputs:\n        items: [\"{{ %b }}\", \"number %n\"]\n      retryPolicy:\n        maxAttempts: 3\n        initialDelay: 1s\n",
		"    - name: step%n\n      type: condition\n      expression: size(string(%b)) > %n\n      then:\n        - {name: then%n, type: transform, expression: \"%n\"}\n      else:\n        - {name: else%n, type: transform, expression: \"'no'\"}\n",
	}},
	"dag": {head: "name: long\ninputSchema:\n  type: object\n  properties:\n    text: {type: string}\nnodes:\n", steps: [4]string{
		"  - id: step%n\n    name: Count number %n\n    handler: word-count\n    config:\n      text: \"{{ %b }} and %n\"\n    outputBinding: count%n\n    timeout_seconds: 30\n",
		"  - id: step%n\n    when: count%p.words > 3\n    handler: transform\n    config:\n      expression: '{\"n\": count%p.words * %n, \"of\": string(%b)}'\n    dependencies: [step%p]\n",
		"  - id: step%n\n    # A comment of its own.\n    handler: text-join\n    config:\n      items: [\"{{ %b }}\", \"number %n\"]\n    retry:\n      maxAttempts: 3\n      initialDelay: 1s\n    dependencies: [step%p]\n",
		"  - id: step%n\n    handler: condition\n    dependencies: [step%p]\n    config:\n      expression: size(string(%b)) > %n\n      then:\n        - {id: then%n, transform: {expression: \"%n\"}}\n      else:\n        - {id: else%n, transform: {expression: \"'no'\"}}\n",
	}},
	"flow": {head: "name: long\ninputSchema:\n  type: object\n  properties:\n    text: {type: string}\nnodes:\n", steps: [4]string{
		"  - id: step%n\n    label: Count number %n\n    action:\n      name: word-count\n      parameters:\n        text: \"{{ %b }} and %n\"\n    outputBinding: count%n\n    config:\n      timeout_ms: 30000\n",
		"  - id: step%n\n    when: count%p.words > 3\n    transform:\n      expression: '{\"n\": count%p.words * %n, \"of\": string(%b)}'\n    outputBinding: sum%n\n",
		"  - id: step%n\n    # A comment of its own.\n    action:\n      name: text-join\n      parameters:\n        items: [\"{{ %b }}\", \"number %n\"]\n    config:\n      retry: {attempts: 3, backoff_ms: 1000}\n",
		"  - id: step%n\n    condition:\n      expression: size(string(%b)) > %n\n      then:\n        - {id: then%n, transform: {expression: \"%n\"}}\n      else:\n        - {id: else%n, transform: {expression: \"'no'\"}}\n",
	}, tail: "edges:\n", after: "  - source_node_id: step%p\n    target_node_id: step%n\n"},
}

// longText returns a text of a dialect of about that many lines.
func longText(dialect string, lines int) string {
	l := longDialects[dialect]
	var b, after strings.Builder
	b.WriteString(l.head)
	for i, n := 0, 6; n < lines; i++ {
		before := "input.text"
		if i > 0 {
			before = fmt.Sprintf("steps.step%d.output", i-1)
		}
		r := strings.NewReplacer("%n", strconv.Itoa(i), "%p", strconv.Itoa(i-1), "%b", before)
		b.WriteString(r.Replace(l.steps[i%4]))
		if i > 0 {
			after.WriteString(r.Replace(l.after))
		}
		n += strings.Count(l.steps[i%4]+l.after, "\n")
	}
	return b.String() + l.tail + after.String()
}

// BenchmarkKeystroke is what a user waits for: a key is pressed in an expression in the middle of a file of
// 2,000 lines, its problems are published, and a completion is answered.
func BenchmarkKeystroke(b *testing.B) {
	for _, dialect := range slices.Sorted(maps.Keys(longDialects)) {
		b.Run(dialect, func(b *testing.B) { benchmarkKeystroke(b, longText(dialect, 2000)) })
	}
}

func benchmarkKeystroke(b *testing.B, text string) {
	const uri = "file:///long.yaml"
	line := strings.Count(text[:strings.Index(text, "string(steps.step120.output)")], "\n")
	column := strings.Index(strings.Split(text, "\n")[line], "steps.step120") + len("steps.")
	c := newClient(b, config(b.TempDir()))
	c.open(uri, text)
	if found := c.problems(uri, 1); len(found) > 0 && found[0].Severity == 1 {
		b.Fatal(found[0].Message)
	}
	version := 1
	key := func(insert string, deleted int) (problems, completion time.Duration) {
		version++
		begun := time.Now()
		c.notify("textDocument/didChange", map[string]any{
			"textDocument":   map[string]any{"uri": uri, "version": version},
			"contentChanges": []any{map[string]any{"range": textRange{position{line, column}, position{line, column + deleted}}, "text": insert}},
		})
		c.problems(uri, version)
		problems = time.Since(begun)
		begun = time.Now()
		var list completionList
		if err := c.call("textDocument/completion", at(uri, position{line, column + len(insert)}), &list); err != nil {
			b.Fatal(err)
		}
		if len(list.Items) == 0 {
			b.Fatal("nothing was completed")
		}
		return problems, time.Since(begun)
	}
	var diags, completions, both []time.Duration
	key("s", 0) // the first one fills the caches
	key("", 1)
	began := cputime.Used()
	for b.Loop() {
		for _, k := range []struct {
			insert  string
			deleted int
		}{{"s", 0}, {"", 1}} {
			p, q := key(k.insert, k.deleted)
			diags, completions, both = append(diags, p), append(completions, q), append(both, p+q)
		}
	}
	b.ReportMetric(float64((cputime.Used()-began).Milliseconds())/float64(len(both)), "cpu-ms") // of both, on a busy machine as well
	b.ReportMetric(0, "ns/op")                                                                  // of two keys
	for name, list := range map[string][]time.Duration{"problems": diags, "completion": completions, "both": both} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, "ms-"+name)
	}
	b.ReportMetric(float64(strings.Count(text, "\n")), "lines")
}
