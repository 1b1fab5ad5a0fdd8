// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Run is the state of one execution: the fold of its journal. It is owned by one
// goroutine at a time; other goroutines get a Task.
type Run struct {
	prog *Program
	plan *plan.Plan

	start *journal.Start
	// begins is what a child run is being started with; nil = decode the event. The engine
	// has made it of decoded values, so that it is what decoding gives.
	begins *journal.Start
	input  *inputs // the part of start that expressions can read
	last   uint64  // number of the last event
	now    int64   // its time

	status journal.RunStatus
	gen    uint32
	// phase is phaseOpen until the verdict (how the run ends) is fixed. Then it is
	// phaseEnding: no plan step may start, open steps are skipped or cancelled, and
	// compensations run.
	phase      phase
	verdict    journal.RunStatus
	code       fault.Code
	message    string
	failedStep int32 // the step that the verdict names; -1 = none
	failures   bool  // an unhandled failure happened (R9)
	used       ledger.Amount
	funds      funds // of a run that an account pays for
	started    int64 // step instances begun in this generation, counted against Limits.TotalSteps
	ttlDue     int64

	root   *scope
	scopes map[journal.Path]*scope // all others in memory
	alive  int                     // scopes with unsettled steps, the root included
	busy   int                     // step instances begun and not settled

	edits         []uint64 // events that replaced input fields or limits
	limits        plan.Limits
	signals       []signal      // received and not yet consumed, oldest first
	compensations []journal.Ref // completed steps with a compensation, in order of completion
	compensating  bool          // the last entry of compensations is running
	paused        bool          // no attempt may begin

	share      journal.Share // steps and memory that a child run may use; its credits are funds.held
	room       journal.Share // what its parent can give it in this turn
	given      journal.Share // the shares of the child runs that have not ended
	belowSteps int64         // steps that child runs of this generation began, and those below them
	cancels    []*composite  // child runs to cancel, in this turn
	swept      []*scope      // scopes that have ended in this turn before those inside them

	worklist worklist
	runPos   uint64 // position of the run's own entry in the worklist; 0 = not in it
	timers   timerQueue

	valueMem  int64               // bytes of values held
	structMem int64               // bytes of scopes and composites (see memory.go); not in snapshots
	missing   map[uint64][]*value // values that a snapshot only names, by event, until Supply

	turn  *Turn // of the current Decide
	clock int64 // its time
	size  int   // bytes of its events so far
}

type phase uint8

const (
	phaseOpen phase = iota
	phaseEnding
)

type signal struct {
	name string
	val  *value
}

// A scope is one running instance of a graph.
type scope struct {
	path    journal.Path
	graph   int32
	g       *plan.Graph
	parent  *scope // nil for the root
	owner   int32  // plan-wide step in parent; -1 for the root
	ordinal int64
	frame   *scope // the scope that holds this scope's bindings: itself or an enclosing one

	state  scopeState
	reason journal.Reason // why it is being swept
	failed int32          // plan-wide step whose failure ended it; -1 = none
	live   int32          // steps not settled
	wave   int32          // with plan.Waves: the wave whose steps may start
	inWave int32          // unsettled steps of that wave
	cursor int32          // sweep: steps before it are settled
	pos    uint64         // worklist position; 0 = none

	steps    []stepState
	outs     map[int32]*value     // kept outputs by local index
	errs     map[int32]stepError  // errors by local index
	deltas   map[int32]int64      // number of the next delta of a step, by local index
	comps    map[int32]*composite // by local index
	lastRuns map[int32]string     // of steps of kind recipe: the child run that may go on, see resume.go
	jobs     map[int32]jobName    // external jobs that steps wait for, by local index
	// openChildren counts the unsettled scopes that its composites own.
	openChildren int32
	slots        []*value // bindings, when the scope is a frame
	out          *value   // output of the graph's last step
	item         *value   // loop body: the item
	downstream   []bool   // sweep: the steps after the failed one; not in snapshots
	held         bool     // loop body reopened by a retry: waits for room in the window
	orphan       bool     // Restore: owned by no composite
}

type scopeState uint8

const (
	scopeOpen  scopeState = iota
	scopeSweep            // every unsettled step is to be skipped or cancelled
)

type stepError struct {
	code fault.Code
	msg  string
}

// stepState is the state of a step instance.
type stepState struct {
	status  journal.Status
	flags   stepFlags
	reason  journal.Reason
	lost    uint8  // lost attempts in this generation
	waiting int32  // predecessors not settled
	attempt uint32 // dispatches so far: the attempt of the fence
	fails   uint32 // definitive failures in this generation
	keyTry  uint32 // try in the effect key (I4)
	keyGen  uint16 // generation in the effect key
	at      int64  // when it began, UTC µs; 0 = not begun
	due     int64  // when its timer fires in this status; 0 = none
	pos     uint64 // worklist position; 0 = none
}

type stepFlags uint16

