// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// startedRun is a run of a small plan that has started.
func startedRun(t testing.TB, seed uint64) *Run {
	t.Helper()
	p := compilePlan(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n")
	r := NewRun(Prepare(p))
	var turn Turn
	r.Decide(&Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "acct", Seed: seed, Pins: pinsOf(p)}}, &turn)
	return r
}

// X111, R18: min(max, initial × multiplier^(n−1)) × (1 − jitter + jitter × u).
func TestBackoff(t *testing.T) {
	year := int64(365 * 24 * 3600 * 1000)
	for _, tt := range []struct {
		name  string
		retry plan.Retry
		n     int64
		after int64
		want  int64
	}{
		{"after the first failure", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 1, 0, 500},
		{"doubles", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 4, 0, 4000},
		{"reaches max", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 5, 0, 8000},
		{"stays at max", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 6, 0, 8000},
		{"does not overflow at attempt 64", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 64, 0, 8000},
		{"does not overflow at attempt 1,000", plan.Retry{InitialMS: 500, MaxMS: year, Multiplier: 100}, 1000, 0, year},
		{"a large max is exact", plan.Retry{InitialMS: year, MaxMS: year, Multiplier: 2}, 3, 0, year},
		{"a multiplier of 1 stays", plan.Retry{InitialMS: 700, MaxMS: 8000, Multiplier: 1}, 1_000_000, 0, 700},
		{"a multiplier near 1 ends", plan.Retry{InitialMS: 1, MaxMS: 8000, Multiplier: 1.0000001}, 1000, 0, 1},
		{"no delay at all", plan.Retry{InitialMS: 0, MaxMS: 0, Multiplier: 2}, 1000, 0, 0},
		{"no delay, with room to grow", plan.Retry{InitialMS: 0, MaxMS: 8000, Multiplier: 2}, 1_000_000_000, 0, 0},
		{"Retry-After raises it", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 1, 9000, 9000},
		{"Retry-After never lowers it", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 9, 1, 8000},
		{"Retry-After is capped at 1 h", plan.Retry{InitialMS: 500, MaxMS: 8000, Multiplier: 2}, 1, 3_600_001, 3_600_000},
		{"the recipe's own max is not", plan.Retry{InitialMS: 7_200_000, MaxMS: 7_200_000, Multiplier: 2}, 1, 1, 7_200_000},
		{"a negative Retry-After is none", plan.Retry{InitialMS: 0, MaxMS: 0, Multiplier: 2}, 1, -5, 0},
		{"the longest duration that can be written", plan.Retry{InitialMS: 500, MaxMS: 99_999_999 * 86_400_000, Multiplier: 100}, 1000, 0, 99_999_999 * 86_400_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := startedRun(t, 1)
			if got := r.backoff(r.root, 0, &tt.retry, tt.n, tt.after); got != tt.want {
				t.Errorf("backoff = %d ms, want %d", got, tt.want)
			}
		})
	}
}

// X111, F25: full jitter spreads the delays evenly over [0, max), half jitter
// over [max/2, max); the same run, step and attempt always give the same one.
func TestBackoffJitter(t *testing.T) {
	for _, jitter := range []float64{0.5, 1} {
		policy := plan.Retry{InitialMS: 1_000_000, MaxMS: 1_000_000, Multiplier: 2, Jitter: jitter}
		var buckets [10]int
		const draws = 20_000
		low := int64(float64(policy.MaxMS) * (1 - jitter))
		r := startedRun(t, 1)
		for n := range draws {
			r.start.Seed, r.root.steps[0].attempt = uint64(n/100), uint32(n%100)
			d := r.backoff(r.root, 0, &policy, 1, 0)
			if d < low || d >= policy.MaxMS {
				t.Fatalf("jitter %v: delay %d outside [%d, %d)", jitter, d, low, policy.MaxMS)
			}
			if again := r.backoff(r.root, 0, &policy, 1, 0); again != d {
				t.Fatalf("the same attempt waits %d and %d", d, again)
			}
			buckets[(d-low)*10/(policy.MaxMS-low)]++
		}
		for k, n := range buckets {
			if math.Abs(float64(n)-draws/10) > draws/100 {
				t.Errorf("jitter %v: %d of %d delays fall into tenth %d", jitter, n, draws, k)
			}
		}
	}
}

