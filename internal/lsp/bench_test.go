// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/cputime"
)

// longText returns a recipe of about that many lines, as people write them: most steps have eight lines, and
// name steps and bindings before them.
func longText(lines int) string {
	var b strings.Builder
	b.WriteString("name: long\ninputSchema:\n  type: object\n  properties:\n    text: {type: string}\nsteps:\n")
	n := 6
	for i := 0; n < lines; i++ {
		before := "input.text"
		if i > 0 {
			before = fmt.Sprintf("steps.step%d.output", i-1)
		}
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "  - id: step%d\n    name: Count number %d\n    action:\n      name: word-count\n      parameters:\n        text: \"{{ %s }} and %d\"\n    outputBinding: count%d\n    timeout: 30s\n", i, i, before, i, i)
			n += 8
		case 1:
			fmt.Fprintf(&b, "  - id: step%d\n    when: count%d.words > %d\n    transform:\n      expression: '{\"n\": count%d.words * %d, \"of\": string(%s)}'\n    outputBinding: sum%d\n", i, i-1, i%7, i-1, i, before, i)
			n += 5
		case 2:
			fmt.Fprintf(&b, "  - id: step%d\n    # A comment of its own.\n    action:\n      name: text-join\n      parameters:\n        items: [\"{{ %s }}\", \"number %d\"]\n    retryPolicy:\n      maxAttempts: 3\n      initialDelay: 1s\n", i, before, i)
			n += 9
		default:
			fmt.Fprintf(&b, "  - id: step%d\n    condition:\n      expression: size(string(%s)) > %d\n      then:\n        - {id: then%d, transform: {expression: \"%d\"}}\n      else:\n        - {id: else%d, transform: {expression: \"'no'\"}}\n", i, before, i, i, i, i)
			n += 7
		}
	}
	return b.String()
}

// BenchmarkKeystroke is what a user waits for: a key is pressed in an expression in the middle of a file of
// 2,000 lines, its problems are published, and a completion is answered.
func BenchmarkKeystroke(b *testing.B) {
	const uri = "file:///long.yaml"
	text := longText(2000)
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
	for name, list := range map[string][]time.Duration{"problems": diags, "completion": completions, "both": both} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, "ms-"+name)
	}
	b.ReportMetric(float64(strings.Count(text, "\n")), "lines")
}
