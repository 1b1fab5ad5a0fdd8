// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// The bounds of what a task reports. The server drops what exceeds them.
const (
	maxReportedLogs  = 1000
	maxReportedBytes = 4 << 20
	maxReportText    = 1000    // characters
	maxLogText       = 65_536  // characters
	maxDelta         = 1 << 16 // bytes
	maxJoinedDelta   = 1 << 10 // bytes of deltas that are joined before they are sent
)

// A workerTask is a task that is under way, or whose result is not recorded yet.
type workerTask struct {
	cancel      context.CancelCauseFunc
	unsent      int           // reports
	flushed     chan struct{} // closed when unsent falls to 0; nil = nobody waits for that
	logs, bytes int           // that it has reported
	// last is the last report, and progress the last one of progress, if they can still be changed.
	last, progress *WorkerReport
}

// wake has the heartbeats looked at.
func (r *workerRun) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// report adds a report of a task.
func (r *workerRun) report(lease string, rep *WorkerReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.running[lease]
	if t == nil || !t.admit(rep) || t.join(rep) {
		return
	}
	r.seq++
	rep.Lease, rep.Seq = lease, r.seq
	t.unsent++
	if t.last = rep; rep.Fraction != nil {
		t.progress = rep
	}
	r.reports = append(r.reports, rep)
	if len(r.reports) == 1 {
		r.wake()
	}
}

// admit reports whether a report is within the bounds of its task, and counts it.
func (t *workerTask) admit(rep *WorkerReport) bool {
	if rep.Log != "" {
		t.logs++
	}
	t.bytes += len(rep.Text) + len(rep.Log) + len(rep.Delta) + len(rep.Preview)
	return t.bytes <= maxReportedBytes && (rep.Log == "" || t.logs <= maxReportedLogs)
}

// join makes a report part of one that is not being sent yet: only the last progress counts, and
// pieces of a text follow each other.
func (t *workerTask) join(rep *WorkerReport) bool {
	switch {
	case rep.Fraction != nil && t.progress != nil:
		t.progress.Fraction, t.progress.Text = rep.Fraction, rep.Text
	case rep.Delta != "" && t.last != nil && t.last.Delta != "" && len(t.last.Delta)+len(rep.Delta) <= maxJoinedDelta:
		t.last.Delta += rep.Delta
	default:
		return false
	}
	return true
}

// flush waits until the server has got what a task has reported: its result, which ends the attempt,
// must not overtake that.
func (r *workerRun) flush(lease string) {
	r.mu.Lock()
	t := r.running[lease]
	if t == nil || t.unsent == 0 {
		r.mu.Unlock()
		return
	}
	flushed := make(chan struct{})
	t.flushed = flushed
	r.flushing++
	r.mu.Unlock()
	r.wake()
	select {
	case <-flushed:
	case <-r.hurry:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.flushed(t) // nobody waits for them any more, and the task may be forgotten before they are sent
	}
}

// sendHeartbeats extends leases and sends reports, until ctx ends.
func (r *workerRun) sendHeartbeats(ctx context.Context) {
	extended := time.Now()
	reported, notBefore := extended, extended
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		every, extendAt, reportAt := r.nextHeartbeat(extended, reported)
		next := extendAt
		if reportAt.Before(next) {
			next = reportAt
		}
		timer.Reset(max(time.Until(next), time.Until(notBefore)))
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			continue
		case <-timer.C:
		}
		now := time.Now()
		extend := !now.Before(extendAt)
		if err := r.heartbeat(ctx, extend, every); err != nil {
			failures++
			wait := min(r.client.delay(failures, err), max(every, serverDelay(err)))
			r.log.Warn("the server takes no heartbeat; trying again", "err", err, "in", wait)
			notBefore = time.Now().Add(wait)
			continue
		}
		if reported, failures = now, 0; extend {
			extended = now
		}
	}
}

// nextHeartbeat returns the time between two heartbeats, when the next one is due, and when reports
// are to be sent.
func (r *workerRun) nextHeartbeat(extended, reported time.Time) (every time.Duration, extendAt, reportAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	far := time.Now().Add(time.Hour)
	every, extendAt, reportAt = r.heartbeatEvery, far, far
	if len(r.running) > 0 {
		if r.busySince.After(extended) { // the oldest lease is no older
			extended = r.busySince
		}
		extendAt = extended.Add(every)
	}
	switch {
	case r.flushing > 0:
		reportAt = reported
	case len(r.reports) > 0:
		reportAt = reported.Add(reportEvery)
	}
	return every, extendAt, reportAt
}

