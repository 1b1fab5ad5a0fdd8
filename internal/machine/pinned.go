// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// An expression of a step may say which recipe it runs (X251). What it gives is looked up when a run of the
// tree first asks for it, outside of the machine, and pinned in the journal of the root run: from then on it
// stands for the same recipe in all runs of the tree, whatever is registered meanwhile (R28).

const (
	// MaxPinned is how many recipes the expressions of a tree of runs may name.
	MaxPinned = 1000
	// maxRef bounds the name of a recipe that an expression gives, in bytes.
	maxRef = 512
)

// A Definition is what the expression of a step gave that says which recipe it runs.
type Definition struct {
	By plan.By
	// Ref is what it is pinned under: the name, perhaps with a version, or what stands for Text.
	Ref  string
	Text []byte // of a recipe, in any dialect
}

// define finds out which recipe a step runs, if that is by an expression.
func (r *Run) define(s *scope, i int32, child *ChildTask) *Failure {
	by := child.Child.RefExpr
	if by == nil {
		return nil
	}
	step := s.step(r.plan, i)
	v, err := r.prog.code(s.ref(i).Step).ref.Eval(r.env(s, i, step, by.Vars))
	if err != nil {
		return failureOf(err, fault.TemplateError)
	}
	d := &Definition{By: child.Ref.By}
	var fail *Failure
	if d.By == plan.ByName {
		child.Ref, fail = d.named(by.Src, v)
	} else {
		child.Ref, fail = d.written(by.Src, v)
	}
	d.Ref, child.Definition = child.Ref.String(), d
	return fail
}

// named takes the name of a recipe.
func (d *Definition) named(src string, v any) (ref plan.ChildRef, fail *Failure) {
	text, ok := v.(string)
	ref.Name, ref.Version = plan.SplitRef(text)
	if !ok || ref.Name == "" || len(text) > maxRef || !utf8.ValidString(text) {
		return ref, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf("%q gives %s, want the name of a recipe such as digest@1", src, typeName(v))}
	}
	return ref, nil
}

// written takes the text of a recipe, or its value.
func (d *Definition) written(src string, v any) (ref plan.ChildRef, fail *Failure) {
	switch v := v.(type) {
	case string:
		d.Text = []byte(v)
	case map[string]any:
		d.Text, _ = jsonx.Canonical(v)
	}
	if len(d.Text) == 0 {
		return ref, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf("%q gives %s, want the text of a recipe, or an object", src, typeName(v))}
	}
	sum := sha256.Sum256(d.Text)
	return plan.ChildRef{Name: "@sha256:" + hex.EncodeToString(sum[:]), By: plan.ByText}, nil
}

// handlePinned pins what an expression has named, if that is new.
func (r *Run) handlePinned(in *Input) {
	if r.start.Child != nil || in.Tree.Recipe(in.Text) == nil || r.start.Tree.Recipe(in.Text) != nil {
		return
	}
	data, err := jsonx.Marshal(r.start.Tree.Lacks(in.Tree))
	if err != nil {
		r.turn.Err = err
		return
	}
	r.emitRun(journal.Event{Kind: journal.EvRunPinned, Text: in.Text, Data: data})
}

// applyPinned applies EvRunPinned.
func (r *Run) applyPinned(ev *journal.Event) error {
	r.edits = append(r.edits, ev.Seq)
	if r.start == nil { // Supply does it
		return nil
	}
	return r.addPinned(ev)
}

// addPinned adds to what the runs of the tree have in common.
func (r *Run) addPinned(ev *journal.Event) error {
	_, more, err := ev.Pinned()
	if err != nil {
		return errImpossible(ev, err.Error())
	}
	st := *r.start
	st.Tree = st.Tree.With(more)
	r.start = &st
	return nil
}
