// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// MaxSteps is how many steps a list of steps has, and how many steps of iterations
	// that have ended are kept.
	MaxSteps = view.MaxSteps
	// MaxEdges is how many edges a graph lists.
	MaxEdges = 10 * MaxSteps
	// MaxOutputs is how many bytes of the outputs of steps are kept.
	MaxOutputs = 8 << 20
	// maxText is how many bytes of a message are kept.
	maxText = 4 << 10
)

// Facts are what the head of a run, and who asks, add to the journal.
type Facts struct {
	RecipeID   string // the id of the recipe; "" = its name
	Quarantine string // why the run is quarantined; "" = it is not
	DeletedAt  int64  // when the run was hidden, UTC µs; 0 = it was not
}

// A Run is the fold of a run's events that executions and jobs are made of.
type Run struct {
	plan    *plan.Plan
	id      string
	outputs bool

	own  []int64 // of each step: how many steps it stands for, see weigh
	many []bool  // of each graph: it is inside a loop

	recipe, version string
	account         string
	labels          map[string]string
	files           []string
	params          map[string]any
	metered, child  bool

	last    uint64
	now     int64
	status  journal.RunStatus
	gen     int64
	created int64 // UTC µs
	began   int64 // when the first step began
	ended   int64 // 0 while it goes on
	paused  bool
	failed  bool // a step failed, whatever the status
	err     *Error
	result  []byte

	reserved, estimated int64
	used                ledger.Amount

	scopes   map[journal.Path]*scope
	kept     int64 // steps of iterations that are kept, whether the iteration is open or not
	weight   int64 // known steps
	done     int64 // of those: settled
	peak     int64 // percent
	gone     tally // steps that have settled and are not kept
	bytes    int64 // of outputs
	busy     int   // steps that have begun and not settled
	waiting  int   // of those: that only wait
	working  int   // of those: that neither wait nor only own what is inside them
	unlisted int64 // outputs that were not kept
}

// An Error is why a run, or a step, did not complete.
type Error struct {
	Code      fault.Code  `json:"code"`
	Message   string      `json:"message"`
	Step      string      `json:"step,omitempty"` // the first step that failed
	Cause     fault.Cause `json:"cause"`
	Retryable bool        `json:"retryable"`
}

func newError(ev *journal.Event) *Error {
	info, _ := fault.Lookup(ev.Code)
	return &Error{Code: fault.Code(strings.Clone(string(ev.Code))), Message: view.Cut(strings.Clone(ev.Text), maxText), Cause: fault.CauseOf(ev.Code), Retryable: info.Retryable}
}

// NewRun returns the fold of a run of p, without events. With outputs it keeps the outputs
// of steps, up to [MaxOutputs].
func NewRun(p *plan.Plan, id string, outputs bool) *Run {
	r := &Run{plan: p, id: id, outputs: outputs, gen: 1, own: make([]int64, len(p.Steps)), many: make([]bool, len(p.Graphs)), scopes: map[journal.Path]*scope{}}
	for i := range p.Graphs { // a graph comes after the graph that contains its owner
		if g := &p.Graphs[i]; g.Owner != plan.None {
			r.many[i] = g.Role == plan.Body || r.many[p.Steps[g.Owner].Graph]
		}
	}
	r.weigh(0)
	return r
}

// weigh computes how many steps each step of a graph stands for as long as it has not
// opened: itself and those of its sides and branches. The body of a loop counts for each
// item once the items are known, a fallback once it opens, and a compensation never.
func (r *Run) weigh(graph int32) (n int64) {
	if graph == plan.None {
		return 0
	}
	g := &r.plan.Graphs[graph]
	for i := g.First; i < g.First+g.N; i++ {
		s := &r.plan.Steps[i]
		r.own[i] = 1 + r.weigh(s.Then) + r.weigh(s.Else)
		for _, b := range s.Branches {
			r.own[i] += r.weigh(b)
		}
		r.weigh(s.Body)
		r.weigh(s.Fallback)
		r.weigh(s.Compensate)
		n += r.own[i]
	}
	return n
}

// of is how many steps the steps of a graph stand for.
func (r *Run) of(graph int32) (n int64) {
	if graph != plan.None {
		g := &r.plan.Graphs[graph]
		for i := g.First; i < g.First+g.N; i++ {
			n += r.own[i]
		}
	}
	return n
}

// Last is the number of the last event.
func (r *Run) Last() uint64 { return r.last }

// Apply applies the run's next event. An event that no run of the plan has, or that does
// not follow the last one, is fault.StoreCorrupt and changes nothing.
func (r *Run) Apply(ev *journal.Event) error {
	switch {
	case ev.Seq != r.last+1:
		return fault.New(fault.StoreCorrupt, "run %s: event %d follows event %d", r.id, ev.Seq, r.last)
	case int(ev.Step) >= len(r.plan.Steps):
		return fault.New(fault.StoreCorrupt, "run %s: event %d is about step %d, the plan has %d", r.id, ev.Seq, ev.Step, len(r.plan.Steps))
	}
	if ev.Step >= 0 {
		s, err := r.at(ev)
		if err != nil {
			return err
		}
		r.last, r.now = ev.Seq, ev.At
		r.applyStep(s, ev.Step-s.g.First, ev)
		return nil
	}
	if err := r.applyRun(ev); err != nil {
		return err
	}
	r.last, r.now = ev.Seq, ev.At
	return nil
}