// I4: the effect key is a function of account, run, scope path, step, generation and
// try. Different lists of fields never encode alike, wherever the borders between
// fields are.
func TestI4_EffectKeysAreDistinct(t *testing.T) {
	seen := map[string]string{}
	note := func(r *Run, s *scope, what string) {
		t.Helper()
		key := r.effectKey(s, 0)
		if len(key) != 32 {
			t.Fatalf("key %q has %d characters", key, len(key))
		}
		if before, ok := seen[key]; ok {
			t.Errorf("%s and %s share key %s", before, what, key)
		}
		seen[key] = what
	}
	p := *compilePlan(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n")
	p.Steps = append([]plan.Step(nil), p.Steps...)
	r := startedRun(t, 1)
	r.plan = &p
	try := func(account, run, id string, path journal.Path, gen uint16, n uint32) {
		st := *r.start
		st.Account, st.Run = account, run
		r.start, p.Steps[0].ID = &st, id
		s := *r.root
		s.path, s.steps = path, []stepState{{keyGen: gen, keyTry: n}}
		note(r, &s, fmt.Sprintf("%q %q %q %q %d %d", account, run, id, path, gen, n))
	}
	// Fields moved over their borders.
	try("ab", "c", "d", "", 1, 0)
	try("a", "bc", "d", "", 1, 0)
	try("a", "b", "cd", "", 1, 0)
	try("abc", "", "d", "", 1, 0)
	try("", "abc", "d", "", 1, 0)
	try("a", "b", "d", "c", 1, 0)
	try("a", "b", "", "cd", 1, 0)
	try("a\x01b", "", "d", "", 1, 0)
	try("a", "\x01b", "d", "", 1, 0)
	// Lengths that are themselves bytes of fields.
	try(string(rune(1)), "a", "d", "", 1, 0)
	try("", string(binary.AppendUvarint(nil, 1))+"a", "d", "", 1, 0)
	// Generation and try.
	for gen := range uint16(40) {
		for n := range uint32(40) {
			try("a", "r", "s", "", gen, n)
		}
	}
	try("a", "r", "s", "", 1, math.MaxUint16+1)
	try("a", "r", "s", "", 1, math.MaxUint32)
	// Items of a loop, and scopes below them.
	for item := range int64(300) {
		for inner := range int64(3) {
			try("a", "r", "s", journal.Path("").Child(1, item).Child(2, inner), 1, 0)
		}
		try("a", "r", "s", journal.Path("").Child(1, item), 1, 0)
	}
}

// TestJitterStays: the same run waits the same time in every release, so the number
// that follows from a seed, a step instance, a generation and an attempt is fixed.
func TestJitterStays(t *testing.T) {
	for _, tt := range []struct {
		seed    uint64
		path    journal.Path
		gen     uint32
		attempt uint32
		want    float64
	}{
		{0, "", 1, 1, 0.6739081910083272},
		{1, "", 1, 1, 0.6072490107263878},
		{1 << 63, "", 1, 1, 0.11905906189380377},
		{1, journal.Path("").Child(1, 300), 1, 1, 0.6634376759286914},
		{1, "", 2, 1, 0.026671981878101936},
		{1, "", 1, 1000, 0.6845914378918821},
	} {
		r := startedRun(t, tt.seed)
		s := *r.root
		s.path, s.steps = tt.path, []stepState{{attempt: tt.attempt}}
		r.gen = tt.gen
		if got := r.jitterFraction(&s, 0); got != tt.want {
			t.Errorf("seed %d, path %q, generation %d, attempt %d: %v, want %v", tt.seed, tt.path, tt.gen, tt.attempt, got, tt.want)
		}
	}
}
