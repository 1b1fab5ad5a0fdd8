// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// itemBatch is how many items of a file a loop requests at a time.
const itemBatch = 256

// maxInline is the size of the largest output that fits in an event (design section
// 7).
const maxInline = 1 << 20

// loopState is the state of a loop besides its window of open iterations. Outputs stay
// in memory while together they fit in one event. After that they are only in the
// journal, and at the end the engine collects them into a list in a file.
type loopState struct {
	file     string // "" = an inline list
	list     *value // inline list, or the batch of items read last
	from     int64  // index of list's first item
	items    [][]byte
	have     int64 // items known so far: the end of the batch
	more     bool  // further items may follow (file only)
	next     int64 // index of the next item to open
	nFailed  int64
	firstErr stepError // of the first failed iteration

	outs     []*value // by index, until spilled
	outBytes int64
	spilled  bool // outs were released because they became too large

	rounds    *plan.Rounds // of the plan; nil = the fields below are empty
	bounded   bool         // it has no items: have is how many iterations may run
	acc       *value       // what it has accumulated
	completed []int64      // iterations that have completed and were not looked at, in the order of their ends
	done      bool         // no further iteration opens
}

func newLoopState(step *plan.Step, ev *journal.Event) *loopState {
	l := &loopState{file: ev.Text, more: ev.Text != "", rounds: step.Rounds, bounded: step.Conditional()}
	if l.bounded {
		l.have, l.from = l.rounds.Max, l.rounds.Max // none of them is in memory
		return l
	}
	if l.file == "" {
		l.list = newValue(ev.Seq, ev.Data)
		l.have = ev.Items()
	}
	return l
}

func (r *Run) applyItems(s *scope, i int32, ev *journal.Event) error {
	c := s.comps[i]
	if c == nil || c.loop == nil || ev.From() != c.loop.have {
		return errImpossible(ev, "no loop waits for these items")
	}
	l := c.loop
	r.replace(&l.list, newValue(ev.Seq, ev.Data))
	r.structMem -= l.structBytes()
	l.items, l.from = nil, l.have
	l.have += ev.Count()
	r.structMem += l.structBytes()
	l.more = ev.More()
	c.issued = false
	r.refreshComposite(c)
	return nil
}

func (r *Run) applyIteration(s *scope, i int32, ev *journal.Event) error {
	c := s.comps[i]
	if c == nil || c.loop == nil || ev.Item() != c.loop.next {
		return errImpossible(ev, "no loop is at this item")
	}
	var item *value
	if !c.loop.bounded {
		var err error
		if item, err = r.loopItem(c.loop, ev.Item()); err != nil {
			return errImpossible(ev, err.Error())
		}
	}
	c.loop.next++
	if err := r.openChild(c, s.step(r.plan, i).Body, ev.Item(), item); err != nil {
		return err
	}
	r.refreshComposite(c)
	return nil
}

// loopItem returns one item of the batch in memory. A batch is split into items once.
func (r *Run) loopItem(l *loopState, n int64) (*value, error) {
	if l.items == nil && l.list.raw != nil {
		var raw []json.RawMessage
		if err := json.Unmarshal(l.list.raw, &raw); err != nil {
			return nil, err
		}
		l.items = make([][]byte, len(raw))
		for k := range raw {
			l.items[k] = raw[k]
		}
	}
	v := &value{seq: l.list.seq, index: n - l.from, list: l.list}
	if k := n - l.from; k >= 0 && k < int64(len(l.items)) {
		v.raw = l.items[k]
	}
	if v.raw == nil {
		r.markMissing(v)
	}
	return v, nil
}

// itemSettled stores the output of an iteration, or its error in place of the output.
func (r *Run) itemSettled(c *composite, s *scope, status childStatus, cause stepError) {
	l := c.loop
	out := s.out
	if status == childFailed {
		if l.nFailed == 0 {
			l.firstErr = cause
		}
		l.nFailed++
		raw, _ := json.Marshal(map[string]any{"error": map[string]string{"code": string(cause.code), "message": cause.msg}})
		out = newValue(0, raw)
		if c.scope.step(r.plan, c.step).Strategy == plan.FailFast && !c.ended {
			c.ended = true
			r.sweepChildren(c, journal.BranchLost)
		}
	}
	if l.spilled || status == childCancelled {
		return
	}
	for int64(len(l.outs)) <= s.ordinal {
		l.outs = append(l.outs, nil)
		r.structMem += outBytes
	}
	if out != nil {
		out.dec.Store(nil) // the list is assembled from the JSON text
	}
	l.outBytes += out.size() - l.outs[s.ordinal].size()
	r.replace(&l.outs[s.ordinal], out)
	r.spill(l)
}

