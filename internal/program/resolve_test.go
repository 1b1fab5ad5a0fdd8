// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
)

// TestX251_OneAnswerForMany: steps that ask for the same at the same time share one search; those of another account,
// or that ask later, do not.
func TestX251_OneAnswerForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		searches, wait := 0, make(chan struct{})
		r := &Resolver{Programs: NewCache(10), Actions: &catalogue.Catalogue{}, Resolve: func(ctx context.Context, account string, d *Definition) (*Resolved, error) {
			searches++
			<-wait
			return ResolveWith(func(context.Context, string) (compile.Options, error) {
				return compile.Options{Actions: &catalogue.Catalogue{}}, nil
			})(ctx, account, d)
		}}
		text := &Definition{By: plan.ByText, Ref: "@sha256:1", Text: []byte("name: x\nsteps: [{id: a, transform: {expression: '1'}}]\n")}
		ask := func(account string) *Resolution {
			return r.Of(t.Context(), account, text, func(fn func() error) error { return fn() })
		}
		answers := make(chan *Resolution, 100)
		for range 100 {
			go func() { answers <- ask("a") }()
		}
		synctest.Wait()
		if searches != 1 {
			t.Errorf("%d searches for 100 steps", searches)
		}
		close(wait)
		first := <-answers
		for range 99 {
			if a := <-answers; a != first || a.Err != nil || a.Failure(nil) != nil {
				t.Fatalf("another answer: %+v", a)
			}
		}
		if ask("b"); searches != 2 {
			t.Errorf("another account has had %d searches", searches-1)
		}
		if ask("a"); searches != 3 {
			t.Errorf("a later step has had %d searches", searches-2)
		}
	})
}

// TestX251_MadeTexts: a text that a step has made names no files, and no recipes where nothing is registered.
func TestX251_MadeTexts(t *testing.T) {
	resolve := ResolveWith(func(context.Context, string) (compile.Options, error) {
		return compile.Options{Actions: &catalogue.Catalogue{}}, nil
	})
	for text, want := range map[string]fault.Code{
		"name: x\nsteps: [{id: a, recipe: {ref: other}}]\n":                     fault.RecipeInvalid,
		"name: x\nsteps: [{id: a, recipe: {file: other.yaml}}]\n":               fault.RecipeInvalid,
		"name: x\nextends: [{ref: other}]\nsteps: []\n":                         fault.RecipeInvalid,
		"name: x\nsteps: [{id: a, recipe: {ref: x, limits: {max_depth: 2}}}]\n": "", // itself
		"": fault.RecipeInvalid,
	} {
		if _, err := resolve(t.Context(), "a", &Definition{By: plan.ByText, Ref: "@", Text: []byte(text)}); fault.CodeOf(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := resolve(t.Context(), "a", &Definition{By: plan.ByName, Ref: "other"}); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Error(err)
	}
}
