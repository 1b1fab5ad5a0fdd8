// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A refusal says why steps cannot be moved.
type refusal struct {
	msg    string
	step   *recipe.Step // where the reason is; nil = at the steps that were to be moved
	at     string       // pointer of the reason, if it is not the step
	remedy string       // "" = the general one
}

func (r *refusal) Error() string { return r.msg }

// refuse returns the error of what cannot be moved. The first step that it names is where the reason is.
func refuse(format string, args ...any) *refusal {
	r := &refusal{msg: "this cannot be moved: " + fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if s, ok := arg.(subject); ok && s.step != nil {
			r.step = s.step
			break
		}
	}
	return r
}

// advising gives a refusal a remedy of its own.
func (r *refusal) advising(remedy string) *refusal {
	r.remedy = remedy
	return r
}

// in gives a refusal the place of a value.
func (r *refusal) in(pointer string) *refusal {
	r.at = pointer
	return r
}

// A subject is a step in a message; nil = the recipe.
type subject struct{ step *recipe.Step }

func (s subject) String() string {
	switch {
	case s.step == nil:
		return "the recipe"
	case s.step.ID == "":
		return "a step without an id"
	}
	return fmt.Sprintf("the step %q", s.step.ID)
}

func named(s *recipe.Step) subject { return subject{s} }

// placed gives a refusal its place in the text, and what to do about it.
func (t *Text) placed(err error, e Extraction) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	at := r.at
	if at == "" && r.step == nil {
		r.step = t.byID[e.First]
	}
	if at == "" && r.step != nil {
		at = r.step.Ptr
	}
	f := fault.New(fault.RecipeInvalid, "%s", r.msg)
	f.Remedy = cmp.Or(r.remedy, "Move other steps, or change what is in the way.")
	f.Diags = []fault.Diagnostic{{
		Severity: fault.SeverityError, Code: fault.RecipeInvalid, Rule: "not-movable", Msg: r.msg, Hint: f.Remedy, Pos: t.source.Pos(at), Pointer: t.source.Pointer(at),
	}}
	return f
}
