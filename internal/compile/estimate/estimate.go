// SPDX-License-Identifier: Apache-2.0

// Package estimate says what a run of a plan may cost and how long it may take.
//
// It adds up what actions declare, on the cheapest and the most expensive path, and
// evaluates the recipe's own estimate. It runs nothing, and reserves nothing: that follows
// from the terms of a run.
package estimate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// Known is what is known about a run before it starts.
type Known struct {
	// Input are the fields of the run's input.
	Input map[string]any
	// Files describe its files, as file-inspect returns them (mimeType, sizeBytes,
	// extended). The formula sees their sums (R15).
	Files []map[string]any
	// Outputs are those of steps that have completed, by the names that they bind.
	Outputs map[string]any
}

// A Budget is what a run of a plan may cost and how long it may take. Credits are
// whole numbers. Least and Most are the sums of the declared costs and prices on the
// cheapest and the most expensive path, without retries and compensations, rounded up
// once.
type Budget struct {
	Strategy string `json:"strategy,omitempty"` // of creditEstimation (X147)
	Least    int64  `json:"min"`
	Most     int64  `json:"max"`
	// Open lists parts without a known bound; Most and MostMS count each once.
	Open []string `json:"open,omitempty"`

	Formula  string         `json:"formula,omitempty"`
	Expanded string         `json:"expanded,omitempty"` // the formula with values in place of names
	Values   map[string]any `json:"values,omitempty"`
	Missing  []string       `json:"missing,omitempty"` // names without a value yet
	Problem  string         `json:"problem,omitempty"` // why the formula has no result

	Expected int64 `json:"expected"` // estimated credits
	Cap      int64 `json:"cap,omitempty"`
	// Reserved is min(cap, ceil(expected × 1.25)), or the cap when a name in the
	// formula has no value yet.
	Reserved int64  `json:"reserved"`
	Policy   string `json:"policy"`

	LeastMS int64 `json:"minDurationMs"` // from the actions' durationRange (X202)
	MostMS  int64 `json:"maxDurationMs"`
}

// Of returns what a run of p may cost and how long it may take, without running
// anything. actions must be those that p was compiled against. Child runs count like the
// steps of the run, if their plans were compiled with p.
func Of(p *plan.Plan, actions catalogue.Finder, known Known) *Budget {
	e := &estimator{p: p, actions: actions, vars: known.vars(p), children: newChildEstimates(p), most: rootDepth(p)}
	least := e.graph(0)
	b := &Budget{Least: ledger.Amount(least.credits[0]).Ceil(), Most: ledger.Amount(least.credits[1]).Ceil(), LeastMS: least.ms[0], MostMS: least.ms[1], Open: e.open, Policy: "refund_unused"}
	b.Expected = b.Most
	if p.Estimate != nil {
		b.Policy = p.Estimate.Policy
		e.byStrategy(b, p.Estimate, len(known.Files))
	}
	b.reserve()
	return b
}

// reserve computes Reserved: a quarter more than expected, at most the cap, and the cap
// itself when the estimate is incomplete.
func (b *Budget) reserve() {
	b.Reserved = b.Expected + (b.Expected+3)/4
	if b.Cap > 0 && (b.Reserved > b.Cap || len(b.Missing) > 0 || b.Problem != "") {
		b.Reserved = b.Cap
	}
}

func (e *estimator) byStrategy(b *Budget, s *plan.Estimate, files int) {
	b.Strategy, b.Cap = s.Strategy, s.Max
	switch s.Strategy {
	case "fixed":
		b.Expected = s.Fixed
		if b.Cap == 0 {
			b.Cap = s.Fixed // R17
		}
	case "per_file":
		b.Expected = s.PerFile * int64(files)
		if b.Cap == 0 {
			b.Cap = b.Expected
		}
	case "calculated":
		e.byFormula(b, s.Formula)
	}
}

// byFormula evaluates the formula and shows it with its values.
func (e *estimator) byFormula(b *Budget, src string) {
	b.Formula = src
	prog, err := expr.CompileFormula(src)
	if err != nil {
		b.Problem = err.Error()
		return
	}
	b.Values = map[string]any{}
	runes := []rune(src)
	var text strings.Builder
	done := 0
	for _, r := range prog.Refs() {
		name := strings.Join(append([]string{r.Name}, r.Path...), ".")
		v, ok := lookupPath(e.vars, r)
		if !ok {
			if !slices.Contains(b.Missing, name) {
				b.Missing = append(b.Missing, name)
			}
			continue
		}
		b.Values[name] = v
		end := r.Offset + r.Len
		if len(r.Path) > 0 {
			end = r.Offset + len([]rune(name))
		}
		if r.Offset < done || end > len(runes) || string(runes[r.Offset:end]) != name {
			continue // in another notation, such as a['b']: it stays as it is
		}
		raw, err := json.Marshal(v)
		if err != nil {
			continue
		}
		text.WriteString(string(runes[done:r.Offset]) + string(raw))
		done = end
	}
	b.Expanded = text.String() + string(runes[done:])
	if len(b.Missing) > 0 {
		b.Expected = b.Cap
		return
	}
	v, err := prog.Eval(e.vars)
	n, ok := number(v)
	switch {
	case err != nil:
		b.Problem, b.Expected = err.Error(), b.Cap
	case !ok || math.IsNaN(n) || n < 0 || n > 1<<53:
		b.Problem, b.Expected = fmt.Sprintf("the formula gave %v: want a number of credits that is not negative", v), b.Cap
	default:
		b.Expected = int64(math.Ceil(n))
	}
}

