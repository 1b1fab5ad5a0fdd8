// SPDX-License-Identifier: Apache-2.0

package lease

// A Refusal is why what a worker says does not count.
type Refusal uint8

// Why results are refused. What is wrong with an output is found later, by the step that waits for it.
const (
	NoLease      Refusal = iota // it shows nothing that this data directory has signed
	EndedLease                  // of a lease that has ended, or whose result is being recorded
	OtherAccount                // of a task of an account that the key has nothing to do with
	Malformed                   // the request is not as the document says
	TooLarge                    // the request is
	refusals
)

// String is the name of the reason in metrics.
func (r Refusal) String() string {
	return [...]string{"no_lease", "ended_lease", "other_account", "malformed", "too_large"}[r]
}

// Refuse counts a result, or a request with results, that was refused.
func (m *Manager) Refuse(r Refusal) { m.refused[r].Add(1) }

// Refused calls fn with each reason, and how many results were refused for it since the start.
func (m *Manager) Refused(fn func(r Refusal, n int64)) {
	for r := range refusals {
		fn(r, m.refused[r].Load())
	}
}
