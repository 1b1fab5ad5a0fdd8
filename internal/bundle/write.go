// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A below is the line of runs.jsonl about a run below that of the bundle.
type below struct {
	Run    string `json:"run"`
	Parent string `json:"parent"`
	Recipe string `json:"recipe"`
	Status string `json:"status"`
	Plan   string `json:"plan"` // hash
	Events uint64 `json:"events"`
	Bytes  int64  `json:"bytes"` // of its journal
}

// Write writes a run, and the runs below it, as a bundle. With redact, every text that
// passed through a run is replaced. Values that the recipes mark as writeOnly are never
// included. Runs that are too long are fault.ValueTooLarge.
func Write(ctx context.Context, j store.Reader, head store.Head, w io.Writer, redact bool) (*Manifest, error) {
	c := &collector{ctx: ctx, j: j, redact: redact, account: head.Account, top: head.Run, plans: map[string]*plan.Plan{}, masks: map[string]*view.Mask{}, seen: map[string]bool{head.Run: true}}
	p, err := c.plan(head.PlanHash)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fault.New(fault.StoreCorrupt, "run %s: its plan is missing", head.Run)
	}
	m := &Manifest{Format: format, Version: Version, Run: head.Run, Recipe: head.Recipe, Status: head.Status,
		Plan: plan.HashOf(head.PlanHash), Redacted: redact, Imported: head.Imported(), Members: map[string]Member{}}
	text, err := p.Encode()
	if err != nil {
		return nil, err
	}
	var own bytes.Buffer
	if m.Events, err = c.run(head, p, &own); err != nil {
		return nil, err
	}
	if err := c.tree(); err != nil {
		return nil, err
	}
	parts := []part{{"plan.json", text}, {"journal.bin", own.Bytes()}, {"events.jsonl", c.lines.Bytes()}}
	if len(p.Children) > 0 {
		m.Version, m.Runs = TreeVersion, len(c.runs)
		var about bytes.Buffer
		for i := range c.runs {
			if err := writeJSON(&about, c.runs[i], false); err != nil {
				return nil, err
			}
		}
		parts = append(parts, part{"plans.jsonl", c.planLines.Bytes()}, part{"runs.jsonl", about.Bytes()}, part{"runs.bin", c.frames.Bytes()})
	}
	return m, pack(w, m, parts)
}

// A collector collects the contents of a bundle.
type collector struct {
	ctx          context.Context //nolint:containedctx // of one call of Write
	j            store.Reader
	redact       bool
	account, top string // of the run of the bundle

	plans     map[string]*plan.Plan // by key; nil = it is not stored
	planLines bytes.Buffer          // of plans.jsonl
	size      int                   // of the journals
	lines     bytes.Buffer          // of events.jsonl

	masks  map[string]*view.Mask // of the runs that were read
	seen   map[string]bool       // a journal that was made by hand may name a run twice
	queue  []below               // runs that are named in a journal that was read: Run and Parent
	runs   []below
	frames bytes.Buffer // of the runs below
}

// plan returns the plan with a key, or nil if it is not stored. It adds the plan to
// plans.jsonl, and those of the recipes that its steps run.
func (c *collector) plan(key string) (*plan.Plan, error) {
	if p, known := c.plans[key]; known {
		return p, nil
	}
	data, err := c.j.Plan(c.ctx, key)
	if fault.CodeOf(err) == fault.RecipeNotFound {
		c.plans[key] = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode(data)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the plan %s cannot be read: %v", plan.HashOf(key), err)
	}
	text, err := p.Encode()
	if err != nil {
		return nil, err
	}
	if len(c.plans) > 0 { // the first is in plan.json
		c.planLines.Write(append(text, '\n'))
	}
	c.plans[key] = p
	for i := range p.Children {
		if ref := &p.Children[i]; ref.Key != "" {
			if _, err := c.plan(ref.Key); err != nil {
				return nil, err
			}
		}
	}
	if c.planLines.Len() > maxPlan {
		return nil, fault.New(fault.ValueTooLarge, "the plans of run %s and of those below it are too large for a bundle; the limit is %s", c.top, view.Bytes(maxPlan))
	}
	return p, nil
}