// Formula returns what the formula of a plan gives, in whole credits. ok is false if a name
// in it has no value, or its result is no number of credits.
func Formula(p *plan.Plan, known Known) (credits int64, ok bool) {
	e := &estimator{p: p, vars: known.vars(p)}
	b := &Budget{}
	e.byFormula(b, p.Estimate.Formula)
	return b.Expected, len(b.Missing) == 0 && b.Problem == ""
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// lookupPath returns the value of a name followed by constant members.
func lookupPath(vars expr.MapVars, r expr.Ref) (any, bool) {
	v, ok := vars[r.Name]
	for _, m := range r.Path {
		fields, isMap := v.(map[string]any)
		if !ok || !isMap {
			return nil, false
		}
		v, ok = fields[m]
	}
	return v, ok
}

// vars returns the variables that a formula and a loop's `over` may use before the run
// starts: the input and its fields, the files, the compile.FileSums, and what a
// file-inspect step will return for the run's only file.
func (k Known) vars(p *plan.Plan) expr.MapVars {
	vars := expr.MapVars{}
	pages, size, counted := int64(0), int64(0), true
	hashes, files := []any{}, []any{}
	for _, f := range k.Files {
		files = append(files, f)
		hashes = append(hashes, f["hash"])
		n, _ := f["sizeBytes"].(int64)
		size += n
		extended, _ := f["extended"].(map[string]any)
		count, ok := extended["pageCount"].(int64)
		pages += count
		counted = counted && ok
	}
	if len(k.Files) > 0 {
		vars["sizeBytes"], vars["size_bytes"] = size, size
		vars["sizeMb"], vars["size_mb"] = float64(size)/(1<<20), float64(size)/(1<<20)
		if counted {
			vars["pageCount"], vars["page_count"] = pages, pages
		}
		if len(k.Files) == 1 {
			vars["mimeType"], vars["mime_type"] = k.Files[0]["mimeType"], k.Files[0]["mimeType"]
		}
	}
	vars["fileCount"], vars["file_count"] = int64(len(k.Files)), int64(len(k.Files))
	input := maps.Clone(k.Input)
	if input == nil {
		input = map[string]any{}
	}
	maps.Copy(vars, input)
	withFiles := maps.Clone(input)
	withFiles["fileHashes"] = hashes
	vars["input"], vars["inputs"], vars["parameters"] = withFiles, withFiles, input
	vars["files"], vars["fileHashes"] = files, hashes
	if len(k.Files) == 1 {
		for i := range p.Steps {
			st := &p.Steps[i]
			if st.Kind == plan.Action && st.Bind != "" && st.FileInput != "" && p.Actions[st.Action].Name == "file-inspect" {
				vars[st.Bind] = k.Files[0]
			}
		}
	}
	maps.Copy(vars, k.Outputs)
	return vars
}

// An interval is a minimum and a maximum.
type interval [2]int64

// An amount is what a part of a plan costs, in millionths of a credit, and how long it
// takes.
type amount struct {
	credits, ms interval
}

type estimator struct {
	p        *plan.Plan
	actions  catalogue.Finder
	vars     expr.MapVars
	open     []string
	children *childEstimates
	depth    int64 // of the run
	most     int64 // how deep it, and those below it, may stand
}

// graph returns the cost of a scope, which is the sum over its steps, and its duration,
// which is that of the longest chain of steps.
func (e *estimator) graph(g int32) amount {
	var total amount
	if g == plan.None {
		return total
	}
	gr := &e.p.Graphs[g]
	ends := make([]interval, gr.N)
	for _, i := range e.inWaves(gr) {
		st := &e.p.Steps[i]
		a := e.step(i)
		if st.When != nil {
			a.credits[0], a.ms[0] = 0, 0
		}
		for s := range 2 {
			total.credits[s] = addSaturating(total.credits[s], a.credits[s])
			begin := int64(0)
			for _, pred := range st.Preds {
				begin = max(begin, ends[pred-gr.First][s])
			}
			ends[i-gr.First][s] = addSaturating(begin, a.ms[s])
			total.ms[s] = max(total.ms[s], ends[i-gr.First][s])
		}
	}
	return total
}

// inWaves returns the steps of a graph, each after those that it waits for.
func (e *estimator) inWaves(g *plan.Graph) []int32 {
	order := make([]int32, g.N)
	for i := range order {
		order[i] = g.First + int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(e.p.Steps[a].Wave - e.p.Steps[b].Wave) })
	return order
}

