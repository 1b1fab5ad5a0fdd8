// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A Masked is a reader of runs without the inputs that their recipes mark as
// writeOnly, so that these do not leave the process that holds the directory.
// Runs of other recipes are returned as they are stored.
type Masked struct {
	store.Reader
	mu    sync.Mutex
	marks map[string]bool         // by the hash of a plan: whether it marks inputs
	masks map[store.Key]*maskedTo // kept from one page of a run's events to the next
}

// maxMasks bounds the maps of a Masked.
const maxMasks = 256

// maskedTo is a mask that has seen the events up to number last.
type maskedTo struct {
	mask *view.Mask
	last uint64
}

// NewMasked returns a Masked that reads from j.
func NewMasked(j store.Reader) *Masked {
	return &Masked{Reader: j, marks: map[string]bool{}, masks: map[store.Key]*maskedTo{}}
}

// marked reports whether the plan of a run marks inputs, or cannot be read.
func (m *Masked) marked(ctx context.Context, head *store.Head) bool {
	m.mu.Lock()
	marks, known := m.marks[head.PlanHash]
	m.mu.Unlock()
	if known && (marks || head.Parent == "") {
		return marks
	}
	p, err := store.LoadPlan(ctx, m.Reader, *head)
	if err != nil {
		return true
	}
	if marks, err = masks.Mark(ctx, m.Reader, *head, p); err != nil {
		return true
	}
	marks = marks || m.markedAbove(ctx, head)
	if head.Parent != "" || len(p.Children) > 0 {
		return marks // runs of one plan may have different parents, and run different recipes
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) >= maxMasks {
		clear(m.marks)
	}
	m.marks[head.PlanHash] = marks
	return marks
}

// markedAbove reports whether the plan of a run that contains a child run marks inputs: its
// input may be made of them. A run above that cannot be read may mark some.
func (m *Masked) markedAbove(ctx context.Context, head *store.Head) bool {
	if head.Parent == "" {
		return false
	}
	up, err := m.Reader.Head(ctx, store.Key{Account: head.Account, Run: head.Parent})
	return err != nil || m.marked(ctx, &up)
}

// Head implements store.Reader.
func (m *Masked) Head(ctx context.Context, key store.Key) (store.Head, error) {
	head, err := m.Reader.Head(ctx, key)
	if err == nil {
		m.Hide(ctx, &head)
	}
	return head, err
}

// List implements store.Reader.
func (m *Masked) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	heads, err := m.Reader.List(ctx, q)
	for i := range heads {
		m.Hide(ctx, &heads[i])
	}
	return heads, err
}

// Hide hides in a head what its recipe marks.
func (m *Masked) Hide(ctx context.Context, head *store.Head) {
	// The message of a failed run may contain a marked input.
	if head.Message != "" && m.marked(ctx, head) {
		head.Message = view.Masked
	}
	m.HideCause(ctx, head)
}

// HideCause hides why a run is quarantined, and nothing else in its head: the part
// after the first colon may be the text of a panic. The reason of an imported run
// comes from the import.
func (m *Masked) HideCause(ctx context.Context, head *store.Head) {
	ours, _, cause := strings.Cut(head.Quarantine, ": ")
	if cause && !head.Imported() && m.marked(ctx, head) {
		head.Quarantine = ours + ": " + view.Masked
	}
}

// Load omits the state and the events of a run whose recipe marks inputs. Only
// replay uses them, and it then compares the head alone.
func (m *Masked) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	saved, err := m.Reader.Load(ctx, key)
	if err != nil || !m.marked(ctx, &saved.Head) {
		return saved, err
	}
	out := *saved
	out.State, out.StateLast, out.Tail = nil, 0, nil
	m.Hide(ctx, &out.Head)
	return &out, nil
}

// Events implements store.Reader.
func (m *Masked) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	page, err := m.Reader.Events(ctx, key, after, maxBytes)
	if err != nil {
		return page, err
	}
	head, err := m.Reader.Head(ctx, key)
	if err != nil {
		return store.Page{}, err
	}
	if !m.marked(ctx, &head) {
		return page, nil
	}
	to, err := m.learned(ctx, head, after)
	if err != nil {
		return store.Page{}, err
	}
	var frames []byte
	err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
		frames = journal.AppendFrame(frames, []journal.Event{*to.mask.Event(ev)})
		to.last = max(to.last, ev.Seq)
		return nil
	})
	if err != nil {
		return store.Page{}, err
	}
	page.Frames = frames
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.masks) >= maxMasks {
		clear(m.masks)
	}
	m.masks[key] = to
	return page, nil
}

// learned returns a mask that has seen the events of a run up to number after. It
// removes it from m.masks, so that one caller uses it at a time.
func (m *Masked) learned(ctx context.Context, head store.Head, after uint64) (*maskedTo, error) {
	m.mu.Lock()
	to := m.masks[head.Key]
	delete(m.masks, head.Key)
	m.mu.Unlock()
	if to == nil || to.last > after {
		p, err := store.LoadPlan(ctx, m.Reader, head)
		if err != nil {
			return nil, err
		}
		mask, err := masks.Of(ctx, m.Reader, head, p)
		if err != nil {
			return nil, err
		}
		to = &maskedTo{mask: mask}
	}
	for to.last < after {
		page, err := m.Reader.Events(ctx, head.Key, to.last, store.PageBytes)
		if err != nil {
			return nil, err
		}
		if page.Next <= to.last {
			break
		}
		err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq > to.last && ev.Seq <= after {
				to.mask.Event(ev)
				to.last = ev.Seq
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return to, nil
}
