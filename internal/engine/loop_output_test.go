// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store/memory"
)

// rowsRecipe is a loop whose output is inline or in a file, depending on the pad.
const rowsRecipe = `
name: rows
steps:
  - id: each
    loop: {over: input.items, steps: [{id: one, transform: {expression: "{'n': item, 'pad': input.pad}"}}]}
    outputBinding: rows
`

const rowCount = 120

// rowsInput returns an input that makes rows of pad bytes each.
func rowsInput(pad int) map[string]any {
	items := make([]any, rowCount)
	for i := range items {
		items[i] = int64(i)
	}
	return map[string]any{"items": items, "pad": strings.Repeat("p", pad)}
}

// runRows runs a plan and returns its outputs.
func runRows(t testing.TB, e *Engine, p *plan.Plan, pad int) map[string]any {
	t.Helper()
	run := start(t, e, p, rowsInput(pad))
	head := waitForEnd(t, e, run)
	h, err := e.History(t.Context(), acc, run, 1)
	if err != nil {
		t.Fatal(err)
	}
	if head.Status != "completed" {
		t.Fatalf("with rows of %d bytes the run is %s: %s %s", pad, head.Status, head.Code, head.Message)
	}
	v, err := jsonx.Decode(h.Outputs, jsonx.Limits{Large: true})
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

// A loop's output is a list, whatever its size: it has a length, conditions on it
// decide alike, actions and loops accept it whole.
func TestALoopsOutputIsAList(t *testing.T) {
	files := blobs(t)
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, measureAction())
	p := planOf(t, rowsRecipe+`
  - {id: many, condition: {expression: "size(rows) > 100", then: [{id: yes, transform: {expression: "'many'"}}], else: [{id: no, transform: {expression: "'few'"}}]}, outputBinding: judged}
  - {id: whole, action: {name: measure, parameters: {rows: "{{ rows }}"}}, outputBinding: sizes}
  - {id: again, loop: {over: rows, steps: [{id: two, transform: {expression: item.n * 2}}]}, outputBinding: doubled}
outputs: {size: size(rows), field: rows.size, judged: judged, equal: rows == steps.each.output, empty: "rows == []", kind: type(rows) == list, last: "doubled[119]", sizes: sizes.rows > 119 * 20, rows: rows}
`, measureAction())
	for _, pad := range []int{10, 10_000} {
		out := runRows(t, e, p, pad)
		rows := out["rows"]
		delete(out, "rows")
		raw, _ := jsonx.Canonical(out)
		if want := `{"empty":false,"equal":true,"field":120,"judged":"many","kind":true,"last":238,"size":120,"sizes":true}`; string(raw) != want {
			t.Errorf("rows of %d bytes:\ngot  %s\nwant %s", pad, raw, want)
		}
		if l, large := rows.(jsonx.Large); pad == 10_000 && (!large || !l.List || l.Size != rowCount) {
			t.Errorf("the output of a long loop is %.200v", rows)
		}
	}
}

