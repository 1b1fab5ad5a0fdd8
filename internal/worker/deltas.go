// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"time"

	"github.com/roux-engine/roux/internal/redact"
)

// maxDelta is how much text is collected before it is passed on, in bytes. A single piece
// that is larger stays whole.
const maxDelta = 4 << 10

// deltas is the text that an attempt has streamed and that has not been passed on. Each
// report of a delta becomes an event, and actions stream words or letters, so pieces are
// joined until they have maxDelta bytes, another report follows, [Config.DeltaWait] has
// passed since the last of these reports, or the attempt has ended. Text after a silence
// waits for nothing.
//
// The lock of the attempt's limiter protects everything here.
type deltas struct {
	text []byte
	// timer calls deltasDue. It is set only while there is text, and no goroutine waits
	// for it.
	timer *time.Timer
	// stream removes secrets from the pieces, with the set that it removes; nil if there
	// are none.
	stream *redact.Stream
	set    *redact.Set
	sent   time.Time // when text was passed on last
}

// addDelta takes a piece of text. The caller holds the lock of the limiter.
func (a *attempt) addDelta(text string) {
	if text == "" {
		return
	}
	s := &a.limiter
	if s.deltas == nil {
		s.deltas = new(deltas)
	}
	d := s.deltas
	cost := len(text)
	if len(d.text) == 0 || len(d.text)+len(text) > maxDelta {
		cost += reportBytes // it becomes a report of its own
	}
	if s.bytes+cost > MaxReported {
		s.dropped++
		return
	}
	s.bytes += cost
	if text = a.redactDelta(text); text == "" {
		return // all of it is held back
	}
	if len(d.text) > 0 && len(d.text)+len(text) > maxDelta {
		a.sendDelta()
	}
	begins := len(d.text) == 0
	d.text = append(d.text, text...)
	wait := a.pool.cfg.DeltaWait
	if begins && !d.sent.IsZero() {
		wait -= time.Since(d.sent)
	}
	switch {
	case len(d.text) >= maxDelta || wait <= 0 || d.sent.IsZero():
		a.sendDelta()
	case begins && d.timer == nil:
		d.timer = time.AfterFunc(wait, a.deltasDue)
	case begins:
		d.timer.Reset(wait)
	}
}

// sendDelta passes on what was collected. The caller holds the lock of the limiter.
func (a *attempt) sendDelta() {
	d := a.limiter.deltas
	if d == nil || len(d.text) == 0 {
		return
	}
	if d.timer != nil {
		d.timer.Stop()
	}
	text := string(d.text)
	d.sent = time.Now()
	if d.text = d.text[:0]; cap(d.text) > 2*maxDelta {
		d.text = nil
	}
	a.pool.cfg.Report(Report{ID: a.task.ID, Owner: a.task.Owner, Kind: Delta, Text: text, Passed: a.gate != nil})
}

// deltasDue is called by the timer. If it is late, that text was sent, and other text may
// have begun, which is then sent early.
func (a *attempt) deltasDue() {
	s := &a.limiter
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		a.sendDelta()
	}
}

// redactDelta removes secrets from a piece of text. Its end is held back if it may be the
// beginning of a secret.
func (a *attempt) redactDelta(text string) string {
	d, known := a.limiter.deltas, a.known()
	if known == nil && d.stream == nil {
		return text
	}
	held := ""
	if d.stream != nil && known != d.set { // another attempt has used another secret
		held, d.stream = d.stream.End(), nil
	}
	if d.stream == nil {
		d.stream, d.set = known.Stream(), known
	}
	return held + d.stream.Next(text)
}

// closeReports passes on what was collected and held back of the deltas, ends reporting,
// and returns how many reports were dropped. Later reports of an action that keeps running
// are discarded. It is called before the result is reported.
func (a *attempt) closeReports() int64 {
	s := &a.limiter
	s.mu.Lock()
	defer s.mu.Unlock()
	closed := s.closed
	s.closed = true
	if s.reported == nil {
		return 0
	}
	if d := s.deltas; !closed && d != nil {
		if d.stream != nil {
			d.text = append(d.text, validUTF8(d.stream.End())...)
		}
		a.sendDelta()
	}
	return s.dropped
}
