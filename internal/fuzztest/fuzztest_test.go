// SPDX-License-Identifier: Apache-2.0

package fuzztest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/cputime"
)

// A probe notes what a test would fail with.
type probe struct {
	testing.TB
	said string
}

func (p *probe) Errorf(format string, args ...any) { p.said += fmt.Sprintf(format, args...) + "\n" }

var sink []byte

// TestBounded: work that takes long or allocates much fails its test, and other work does not.
func TestBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		work func()
		want string
	}{
		"nothing": {func() {}, ""},
		"waits":   {func() { <-time.After(MaxTime + 50*time.Millisecond) }, ""},
		"slow": {func() {
			for began := cputime.Used(); cputime.Used()-began < 2*MaxTime; {
			}
		}, "of processor time"},
		"large": {func() {
			for range 70 {
				sink = make([]byte, 1<<20)
			}
		}, "allocated 7"},
		"large enough": {func() { sink = make([]byte, MaxBytes-1<<20) }, ""},
	} {
		p := &probe{TB: t}
		Bounded(p, name, tt.work)
		if (tt.want == "") != (p.said == "") || !strings.Contains(p.said, tt.want) {
			t.Errorf("%s: %q, want %q", name, p.said, tt.want)
		}
	}
	sink = nil
}

// TestRecipes: there are texts in every dialect.
func TestRecipes(t *testing.T) {
	texts := Recipes(t)
	for _, mark := range []string{"steps:", "nodes:", "edges:", "workflow:", "plan_definition", "extends:", "functions:", "{{"} {
		n := 0
		for _, text := range texts {
			if bytes.Contains(text, []byte(mark)) {
				n++
			}
		}
		t.Logf("%d of %d texts have %s", n, len(texts), mark)
		if n == 0 {
			t.Errorf("%d texts have %s", n, mark)
		}
	}
	if n := len(Strings(texts)); n != len(texts) {
		t.Errorf("%d strings of %d texts", n, len(texts))
	}
}
