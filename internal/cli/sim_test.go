// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/simulate"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// TestSimViolation checks what `roux sim` prints for a violated invariant: the seed,
// the version of Roux, the last events, and the command that shows the rest.
func TestSimViolation(t *testing.T) {
	opt := simulate.Options{Source: simulate.Drawn{}}
	res, err := simulate.NewPlayer(opt).Play(40)
	if err != nil {
		t.Fatal(err)
	}
	res.Err = errors.New("I0: made up")
	v, err := violationOf(&res, opt, "roux sim x.yaml --seed 40 --trace")
	if err != nil {
		t.Fatal(err)
	}
	if v.Seed != 40 || v.Broken != "I0: made up" || v.Version != thisBuild().short() || !strings.HasSuffix(v.Replay, "--trace") || len(v.Last) != simulate.TailLines {
		t.Errorf("violation %+v has %d lines", v, len(v.Last))
	}
	var out bytes.Buffer
	none := func(string) string { return "" }
	a := &app{stdout: &out, stderr: &out, getenv: none, screen: term.NewScreen(&out, true, none)}
	a.printSimulated(&simulated{Recipe: "x", Seed: 40, Violation: v})
	for _, want := range []string{"seed 40 broke an invariant of Roux " + v.Version, "the last 50 things", view.OneLine(v.Last[len(v.Last)-1])} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "nothing was lost") {
		t.Error("it says that nothing was lost")
	}
}
