// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// dump formats a plan for people: steps in order, what they wait for, and only values that
// are not the default.
func dump(p *plan.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ttl %s", plan.FormatMS(p.TTLMS))
	for _, f := range []struct {
		on   bool
		name string
	}{{p.Drain, "drain"}, {p.UpstreamFail, "upstream-fail"}, {p.Leaves, "leaves"}, {p.Waves, "waves"}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	if d := DefaultLimits().Default; p.Limits != d {
		fmt.Fprintf(&b, " limits steps=%d items=%d depth=%d memory=%d", p.Limits.TotalSteps, p.Limits.LoopItems, p.Limits.ScopeDepth, p.Limits.MemoryBytes)
		if p.Limits.ChildDepth != 0 {
			fmt.Fprintf(&b, " children=%d", p.Limits.ChildDepth)
		}
	}
	b.WriteString("\n")
	if e := p.Estimate; e != nil {
		fmt.Fprintf(&b, "estimate %s fixed=%d perFile=%d formula=%q max=%d %s\n", e.Strategy, e.Fixed, e.PerFile, e.Formula, e.Max, e.Policy)
	}
	dumpGraph(&b, p, 0, "")
	for _, o := range p.Outputs {
		fmt.Fprintf(&b, "output %s = %s\n", o.Name, dumpExpr(p, &o.Expr))
	}
	return b.String()
}

func dumpGraph(b *strings.Builder, p *plan.Plan, g int32, indent string) {
	gr := &p.Graphs[g]
	fmt.Fprintf(b, "%s%s", indent, gr.Role)
	if gr.Role == plan.Branch {
		fmt.Fprintf(b, " %d", gr.Ordinal)
	}
	fmt.Fprintf(b, " waves=%d", gr.Waves)
	if gr.Frame == g {
		fmt.Fprintf(b, " slots=%d", gr.Slots)
	}
	if gr.Compensates {
		b.WriteString(" compensates")
	}
	b.WriteString("\n")
	for i := gr.First; i < gr.First+gr.N; i++ {
		dumpStep(b, p, i, indent+"  ")
	}
}

func dumpStep(b *strings.Builder, p *plan.Plan, i int32, indent string) {
	st := &p.Steps[i]
	fmt.Fprintf(b, "%s%s %s", indent, st.ID, st.Kind)
	if st.Action != plan.None {
		a := p.Actions[st.Action]
		fmt.Fprintf(b, " %s", a.Name)
		if a.Version != "" {
			fmt.Fprintf(b, "@%s", a.Version)
		}
	}
	fmt.Fprintf(b, " wave=%d", st.Wave)
	if len(st.Preds) > 0 {
		b.WriteString(" after")
		for _, q := range st.Preds {
			b.WriteString(" " + p.Steps[q].ID)
		}
	}
	if st.Slot != plan.None {
		fmt.Fprintf(b, " bind=%s#%d", st.Bind, st.Slot)
	}
	if st.Keep {
		b.WriteString(" keep")
	}
	b.WriteString("\n")
	line := func(format string, args ...any) { fmt.Fprintf(b, indent+"  "+format+"\n", args...) }
	if st.When != nil {
		line("when %s", dumpExpr(p, st.When))
	}
	if st.Expr != nil {
		line("expr %s", dumpExpr(p, st.Expr))
	}
	if len(st.Params) > 0 {
		line("params %s%s", st.Params, dumpVars(p, st.ParamRef))
	}
	for k := range st.Bindings {
		line("input %s = %s", st.Bindings[k].Name, dumpBinding(p, &st.Bindings[k]))
	}
	if st.Prompt != nil {
		line("prompt of %s %q", st.Prompt.Lens, st.Prompt.Template)
		for k := range st.Prompt.Values {
			line("placeholder %s = %s", st.Prompt.Values[k].Name, dumpBinding(p, &st.Prompt.Values[k]))
		}
	}
	if st.FileInput != "" {
		line("file input %s", st.FileInput)
	}
	if len(st.Required) > 0 {
		line("required %s", strings.Join(st.Required, ", "))
	}
	if len(st.InputC) > 0 {
		line("input contract %s", st.InputC)
	}
	if len(st.OutputC) > 0 {
		line("output contract %s", st.OutputC)
	}
	if k := st.Cache; k != nil {
		key := ""
		if k.Key != nil {
			key = " key " + dumpExpr(p, k.Key)
		}
		line("cache %s price %s%s", plan.FormatMS(k.TTLMS), ledger.Amount(k.Price), key)
	}
	switch st.Kind {
	case plan.Parallel:
		line("wait for %s, %s", [...]string{"all", "any", "first_success"}[st.WaitFor], strategyNames[st.Strategy])
	case plan.Loop:
		line("as %s, index %s, %d at once, %s", st.As, st.Index, st.Concurrency, strategyNames[st.Strategy])
		if r := st.Rounds; r != nil {
			dumpRounds(p, r, line)
		}
	case plan.Wait:
		if st.DurationMS > 0 {
			line("wait %s", plan.FormatMS(st.DurationMS))
		}
		if st.Signal != "" {
			line("signal %s within %s", st.Signal, plan.FormatMS(st.SignalMS))
		}
	case plan.Fail:
		line("code %s", st.Code)
	case plan.Recipe:
		k := st.Child
		line("child %d, depth %d, steps %d, memory %d, credits %d", k.Ref, k.Depth, k.TotalSteps, k.MemoryBytes, k.MaxCredits)
		for _, o := range k.Outputs {
			line("takes %s = %s", o.Name, strings.Join(o.Path, " . "))
		}
	}
	if def := (plan.Retry{Attempts: 1, InitialMS: 500, MaxMS: 8000, Multiplier: 2, Jitter: 0.5}); fmt.Sprint(st.Retry) != fmt.Sprint(def) {
		r := st.Retry
		line("retry %d attempts, %s to %s, x%g, jitter %g, on %v", r.Attempts, plan.FormatMS(r.InitialMS), plan.FormatMS(r.MaxMS), r.Multiplier, r.Jitter, r.On)
	}
	if st.TimeoutMS != 0 && st.TimeoutMS != 10*minuteMS {
		line("timeout %s", plan.FormatMS(st.TimeoutMS))
	}
	if st.TotalTimeoutMS != 0 {
		line("total timeout %s", plan.FormatMS(st.TotalTimeoutMS))
	}
	if st.OnError != plan.OnErrorFail {
		line("on error %s", [...]string{"fail", "skip", "fallback"}[st.OnError])
	}
	if st.ContinueOnError {
		line("continue on error")
	}
	if st.ParentFailure != plan.Propagate {
		line("parent failure %s", [...]string{"propagate", "skip", "substitute_default"}[st.ParentFailure])
	}
	for _, g := range append([]int32{st.Then, st.Else, st.Body, st.Fallback, st.Compensate}, st.Branches...) {
		if g != plan.None {
			dumpGraph(b, p, g, indent+"  ")
		}
	}
}

var strategyNames = [...]string{"fail_fast", "continue", "ignore"}

func dumpBinding(p *plan.Plan, b *plan.Binding) string {
	if b.Merge == 0 {
		return dumpExpr(p, &b.Expr)
	}
	var from []string
	for k := range b.From {
		from = append(from, strings.TrimPrefix(b.From[k].Label+": ", ": ")+dumpExpr(p, &b.From[k].Expr))
	}
	return [...]string{plan.MergeConcat: "concat", plan.MergeArray: "array", plan.MergeObject: "json_object"}[b.Merge] + " of " + strings.Join(from, ", ")
}

func dumpExpr(p *plan.Plan, e *plan.Expr) string {
	src := e.Src
	if e.Template {
		src = fmt.Sprintf("%q", src)
	}
	return src + dumpVars(p, e.Vars)
}

func dumpVars(p *plan.Plan, vars []plan.Var) string {
	var s []string
	for _, v := range vars {
		name := v.Name
		if v.Member != "" {
			name += "." + v.Member
		}
		switch v.Kind {
		case plan.VarBinding:
			name += fmt.Sprintf("=slot %d of %s", v.Index, dumpScope(p, v.Graph))
		case plan.VarStep:
			name += "=step " + p.Steps[v.Index].ID
			if p.Steps[v.Index].Graph != v.Graph {
				name += "(WRONG GRAPH)"
			}
		case plan.VarItem:
			name += "=item of " + dumpScope(p, v.Graph)
		case plan.VarIndex:
			name += "=index of " + dumpScope(p, v.Graph)
		case plan.VarAccumulated:
			name += "=accumulated by " + dumpScope(p, v.Graph)
		}
		s = append(s, name)
	}
	if len(s) == 0 {
		return ""
	}
	return "   [" + strings.Join(s, "; ") + "]"
}

func dumpRounds(p *plan.Plan, r *plan.Rounds, line func(format string, args ...any)) {
	if r.While != nil {
		line("while %s", dumpExpr(p, r.While))
	}
	if r.Until != nil {
		line("until %s", dumpExpr(p, r.Until))
	}
	if r.Max > 0 {
		line("at most %d iterations", r.Max)
	}
	if r.As != "" {
		line("accumulates %s from %s%s", r.As, r.Initial, dumpVars(p, r.InitialRef))
		line("next %s", dumpExpr(p, r.Next))
	}
}

func dumpScope(p *plan.Plan, g int32) string {
	if owner := p.Graphs[g].Owner; owner != plan.None {
		return p.Steps[owner].ID
	}
	return "root"
}

func dumpDiagnostics(diags []fault.Diagnostic) string {
	var b strings.Builder
	for _, d := range diags {
		b.WriteString(d.String() + "\n")
		for _, r := range d.Related {
			fmt.Fprintf(&b, "  %s: %s\n", r.Pos, r.Msg)
		}
	}
	return b.String()
}
