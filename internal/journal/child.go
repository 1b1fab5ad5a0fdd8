// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Share is what a run gives to a child run out of what it may use itself, and gets
// back when the child run has ended.
type Share struct {
	Credits int64 `json:"credits,omitempty"` // whole credits
	Steps   int64 `json:"steps,omitempty"`   // step instances begun, those of its own child runs included
	Memory  int64 `json:"memory,omitempty"`  // bytes
}

// A Resource is a field of a Share. The numbers are journal format.
type Resource uint8

// The resources.
const (
	CreditsShare Resource = iota + 1
	StepsShare
	MemoryShare
)

var resourceNames = [...]string{"", "credits", "steps", "memory"}

func (r Resource) String() string { return resourceNames[min(int(r), len(resourceNames)-1)] }

// Of returns the field of s that r names.
func (r Resource) Of(s *Share) *int64 {
	switch r {
	case CreditsShare:
		return &s.Credits
	case StepsShare:
		return &s.Steps
	default:
		return &s.Memory
	}
}

// A Child is the place of a child run in its tree of runs. It is fixed when the run starts.
type Child struct {
	Root   string `json:"root"`
	Parent string `json:"parent"`
	// The step instance and the attempt of it that the run is.
	Path    []byte `json:"path,omitempty"`
	Step    int32  `json:"step"`
	Gen     uint32 `json:"generation"`
	Attempt uint32 `json:"attempt"`

	Depth    int64 `json:"depth"`    // of the root run it is 0
	MaxDepth int64 `json:"maxDepth"` // of this run and those below it
	// Share is what the run begins with, and Most what the step that starts it allows it,
	// 0 = as much as its parent.
	Share Share `json:"share"`
	Most  Share `json:"most"`
	// Workspace is the path of the run's workspace, see [plan.Child]; "" = it has none.
	Workspace string `json:"workspace,omitempty"`
}

// Ref is the step instance in the parent.
func (c *Child) Ref() Ref { return Ref{Path: Path(c.Path), Step: c.Step} }

// Fence is the attempt of that step instance.
func (c *Child) Fence() Fence { return Fence{Gen: c.Gen, Attempt: c.Attempt} }

// child writes the field of a start as encoding/json does.
func (w *startWriter) child(c *Child) {
	w.text(`,"child":{"root":`, c.Root)
	w.text(`,"parent":`, c.Parent)
	if len(c.Path) > 0 {
		w.b = append(base64.StdEncoding.AppendEncode(append(w.b, `,"path":"`...), c.Path), '"')
	}
	w.number(`,"step":`, int64(c.Step))
	w.number(`,"generation":`, int64(c.Gen))
	w.number(`,"attempt":`, int64(c.Attempt))
	w.number(`,"depth":`, c.Depth)
	w.number(`,"maxDepth":`, c.MaxDepth)
	w.share(`,"share":{`, &c.Share)
	w.share(`,"most":{`, &c.Most)
	w.optional(`,"workspace":`, c.Workspace)
	w.b = append(w.b, '}')
}

func (w *startWriter) number(name string, n int64) {
	w.ok = w.ok && n >= 0
	w.b = strconv.AppendInt(append(w.b, name...), n, 10)
}

func (w *startWriter) share(name string, s *Share) {
	w.b = append(w.b, name...)
	sep := ""
	for r := CreditsShare; r <= MemoryShare; r++ {
		if n := *r.Of(s); n != 0 {
			w.number(sep+`"`+r.String()+`":`, n)
			sep = ","
		}
	}
	w.b = append(w.b, '}')
}

// child reads what follows the name of the first field.
func (r *startReader) child() *Child {
	c := &Child{Root: r.text("")}
	c.Parent = r.text(`,"parent":"`)
	if path := r.optional(`,"path":"`); path != "" {
		var err error
		c.Path, err = base64.StdEncoding.DecodeString(path)
		r.ok = r.ok && err == nil
	}
	step, gen, attempt := r.whole(`,"step":`), r.whole(`,"generation":`), r.whole(`,"attempt":`)
	r.ok = r.ok && step <= math.MaxInt32 && max(gen, attempt) <= math.MaxUint32
	c.Step, c.Gen, c.Attempt = int32(step), uint32(gen), uint32(attempt)
	c.Depth, c.MaxDepth = r.whole(`,"depth":`), r.whole(`,"maxDepth":`)
	r.share(`,"share":{`, &c.Share)
	r.share(`,"most":{`, &c.Most)
	c.Workspace = r.optional(`,"workspace":"`)
	r.ok = r.accept("}") && r.ok
	return c
}

func (r *startReader) share(name string, s *Share) {
	r.ok = r.accept(name) && r.ok
	sep := ""
	for k := CreditsShare; k <= MemoryShare; k++ {
		if r.accept(sep + `"` + k.String() + `":`) {
			*k.Of(s), sep = r.whole(""), ","
		}
	}
	r.ok = r.accept("}") && r.ok
}

// A Tree is what all runs of a tree have in common. It is found when the root run starts, and what
// expressions name when a step first runs it, so that no later change of a recipe or an action reaches
// the tree (R28).
type Tree struct {
	Recipes []TreeRecipe `json:"recipes,omitempty"` // the registered recipes, by reference
	Actions []TreeAction `json:"actions,omitempty"` // of child runs, by reference
}

