// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A maskedJournal is a journal as the socket shows it: inputs that a recipe marks
// as writeOnly do not leave the process that holds the directory. Runs of other
// recipes are passed on as they are stored.
type maskedJournal struct {
	store.Reader
	mu    sync.Mutex
	marks map[string]bool         // by the hash of a plan: whether it marks inputs
	masks map[store.Key]*maskedTo // between two pages of a run
}

// maxMasks bounds what is remembered between calls.
const maxMasks = 256

// maskedTo is a mask that has learned from the events up to number last.
type maskedTo struct {
	mask *view.Mask
	last uint64
}

func newMaskedJournal(j store.Reader) *maskedJournal {
	return &maskedJournal{Reader: j, marks: map[string]bool{}, masks: map[store.Key]*maskedTo{}}
}

// marked says whether a plan marks inputs. One that cannot be read may.
func (m *maskedJournal) marked(ctx context.Context, head *store.Head) bool {
	m.mu.Lock()
	marks, known := m.marks[head.PlanHash]
	m.mu.Unlock()
	if known {
		return marks
	}
	p, err := store.LoadPlan(ctx, m.Reader, *head)
	if err != nil {
		return true
	}
	marks = view.NewMask(p) != nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) >= maxMasks {
		clear(m.marks)
	}
	m.marks[head.PlanHash] = marks
	return marks
}

func (m *maskedJournal) Head(ctx context.Context, key store.Key) (store.Head, error) {
	head, err := m.Reader.Head(ctx, key)
	if err == nil {
		m.hide(ctx, &head)
	}
	return head, err
}

func (m *maskedJournal) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	heads, err := m.Reader.List(ctx, q)
	for i := range heads {
		m.hide(ctx, &heads[i])
	}
	return heads, err
}

func (m *maskedJournal) hide(ctx context.Context, head *store.Head) {
	hideMessage(head, func() bool { return m.marked(ctx, head) })
	hideReason(head, func() bool { return m.marked(ctx, head) })
}

// hideMessage hides why a run failed if its recipe marks inputs: it may hold one.
func hideMessage(head *store.Head, marked func() bool) {
	if head.Message != "" && marked() {
		head.Message = view.Masked
	}
}

// hideReason does so with why a run is set apart: what stands behind the first colon
// may be the text of a panic. The reason of an imported run is of the import's making.
func hideReason(head *store.Head, marked func() bool) {
	ours, _, cause := strings.Cut(head.Quarantine, ": ")
	if cause && !head.Imported() && marked() {
		head.Quarantine = ours + ": " + view.Masked
	}
}

// Load leaves out the state and the events of a run that has something to hide:
// nobody but replay looks at them, and it then compares the head alone.
func (m *maskedJournal) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	saved, err := m.Reader.Load(ctx, key)
	if err != nil || !m.marked(ctx, &saved.Head) {
		return saved, err
	}
	out := *saved
	out.State, out.StateLast, out.Tail = nil, 0, nil
	m.hide(ctx, &out.Head)
	return &out, nil
}

func (m *maskedJournal) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
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

// learned is a mask that knows the run's events up to number after. Nobody else
// has it until it is put back.
func (m *maskedJournal) learned(ctx context.Context, head store.Head, after uint64) (*maskedTo, error) {
	m.mu.Lock()
	to := m.masks[head.Key]
	delete(m.masks, head.Key)
	m.mu.Unlock()
	if to == nil || to.last > after {
		p, err := store.LoadPlan(ctx, m.Reader, head)
		if err != nil {
			return nil, err
		}
		to = &maskedTo{mask: view.NewMask(p)}
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
