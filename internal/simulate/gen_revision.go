// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
)

// A Revision has the plans of a case once newer versions of recipes and lenses are registered.
type Revision struct {
	Plan    *plan.Plan
	Others  []*plan.Plan
	sources *sources
}

// has reports whether users start p once the newer versions are registered.
func (r *Revision) has(p *plan.Plan) bool {
	return r != nil && (p == r.Plan || slices.Contains(r.Others, p))
}

// keyOf returns the key of the plan that a reference stands for in the revision. p is the plan of c, as it was
// before, that has the reference itself or in a plan of its child runs. "" = it is not known.
func (r *Revision) keyOf(p *plan.Plan, c *Case, ref *plan.ChildRef) string {
	if i := slices.Index(c.Others, p); i >= 0 {
		return keyOfRef(r.Others[i], ref)
	}
	return keyOfRef(r.Plan, ref)
}

// revisedLenses are the lenses that there are then. Their prompts show which version made them.
var revisedLenses = catalogue.NewLenses(
	&catalogue.Lens{ID: "ask", Version: "1", Template: "{{ q }} of {{ list }}"},
	&catalogue.Lens{ID: "ask", Version: "2", Template: revisedPrompt + "{{ q }} and {{ list }}"},
)

// revisedPrompt begins the prompts of the revised lens, and of no other.
const revisedPrompt = "second version: "

// revise draws newer versions of the registered recipes of case n, and compiles the same texts with them.
// It returns nil for a case in which none are registered.
func (s *sources) revise(n uint64, text *compile.Text) (*Revision, error) {
	if !inherits(n) && !names(n) {
		return nil, nil
	}
	w := newWriter(n)
	w.dice = rand.New(rand.NewPCG(n, 0x7265766973))
	w.sources.files, w.sources.origins = maps.Clone(s.files), s.origins
	w.sources.registered, w.sources.lenses = slices.Clone(s.registered), s.lenses
	if n/14%2 == 1 { // with the other recipes only references change, and the plan of a root stays the same
		w.sources.lenses = revisedLenses
	}
	w.n = len(s.files) + len(s.origins) + 1_000 // other files than those of the first versions
	for _, version := range []string{"1.9.0", "2.1.0"} {
		r := smallRecipe(w.dice)
		r.Name, r.Version = "part", version
		if err := w.register(r); err != nil {
			return nil, err
		}
	}
	p, others, err := w.sources.compile(text)
	if err != nil {
		return nil, fmt.Errorf("with newer versions: %w", err)
	}
	maps.Copy(s.roots, w.sources.roots)
	return &Revision{Plan: p, Others: others, sources: w.sources}, nil
}

// A registry decides which versions of recipes and lenses are registered in a world.
type registry struct {
	w       *World
	dice    *rand.Rand
	revised bool // the newer versions are there
	// asked are the starts that users and schedules have asked for, by their runs.
	asked map[store.Key]asked
}

// asked is a start that was asked for.
type asked struct {
	plan    *plan.Plan // with what its references stood for then
	revised bool       // the newer versions were there
}

func newRegistry(w *World) registry {
	return registry{w: w, dice: rand.New(rand.NewPCG(w.seed, 0x7265676973)), asked: map[store.Key]asked{}}
}

// step registers the newer versions at some time.
func (r *registry) step() {
	if r.w.c.Later == nil || r.revised || r.dice.IntN(r.w.faults.steps/2+1) > 0 {
		return
	}
	r.revised = true
	r.w.stats.Trees.Revisions++
	r.w.tracef("newer versions are registered")
}

// plans returns what the texts of the case stand for now.
func (r *registry) plans() (p *plan.Plan, others []*plan.Plan) {
	if r.revised {
		return r.w.c.Later.Plan, r.w.c.Later.Others
	}
	return r.w.c.Plan, r.w.c.Others
}

// resolve implements [program.ResolveFunc]. Some calls fail as if the registry could not be read. It compiles each time,
// as the real registry does; a case finds too few recipes for a cache to save anything.
func (r *registry) resolve(ctx context.Context, account string, d *program.Definition) (*program.Resolved, error) {
	if r.dice.IntN(8) == 0 {
		return nil, fault.New(fault.ServiceUnavailable, "the recipes cannot be read")
	}
	r.w.stats.Trees.Found++
	return program.ResolveWith(func(context.Context, string) (compile.Options, error) {
		if r.revised {
			return r.w.c.Later.sources.options(), nil
		}
		return r.w.c.sources.options(), nil
	})(ctx, account, d)
}

// start records a start that was asked for. m is nil if the engine has refused it.
func (r *registry) start(m *engine.Message, req *engine.StartRequest) {
	if m != nil {
		r.asked[m.Key()] = asked{plan: req.Plan, revised: r.w.c.Later.has(req.Plan)}
	}
}

// lensRevised reports whether a step has the prompt of the revised lens.
func lensRevised(p *plan.Prompt) bool { return strings.HasSuffix(p.Lens, "@2") }