// drawExpression makes an expression over rows.
func drawExpression(t *rapid.T, depth int) string {
	atoms := []string{
		"rows", "steps.each.output", "[rows]", "{'a': rows}", "[]", "[1, 'a']", "'x'", "null", "120", "4", "true", "{}",
		"size(rows)", "rows.size", "rows.size()", "rows[0]", "rows[0].n", "rows[200]", "rows.file", "rows.hash", "rows.name", "rows['size']", "rows['file']", "rows.bytes",
		"has(rows.file)", "has(rows.size)", "has(rows.hash)", "has(rows.n)", "rows.?file.orValue('none')", "rows[?0].orValue(1)", "rows[?'size'].orValue(1)",
		"rows.map(r, r.n)", "rows.filter(r, r.n > 3).size()", "rows.exists(r, r.n == 2)", "rows.all(r, true)", "rows.exists_one(r, r.n == 2)", "rows.map(k, k)",
		"rows.slice(0, 1)", "rows.reverse()", "rows.distinct().size()", "rows.flatten()", "rows.first().orValue('none')", "rows.last().orValue('none')",
		"sets.contains([rows], [rows])", "sets.equivalent(rows, rows)", "sets.intersects(rows, [1])", "lists.range(3)", "rows.join(',')", "rows.sortBy(r, r.n)[0].n",
		"rows.sum()", "rows.avg()", "rows.map(r, r.n).sum()", "rows.reduce(a, r, 0, a + r.n)", "rows.groupBy(r, string(r.n % 2)).size()", "rows.groupBy(r, 'k').k",
		"toJson(rows)", "'%s'.format([rows])", "rows.zip(rows).size()", "[rows].zip([1])", "rows.transformList(i, r, i)", "rows.transformMap(i, r, i).size()",
		"rows.exists(i, r, i == 2)", "rows.all(i, r, r.n == i)", "rows.hasAny([1])", "[rows].hasAny([rows])", "{}.merge({'a': rows})", "[rows].groupBy(r, 'k').k",
		"cel.bind(r, rows, size(r))", "json.encode([rows])", "[rows].reduce(a, r, [], a + [r])", "optional.of(rows).optMap(r, size(r))", "{?'k': rows.?x}",
		"[rows].flatten().size()", "[[rows]].flatten(2).size()", "[rows, steps.each.output].distinct().size()", "[rows, input.items].distinct().size()",
		"sets.contains([input.items], [rows])", "[rows].hasExactly([rows])", "rows in {'a': 1}", "{'a': rows}[?'a'][?0].hasValue()", "1 / 0 == 1", "input.items",
	}
	if depth == 0 {
		return rapid.SampledFrom(atoms).Draw(t, "atom")
	}
	sub := func() string { return drawExpression(t, rapid.IntRange(0, depth-1).Draw(t, "depth")) }
	form := rapid.SampledFrom([]string{
		"%s", "%s == %s", "%s != %s", "%s in %s", "[%s, %s]", "{'k': %s}", "%s + %s", "size(%s)", "(%s).size", "string(%s)", "type(%s)", "dyn(%s)", "bool(%s)",
		"%s == 120 ? %s : %s", "%s == %s || %s != %s", "%s == 1 && %s", "!(%s)", "%s < %s", "(%s)[0]", "has({'z': %s}.z)", "[%s].map(x, x == %s)", "{'k': %s}.k == %s", "[%s, %s].exists(x, x == 1)",
		"type(%s) == list", "type(%s) == type(%s)", "type(%s) == map", "optional.ofNonZeroValue(%s).hasValue()", "optional.of(%s).value()",
		"[%s, %s].reduce(a, x, [], a + [x])", "{'a': %s}.merge({'b': %s})", "[%s].zip([%s])", "toJson(%s)", "[%s].sum()", "cel.bind(v, %s, v == %s)", "[%s].transformList(i, v, v)",
		"%s == 1 || %s", "%s || %s == %s", "%s && %s", "1 / 0 == 1 || %s", "[%s].flatten()", "[%s, %s].distinct()", "sets.intersects([%s], [%s])", "{string(%s): %s}",
	}).Draw(t, "form")
	args := make([]any, strings.Count(form, "%s"))
	for i := range args {
		args[i] = sub()
	}
	return fmt.Sprintf(form, args...)
}

// compiles reports whether a recipe compiles.
func compiles(src string) bool {
	r, s, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r == nil || compile.HasErrors(diags) {
		return false
	}
	_, diags = compile.Compile(r, s, compile.Options{Actions: catalogue.New(measureAction())})
	return !compile.HasErrors(diags)
}

