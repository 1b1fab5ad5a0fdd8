// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A program is a plan that is ready to run, with what the engine needs of it. Runs of
// one plan share it.
type program struct {
	machine *machine.Program
	key     string              // of the plan, under which it is stored
	hash    string              // the plan's
	stored  []store.EncodedPlan // the plan, for the transition that starts a run
	input   atomic.Pointer[inputCheck]
	calls   []atomic.Pointer[call] // by step
	// tailCapacity is how many bytes of frames the last run had that ended without
	// being compacted before. The next run allocates as many at once. Only the loop
	// uses it.
	tailCapacity int
	fixed        atomic.Pointer[estimate.Budget] // what a run costs, if that does not depend on its input
}

func newProgram(p *plan.Plan) (*program, error) {
	data, err := p.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode plan %s: %w", p.Hash(), err)
	}
	return assembleProgram(p, p.Key(), data), nil
}

func assembleProgram(p *plan.Plan, key string, encoded []byte) *program {
	return &program{machine: machine.Prepare(p), key: key, hash: plan.HashOf(key), stored: []store.EncodedPlan{{Key: key, Data: encoded}}, calls: make([]atomic.Pointer[call], len(p.Steps))}
}

// programs caches prepared plans. It is bounded; a run in memory holds its program
// whether it is still cached or not.
type programs struct {
	limit int
	mu    sync.RWMutex
	byKey map[string]*program
	order []*program // oldest first
}

func newPrograms(limit int) *programs {
	return &programs{limit: limit, byKey: map[string]*program{}}
}

func (ps *programs) find(key string) *program {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.byKey[key]
}

// add caches a program and returns the one that is cached under its key.
func (ps *programs) add(p *program) *program {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if old := ps.byKey[p.key]; old != nil {
		return old
	}
	if len(ps.order) >= ps.limit {
		old := ps.order[0]
		delete(ps.byKey, old.key)
		ps.order = append(ps.order[:0], ps.order[1:]...)
	}
	ps.byKey[p.key] = p
	ps.order = append(ps.order, p)
	return p
}

// prepare returns the program of a plan given by a caller.
func (ps *programs) prepare(p *plan.Plan) (*program, error) {
	if prog := ps.find(p.Key()); prog != nil {
		return prog, nil
	}
	if err := CheckRunnable(p); err != nil {
		return nil, err
	}
	prog, err := newProgram(p)
	if err != nil {
		return nil, err
	}
	return ps.add(prog), nil
}

// load returns the program of a stored plan.
func (ps *programs) load(ctx context.Context, st store.Reader, key string) (*program, error) {
	if prog := ps.find(key); prog != nil {
		return prog, nil
	}
	data, err := st.Plan(ctx, key)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode(data)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the stored plan %s cannot be read", key)
	}
	if err := CheckRunnable(p); err != nil {
		return nil, err
	}
	// The stored key identifies the plan even if a later release encodes it
	// differently: a run executes the plan it was started with.
	return ps.add(assembleProgram(p, key, data)), nil
}

// CheckRunnable refuses a plan with steps that run other recipes: compile accepts them,
// but the machine does not run them yet.
func CheckRunnable(p *plan.Plan) error {
	if len(p.Children) == 0 {
		return nil
	}
	return fault.New(fault.NotAvailable, "this release checks, draws and estimates recipes that run other recipes (%q), but does not run them yet", p.Children[0].String())
}

// plan returns the plan that is stored under a key.
func (c *core) plan(ctx context.Context, key string) (*plan.Plan, error) {
	prog, err := c.programs.load(ctx, c.cfg.Store, key)
	if err != nil {
		return nil, err
	}
	return prog.machine.Plan(), nil
}

// inputCheck is a plan's inputSchema, ready to use.
type inputCheck struct {
	schema *jsonschema.Schema
	files  bool // it mentions fileHashes
}

// validate checks a run's input against the plan's inputSchema: the parameters, and
// fileHashes if the schema mentions them. A closed schema that does not mention files
// does not refuse them.
func (p *program) validate(params map[string]any, files []journal.File) error {
	raw := p.machine.Plan().InputSchema
	if len(raw) == 0 {
		return nil
	}
	c := p.input.Load()
	if c == nil {
		schema, err := jsonschema.Compile(raw)
		if err != nil {
			return fault.Wrap(fault.RecipeInvalid, err, "the recipe's inputSchema cannot be used: %v", err)
		}
		var top struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(raw, &top) // a schema may also be true or false
		_, named := top.Properties["fileHashes"]
		c = &inputCheck{schema: schema, files: named || slices.Contains(jsonschema.Required(raw), "fileHashes")}
		p.input.Store(c)
	}
	input := make(map[string]any, len(params)+1)
	maps.Copy(input, params)
	if _, given := params["fileHashes"]; c.files && !given && len(files) > 0 {
		hashes := make([]any, len(files))
		for i := range files {
			hashes[i] = files[i].Hash
		}
		input["fileHashes"] = hashes
	}
	violations := c.schema.Validate(input)
	if len(violations) == 0 {
		return nil
	}
	var shown map[string]any
	mask := view.NewMask(p.machine.Plan())
	if mask != nil {
		shown = mask.Fields(input)
	}
	diags := make([]fault.Diagnostic, len(violations))
	for i, v := range violations {
		msg := v.Msg
		if mask != nil && mayRevealMasked(shown, &v) {
			msg = "the value, which is not shown because the schema marks it as writeOnly, does not fit `" + v.Keyword + "`"
		}
		diags[i] = fault.Diagnostic{
			Severity: fault.SeverityError, Code: fault.InputInvalid, Rule: v.Keyword,
			Msg: fmt.Sprintf("input%s: %s", v.Pointer, msg),
		}
	}
	return &fault.Error{Code: fault.InputInvalid, Msg: diags[0].Msg, Diags: diags}
}

// valueFreeKeywords are the schema keywords whose violations reveal nothing of a value
// but its type, size and names.
var valueFreeKeywords = []string{"required", "additionalProperties", "unevaluatedProperties", "type", "minLength", "maxLength",
	"minItems", "maxItems", "minProperties", "maxProperties", "dependentRequired"}

// mayRevealMasked reports whether a violation may reveal a value that the schema marks
// as writeOnly: it is about such a value, or about one that may contain it. shown is
// the input in its masked form.
func mayRevealMasked(shown any, violation *jsonschema.Violation) bool {
	if slices.Contains(valueFreeKeywords, violation.Keyword) {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(violation.Pointer, "/"), "/") {
		switch at := shown.(type) {
		case map[string]any:
			shown = at[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return true
			}
			shown = at[i]
		}
	}
	switch shown := shown.(type) {
	case map[string]any, []any, nil:
		return true
	case string:
		return strings.Contains(shown, view.Masked)
	}
	return false
}
