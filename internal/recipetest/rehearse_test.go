// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
)

const recordedRecipe = `name: shop
version: 1.0.0
inputSchema: {type: object, required: [n], properties: {n: {type: integer}, pin: {type: string, writeOnly: true}}}
steps:
  - id: count
    action: {name: word-count, parameters: {text: "one two"}}
    outputBinding: words
  - id: big
    when: input.n > 3
    transform: {expression: input.n * 10}
    outputBinding: big
  - id: charge
    action: {name: charge-card, parameters: {to: "{{ input.pin | default('nobody') }}"}}
    inputBindings: {amount: input.n}
    retryPolicy: {maxAttempts: 3, initialDelay: 1s, jitter: 0}
    outputBinding: receipt
  - id: paid
    wait: {signal: paid, timeout: 10h}
    outputBinding: paid
  - id: sums
    action: {name: charge-card}
    inputBindings: {amount: words.words}
    outputBinding: second
outputs: {total: input.n + words.words, receipt: receipt.id, paid: paid.ok}
`

const recordedMocks = `recipe: shop.yaml
tests:
  - name: x
    mocks:
      signals: {paid: [{data: {ok: true}, after: 2h}]}
      steps:
        charge: [{error: {code: SERVICE_UNAVAILABLE, message: down}, delay: 3s}, {output: {id: r1}, delay: 1s}]
        sums: [{job: 20m, output: {id: r2}}]
`

// priced are the actions of the tests, with another price of charge-card.
func priced(price string) catalogue.Actions {
	list := builtin.Actions(builtin.Config{})
	list = append(list, action.Action{Name: "charge-card", Version: "1.0.0", Price: price, Run: func(context.Context, *action.Task) (action.Result, error) {
		panic("a rehearsal called a real action")
	}})
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return catalogue.New(decls...)
}

// revision compiles a text.
func revision(t testing.TB, text string, acts catalogue.Actions) *compiled {
	t.Helper()
	c := compileRecipe("shop.yaml", []byte(text), compile.Options{Actions: acts}, nil)
	if c.plan == nil {
		t.Fatal(c.diags)
	}
	return c
}