func (r *Run) applyRun(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		return r.start(ev)
	case journal.EvRunStatus:
		r.status = ev.Status()
		if r.status == journal.RunRunning {
			r.begin(ev.At)
		}
	case journal.EvRunEnding:
		r.status = journal.RunRunning
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		r.end(ev)
	case journal.EvRunRetried:
		r.gen, r.status = ev.Generation(), journal.RunDispatching
		r.ended, r.err, r.result, r.failed, r.peak = 0, nil, nil, false, 0
		r.edit(ev.Data)
	case journal.EvRunPaused, journal.EvRunUnpaused:
		r.paused = ev.Kind == journal.EvRunPaused
	case journal.EvCreditsReserved:
		r.reserved = ev.Credits()
	case journal.EvCreditsExtended:
		r.reserved += ev.Credits()
	case journal.EvCreditsEstimated:
		r.estimated = ev.Expected()
	case journal.EvRunResumed:
		if share, err := ev.Share(); err == nil && r.metered {
			r.reserved = share.Credits
		}
	case journal.EvRunExtended:
		if r.metered && ev.Resource() == journal.CreditsShare {
			r.reserved += ev.Added()
		}
	}
	return nil
}

// start takes the first event. A mask that could not read it leaves no contents.
func (r *Run) start(ev *journal.Event) error {
	if len(ev.Data) > 0 {
		st, err := journal.DecodeStart(ev.Data)
		if err != nil {
			return err
		}
		r.recipe, r.version, r.account, r.labels, r.params = st.Recipe, st.Version, st.Account, st.Labels, st.Parameters
		for i := range st.Files {
			r.files = append(r.files, st.Files[i].Hash)
		}
		r.child = st.Child != nil
		if c := st.Credits; c != nil {
			r.metered, r.estimated = true, c.Estimated
			if r.child {
				r.reserved = st.Child.Share.Credits
			}
		}
	}
	r.status, r.created = journal.RunDispatching, ev.At
	r.open("", 0)
	r.weight = r.of(0)
	return nil
}

func (r *Run) begin(at int64) {
	if r.began == 0 {
		r.began = at
	}
}

func (r *Run) end(ev *journal.Event) {
	r.status, r.ended = ev.Kind.EndStatus(), ev.At
	r.failed, r.paused = ev.HasFailures(), false
	if ev.Kind == journal.EvRunCompleted {
		r.result = bytes.Clone(ev.Data)
		return
	}
	r.err = newError(ev)
	if step := ev.FailedStep(); ev.Kind == journal.EvRunFailed && step >= 0 && int(step) < len(r.plan.Steps) {
		r.err.Step = r.plan.Steps[step].ID
	}
}

// edit replaces fields of the input. What a mask has hidden whole changes nothing.
func (r *Run) edit(data []byte) {
	if len(data) == 0 {
		return
	}
	v, err := jsonx.Decode(data, journal.InlineLimits)
	fields, ok := v.(map[string]any)
	if err != nil || !ok {
		return
	}
	params := make(map[string]any, len(r.params)+len(fields))
	for name, value := range r.params {
		params[name] = value
	}
	for name, value := range fields {
		params[name] = value
	}
	r.params = params
}

// Percent is how much of the run is done: the settled steps of those that are known, from 0
// to 100. It never falls within a generation, and is 100 only for a run that has completed.
func (r *Run) Percent() int {
	if r.status == journal.RunCompleted {
		return 100
	}
	return int(r.peak)
}

// WaitState is what the run waits for (R3): "none", "waiting_single", "waiting_parallel" or
// "ready_to_resume". A run of the machine says the same between two turns.
func (r *Run) WaitState() string {
	switch {
	case r.status.Terminal() || r.status == journal.RunQueued || r.last == 0:
		return "none"
	case r.busy == 0:
		return "ready_to_resume"
	case r.waiting == 0 || r.working > 0:
		return "none"
	case r.waiting == 1:
		return "waiting_single"
	}
	return "waiting_parallel"
}

// ResumeToken names the state of the run in a request that changes it. It changes with
// every event, and so with every resume (X84).
func (r *Run) ResumeToken() string {
	return strconv.FormatInt(r.gen, 10) + "." + strconv.FormatUint(r.last, 10)
}

// stamp formats UTC µs as RFC 3339; "" for 0.
func stamp(us int64) string {
	if us == 0 {
		return ""
	}
	return journal.Time(us)
}

// duration formats µs as an ISO 8601 duration, in whole milliseconds.
func duration(us int64) string { return plan.FormatISO((max(us, 0) + 500) / 1000) }
