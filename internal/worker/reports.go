// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"math"
	"strings"
	"sync"
	"unicode/utf8"
)

// progressStep is the smallest change of a fraction that is passed on: an
// action may report every byte, people see percent.
const progressStep = 0.005

// reportBytes is charged for each report beside its text, so that empty ones
// are bounded too.
const reportBytes = 64

// A reportLimiter bounds what an attempt says (I15). Its zero value is ready.
type reportLimiter struct {
	mu       sync.Mutex
	closed   bool
	logs     int
	bytes    int
	dropped  int64
	fraction float64
	text     string
	begun    bool
}

// close ends reporting and returns how much was dropped. What a runaway action
// says later reaches nobody.
func (s *reportLimiter) close() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropped
}

// say passes a report on when it is within bounds. The lock is held meanwhile:
// reports arrive in the order they were made, and none after the result.
func (a *attempt) say(r Report) {
	s := &a.limiter
	sink := a.pool.cfg.Report
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || sink == nil {
		return
	}
	cost := reportBytes + len(r.Level) + len(r.Text) + len(r.Value)
	if s.bytes+cost > MaxReported || r.Kind == Log && s.logs >= MaxLogs {
		s.dropped++
		return
	}
	if r.Kind == Progress {
		if s.begun && r.Text == s.text && r.Fraction < 1 && math.Abs(r.Fraction-s.fraction) < progressStep {
			return
		}
		if s.begun && r.Text == s.text && r.Fraction == s.fraction {
			return
		}
		s.begun, s.fraction, s.text = true, r.Fraction, r.Text
	}
	s.bytes += cost
	if r.Kind == Log {
		s.logs++
	}
	r.ID, r.Owner = a.task.ID, a.task.Owner
	sink(r)
}

// drop counts a report that cannot be passed on.
func (a *attempt) drop() {
	a.limiter.mu.Lock()
	a.limiter.dropped++
	a.limiter.mu.Unlock()
}

// Progress implements action.Reporter.
func (a *attempt) Progress(fraction float64, text string) {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	a.say(Report{Kind: Progress, Fraction: min(max(fraction, 0), 1), Text: valid(text)})
}

// Log implements action.Reporter. An unknown level is info.
func (a *attempt) Log(level, text string) {
	switch level = strings.ToLower(level); level {
	case "debug", "info", "warn", "error":
	case "warning":
		level = "warn"
	default:
		level = "info"
	}
	a.say(Report{Kind: Log, Level: level, Text: valid(text)})
}

// Delta implements action.Reporter.
func (a *attempt) Delta(text string) { a.say(Report{Kind: Delta, Text: valid(text)}) }

// Preview implements action.Reporter. A value that is no JSON or too large for
// an output is dropped and counted.
func (a *attempt) Preview(value any) {
	data, err := encode(a.task.Action.Name, value, MaxOutput)
	if err != nil {
		a.drop()
		return
	}
	a.say(Report{Kind: Preview, Value: data})
}

// valid makes text fit for JSON.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
