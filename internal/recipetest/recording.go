// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A recording is what the journal of a run, and those of the runs below it, say of the run.
type recording struct {
	head    store.Head
	start   *journal.Start
	input   map[string]any // with the edits of later generations
	retried bool
	cancel  int64 // how long after its start it was cancelled, µs; 0 = it was not
	signals []recordedSignal
	waits   map[string]bool // the signals that steps have waited for
	side    *view.Side
	masked  *view.Side // the same as it may be shown
	mask    *view.Mask
	metered bool
	answers map[string][]*recorded // by the path of the step instance, in the order of its attempts
	byInput map[string][]*recorded // by action and hash of the input
	lost    map[string]bool        // paths with attempts that were lost
}

// A recordedSignal is a signal that the run got.
type recordedSignal struct {
	name  string
	data  any
	after int64 // µs from the start
}

// A recorded is the recorded result of an attempt.
type recorded struct {
	path, action, version string
	hash                  string // of the input; "" = not recorded
	output                []byte
	fail                  *fault.Error
	took                  int64 // µs
	job                   bool  // it was an external job
	cost                  *int64
	price                 string
}

// record reads a run.
func record(ctx context.Context, r store.Reader, head store.Head) (*recording, error) {
	rec := &recording{head: head, answers: map[string][]*recorded{}, byInput: map[string][]*recorded{}, waits: map[string]bool{}, lost: map[string]bool{}}
	p, err := store.LoadPlan(ctx, r, head)
	if err != nil {
		return nil, err
	}
	if rec.mask, err = masks.Of(ctx, r, head, p); err != nil {
		return nil, err
	}
	rec.side = view.NewSide(p, head.Run, false)
	if rec.masked = rec.side; rec.mask != nil {
		rec.masked = view.NewSide(p, head.Run, false)
	}
	one := newJournalReader(rec, p, "")
	err = store.EachEvent(ctx, r, head.Key, 0, func(ev *journal.Event) error {
		if err := errors.Join(rec.run(ev), one.event(ev), rec.side.Apply(ev)); err != nil {
			return err
		}
		if rec.mask == nil {
			return nil
		}
		return rec.masked.Apply(rec.mask.Event(ev))
	})
	if err != nil {
		return nil, err
	}
	if rec.start == nil {
		return nil, fault.New(fault.StoreCorrupt, "run %s has no start", head.Run)
	}
	return rec, rec.children(ctx, r, one.children)
}

// run reads what an event says of the run as a whole.
func (rec *recording) run(ev *journal.Event) (err error) {
	switch ev.Kind {
	case journal.EvRunStarted:
		if rec.start, err = journal.DecodeStart(ev.Data); err != nil {
			return err
		}
		rec.input, rec.metered = maps.Clone(rec.start.Parameters), rec.start.Credits != nil
	case journal.EvRunRetried:
		rec.retried, rec.cancel = true, 0
		if edits, ok := view.Decoded(ev.Data).(map[string]any); ok {
			if rec.input == nil {
				rec.input = map[string]any{}
			}
			maps.Copy(rec.input, edits)
		}
	case journal.EvRunSignalled:
		rec.signals = append(rec.signals, recordedSignal{ev.Text, view.Decoded(ev.Data), ev.At - rec.head.Created})
	case journal.EvRunEnding:
		if ev.Verdict() == journal.RunCancelled {
			rec.cancel = max(1, ev.At-rec.head.Created)
		}
	}
	return nil
}

// children reads the runs that the steps of a run have started.
func (rec *recording) children(ctx context.Context, r store.Reader, runs map[string]string) error {
	for run, path := range runs {
		head, err := r.Head(ctx, store.Key{Account: rec.head.Account, Run: run})
		if errors.Is(err, fault.RunNotFound) {
			continue // it is no longer kept: its calls are not known
		}
		if err != nil {
			return err
		}
		p, err := store.LoadPlan(ctx, r, head)
		if err != nil {
			return err
		}
		one := newJournalReader(rec, p, path+"/")
		if err := store.EachEvent(ctx, r, head.Key, 0, one.event); err != nil {
			return err
		}
		if err := rec.children(ctx, r, one.children); err != nil {
			return err
		}
	}
	return nil
}

// A journalReader finds the calls in the journal of one run.
type journalReader struct {
	rec      *recording
	plan     *plan.Plan
	above    string // the path of the run
	pins     []journal.Pin
	gen      uint32
	open     map[journal.Ref]*openAttempt
	gens     map[string]uint32 // by path: the generation of its answers
	children map[string]string // paths of the steps that have started runs, by run
}

// An openAttempt is an attempt that has not ended.
type openAttempt struct {
	began  int64
	job    bool
	hash   string // of the input of a job
	amount *ledger.Amount
}