func (e *estimator) step(i int32) amount {
	st := &e.p.Steps[i]
	e.children.counted++
	var a amount
	switch st.Kind {
	case plan.Action:
		a = e.action(st)
	case plan.Condition:
		a = union(e.graph(st.Then), e.graph(st.Else))
	case plan.Parallel:
		a = e.parallel(st)
	case plan.Loop:
		a = e.loop(st)
	case plan.Recipe:
		a = e.child(st)
	case plan.Wait:
		switch {
		case st.DurationMS > 0:
			a.ms = interval{st.DurationMS, st.DurationMS}
		case st.SignalMS > 0:
			a.ms = interval{0, st.SignalMS}
		default:
			e.openPart(st, fmt.Sprintf("%s waits for an unknown time", st.ID))
		}
	}
	if st.Fallback != plan.None {
		back := e.graph(st.Fallback)
		a.credits[1], a.ms[1] = addSaturating(a.credits[1], back.credits[1]), addSaturating(a.ms[1], back.ms[1])
	}
	return a
}

func (e *estimator) action(st *plan.Step) (a amount) {
	ref := e.p.Actions[st.Action]
	decl := e.actions.Find(ref.Name, ref.Version)
	if decl == nil {
		return a
	}
	price, _ := catalogue.Price(decl) // a run with an unknown price does not start
	cost := int64(ledger.Whole(decl.Cost).Plus(price))
	a.credits = interval{cost, cost}
	if r := decl.Metadata.DurationRange; r != nil {
		// A declared text that is not a duration counts as unknown: 0.
		a.ms[0], _ = recipe.ParseDuration(r.Min)
		a.ms[1], _ = recipe.ParseDuration(r.Max)
	}
	if st.TimeoutMS > 0 {
		a.ms[1] = min(a.ms[1], st.TimeoutMS)
	}
	return a
}

// union returns the range of two alternatives.
func union(a, b amount) amount {
	return amount{
		interval{min(a.credits[0], b.credits[0]), max(a.credits[1], b.credits[1])},
		interval{min(a.ms[0], b.ms[0]), max(a.ms[1], b.ms[1])},
	}
}

// parallel returns the amount of a parallel step. With waitFor all, every branch counts;
// otherwise one branch may end the step before the others have cost anything.
func (e *estimator) parallel(st *plan.Step) (a amount) {
	for i, g := range st.Branches {
		b := e.graph(g)
		a.credits[1], a.ms[1] = addSaturating(a.credits[1], b.credits[1]), max(a.ms[1], b.ms[1])
		switch {
		case st.WaitFor == plan.WaitAll:
			a.credits[0], a.ms[0] = addSaturating(a.credits[0], b.credits[0]), max(a.ms[0], b.ms[0])
		case i == 0:
			a.credits[0], a.ms[0] = b.credits[0], b.ms[0]
		default:
			a.credits[0], a.ms[0] = min(a.credits[0], b.credits[0]), min(a.ms[0], b.ms[0])
		}
	}
	return a
}

// loop multiplies the amount of the body by the number of items, if that is known.
func (e *estimator) loop(st *plan.Step) (a amount) {
	body := e.graph(st.Body)
	if st.Conditional() { // its condition may end it after any iteration, or before the first
		return amount{interval{0, mulSaturating(body.credits[1], st.Rounds.Max)}, interval{0, mulSaturating(body.ms[1], st.Rounds.Max)}}
	}
	n, known := e.items(st)
	if !known {
		e.openPart(st, fmt.Sprintf("%s runs once for each item of %q, counted once here", st.ID, st.Expr.Src))
		return amount{interval{0, body.credits[1]}, interval{0, body.ms[1]}}
	}
	lanes := max(int64(st.Concurrency), 1)
	for s := range 2 {
		a.credits[s], a.ms[s] = mulSaturating(body.credits[s], n), mulSaturating(body.ms[s], (n+lanes-1)/lanes)
	}
	if st.Rounds != nil && st.Rounds.Until != nil { // one iteration may be enough
		a.credits[0], a.ms[0] = min(a.credits[0], body.credits[0]), min(a.ms[0], body.ms[0])
	}
	return a
}

// items returns how many items a loop has, if that depends on the input alone.
func (e *estimator) items(st *plan.Step) (int64, bool) {
	for i := range st.Expr.Vars {
		if st.Expr.Vars[i].Kind != plan.VarInput {
			return 0, false
		}
	}
	compile := expr.Compile
	if st.Expr.Template {
		compile = expr.CompileTemplate
	}
	prog, err := compile(st.Expr.Src)
	if err != nil {
		return 0, false
	}
	v, err := prog.Eval(e.vars)
	list, ok := v.([]any)
	return int64(len(list)), err == nil && ok
}

func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func mulSaturating(a, n int64) int64 {
	if n > 0 && a > math.MaxInt64/n {
		return math.MaxInt64
	}
	return a * n
}
