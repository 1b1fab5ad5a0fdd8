// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// Attempts are the attempts of a run that has one step, such as one that sends a message.
// Times are UTC µs, 0 = none.
type Attempts struct {
	Start  *journal.Start // nil before run.started
	Status journal.RunStatus
	List   []Attempt
	Open   bool  // the last one is in flight
	Next   int64 // when the next one begins, if the last one has failed
	Ended  int64 // when the run ended
}

// An Attempt is one attempt of a step.
type Attempt struct {
	At      int64
	Micros  int64 // how long it took; 0 while it is in flight
	Lost    bool  // its process ended before its outcome was recorded
	Code    fault.Code
	Message string // why it has failed
	Output  []byte // JSON, of the one that has succeeded
}

// Apply applies the next event.
func (a *Attempts) Apply(ev *journal.Event) (err error) {
	switch ev.Kind {
	case journal.EvRunStarted:
		a.Start, err = journal.DecodeStart(ev.Data)
	case journal.EvNodeStarted:
		a.List, a.Open, a.Next = append(a.List, Attempt{At: ev.At}), true, 0
	case journal.EvNodeRetried:
		a.settle(ev, Attempt{Code: ev.Code, Message: ev.Text})
		a.Next = ev.Due()
	case journal.EvNodeLost:
		a.settle(ev, Attempt{Lost: true})
	case journal.EvNodeFailed, journal.EvNodeCancelled:
		a.settle(ev, Attempt{Code: ev.Code, Message: ev.Text})
	case journal.EvNodeCompleted:
		a.settle(ev, Attempt{Output: bytes.Clone(ev.Data)})
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		a.Ended, a.Next = ev.At, 0
		a.Status = ev.Kind.EndStatus()
	}
	return err
}

// settle ends the attempt that is in flight.
func (a *Attempts) settle(ev *journal.Event, as Attempt) {
	if !a.Open {
		return
	}
	last := &a.List[len(a.List)-1]
	as.At, as.Micros = last.At, ev.At-last.At
	*last, a.Open = as, false
}
