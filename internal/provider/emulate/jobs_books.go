// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// Books are what an emulator has done, for those who check what was asked of it.
type Books struct {
	Jobs    []JobEntry `json:"jobs"` // in the order of their acceptance
	Dropped int        `json:"dropped"`
	// Polls counts the polls of each protocol, including those for jobs that there are not.
	Polls map[string]PollCount `json:"polls"`
}

// A JobEntry is a job in the books. A service charges for a job that is done or incomplete.
type JobEntry struct {
	ID        string        `json:"id"`
	Protocol  string        `json:"protocol"` // plain, replicate, fal or openai
	Model     string        `json:"model"`
	Mode      string        `json:"mode"`
	Key       string        `json:"idempotencyKey,omitempty"`
	State     string        `json:"state"`
	Submitted int           `json:"submitted"` // submissions that gave this job
	Polls     int           `json:"polls"`
	Reads     int           `json:"reads,omitempty"`   // requests for the result, at fal
	Streams   int           `json:"streams,omitempty"` // requests that follow it, at OpenAI
	Cancels   int           `json:"cancels"`           // requests to cancel it
	Sent      DeliveryCount `json:"webhooks"`
}

// A DeliveryCount counts the webhooks of a job, each attempt for itself.
type DeliveryCount struct {
	Accepted int `json:"accepted"` // answered 2xx
	Refused  int `json:"refused"`
	// Deceived counts the accepted ones that were forged or old.
	Deceived int `json:"deceived,omitempty"`
}

// A PollCount counts polls.
type PollCount struct {
	Total int `json:"total"`
	// MaxPerSecond is the most in one second of the clock.
	MaxPerSecond int `json:"maxPerSecond"`

	second int64 // of the clock, of the last poll
	recent int   // polls in that second
}

// Charges returns how many jobs with a key were charged, or, without a key, all jobs.
func (b *Books) Charges(key string) (n int) {
	for i := range b.Jobs {
		if e := &b.Jobs[i]; (key == "" || e.Key == key) && (e.State == JobDone || e.State == JobIncomplete) {
			n++
		}
	}
	return n
}

// Books returns the books as they are now.
func (s *Jobs) Books() Books {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*job, 0, len(s.jobs))
	for _, j := range s.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.number, b.number) })
	b := Books{Jobs: make([]JobEntry, len(all)), Dropped: s.dropped, Polls: make(map[string]PollCount, len(s.polls))}
	for i, j := range all {
		b.Jobs[i] = j.entry()
	}
	for name, count := range s.polls {
		b.Polls[name] = *count
	}
	return b
}

// Job returns the entry of a job. ok is false if there is no such job.
func (s *Jobs) Job(id string) (_ JobEntry, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil {
		return JobEntry{}, false
	}
	return j.entry(), true
}

func (j *job) entry() JobEntry {
	return JobEntry{
		ID: j.id, Protocol: j.protocol.name(), Model: j.model, Mode: j.mode, Key: j.key, State: j.copy().state,
		Submitted: j.submitted, Polls: j.polls, Reads: j.reads, Streams: j.streams, Cancels: j.cancels, Sent: j.sent,
	}
}

func (s *Jobs) serveBooks(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Books())
}

// countSecond counts a poll.
func (s *Jobs) countSecond(protocol string, now time.Time) {
	c := s.polls[protocol]
	if c == nil {
		c = new(PollCount)
		s.polls[protocol] = c
	}
	if second := now.Unix(); second != c.second {
		c.second, c.recent = second, 0
	}
	c.recent++
	c.Total, c.MaxPerSecond = c.Total+1, max(c.MaxPerSecond, c.recent)
}