const (
	flagHandled     stepFlags = 1 << iota // failed, but continue_on_error consumed it
	flagReady                             // node.ready was emitted while its wave was closed
	flagUnknown                           // the last attempt's outcome is unknown (I4)
	flagCompensated                       // its compensation has run
	flagFallback                          // its fallback scope is or was open
	// The flags below have one bit for each source of late results. A bit is set when
	// node.ignored was emitted for that source since the current attempt began, for
	// this attempt or for an earlier one.
	flagIgnored
	_
	_
	flagIgnoredOlder
	_
	_
	flagsIgnored = 7*flagIgnored | 7*flagIgnoredOlder

	flagUnfunded    = flagIgnoredOlder << 3 // blocked because the account has too few credits
	flagInputReview = flagUnfunded << 1     // people decide on the input of its attempt
	flagDoubt       = flagInputReview << 1  // an earlier attempt with the effect key of this one may have had its effect (I4)
)

// NewRun returns a run without history; InStart begins it.
func NewRun(g *Program) *Run {
	return &Run{prog: g, plan: g.plan, limits: g.plan.Limits, failedStep: -1, gen: 1}
}

// Plan is the plan the run executes.
func (r *Run) Plan() *plan.Plan { return r.plan }

// Calls returns the kind of a step and the index in the plan's Actions of the action that
// it calls; -1 = none.
func (r *Run) Calls(step int32) (plan.Kind, int32) {
	b := &r.prog.briefs[step]
	return b.kind, b.action
}

// Last is the number of the run's last event; 0 before run.started.
func (r *Run) Last() uint64 { return r.last }

// Now is the time of the last event, UTC µs.
func (r *Run) Now() int64 { return r.now }

// Status is the run's status.
func (r *Run) Status() journal.RunStatus { return r.status }

// Generation counts from 1 and grows with every retry or edit (R5).
func (r *Run) Generation() uint32 { return r.gen }

// Used is the sum of the costs of completed attempts, in credits. The costs of
// compensations are in the journal but are not counted (R44).
func (r *Run) Used() int64 { return r.used.Ceil() }

// Paused reports whether no attempt may begin until the run is unpaused. Results, signals
// and timers are taken as ever.
func (r *Run) Paused() bool { return r.paused }

// Start is the start of the run, nil before run.started. Do not modify it.
func (r *Run) Start() *journal.Start { return r.start }

// HasFailures reports whether a step failed and nothing handled it (R9).
func (r *Run) HasFailures() bool { return r.failures }

// Failure is why the run did not complete; the code is "" when it completed or has not
// ended.
func (r *Run) Failure() (fault.Code, string) { return r.code, r.message }

// ResumeToken changes with every event and every generation (X84).
func (r *Run) ResumeToken() string {
	return strconv.FormatUint(uint64(r.gen), 10) + "." + strconv.FormatUint(r.last, 10)
}

// WaitState reports whether waits are all that the run has open: "waiting_single",
// "waiting_parallel", "ready_to_resume" or "none". It is computed from the steps and never
// stored (R3).
func (r *Run) WaitState() string {
	if r.status.Terminal() || r.queued() || r.start == nil {
		return "none"
	}
	waiting, other := 0, r.worklist.len()
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			switch s.steps[i].status {
			case journal.Waiting:
				waiting++
			case journal.Queued, journal.Blocked, journal.Running, journal.Retrying:
				if c := s.comps[int32(i)]; c == nil || c.child != nil {
					other++
				}
			}
		}
	})
	switch {
	case waiting == 0 || other > 0:
		if waiting == 0 && other > 0 && r.busy == 0 {
			return "ready_to_resume"
		}
		return "none"
	case waiting == 1:
		return "waiting_single"
	default:
		return "waiting_parallel"
	}
}

// Quiet reports whether the run owes no command and at most waits for timers, signals
// and its turn in the queue, so that it may be suspended.
func (r *Run) Quiet() bool {
	if r.queued() {
		return true
	}
	if r.last == 0 || r.worklist.len() > 0 {
		return false
	}
	if r.busy == 0 {
		return true
	}
	quiet := true
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			switch s.steps[i].status {
			case journal.Queued, journal.Blocked:
				quiet = quiet && r.paused
			case journal.Running:
				c := s.comps[int32(i)]
				quiet = quiet && c != nil && !c.owes() && !c.cancels()
			}
		}
	})
	return quiet
}

// eachScope visits the scopes in memory: the root first, the others in any order.
// A caller that needs an order must sort them.
func (r *Run) eachScope(fn func(*scope)) {
	if r.root == nil {
		return
	}
	fn(r.root)
	for _, s := range r.scopes {
		fn(s)
	}
}

// at returns the step instance of a ref; the scope is nil when it is not in memory.
func (r *Run) at(ref journal.Ref) (*scope, int32) {
	s := r.scope(ref.Path)
	if s == nil || ref.Step < s.g.First || ref.Step >= s.g.First+s.g.N {
		return nil, 0
	}
	return s, ref.Step - s.g.First
}

func (r *Run) scope(p journal.Path) *scope {
	if p == "" {
		return r.root
	}
	return r.scopes[p]
}

// step is the plan's step at a local index of the scope.
func (s *scope) step(p *plan.Plan, i int32) *plan.Step { return &p.Steps[s.g.First+i] }

// brief is what each turn needs of a step.
func (r *Run) brief(s *scope, i int32) *stepBrief { return &r.prog.briefs[s.g.First+i] }

func (s *scope) ref(i int32) journal.Ref { return journal.Ref{Path: s.path, Step: s.g.First + i} }
