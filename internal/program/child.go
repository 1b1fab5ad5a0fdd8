// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/sanitize"
	"github.com/roux-engine/roux/internal/store"
)

// The share that a child run begins with, if its parent has so much: what its recipe
// needs at least. It asks for more by itself.
const (
	shareSteps  = 16
	shareMemory = 16 << 10
)

// A Child is what a child run is started with.
type Child struct {
	Program *Program
	Recipe  string
	Version string

	task   *machine.ChildTask
	parent *journal.Start
	input  Input
	pins   []journal.Pin
	terms  *journal.Credits
}

// Child finds what the child run that a task asks for is started with, and checks its
// input. prog and start are those of its parent; pinned is what the runs of the tree have in
// common, and resolved has programs of it whose plans may not be stored yet. [ErrUnresolved] means that an
// expression has named a recipe that is not pinned.
func (c *Cache) Child(ctx context.Context, st store.Reader, actions catalogue.Finder, prog *Program, start *journal.Start, pinned *journal.Tree, resolved Family, task *machine.ChildTask) (*Child, error) {
	ch := &Child{task: task, parent: start}
	if mutation.Pin {
		if newest := c.find(prog.Key()); newest != nil {
			if _, now, err := newest.Pin(actions); err == nil {
				pinned = &journal.Tree{Recipes: now.Recipes, Actions: pinned.Actions}
			}
		}
	}
	key, err := ch.find(pinned)
	if err != nil {
		return nil, err
	}
	if ch.Program = resolved[key]; ch.Program == nil {
		if ch.Program, err = c.member(ctx, st, prog, key); err != nil {
			return nil, err
		}
	}
	for _, a := range ch.Program.Plan().Actions {
		pin := pinned.Action(a.String())
		if pin == nil {
			return nil, fault.New(fault.ActionNotFound, "no action %s was registered when run %s started", a, ch.root())
		}
		ch.pins = append(ch.pins, *pin)
	}
	return ch, ch.check(actions)
}

// find finds the recipe of the child run, and returns the key of its plan.
func (ch *Child) find(pinned *journal.Tree) (key string, err error) {
	ref := &ch.task.Ref
	if ref.Key != "" {
		ch.Recipe, ch.Version = ref.Name, ref.Version
		return ref.Key, nil
	}
	found := pinned.Recipe(ref.String())
	if found == nil && ch.task.Definition != nil {
		return "", cmp.Or(full(pinned), ErrUnresolved)
	}
	if found == nil {
		return "", fault.New(fault.RecipeNotFound, "it was not registered when run %s started", ch.root())
	}
	ch.Recipe, ch.Version = found.Name, found.Version
	return found.Key, nil
}

// member returns the program of a plan of the family of prog.
func (c *Cache) member(ctx context.Context, st store.Reader, prog *Program, key string) (*Program, error) {
	if family := prog.family.Load(); family != nil && (*family)[key] != nil {
		return (*family)[key], nil
	}
	return c.Load(ctx, st, key)
}

// check checks the input of the child run and fixes its terms: its policy and the most
// that it may use are about its share of what its root holds.
func (ch *Child) check(actions catalogue.Finder) error {
	v, err := jsonx.Decode(ch.task.Input, journal.ValueLimits) // large values stay in their files (X163)
	if err != nil {
		return err
	}
	params, _ := v.(map[string]any)
	if len(params) == 0 {
		params = nil // as if it was decoded
	}
	if ch.input, err = ch.Program.Input(params, ch.task.Files, sanitize.Policy(ch.task.Child.InputPolicy)); err != nil || ch.parent.Credits == nil {
		return err
	}
	b := ch.Program.Budget(actions, ch.input.Parameters, ch.task.Files)
	ch.terms, err = Terms(b, ch.parent.Credits.Most, ch.task.Child.MaxCredits)
	return err
}

// root is the id of the root run.
func (ch *Child) root() string {
	if ch.parent.Child != nil {
		return ch.parent.Child.Root
	}
	return ch.parent.Run
}

// Share is the share of its parent's limits and credits that the child run asks for.
func (ch *Child) Share() journal.Share {
	share := journal.Share{
		Steps:  int64(max(shareSteps, len(ch.Program.Plan().Steps))),
		Memory: int64(shareMemory + 2*(len(ch.task.Input)+len(ch.task.Inherited))),
	}
	if ch.terms != nil {
		share.Credits = min(ch.terms.Estimated, ch.terms.Most)
	}
	return share
}