// heartbeat sends reports, and extends all leases if it is time. Tasks whose leases have ended are
// stopped.
func (r *workerRun) heartbeat(ctx context.Context, extend bool, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(max(every, minHeartbeatTime), maxHeartbeatEvery))
	defer cancel()
	reports, leases := r.nextReports(), []string(nil)
	if extend {
		leases = r.leases()
	}
	for len(reports) > 0 || len(leases) > 0 {
		n := min(len(leases), maxPerHeartbeat)
		ended, err := r.client.Workers.Heartbeat(ctx, leases[:n], reports)
		if err != nil {
			if len(reports) > 0 && refuses(err) { // they are at fault
				r.sent(len(reports), nil)
			}
			return err
		}
		r.sent(len(reports), ended)
		reports, leases = nil, leases[n:]
	}
	return nil
}

// leases returns the leases of all tasks.
func (r *workerRun) leases() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.running))
}

// nextReports returns the first reports, as many as a request may have. They stay in r.reports until
// the server has got them, and are not changed any more.
func (r *workerRun) nextReports() (list []WorkerReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := 0
	for _, rep := range r.reports[:min(len(r.reports), maxPerHeartbeat)] {
		size += len(rep.Text) + len(rep.Log) + len(rep.Delta) + len(rep.Preview)
		if len(list) > 0 && size > maxBatchBytes {
			break
		}
		list = append(list, *rep)
		if t := r.running[rep.Lease]; t != nil {
			if t.last == rep {
				t.last = nil
			}
			if t.progress == rep {
				t.progress = nil
			}
		}
	}
	return list
}

// sent forgets the first reports, and stops the tasks whose leases have ended.
func (r *workerRun) sent(reports int, ended []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rep := range r.reports[:reports] {
		if t := r.running[rep.Lease]; t != nil {
			if t.unsent--; t.unsent == 0 {
				r.flushed(t)
			}
		}
	}
	r.reports = slices.Delete(r.reports, 0, reports)
	for _, lease := range ended {
		if t := r.running[lease]; t != nil {
			delete(r.running, lease) // its result does not count
			t.cancel(errLeaseEnded)
			r.flushed(t)
		}
	}
	if len(ended) > 0 {
		r.reports = slices.DeleteFunc(r.reports, func(rep *WorkerReport) bool { return r.running[rep.Lease] == nil })
	}
}

// flushed continues a task that waits for its reports. r.mu is held.
func (r *workerRun) flushed(t *workerTask) {
	if t.flushed != nil {
		close(t.flushed)
		t.flushed = nil
		r.flushing--
	}
}

// A leaseReporter passes on what an action reports.
type leaseReporter struct {
	r     *workerRun
	lease string
}

// Progress implements action.Reporter.
func (p *leaseReporter) Progress(fraction float64, text string) {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	fraction = min(max(fraction, 0), 1)
	p.r.report(p.lease, &WorkerReport{Fraction: &fraction, Text: clip(text, maxReportText)})
}

// Log implements action.Reporter.
func (p *leaseReporter) Log(level, text string) {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		level = "info"
	}
	if text != "" {
		p.r.report(p.lease, &WorkerReport{Level: level, Log: clip(text, maxLogText)})
	}
}

// Delta implements action.Reporter.
func (p *leaseReporter) Delta(text string) {
	for len(text) > 0 {
		n := len(text)
		if n > maxDelta {
			n = maxDelta
			for n > maxDelta-utf8.UTFMax && !utf8.RuneStart(text[n]) {
				n-- // a character stays whole
			}
		}
		p.r.report(p.lease, &WorkerReport{Delta: text[:n]})
		text = text[n:]
	}
}

// Preview implements action.Reporter.
func (p *leaseReporter) Preview(value any) {
	if raw, err := json.Marshal(value); err == nil {
		p.r.report(p.lease, &WorkerReport{Preview: raw})
	}
}
