// SPDX-License-Identifier: Apache-2.0

package journal

import "encoding/json"

// Workers is the provider of the jobs that are tasks of remote workers (package lease). One that
// has submitted the work to a service ends its task with the job there, which the step waits for
// from then on.
const Workers = "@workers"

// People is the provider of the jobs that are requests for people (package approval).
const People = "@people"

// Asked is what the handle of such a job says, which those who read the run see.
type Asked struct {
	Kind   string `json:"kind"`
	Due    int64  `json:"due,omitempty"`    // when it can no longer be answered, UTC µs; 0 = when the run ends
	Remind int64  `json:"remind,omitempty"` // µs
}

// Asked returns what a job asks people; ok is false if it is none that does.
func (j *Job) Asked() (a Asked, ok bool) {
	if j.Provider != People {
		return a, false
	}
	_ = json.Unmarshal(j.Handle, &a) // without times it is never due
	return a, true
}
