// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/term"
)

// TestDoctorClock: a clock that cannot be right is a problem.
func TestDoctorClock(t *testing.T) {
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(1970, 1, 1, 0, 0, 7, 0, time.UTC), Problem},
		{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), OK},
	} {
		none := func(string) string { return "" }
		d := &checkup{Options: Options{Now: func() time.Time { return tt.now }, Getenv: none, Screen: term.NewScreen(new(bytes.Buffer), true, none)}, ctx: t.Context()}
		d.machine()
		if !slices.ContainsFunc(d.list, func(f Finding) bool { return f.Check == "clock" && f.Status == tt.want }) {
			t.Errorf("at %s: %+v", tt.now, d.list)
		}
	}
}

// TestReadingTime: the time that doctor names follows the bytes.
func TestReadingTime(t *testing.T) {
	if got := readingTime(40<<20, 600<<20); got != 5*time.Second {
		t.Errorf("%s, want 5s", got)
	}
	if got := readingTime(0, 0); got >= worthSaying {
		t.Errorf("nothing takes %s", got)
	}
}
