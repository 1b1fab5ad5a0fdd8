// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// A TraceContext is the position of a run or an attempt in a distributed trace, in the
// sense of W3C Trace Context: the trace and the span that is the parent of what follows.
type TraceContext struct {
	Trace   [16]byte
	Span    [8]byte // zero where the trace begins
	Sampled bool
}

// traceParentLen is the length of a traceparent of version 00.
const traceParentLen = 55

// ParseTraceParent reads a traceparent header. ok is false for any other text.
func ParseTraceParent(text string) (c TraceContext, ok bool) {
	// A later version may append fields, after a dash.
	if len(text) < traceParentLen || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
		len(text) > traceParentLen && (text[:2] == "00" || text[traceParentLen] != '-') || text[:2] == "ff" {
		return c, false
	}
	var version, flags [1]byte
	ok = readHex(version[:], text[:2]) && readHex(c.Trace[:], text[3:35]) && readHex(c.Span[:], text[36:52]) && readHex(flags[:], text[53:55])
	c.Sampled = flags[0]&1 != 0
	return c, ok && c.Trace != [16]byte{} && c.Span != [8]byte{}
}

// readHex reads lower-case hexadecimal digits; the standard does not allow others.
func readHex(to []byte, text string) bool {
	for i := range len(text) {
		if text[i] >= 'A' && text[i] <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// String formats c as a traceparent header.
func (c TraceContext) String() string {
	b := make([]byte, 0, traceParentLen)
	b = hex.AppendEncode(append(b, "00-"...), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Span[:])
	if c.Sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}

// TraceOf returns where the trace of a tree of runs begins. If the run's correlation is a
// traceparent, that is the caller's span. Otherwise the trace id is computed from the id
// of the root run, so that whoever knows the run knows the trace.
func TraceOf(correlation, root string) TraceContext {
	if c, ok := ParseTraceParent(correlation); ok {
		return c
	}
	c := TraceContext{Sampled: true}
	sum := sha256.Sum256([]byte(root))
	copy(c.Trace[:], sum[:])
	return c
}

// Trace returns where the trace of the run begins.
func (s *Start) Trace() TraceContext {
	if s.Child != nil {
		return TraceOf(s.Correlation, s.Child.Root)
	}
	return TraceOf(s.Correlation, s.Run)
}

// TraceParent returns the traceparent that an attempt of the run sends to services, so that
// their spans are below its own. If nobody records its span, that is the caller's, or "".
func (s *Start) TraceParent(ref Ref, fence Fence, recorded bool) string {
	if !recorded {
		if _, ok := ParseTraceParent(s.Correlation); ok {
			return s.Correlation
		}
		return ""
	}
	c := s.Trace()
	c.Span = SpanID(s.Run, ref, fence)
	return c.String()
}

// SpanID returns the id of a span: of an attempt; of a step instance, if the attempt is 0;
// of a generation of the run, if the step is -1 as well. It is computed, so that an action
// can pass the span of its attempt on before anybody has recorded it, and so that a span
// that is exported twice has one id.
func SpanID(run string, ref Ref, fence Fence) (id [8]byte) {
	b := make([]byte, 0, 128)
	b = append(append(b, run...), '|')
	b = append(append(b, ref.Path...), '|')
	b = append(strconv.AppendInt(b, int64(ref.Step), 10), '|')
	b = append(strconv.AppendUint(b, uint64(fence.Gen), 10), '|')
	b = strconv.AppendUint(b, uint64(fence.Attempt), 10)
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}
