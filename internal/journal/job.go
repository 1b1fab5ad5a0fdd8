// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// A Job is work that an attempt has given to an outside service (X128). The attempt goes on
// until the service says how the job has ended, in a webhook or when it is asked, or until
// the job expires.
type Job struct {
	Provider string // the name of the service, as the configuration has it
	ID       string // by which the service knows the job
	// Handle is what the adapter of the service needs to ask about the job, beyond its ID;
	// any JSON value, nil = nothing. It may hold addresses and no secrets.
	Handle json.RawMessage
}

// The bounds of a job, in bytes.
const (
	MaxProvider  = 64
	MaxJobID     = 512
	MaxJobHandle = 4 << 10
)

// jobData is the part of a job that EvNodeSubmitted has in Data.
type jobData struct {
	Provider string          `json:"provider"`
	Handle   json.RawMessage `json:"handle,omitempty"`
}

// ofTask is the jobData of the task of a remote worker. Most jobs of busy runs are such tasks, and their
// data is neither made nor read again each time.
const ofTask = `{"provider":"` + Workers + `"}`

// Event returns the event that records the submission by an attempt, without what all events
// have. The job expires at `expires`, UTC µs.
func (j *Job) Event(attempt uint32, expires int64, hash []byte) (Event, error) {
	var data []byte
	var err error
	if j.Provider == Workers && len(j.Handle) == 0 {
		data = []byte(ofTask)
	} else {
		data, err = json.Marshal(jobData{j.Provider, j.Handle})
	}
	return Event{Kind: EvNodeSubmitted, Attempt: attempt, Text: j.ID, Data: data, N: expires, Hash: hash}, err
}

// Job is the job that was submitted (EvNodeSubmitted). Its handle shares the memory of the
// event.
func (e *Event) Job() (Job, error) {
	if string(e.Data) == ofTask {
		return Job{Provider: Workers, ID: e.Text}, nil
	}
	var s jobData
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return Job{}, fault.Wrap(fault.StoreCorrupt, err, "event %d describes no job: %v", e.Seq, err)
	}
	return Job{s.Provider, e.Text, s.Handle}, nil
}

// A JobChange is what the store must change about an external job, in the commit of the
// events that it comes with.
type JobChange struct {
	Kind  JobChangeKind
	Ref   Ref
	Fence Fence
	// Job has a handle if it was submitted in this turn.
	Job     Job
	Expires int64 // UTC µs, of a job that was submitted
	Unknown bool  // JobCancelled: no event names the job
	Mark    *Mark // JobPreviewed
}

// A Mark is what the store remembers with a preview of a job, or with text that it has streamed, so
// that what was shown can be recognized: any bytes that it understands, kept until a time, UTC µs.
type Mark struct {
	Data  []byte
	Until int64
}

// JobChangeKind is what has become of an external job.
type JobChangeKind uint8

// The changes.
const (
	// JobSubmitted: a step waits for the job.
	JobSubmitted JobChangeKind = iota + 1
	// JobEnded: the service has said how the job ended, and no step waits for it any more. Of the
	// task of a remote worker it may also be that its step waits for another job now.
	JobEnded
	// JobCancelled: no step waits for the job any more, or none ever has, and the service is
	// to be told. The run owes nothing for that; what the store keeps of the job does.
	JobCancelled
	// JobPreviewed: a preview of the job, or text of it, was shown, and its step goes on waiting.
	JobPreviewed
)

// submitted checks the job of an attempt. It has one; only a remote worker that has its task may end
// that with another, which is none of the server's own.
func (s *stepRecord) submitted(ev *Event) error {
	job, err := ev.Job()
	if err != nil {
		return err
	}
	switch {
	case s.status == Waiting && (!s.task || strings.HasPrefix(job.Provider, "@")):
		return fmt.Errorf("X128: job %q of %s is submitted while its step waits for another", job.ID, job.Provider)
	case ev.Attempt != s.attempt:
		return fmt.Errorf("I3: attempt %d submits job %q, attempt %d was handed out", ev.Attempt, job.ID, s.attempt)
	}
	s.task, s.due = job.Provider == Workers, ev.Due()
	return nil
}
