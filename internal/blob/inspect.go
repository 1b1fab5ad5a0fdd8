// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

const (
	// inspectFor bounds the time of an inspection, so that a hostile file cannot block
	// its upload. After that, inspectGrace lets an inspection return what it has.
	inspectFor   = 5 * time.Second
	inspectGrace = 250 * time.Millisecond
	// maxExtended bounds what is recorded of one inspection.
	maxExtended = 16 << 10
	maxProblem  = 500
)

// inspectNew inspects a file that has just been written and has no name yet, and
// records the result in rec. Content that was inspected before keeps its facts and is
// not inspected again.
func (s *Store) inspectNew(ctx context.Context, p place, f *os.File, rec *sidecar) {
	if s.look == nil {
		return
	}
	if old, err := s.readSidecar(p); err == nil && old.Inspected && old.Size == rec.Size {
		return
	}
	info := action.FileInfo{Hash: p.name, Name: rec.Name, MimeType: rec.MimeType, Size: rec.Size}
	found, inTime := s.inspect(ctx, f, info)
	if ctx.Err() == nil { // else the caller was cancelled
		rec.Extended, rec.Inspected = found, inTime
	}
}

// inspect never fails, because an upload is worth keeping without an inspection. The
// reason of a failure is recorded under "problem". inTime is false when the inspection
// was cut off, so that the next upload of the same content is inspected again.
func (s *Store) inspect(ctx context.Context, f *os.File, info action.FileInfo) (found json.RawMessage, inTime bool) {
	ctx, cancel := context.WithTimeout(ctx, s.lookFor)
	defer cancel()
	type outcome struct {
		found json.RawMessage
		err   error
	}
	done := make(chan outcome, 1)
	// These bytes have just been hashed.
	file := &reader{f: f, info: info, verified: true}
	go func() {
		var out outcome
		defer func() {
			if v := recover(); v != nil {
				out = outcome{err: fault.New(fault.FileInvalid, "the file broke its inspection: %v", v)}
			}
			done <- out
		}()
		out.found, out.err = s.look(ctx, file)
	}()
	tooLong := fault.New(fault.StepTimeout, "inspecting the file took longer than %s", s.lookFor)
	select {
	case out := <-done:
		if out.err != nil && ctx.Err() != nil {
			return extended(out.found, tooLong), false
		}
		return extended(out.found, out.err), true
	case <-ctx.Done():
	}
	// An inspection that does not stop when it is told to is abandoned and loses its
	// file.
	t := time.NewTimer(inspectGrace)
	defer t.Stop()
	select {
	case out := <-done:
		return extended(out.found, tooLong), false
	case <-t.C:
		return extended(nil, tooLong), false
	}
}

// extended returns the facts to record: a JSON object within bounds, or nil when there
// are none.
func extended(found json.RawMessage, problem error) json.RawMessage {
	fields := map[string]json.RawMessage{}
	if len(found) > 0 {
		if err := json.Unmarshal(found, &fields); err != nil {
			fields, problem = map[string]json.RawMessage{}, fmt.Errorf("the inspection found no JSON object")
		}
		if fields == nil { // null: an inspection that failed found nothing
			fields = map[string]json.RawMessage{}
		}
	}
	if len(found) > maxExtended {
		fields = map[string]json.RawMessage{}
		problem = fault.New(fault.FileTooLarge, "the inspection found %d bytes of facts, more than the %d that are recorded", len(found), maxExtended)
	}
	if problem != nil {
		text := fault.Message(problem)
		if len(text) > maxProblem {
			text = string(bytes.ToValidUTF8([]byte(text[:maxProblem]), nil)) + "…"
		}
		raw, err := json.Marshal(struct {
			Code    fault.Code `json:"code"`
			Message string     `json:"message"`
		}{fault.CodeOf(problem), text})
		if err == nil {
			fields["problem"] = raw
		}
	}
	if len(fields) == 0 {
		return nil
	}
	out, err := json.Marshal(fields) // sorted, so equal facts are equal bytes
	if err != nil {
		return nil
	}
	return out
}

// merge adds to recorded facts those that only a later inspection found, and reports
// whether that changed anything. Name and type stay, because runs may have seen them.
func (rec sidecar) merge(later sidecar) (sidecar, bool) {
	changed := rec.Sums == nil && later.Sums != nil
	if changed {
		rec.Sums = later.Sums
	}
	if !rec.Inspected && (later.Inspected || later.Extended != nil) {
		rec.Extended, rec.Inspected, changed = later.Extended, later.Inspected, true
	}
	return rec, changed
}