func newJournalReader(rec *recording, p *plan.Plan, above string) *journalReader {
	return &journalReader{rec: rec, plan: p, above: above, gen: 1, open: map[journal.Ref]*openAttempt{}, gens: map[string]uint32{}, children: map[string]string{}}
}

func (j *journalReader) event(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		st, err := journal.DecodeStart(ev.Data)
		if err != nil {
			return err
		}
		j.pins = st.Pins
	case journal.EvRunRetried:
		j.gen = uint32(ev.Generation())
		clear(j.open)
	}
	if ev.Step < 0 {
		return nil
	}
	ref := ev.Ref()
	switch ev.Kind {
	case journal.EvNodeWaiting:
		j.rec.waits[ev.Text] = true
	case journal.EvChildStarted:
		j.children[string([]byte(ev.Text))] = j.above + journal.StepPath(j.plan, ref)
	}
	if j.plan.Steps[ev.Step].Kind != plan.Action {
		return nil
	}
	switch at := j.open[ref]; ev.Kind {
	case journal.EvNodeStarted:
		j.open[ref] = &openAttempt{began: ev.At}
	case journal.EvNodeSubmitted:
		if at != nil {
			at.job, at.hash = true, string(ev.Hash)
		}
	case journal.EvNodeCharged:
		if amount := ev.Amount(); at != nil && ev.Charged() {
			at.amount = &amount
		}
	case journal.EvNodeLost:
		j.rec.lost[j.above+journal.StepPath(j.plan, ref)] = true
		delete(j.open, ref)
	case journal.EvNodeCompleted, journal.EvNodeRetried, journal.EvNodeFailed, journal.EvNodeFallback, journal.EvNodeSkipped:
		if at != nil {
			j.ended(ev, at)
			delete(j.open, ref)
		}
	}
	return nil
}

// ended adds the result of an attempt.
func (j *journalReader) ended(ev *journal.Event, at *openAttempt) {
	ref := j.plan.Actions[j.plan.Steps[ev.Step].Action]
	path := j.above + journal.StepPath(j.plan, ev.Ref())
	a := &recorded{path: path, action: ref.Name, hash: cmp.Or(string(ev.Hash), at.hash), took: max(0, ev.At-at.began), job: at.job}
	var pin *journal.Pin
	for i := range j.pins {
		if j.pins[i].Name == ref.Name {
			pin = &j.pins[i]
			a.version = pin.Version
		}
	}
	if ev.Kind == journal.EvNodeCompleted {
		a.output = append([]byte{}, ev.Data...)
		// What the action has declared as its price then may be another one now.
		if cost := ev.Cost(); pin == nil || cost != pin.Cost {
			a.cost = &cost
		}
		if at.amount != nil && (pin == nil || *at.amount != pin.Price) {
			a.price = at.amount.String()
		}
	} else {
		a.fail = fault.New(ev.Code, "%s", ev.Text)
		a.fail.OutcomeUnknown = ev.Unknown
		if ev.Kind == journal.EvNodeRetried && fault.Code(ev.Code) == fault.RateLimited {
			a.fail.RetryAfterMS = ev.Delay().Milliseconds()
		}
	}
	if j.gens[path] != j.gen { // a retry has reset the step
		j.gens[path] = j.gen
		j.rec.answers[path] = nil
	}
	j.rec.answers[path] = append(j.rec.answers[path], a)
	if a.hash != "" {
		key := a.action + "\x00" + a.hash
		j.rec.byInput[key] = append(j.rec.byInput[key], a)
	}
}

// find returns the recorded result for a call, and whether its input is the same. nil = no such
// call was recorded.
func (rec *recording) find(c *call) (a *recorded, same bool) {
	hash := string(c.hash)
	nth := func(list []*recorded) *recorded { return list[min(max(c.attempt, 1), len(list))-1] }
	var here []*recorded
	for _, a := range rec.answers[c.path] {
		if a.action == c.action.Name {
			here = append(here, a)
		}
	}
	var fits []*recorded
	for _, a := range here {
		if a.hash == hash {
			fits = append(fits, a)
		}
	}
	if len(fits) > 0 {
		return nth(fits), true
	}
	// The step may have another name now, or another place.
	if moved := rec.byInput[c.action.Name+"\x00"+hash]; len(moved) > 0 {
		first := moved[0].path
		for _, a := range moved {
			if a.path == first {
				fits = append(fits, a)
			}
		}
		return nth(fits), true
	}
	if len(here) > 0 {
		return nth(here), false
	}
	return nil, false
}

// shown returns a value as the run may show it.
func (rec *recording) shown(raw []byte) any {
	ev := rec.mask.Event(&journal.Event{Kind: journal.EvNodeLog, Data: raw})
	v, err := jsonx.Decode(ev.Data, jsonx.Limits{Bytes: len(ev.Data) + 1, Large: true})
	if err != nil {
		return view.Masked
	}
	return v
}
