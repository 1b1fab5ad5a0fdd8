// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// TestDoctorClock: a clock that cannot be right is a problem.
func TestDoctorClock(t *testing.T) {
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(1970, 1, 1, 0, 0, 7, 0, time.UTC), isProblem},
		{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), isOK},
	} {
		none := func(string) string { return "" }
		a := &app{now: func() time.Time { return tt.now }, getenv: none, environ: none, screen: newScreen(new(bytes.Buffer), true, none)}
		d := &doctor{app: a, ctx: t.Context()}
		d.machine()
		if !slices.ContainsFunc(d.list, func(f finding) bool { return f.Check == "clock" && f.Status == tt.want }) {
			t.Errorf("at %s: %+v", tt.now, d.list)
		}
	}
}
