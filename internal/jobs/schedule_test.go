// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"

	"pgregory.net/rapid"
)

// X133: the polls of a job are at most a tenth of their interval away from 30 s, 90 s, 210 s,
// 330 s … after the submission, each later than the one before, whenever the next one is asked for.
func TestX133_PollTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 40, 100).Draw(t, "name")
		of := digest(name)
		submitted := rapid.Int64Range(0, 1<<51).Draw(t, "submitted")
		at, base, interval := submitted, submitted, int64(0)
		for n := range rapid.IntRange(1, 40).Draw(t, "polls") {
			interval = []int64{30, 60, 120}[min(n, 2)] * second
			base += interval
			asked := rapid.Int64Range(at, max(at, base-interval/5)).Draw(t, "asked")
			next := NextPoll(of, submitted, asked)
			if next <= at || next < base-interval/10 || next > base+interval/10 {
				t.Fatalf("poll %d of %q is %d µs after the submission, want %d ± a tenth of %d", n, name, next-submitted, base-submitted, interval)
			}
			if again := NextPoll(of, submitted, next-1); again != next {
				t.Fatalf("poll %d of %q is at %d, asked just before that at %d", n, name, next, again)
			}
			at = next
		}
		late := submitted + rapid.Int64Range(0, 40*day).Draw(t, "late")
		if next := NextPoll(of, submitted, late); next <= late || next > late+laterInterval+laterInterval/5 {
			t.Fatalf("after %d µs the next poll is %d µs later", late-submitted, next-late)
		}
	})
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]int64{1: 1, 2: 2, 3: 4, 9: 256, 10: 300, 64: 300, 1_000: 300} {
		if got := backoff(n); got != want*second {
			t.Errorf("after failure %d: %d µs, want %d s", n, got, want)
		}
	}
}
