// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// meterWindow is the time over which rates and durations are measured.
	meterWindow = 10 * time.Second
	// meterCommits is how many commits are remembered. With more in the window, rates are those
	// of the time that they span.
	meterCommits = 1024
	// meterFailures is how many failures are remembered.
	meterFailures = 8
)

// A meter remembers the last commits and failures of an engine.
type meter struct {
	mu       sync.Mutex
	commits  [meterCommits]measured // a ring
	n        uint64                 // commits so far: the next one is commits[n % meterCommits]
	failed   uint64
	failures []Failure // the oldest first
}

// A measured commit.
type measured struct {
	at       time.Time // its end
	took     time.Duration
	finished uint64 // attempts that had ended by then
}

// A Failure is a run that has failed, or a commit.
type Failure struct {
	At     time.Time
	Key    store.Key // of the run; the zero value of a commit
	Recipe string
	Code   fault.Code
}

// A Pace is how fast an engine works.
type Pace struct {
	Commits uint64 // successful ones since the engine opened
	Failed  uint64 // commits that failed
	// Rates of the last ten seconds.
	CommitsPerSecond, AttemptsPerSecond float64
	// How long the commits of these seconds took; 0 = there were none.
	Median, P99, Slowest time.Duration
	Failures             []Failure // the last ones, the newest first
}

// Committed notes a commit that has ended just now. finished is how many attempts have ended
// since the engine opened.
func (f *Feed) Committed(took time.Duration, finished uint64, err error) {
	m, now := &f.meter, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed++
		m.fail(Failure{At: now, Code: fault.CodeOf(err)})
		return
	}
	m.commits[m.n%meterCommits] = measured{now, took, finished}
	m.n++
}

// fail remembers a failure. The caller holds mu.
func (m *meter) fail(of Failure) {
	if len(m.failures) == meterFailures {
		m.failures = slices.Delete(m.failures, 0, 1)
	}
	m.failures = append(m.failures, of)
}

// ended notes a run that has failed or was quarantined, if that is what a new head says.
func (m *meter) ended(h *store.Head) {
	f := Failure{At: time.UnixMicro(h.Ended), Key: h.Key, Recipe: h.Recipe, Code: h.Code}
	switch {
	case h.Quarantine != "" && !h.Imported():
		f.At, f.Code = time.UnixMicro(h.Updated), fault.Quarantined
	case h.Ended == 0 || h.Code == "" || h.Status == "cancelled":
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A run has further heads after its end, such as when its user deletes it.
	if !slices.ContainsFunc(m.failures, func(had Failure) bool { return had.Key == f.Key && had.Code == f.Code && had.At.Equal(f.At) }) {
		m.fail(f)
	}
}

// Pace returns how fast the engine works now. finished is that of Committed.
func (f *Feed) Pace(finished uint64) Pace {
	m, now := &f.meter, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := Pace{Commits: m.n, Failed: m.failed, Failures: slices.Clone(m.failures)}
	slices.Reverse(p.Failures)
	newest := func(i uint64) *measured { return &m.commits[(m.n-1-i)%meterCommits] }
	kept, in := min(m.n, meterCommits), uint64(0) // in: those in the window
	began, before := now.Add(-meterWindow), uint64(0)
	for in < kept && newest(in).at.After(began) {
		in++
	}
	switch {
	case in < kept:
		before = newest(in).finished
	case in == meterCommits: // the window begins with the oldest one
		in--
		began, before = newest(in).at, newest(in).finished
	}
	seconds := now.Sub(began).Seconds()
	if in == 0 || seconds <= 0 {
		return p
	}
	p.CommitsPerSecond, p.AttemptsPerSecond = float64(in)/seconds, float64(finished-before)/seconds
	took := make([]time.Duration, in)
	for i := range took {
		took[i] = newest(uint64(i)).took
	}
	slices.Sort(took)
	p.Median, p.P99, p.Slowest = took[in/2], took[in*99/100], took[in-1]
	return p
}
