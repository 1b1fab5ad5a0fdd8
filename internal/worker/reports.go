// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"math"
	"strings"
	"sync"
	"unicode/utf8"
)

// progressStep is the smallest change of a fraction that is passed on, because an action
// may report every byte and people see percent.
const progressStep = 0.005

// reportBytes is charged for each report in addition to its text, so that empty reports
// are bounded too.
const reportBytes = 64

// A reportLimiter bounds the reports of an attempt (I15). Its zero value is
// ready for use.
type reportLimiter struct {
	mu     sync.Mutex
	closed bool
	*reported
}

// reported is what an attempt has reported so far. Most attempts report nothing, so it is
// made with the first report.
type reported struct {
	logs     int
	bytes    int
	dropped  int64
	fraction float64
	text     string
	begun    bool
	deltas   *deltas // nil until the action streams text
}

// begin is called before a report is counted. The caller holds the lock.
func (s *reportLimiter) begin() {
	if s.reported == nil {
		s.reported = new(reported)
	}
}

// report passes a report on, once moderators have passed it if they look at the output.
func (a *attempt) report(r Report) {
	if a.gate != nil && a.gate.Output {
		a.moderateReport(r)
		return
	}
	a.pass(r)
}

// pass passes a report on if it is within the bounds. It holds the lock meanwhile, so
// that reports arrive in the order in which they were made, and none after the result.
func (a *attempt) pass(r Report) {
	s := &a.limiter
	sink := a.pool.cfg.Report
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || sink == nil {
		return
	}
	s.begin()
	if r.Kind == Delta {
		a.addDelta(r.Text)
		return
	}
	size := len(r.Text)
	a.redactReport(&r)
	cost := reportBytes + len(r.Level) + size + len(r.Value)
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
	a.sendDelta() // it came before
	r.ID, r.Owner, r.Passed = a.task.ID, a.task.Owner, a.gate != nil
	sink(r)
}

// drop counts a report that cannot be passed on.
func (a *attempt) drop() {
	a.limiter.mu.Lock()
	a.limiter.begin()
	a.limiter.dropped++
	a.limiter.mu.Unlock()
}

// Progress implements action.Reporter.
func (a *attempt) Progress(fraction float64, text string) {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	a.report(Report{Kind: Progress, Fraction: min(max(fraction, 0), 1), Text: validUTF8(text)})
}

// Log implements action.Reporter. An unknown level becomes info.
func (a *attempt) Log(level, text string) {
	switch level = strings.ToLower(level); level {
	case "debug", "info", "warn", "error":
	case "warning":
		level = "warn"
	default:
		level = "info"
	}
	a.report(Report{Kind: Log, Level: level, Text: validUTF8(text)})
}

// Delta implements action.Reporter.
func (a *attempt) Delta(text string) { a.report(Report{Kind: Delta, Text: validUTF8(text)}) }

// Preview implements action.Reporter. A value that is not JSON, or is too large for an
// output, is dropped and counted.
func (a *attempt) Preview(value any) {
	data, _, err := encode(a.task.Action.Name, value, MaxOutput)
	if err != nil {
		a.drop()
		return
	}
	a.report(Report{Kind: Preview, Value: data})
}

// validUTF8 replaces invalid UTF-8 in text, as JSON requires.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