// Last is the child run of the step that has ended without completing and may go on; "" = none.
func (ch *Child) Last() string { return ch.task.Last }

// Continues reports whether a run is what would be started now, so that it can go on: it
// executes the same plan and was given the same input (X104). One that had a workspace cannot: that was
// removed when the run ended (X235), with what completed steps had left in it.
func (ch *Child) Continues(last *machine.Run) bool {
	start := last.Start()
	if start == nil || start.Child != nil && start.Child.Workspace != "" || start.PlanHash != ch.Program.Hash() || !sameContext(start.Inherited, ch.task.Inherited) {
		return false
	}
	if _, ok := last.Resumable(); !ok {
		return false
	}
	was, err := jsonx.Canonical([]any{start.Parameters})
	is, err2 := jsonx.Canonical([]any{ch.input.Parameters})
	same := func(a, b journal.File) bool { return a.Hash == b.Hash && a.Name == b.Name && a.MimeType == b.MimeType }
	return err == nil && err2 == nil && (bytes.Equal(was, is) || len(start.Parameters)+len(ch.input.Parameters) == 0) && slices.EqualFunc(start.Files, ch.task.Files, same)
}

// sameContext reports whether a run has inherited what another one would. The journal writes the
// characters <, > and & of it in another way than canonical JSON.
func sameContext(was, canonical []byte) bool {
	if bytes.Equal(was, canonical) {
		return true
	}
	v, err := jsonx.Decode(was, journal.ValueLimits)
	if err != nil {
		return false
	}
	raw, err := jsonx.Canonical(v)
	return err == nil && bytes.Equal(raw, canonical)
}

// Resumed is the share that a run which goes on asks for.
func (ch *Child) Resumed(last *machine.Run) (share journal.Share, ok bool) {
	has, ok := last.Resumable()
	share = ch.Share()
	share.Credits = min(share.Credits, has.Credits)
	share.Memory += has.Memory
	return share, ok
}

// Start returns the start of the child run: the attempt of the step ref that is fence, with
// the share that its parent gave it.
func (ch *Child) Start(id string, ref journal.Ref, fence journal.Fence, share journal.Share) *journal.Start {
	up, root := ch.parent, ch.root()
	if ch.terms != nil {
		ch.terms.Reserved = share.Credits
	}
	return &journal.Start{
		Run: id, Account: up.Account, Recipe: ch.Recipe, Version: ch.Version, PlanHash: ch.Program.Hash(),
		Parameters: ch.input.Parameters, Stripped: ch.input.Stripped, Files: ch.task.Files, Correlation: cmp.Or(up.Correlation, root),
		Seed: childSeed(up.Seed, id), Pins: ch.pins, Labels: up.Labels, Credits: ch.terms, NoCache: up.NoCache, Inherited: ch.task.Inherited,
		Child: &journal.Child{
			Root: root, Parent: up.Run, Path: append([]byte(nil), ref.Path...), Step: ref.Step, Gen: fence.Gen, Attempt: fence.Attempt,
			Depth: ch.task.Depth, MaxDepth: ch.maxDepth(), Share: share,
			Most: journal.Share{Steps: ch.task.Child.TotalSteps, Memory: ch.task.Child.MemoryBytes}, Workspace: ch.workspace(),
		},
	}
}

// workspace is the path of the workspace of the child run: what its step says, or the step of a run above it.
func (ch *Child) workspace() string {
	if up := ch.parent.Child; ch.task.Child.Workspace == "" && up != nil {
		return up.Workspace
	}
	return ch.task.Child.Workspace
}

// maxDepth is the deepest that the child run and those below it may be: its recipe may
// lower it.
func (ch *Child) maxDepth() int64 {
	if own := ch.Program.Plan().Limits.ChildDepth; own > 0 {
		return min(ch.task.MaxDepth, ch.task.Depth+own)
	}
	return ch.task.MaxDepth
}

// childSeed is the seed of a child run's jitter.
func childSeed(seed uint64, id string) uint64 {
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	h.Write(b[:])
	h.Write([]byte(id))
	return h.Sum64()
}