// plainRows replaces rows, inline or in a file, and what is in a row, by a word.
func plainRows(v any) any {
	switch x := v.(type) {
	case jsonx.Large:
		if x.List && x.Size == rowCount {
			return "ROWS"
		}
	case string:
		if strings.HasPrefix(x, "pppppppppp") {
			return "PAD"
		}
	case []any:
		if len(x) == rowCount {
			if row, isMap := x[0].(map[string]any); isMap && row["pad"] != nil {
				return "ROWS"
			}
		}
		out := make([]any, len(x))
		for i := range x {
			out[i] = plainRows(x[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range x {
			out[k] = plainRows(x[k])
		}
		return out
	}
	return v
}

// Every expression over a loop's output has the same result for rows of 10 bytes and of
// 10 KB, or fails with VALUE_TOO_LARGE: never another value.
func TestExpressionsOverALoopsOutput(t *testing.T) {
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: blobs(t).Files}, measureAction())
	drawn := rapid.Custom(func(t *rapid.T) string { return drawExpression(t, 2) })
	values, refused, runs, seed := 0, 0, 20, 0
	if testing.Short() {
		runs = 4
	}
	for range runs {
		var recipe, outputs strings.Builder
		var sources []string
		recipe.WriteString(rowsRecipe)
		for ; len(sources) < 40; seed++ {
			src := drawn.Example(seed)
			quoted, _ := json.Marshal(src)
			at := len(sources)
			step := fmt.Sprintf("  - {id: e%d, transform: {expression: %s}, onError: {strategy: skip}}\n", at, quoted)
			if !compiles(rowsRecipe + step) {
				continue
			}
			recipe.WriteString(step)
			fmt.Fprintf(&outputs, "  e%d: \"steps.e%d.error == null ? {'v': steps.e%d.output} : {'code': steps.e%d.error.code}\"\n", at, at, at, at)
			sources = append(sources, src)
		}
		p := planOf(t, recipe.String()+"outputs:\n"+outputs.String(), measureAction())
		small, large := runRows(t, e, p, 10), runRows(t, e, p, 10_000)
		for i, src := range sources {
			at := fmt.Sprintf("e%d", i)
			few, many := small[at].(map[string]any), large[at].(map[string]any)
			if many["code"] == string(fault.ValueTooLarge) {
				refused++
				continue
			}
			if many["code"] != nil && few["code"] != nil {
				continue // no value either way
			}
			a, _ := jsonx.Canonical(plainRows(few))
			b, _ := jsonx.Canonical(plainRows(many))
			if string(a) != string(b) {
				t.Errorf("%s\nrows of 10 bytes: %.300s\nrows of 10 KB:    %.300s", src, a, b)
			}
			values++
		}
	}
	if values < 10*runs || refused < 5*runs {
		t.Errorf("%d values and %d refusals: too few to test anything", values, refused)
	}
}

// Lists that are longer than an input may be are streamed to the actions that support
// it, and refused by the others.
func TestActionsStreamALoopsOutput(t *testing.T) {
	files := blobs(t)
	actions := []*action.Action{makeAction(), measureAction()}
	for _, a := range builtin.Actions(builtin.Config{}) {
		switch a.Name {
		case "rows-query", "json-to-csv", "text-join":
			actions = append(actions, &a)
		}
	}
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, actions...)
	p := planOf(t, `
name: long
steps:
  - id: each
    loop:
      over: input.items
      steps: [{id: one, action: {name: make, parameters: {text: 900000, item: "{{ item }}"}}}]
    outputBinding: rows
  - id: totals
    action: {name: rows-query, parameters: {rows: "{{ rows }}", where: "row.item % 2 == 1", select: {item: row.item}, aggregate: {sum: {sum: row.item}, chars: {sum: size(row.text)}}, limit: 2}}
    outputBinding: totals
  - id: table
    action: {name: json-to-csv, parameters: {rows: "{{ rows }}", columns: [item], output: file, name: long.csv}}
    outputBinding: table
  - {id: whole, action: {name: measure, parameters: {rows: "{{ rows }}"}}, onError: {strategy: skip}}
outputs: {n: size(rows), totals: totals, table: "[table.name, table.rowCount]", whole: steps.whole.error.code}
`, actions...)
	items := make([]any, 76) // 68 MB
	for i := range items {
		items[i] = int64(i)
	}
	run := start(t, e, p, map[string]any{"items": items})
	head := waitForEnd(t, e, run)
	h, err := e.History(t.Context(), acc, run, 1)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"n":76,"table":["long.csv",76],"totals":{"matched":38,"read":76,"rowCount":2,"rows":[{"item":1},{"item":3}],"totals":{"chars":34200000,"sum":1444}},"whole":"VALUE_TOO_LARGE"}`
	if string(h.Outputs) != want {
		t.Errorf("%s %s %s\ngot  %s\nwant %s", head.Status, head.Code, head.Message, h.Outputs, want)
	}
}
