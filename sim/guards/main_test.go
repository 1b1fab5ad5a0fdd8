// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/mutation"
)

// TestEveryGuardIsMissed plays without each guard in turn: an invariant must be broken
// within two minutes.
func TestEveryGuardIsMissed(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the simulator once a guard: -short leaves that out")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the guards are the same everywhere; Linux, where system calls can be counted, is enough")
	}
	var out bytes.Buffer
	// From this seed on, at most 400 schedules notice each removal, in some seconds. From
	// others, `dependents` takes thousands, and more than a minute on a busy machine.
	// All of them are nightly's; otherwise a third, another one each day.
	var only []string
	for i, g := range mutation.Guards() {
		if os.Getenv("ROUX_LONG") != "" || i%3 == time.Now().YearDay()%3 {
			only = append(only, g.Name)
		}
	}
	missed, err := run(t.Context(), &out, options{seconds: 120, seed: 1, only: strings.Join(only, ",")})
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	if missed > 0 {
		t.Errorf("the removal of %d guards was not noticed", missed)
	}
	want := len(only)
	if slices.Contains(only, fsyncGuard) {
		if _, err := exec.LookPath("strace"); err != nil {
			t.Log("without strace the real binary's syncs are not counted")
		} else {
			want++
		}
	}
	if got := strings.Count(out.String(), " caught "); got != want {
		t.Errorf("%d guards were caught, want %d", got, want)
	}
}

// TestChosen: guards are chosen by name; an unknown name is an error.
func TestChosen(t *testing.T) {
	some, err := chosen("fence,fsync")
	if err != nil || len(some) != 2 || some[0].Name != "fence" || some[1].Name != fsyncGuard {
		t.Errorf("got %v, %v", some, err)
	}
	if _, err := chosen("fences"); err == nil || !strings.Contains(err.Error(), "there are fence, duplicate") {
		t.Errorf("got %v", err)
	}
	if all, err := chosen(""); err != nil || len(all) != len(mutation.Guards()) {
		t.Errorf("got %d of %d guards, %v", len(all), len(mutation.Guards()), err)
	}
}
