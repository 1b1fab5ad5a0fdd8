// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A Run is the state of one execution: the fold of its journal. It is owned by
// one goroutine at a time; what leaves it for other goroutines is a Task.
type Run struct {
	prog *Program
	plan *plan.Plan

	start *journal.Start
	input *inputs // what expressions see of start
	last  uint64  // number of the last event
	now   int64   // its time

	status journal.RunStatus
	gen    uint32
	// phase is phaseOpen until the verdict is fixed and no plan step may start
	// any more, phaseEnding while open steps are swept and compensations run.
	phase      phase
	verdict    journal.RunStatus
	code       fault.Code
	message    string
	failedStep int32 // the step the verdict names; -1 = none
	failures   bool  // an unhandled failure happened (R9)
	used       int64
	started    int64 // step instances run in this generation, against Limits.TotalSteps
	ttlDue     int64

	root   *scope
	scopes map[journal.Path]*scope // all others in memory
	alive  int                     // scopes with unsettled steps, the root included
	busy   int                     // step instances begun and not settled

	edits         []uint64 // events that replaced input fields or limits
	limits        plan.Limits
	signals       []signal      // received and not yet consumed, oldest first
	compensations []journal.Ref // completed steps with a compensation, in order of completion
	compensating  bool          // the last of undo has its compensation scope open

	worklist worklist
	runPos   uint64 // of the run's own entry in the worklist; 0 = none
	timers   timerQueue

	valueMem  int64               // bytes of values held
	structMem int64               // bytes of scopes and composites held; derived (memory.go)
	missing   map[uint64][]*value // restored references not yet supplied

	turn  *Turn // of the Decide under way
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
	frame   *scope // where bindings of this scope live: itself or outward

	state  scopeState
	reason journal.Reason // why it is being swept
	failed int32          // plan-wide step whose failure ended it; -1 = none
	live   int32          // steps not settled
	wave   int32          // plan.Waves: the wave that may start
	inWave int32          // unsettled steps of that wave
	cursor int32          // sweep: steps before it are settled
	pos    uint64         // worklist position; 0 = none

	steps  []stepState
	outs   map[int32]*value     // kept outputs by local index
	errs   map[int32]stepError  // errors by local index
	deltas map[int32]int64      // next deltaIndex by local index
	comps  map[int32]*composite // by local index
	// openKids counts the unsettled scopes its composites own.
	openChildren int32
	slots        []*value // bindings, when it is a frame
	out          *value   // output of the graph's last step
	item         *value   // loop body: the item
	downstream   []bool   // sweep: downstream of failed; derived
	held         bool     // loop body, reopened by a retry: waits for room in the window
	orphan       bool     // Restore: no composite owns it
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
	attempt uint32 // hand-outs so far: the fence's attempt
	fails   uint32 // definitive failures in this generation
	keyTry  uint32 // effect key (I4): try …
	keyGen  uint16 // … and generation
	at      int64  // when it began, UTC µs; 0 = not begun
	due     int64  // its timer in this status; 0 = none
	pos     uint64 // worklist position; 0 = none
}

type stepFlags uint16

const (
	flagHandled     stepFlags = 1 << iota // failed, but continue_on_error consumed it
	flagReady                             // node.ready was said while its wave was closed
	flagUnknown                           // the last attempt's outcome is unknown (I4)
	flagCompensated                       // its compensation has run
	flagFallback                          // its fallback scope is or was open
	// node.ignored was said for the current attempt, or for one before it,
	// since the current one began. One bit per source.
	flagIgnored
	_
	_
	flagIgnoredOlder
	_
	_
	flagsIgnored = 7*flagIgnored | 7*flagIgnoredOlder
)

// NewRun returns a run without history: InStart begins it.
func NewRun(g *Program) *Run {
	return &Run{prog: g, plan: g.plan, limits: g.plan.Limits, failedStep: -1, gen: 1}
}

// Plan is the plan the run executes.
func (r *Run) Plan() *plan.Plan { return r.plan }

// Last is the number of the run's last event; 0 before run.started.
func (r *Run) Last() uint64 { return r.last }

// Now is the time of the last event, UTC µs.
func (r *Run) Now() int64 { return r.now }

// Status is the run's status.
func (r *Run) Status() journal.RunStatus { return r.status }

// Generation counts from 1 and grows with every retry or edit (R5).
func (r *Run) Generation() uint32 { return r.gen }

// Used is the sum of the costs of completed attempts, in credits; those of
// compensations are in the journal and not in it (R44).
func (r *Run) Used() int64 { return r.used }

// Start is what the run was given, nil before run.started. Do not modify it.
func (r *Run) Start() *journal.Start { return r.start }

// HasFailures says that a step failed and nothing handled it (R9).
func (r *Run) HasFailures() bool { return r.failures }

// Failure is why the run did not complete; "" when it did or is live.
func (r *Run) Failure() (fault.Code, string) { return r.code, r.message }

// ResumeToken changes with every event and every generation (X84).
func (r *Run) ResumeToken() string {
	return strconv.FormatUint(uint64(r.gen), 10) + "." + strconv.FormatUint(r.last, 10)
}

// WaitState is derived from the graph and never stored (R3).
func (r *Run) WaitState() string {
	if r.status.Terminal() || r.start == nil {
		return "none"
	}
	waiting, other := 0, r.worklist.len()
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			switch s.steps[i].status {
			case journal.Waiting:
				waiting++
			case journal.Queued, journal.Blocked, journal.Running, journal.Retrying:
				if s.comps[int32(i)] == nil {
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

// Quiet says that the run owes nothing but waits for timers and signals (or has
// ended and owes nothing), so that it may leave memory.
func (r *Run) Quiet() bool {
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
				quiet = false
			case journal.Running:
				c := s.comps[int32(i)]
				quiet = quiet && c != nil && !c.owes()
			}
		}
	})
	return quiet
}

// eachScope visits the scopes in memory, outermost first, in path order where
// it matters to callers (they sort).
func (r *Run) eachScope(fn func(*scope)) {
	if r.root == nil {
		return
	}
	fn(r.root)
	for _, s := range r.scopes {
		fn(s)
	}
}

// at returns the step instance of a ref, or nil when its scope is gone.
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

// step is the plan's step at a local index of a scope.
func (s *scope) step(p *plan.Plan, i int32) *plan.Step { return &p.Steps[s.g.First+i] }

func (s *scope) ref(i int32) journal.Ref { return journal.Ref{Path: s.path, Step: s.g.First + i} }
