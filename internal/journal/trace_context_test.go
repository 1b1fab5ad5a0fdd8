// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// X226: a traceparent is read as W3C Trace Context says, and nothing else is one.
func TestX226_TraceParent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct {
		what, text string
		ok         bool
	}{
		{"version 00", good, true},
		{"not sampled", good[:54] + "0", true},
		{"a later version", "01" + good[2:], true},
		{"a later version with more fields", "01" + good[2:] + "-what", true},
		{"version 00 with more fields", good + "-what", false},
		{"a later version with trailing text", "01" + good[2:] + "what", false},
		{"version ff", "ff" + good[2:], false},
		{"capitals", strings.ToUpper(good), false},
		{"no trace", "00-" + strings.Repeat("0", 32) + good[35:], false},
		{"no span", good[:36] + strings.Repeat("0", 16) + good[52:], false},
		{"another sign", good[:10] + "g" + good[11:], false},
		{"too short", good[:54], false},
		{"a run id", "run_01JZ0000000000000000000000", false},
		{"nothing", "", false},
	} {
		got, ok := ParseTraceParent(c.text)
		if ok != c.ok {
			t.Errorf("%s: %q is a traceparent: %v", c.what, c.text, ok)
		}
		if ok && c.text[:2] == "00" && got.String() != c.text {
			t.Errorf("%s: %s is formatted as %s", c.what, c.text, got)
		}
	}
}

// X226: the trace of a run is the caller's, or follows from the id of the root run.
func TestX226_TraceOfARun(t *testing.T) {
	sum := sha256.Sum256([]byte("run_root"))
	want := hex.EncodeToString(sum[:16])
	for _, st := range []*Start{
		{Run: "run_root", Correlation: "run_root"},
		{Run: "run_root", Correlation: "order 17"},
		{Run: "run_child", Correlation: "run_root", Child: &Child{Root: "run_root"}},
	} {
		if c := st.Trace(); hex.EncodeToString(c.Trace[:]) != want || c.Span != [8]byte{} || !c.Sampled {
			t.Errorf("the trace of %+v is %s, want %s", st, c, want)
		}
	}
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for _, st := range []*Start{{Run: "run_root", Correlation: caller}, {Run: "run_child", Correlation: caller, Child: &Child{Root: "run_root"}}} {
		if c := st.Trace(); c.String() != caller {
			t.Errorf("the trace of %+v is %s, want the caller's", st, c)
		}
	}
}

// Every part of an attempt's name is part of the id of its span.
func TestX226_SpanIDsAreDistinct(t *testing.T) {
	const runSpan = "5df293272a462987" // of the SHA-256 of run_a||-1|1|0
	seen := map[[8]byte]string{}
	for _, run := range []string{"run_a", "run_b"} {
		for _, path := range []Path{"", Path("").Child(1, 0), Path("").Child(1, 1)} {
			for _, step := range []int32{-1, 0, 1} {
				for _, fence := range []Fence{{1, 0}, {1, 1}, {2, 1}, {1, 2}} {
					id := SpanID(run, Ref{Path: path, Step: step}, fence)
					if seen[id] != "" {
						t.Errorf("two spans have the id %x", id)
					}
					seen[id] = run
				}
			}
		}
	}
	if id := SpanID("run_a", Ref{Step: -1}, Fence{Gen: 1}); hex.EncodeToString(id[:]) != runSpan {
		t.Errorf("the id of the span of run_a is %x, want %s in every release", id, runSpan)
	}
}