// recorded runs the recipe for each input, with its mocks, and returns the store of the runs.
func recordRuns(t testing.TB, inputs ...map[string]any) (store.Reader, []store.Head) {
	t.Helper()
	ctx, acts := t.Context(), priced("2.5")
	suite, _, diags := Parse("shop.test.yaml", []byte(recordedMocks))
	if suite == nil {
		t.Fatal(diags)
	}
	value := func(raw json.RawMessage) (any, error) { return decoded(raw), nil }
	world := newMocked(&suite.Tests[0].Mocks, nil, value)
	box, err := openSandbox(ctx, sandboxConfig{actions: &program.Actions{Finder: withStub{acts}}, world: world, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC).UnixMicro(), seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := revision(t, recordedRecipe, acts)
	var heads []store.Head
	for _, in := range inputs {
		world.asked = map[string]int{}
		run, err := box.start(&engine.StartRequest{Plan: c.plan, Recipe: "shop", Version: "1.0.0", Parameters: in})
		if err != nil {
			t.Fatal(err)
		}
		head, err := box.finish(run)
		if err != nil || head.Status != "completed" {
			t.Fatal(err, head.Status, head.Message)
		}
		heads = append(heads, head)
	}
	return box.store, heads
}

// rehearse rehearses runs with a revision, and describes each in a line.
func rehearse(t testing.TB, r store.Reader, heads []store.Head, text, price string) (lines []string, list []*Rehearsed) {
	t.Helper()
	acts := priced(price)
	now := revision(t, text, acts)
	re := Rehearsal{Actions: acts, Plan: now.plan, Recipe: now.recipe, Reader: r, Parallel: 4}
	err := re.Run(t.Context(), heads, func(one *Rehearsed) {
		line := one.Outcome
		for _, c := range one.Changes {
			line += fmt.Sprintf(" | %s %s %s %s", c.Group, c.Where, c.Was, c.Now)
		}
		for _, c := range one.Calls {
			line += fmt.Sprintf(" | call %s %s %s %v", c.Step, c.Action, Short(c.Input), c.New)
		}
		if one.Reason != "" {
			line += " | " + one.Reason
		}
		lines, list = append(lines, line), append(list, one)
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, list
}

func TestRehearse(t *testing.T) {
	r, heads := recordRuns(t, map[string]any{"n": 2}, map[string]any{"n": 5, "pin": "secret-4711"})
	edit := func(from, to string) string {
		if !strings.Contains(recordedRecipe, from) {
			t.Fatalf("the recipe has no %q", from)
		}
		return strings.Replace(recordedRecipe, from, to, 1)
	}
	for _, tt := range []struct {
		name, text, price string
		want              [2]string
	}{
		{"the same recipe", recordedRecipe, "2.5", [2]string{"same", "same"}},
		{"a condition", edit("input.n > 3", "input.n > 9"), "2.5", [2]string{"same", `differs | path big "completed" "skipped: condition"`}},
		{"an output", edit("total: input.n + words.words", "total: input.n + words.words + 2"), "2.5",
			[2]string{"differs | outputs output.total 4 6", "differs | outputs output.total 7 9"}},
		{"a price", recordedRecipe, "1.5", [2]string{"differs | credits run 6 4", "differs | credits run 6 4"}},
		{"fewer attempts", edit("maxAttempts: 3", "maxAttempts: 1"), "2.5", [2]string{
			"differs | path charge \"completed\" \"failed\"", "differs | path charge \"completed\" \"failed\""}},
		{"another input of a call", edit("amount: input.n", "amount: input.n + 1"), "2.5", [2]string{
			`differs | call charge charge-card {"amount":3,"to":"nobody"} false | call charge charge-card {"amount":3,"to":"nobody"} false`,
			`differs | call charge charge-card {"amount":6,"to":"[masked]"} false | call charge charge-card {"amount":6,"to":"[masked]"} false`}},
		{"a new call", edit("  - id: paid", "  - {id: more, action: {name: charge-card, parameters: {what: else}}}\n  - id: paid"), "2.5", [2]string{
			`unknown | call more charge-card {"what":"else"} true | step "more" would call charge-card, and no result of that is recorded`,
			`unknown | call more charge-card {"what":"else"} true | step "more" would call charge-card, and no result of that is recorded`}},
		{"another name of a step", strings.Replace(recordedRecipe, "id: sums", "id: totals", 1), "2.5", [2]string{
			`differs | path sums "completed" null | path totals null "completed"`, `differs | path sums "completed" null | path totals null "completed"`}},
		{"another signal", edit("signal: paid", "signal: pays"), "2.5", [2]string{
			`unknown | step "paid" would wait for the signal "pays", and whether that comes is not known`,
			`unknown | step "paid" would wait for the signal "pays", and whether that comes is not known`}},
		{"an input that is refused", edit("n: {type: integer}", "n: {type: integer, maximum: 3}"), "2.5", [2]string{
			"same", `differs | path run "completed" "refused: input/n: `}},
		{"a pure action with another input", edit(`text: "one two"`, `text: "one two three"`), "2.5", [2]string{
			`differs | outputs count.`, `differs | outputs count.`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines, _ := rehearse(t, r, heads, tt.text, tt.price)
			for i, want := range tt.want {
				if lines[i] != want && (len(want) <= 12 || !strings.HasPrefix(lines[i], want)) {
					t.Errorf("run %d: %s\nwant   %s", i, lines[i], want)
				}
				if strings.Contains(lines[i], "secret-4711") {
					t.Errorf("run %d shows a value that is not to be shown", i)
				}
			}
		})
	}
}

// Nothing of what is marked is compared without being marked.
func TestRehearseMasked(t *testing.T) {
	r, heads := recordRuns(t, map[string]any{"n": 5, "pin": "secret-4711"})
	text := strings.Replace(recordedRecipe, "receipt: receipt.id", "receipt: receipt.id, pin: input.pin", 1)
	lines, _ := rehearse(t, r, heads, text, "2.5")
	if want := `differs | outputs output.pin null "[masked]"`; lines[0] != want {
		t.Errorf("%s, want %s", lines[0], want)
	}
}

func TestSums(t *testing.T) {
	r, heads := recordRuns(t, map[string]any{"n": 2}, map[string]any{"n": 5})
	_, list := rehearse(t, r, heads, strings.NewReplacer("input.n > 3", "input.n > 9", "words.words,", "words.words + 1,").Replace(recordedRecipe), "2.5")
	got := fmt.Sprint(Sums(list))
	if want := "[{outputs output.total 2} {path big 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The bar is 10 s for 1,000 runs.
func BenchmarkRehearse1000(b *testing.B) {
	inputs := make([]map[string]any, 1000)
	for i := range inputs {
		inputs[i] = map[string]any{"n": i % 7}
	}
	r, heads := recordRuns(b, inputs...)
	text := strings.Replace(recordedRecipe, "input.n > 3", "input.n > 4", 1)
	for b.Loop() {
		rehearse(b, r, heads, text, "2.5")
	}
}
