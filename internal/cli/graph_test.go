// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/picture"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A status has the same glyph in a line of output and in a picture of the run.
func TestStylesAgree(t *testing.T) {
	var all []string
	for st := journal.Pending; st <= journal.Invalidated; st++ {
		all = append(all, st.String())
	}
	all = append(append(all, "timed_out"), statuses()...)
	if len(all) < 12+9 {
		t.Fatalf("%d statuses, want the 12 of steps and the 9 of runs", len(all))
	}
	plain := &term.Screen{}
	for _, status := range all {
		l := picture.StyleOf(status)
		if l.Glyph == "" || l.Light == "" || l.Dark == "" || l.Light == l.Dark {
			t.Errorf("%s has no look of its own: %+v", status, l)
		}
		if got := plain.Glyph(status); got != l.Glyph {
			t.Errorf("%s looks %q in lines, %q in pictures", status, got, l.Glyph)
		}
	}
	if got := plain.Glyph("no status"); got != "·" {
		t.Errorf("what is no status looks %q", got)
	}
}

// drawAll draws a picture in all forms. One that cannot be drawn is an error and no panic.
func drawAll(p *picture.Picture) {
	for _, form := range pictureForms {
		_, _ = render(p, form, picture.Options{Width: 100})
	}
}

// compareAll prints how two runs differ.
func compareAll(a *app, one, other *view.Side) {
	a.printCompared(view.Compare(one, other, nil), [2]*view.Side{one, one})
}