// openHeld lets the next held iteration continue. An iteration is held if a retry has
// reopened it and the window had no room for it. As many iterations are held as are
// open beyond the window, so one that settles frees room for another, unless it was
// held itself. (A held iteration settles if a loop inside it had requested items and
// there were none.)
func (r *Run) openHeld(c *composite, settled *scope) {
	if c.ended || settled.held || c.open < c.scope.step(r.plan, c.step).Concurrency {
		return
	}
	for _, child := range c.sortedChildren() {
		if child.held && child.live > 0 && child.state == scopeOpen {
			child.held = false
			r.refreshTree(child)
			return
		}
	}
}

// refreshTree updates the worklist entries of a scope and of all scopes inside it.
func (r *Run) refreshTree(s *scope) {
	for k := range s.steps {
		r.refreshStep(s, int32(k))
	}
	for _, c := range s.sortedComps() {
		r.refreshComposite(c)
		for _, child := range c.sortedChildren() {
			r.refreshTree(child)
		}
	}
}

// releaseOuts releases the outputs of iterations.
func (r *Run) releaseOuts(l *loopState) {
	for _, v := range l.outs {
		r.release(v)
	}
	r.structMem -= int64(len(l.outs)) * outBytes
	l.outs, l.outBytes = nil, 0
}

// hasItem reports whether the next item is in memory, or the next iteration permitted.
func (l *loopState) hasItem() bool { return l.next < l.have && !l.done && !l.undecided() }

// exhausted reports whether every iteration has been opened.
func (l *loopState) exhausted() bool {
	return (l.done || !l.more && l.next >= l.have && !l.bounded) && !l.undecided()
}

// loopDue reports whether another iteration can open, or the loop can be joined.
func (c *composite) loopDue(step *plan.Step) bool {
	l := c.loop
	switch {
	case l.undecided():
		return true
	case l.hasItem():
		return c.open < step.Concurrency || mutation.Window
	case l.bounded && !l.done:
		return c.open == 0 // it has run all that it may, and must end
	}
	return l.exhausted() && c.open == 0 && !c.collecting(step)
}

// collecting reports whether all iterations have ended well and their outputs must be
// collected in a file before the loop completes.
func (c *composite) collecting(step *plan.Step) bool {
	l := c.loop
	return l.spilled && l.exhausted() && c.open == 0 && !c.ended &&
		(l.nFailed == 0 || step.Strategy == plan.Ignore)
}

// needsItems reports whether the batch is used up and the file has more items. A loop with
// until may need no more once the open iteration has ended.
func (c *composite) needsItems() bool {
	l := c.loop
	if c.ended || !l.more || l.next < l.have || l.done || l.undecided() {
		return false
	}
	return c.open == 0 || l.rounds == nil || l.rounds.Until == nil
}

// owes reports whether the composite waits for the answer to a command.
func (c *composite) owes() bool {
	if c.loop == nil || c.scope.steps[c.step].status != journal.Running {
		return false
	}
	return c.needsItems() || c.loop.spilled && c.loop.exhausted() && c.open == 0 && !c.ended
}

// output assembles the list of outputs from those in memory.
func (l *loopState) output() []byte {
	var b bytes.Buffer
	b.Grow(int(l.outBytes) + 2)
	b.WriteByte('[')
	for k := int64(0); k < l.next; k++ {
		if k > 0 {
			b.WriteByte(',')
		}
		if k < int64(len(l.outs)) && l.outs[k] != nil {
			b.Write(l.outs[k].raw)
		} else {
			b.WriteString("null")
		}
	}
	b.WriteByte(']')
	return b.Bytes()
}

// sortedChildren returns the children in order, so that applying events is
// deterministic.
func (c *composite) sortedChildren() []*scope {
	if len(c.children) == 0 {
		return nil
	}
	children := make([]*scope, 0, len(c.children))
	for _, k := range c.children {
		children = append(children, k)
	}
	slices.SortFunc(children, func(a, b *scope) int {
		return cmp.Compare(childKey(a), childKey(b))
	})
	return children
}