// run appends the journal of a run to frames and to the public events. It returns the
// number of the last event.
func (c *collector) run(head store.Head, p *plan.Plan, frames *bytes.Buffer) (last uint64, err error) {
	mask, err := c.mask(head, p)
	if err != nil {
		return 0, err
	}
	c.masks[head.Run] = mask
	before, public := frames.Len(), journal.NewRenderer(p, head.Run)
	err = store.EachEvent(c.ctx, c.j, head.Key, 0, func(ev *journal.Event) error {
		if err := c.note(head.Run, ev); err != nil {
			return err
		}
		ev = mask.Event(ev)
		if c.redact {
			if ev, err = view.Redact(ev); err != nil {
				return err
			}
		}
		last = ev.Seq
		if err := writeJSON(&c.lines, public.Render(ev), false); err != nil {
			return err
		}
		if c.size+frames.Len()-before > maxJournal || c.lines.Len() > maxEvents {
			return c.tooLarge()
		}
		_, err := frames.Write(journal.AppendFrame(nil, []journal.Event{*ev}))
		return err
	})
	c.size += frames.Len() - before
	return last, err
}

// mask returns the mask of a run. That of a parent is made once for all its child runs.
func (c *collector) mask(head store.Head, p *plan.Plan) (*view.Mask, error) {
	if head.Run == c.top {
		return masks.Of(c.ctx, c.j, head, p)
	}
	return masks.Inside(c.ctx, c.j, head, p, c.masks[head.Parent])
}

func (c *collector) tooLarge() error {
	if len(c.runs) == 0 && len(c.queue) == 0 {
		return fault.New(fault.ValueTooLarge, "the journal of run %s is too large for a bundle; the limit is %s", c.top, view.Bytes(maxJournal))
	}
	return fault.New(fault.ValueTooLarge, "the journals of run %s and of those below it are too large for one bundle; the limit is %s: export child runs by their own ids",
		c.top, view.Bytes(maxJournal))
}

// note remembers the child run that an event starts, and includes the plans of the
// recipes that the start of a root refers to.
func (c *collector) note(run string, ev *journal.Event) error {
	tree, child := view.Related(ev)
	if tree != nil {
		for i := range tree.Recipes {
			if _, err := c.plan(tree.Recipes[i].Key); err != nil {
				return err
			}
		}
	}
	if child != "" && !c.seen[child] {
		c.seen[child] = true
		c.queue = append(c.queue, below{Run: child, Parent: run})
	}
	return nil
}

// tree appends the runs below. One that is not stored is left out, as after an import of
// its parent alone.
func (c *collector) tree() error {
	for ; len(c.queue) > 0; c.queue = c.queue[1:] {
		b := c.queue[0]
		head, err := c.j.Head(c.ctx, store.Key{Account: c.account, Run: b.Run})
		if fault.CodeOf(err) == fault.RunNotFound {
			continue
		}
		if err != nil {
			return err
		}
		p, err := c.plan(head.PlanHash)
		if err != nil {
			return err
		}
		if p == nil {
			return fault.New(fault.StoreCorrupt, "run %s: its plan is missing", head.Run)
		}
		at := c.frames.Len()
		b.Recipe, b.Status, b.Plan = head.Recipe, head.Status, plan.HashOf(head.PlanHash)
		if b.Events, err = c.run(head, p, &c.frames); err != nil {
			return err
		}
		b.Bytes = int64(c.frames.Len() - at)
		c.runs = append(c.runs, b)
	}
	return nil
}

// A part is a member and its contents.
type part struct {
	name string
	data []byte
}

// pack writes the archive. It sets Members and Sum of the manifest.
func pack(w io.Writer, m *Manifest, parts []part) error {
	// The comment is written last, because it is the checksum of all bytes before it.
	end := &trailerWriter{w: w, hash: sha256.New()}
	z := zip.NewWriter(end)
	put := func(name string, data []byte) error {
		method := zip.Deflate
		if len(data) > bombBytes && shrinks(data) > bombRatio/2 {
			method = zip.Store // import would refuse it as a zip bomb
		}
		into, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = into.Write(data)
		}
		return err
	}
	for _, p := range parts {
		h := sha256.Sum256(p.data)
		m.Members[p.name] = Member{int64(len(p.data)), hex.EncodeToString(h[:])}
		if err := put(p.name, p.data); err != nil {
			return err
		}
	}
	var err error
	if m.Sum, err = m.Checksum(); err != nil {
		return err
	}
	var about bytes.Buffer
	if err := writeJSON(&about, m, true); err != nil {
		return err
	}
	if err := errors.Join(put("manifest.json", about.Bytes()), z.SetComment(strings.Repeat("0", ChecksumBytes)), z.Close()); err != nil {
		return err
	}
	return end.seal()
}