// A TreeRecipe is the recipe that a reference stands for.
type TreeRecipe struct {
	Ref     string `json:"ref"` // plan.ChildRef.String
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Key     string `json:"key"` // of its plan
	// By says what an expression gave that Ref is; "" = it was found when the root run started.
	By plan.By `json:"by,omitempty"`
}

// A TreeAction is the action that a reference stands for.
type TreeAction struct {
	Ref string `json:"ref"` // plan.ActionRef.String
	Pin Pin    `json:"pin"`
}

// Recipe returns what a reference stands for, or nil.
func (t *Tree) Recipe(ref string) *TreeRecipe {
	if t == nil {
		return nil
	}
	for i := range t.Recipes {
		if t.Recipes[i].Ref == ref {
			return &t.Recipes[i]
		}
	}
	return nil
}

// ByExpressions is how many recipes expressions have named.
func (t *Tree) ByExpressions() (n int) {
	if t == nil {
		return 0
	}
	for i := range t.Recipes {
		if t.Recipes[i].By != "" {
			n++
		}
	}
	return n
}

// Action returns what a reference stands for, or nil.
func (t *Tree) Action(ref string) *Pin {
	if t == nil {
		return nil
	}
	for i := range t.Actions {
		if t.Actions[i].Ref == ref {
			return &t.Actions[i].Pin
		}
	}
	return nil
}

// Lacks returns what more has and t does not, which may be nil.
func (t *Tree) Lacks(more *Tree) *Tree {
	lacks := new(Tree)
	for i := range more.Recipes {
		if r := &more.Recipes[i]; t.Recipe(r.Ref) == nil {
			lacks.Recipes = append(lacks.Recipes, *r)
		}
	}
	for i := range more.Actions {
		if a := &more.Actions[i]; t.Action(a.Ref) == nil {
			lacks.Actions = append(lacks.Actions, *a)
		}
	}
	return lacks
}

// With returns t with what more has and t lacks, which stands for what it does from here on (R28). It changes neither.
func (t *Tree) With(more *Tree) *Tree {
	lacks := t.Lacks(more)
	if t == nil {
		return lacks
	}
	return &Tree{slices.Concat(t.Recipes, lacks.Recipes), slices.Concat(t.Actions, lacks.Actions)}
}

// Pinned returns what an expression gave, and what it stands for from here on (EvRunPinned).
func (e *Event) Pinned() (ref string, t *Tree, err error) {
	t = new(Tree)
	if err := json.Unmarshal(e.Data, t); err != nil || t.Recipe(e.Text) == nil {
		return "", nil, fmt.Errorf("no recipe %.60q is in %.60q", e.Text, e.Data)
	}
	return e.Text, t, nil
}

// EncodeShare encodes a share as the payload of EvChildStarted: a JSON object.
func EncodeShare(s Share) []byte {
	w := startWriter{b: make([]byte, 0, 64)}
	w.share("{", &s)
	return w.b
}

// GoesOn reports whether the child run has ended before, as an earlier attempt of the step, and
// goes on (EvChildStarted).
func (e *Event) GoesOn() bool { return e.Flag&1 != 0 }

// Resumed is the place of a child run from here on, which is c with another attempt and its share
// (EvRunResumed).
func (e *Event) Resumed(c *Child) (*Child, error) {
	share, err := e.Share()
	if err != nil || c == nil {
		return nil, fmt.Errorf("event %d: no child run goes on with the share %.60q", e.Seq, e.Data)
	}
	place := *c
	place.Gen, place.Attempt, place.Share = uint32(e.M), e.Attempt, share
	return &place, nil
}

// Share is what a child run begins with, or goes on with (EvChildStarted, EvRunResumed).
func (e *Event) Share() (Share, error) {
	var s Share
	r := startReader{rest: string(e.Data), ok: true}
	if r.share("{", &s); r.ok && r.rest == "" {
		return s, nil
	}
	return e.anyShare()
}

// anyShare is Share for data that this release would not write.
func (e *Event) anyShare() (s Share, err error) {
	err = json.Unmarshal(e.Data, &s)
	return s, err
}

// Resource is what was added to a share (EvRunExtended, EvChildExtended).
func (e *Event) Resource() Resource { return Resource(e.Flag) }

// Added is how much was added to a share (EvRunExtended, EvChildExtended).
func (e *Event) Added() int64 { return e.N }

// ChildStatus is how a child run ended (EvChildEnded).
func (e *Event) ChildStatus() RunStatus { return RunStatus(e.Flag) }

// ChildUsed is what a child run costs its parent (EvChildEnded).
func (e *Event) ChildUsed() ledger.Amount { return ledger.Amount(e.N) }

// ChildSteps is how many steps a child run, and those below it, began (EvChildEnded).
func (e *Event) ChildSteps() int64 { return e.M }

// RetriesAttempt reports whether the step is tried again as after a failed attempt, once
// what it owns has ended (EvNodeAborting).
func (e *Event) RetriesAttempt() bool { return e.Flag&1 != 0 }
