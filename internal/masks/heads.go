// SPDX-License-Identifier: Apache-2.0

package masks

import (
	"context"
	"strings"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// Heads hides in heads what the recipes of their runs mark, without reading journals: texts
// that may have a marked value are hidden whole. It is not safe for concurrent use.
type Heads struct {
	from  store.Reader
	marks map[string]bool // by the key of a plan: whether it marks inputs
}

// maxMarks bounds Heads.marks.
const maxMarks = 256

// NewHeads returns a Heads for heads of a store.
func NewHeads(from store.Reader) *Heads { return &Heads{from, map[string]bool{}} }

// marked reports whether the plan of a run marks inputs, or cannot be read.
func (h *Heads) marked(ctx context.Context, head *store.Head) bool {
	marks, known := h.marks[head.PlanHash]
	if known && (marks || head.Parent == "") {
		return marks
	}
	p, err := store.LoadPlan(ctx, h.from, *head)
	if err != nil {
		return true
	}
	if marks, err = Mark(ctx, h.from, *head, p); err != nil {
		return true
	}
	marks = marks || h.markedAbove(ctx, head)
	if head.Parent != "" || len(p.Children) > 0 {
		return marks // runs of one plan may have different parents, and run different recipes
	}
	if len(h.marks) >= maxMarks {
		clear(h.marks)
	}
	h.marks[head.PlanHash] = marks
	return marks
}

// markedAbove reports whether the plan of a run that contains a child run marks inputs: its
// input may be made of them. A run above that cannot be read may mark some.
func (h *Heads) markedAbove(ctx context.Context, head *store.Head) bool {
	if head.Parent == "" {
		return false
	}
	up, err := h.from.Head(ctx, store.Key{Account: head.Account, Run: head.Parent})
	return err != nil || h.marked(ctx, &up)
}

// Hide hides the message of a failed run, which may contain a marked value, and why a run is
// quarantined.
func (h *Heads) Hide(ctx context.Context, head *store.Head) {
	if head.Message != "" && h.marked(ctx, head) {
		head.Message = view.Masked
	}
	h.HideCause(ctx, head)
}

// HideCause hides why a run is quarantined, and nothing else: the part after the first colon
// may be the text of a panic. The reason of an imported run comes from the import.
func (h *Heads) HideCause(ctx context.Context, head *store.Head) {
	ours, _, cause := strings.Cut(head.Quarantine, ": ")
	if cause && !head.Imported() && h.marked(ctx, head) {
		head.Quarantine = ours + ": " + view.Masked
	}
}
