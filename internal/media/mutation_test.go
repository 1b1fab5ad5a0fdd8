// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/internal/media/pdftest"
)

// F19, I16: damaged copies of real files and of our own end in text or in a
// typed error, none hangs, and the next file is read.
//
// A fifth of the 120 copies always runs, all of them with ROUX_LONG=1.
func TestI16_F19_Mutations(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	if runAlone(t) {
		return
	}
	defer goleak.VerifyNone(t)
	sources := ownPDFs(t)
	dir, facts := sharedFacts(t)
	for name := range facts {
		if strings.HasPrefix(name, "pdf/") {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = data
		}
	}
	names := slices.Sorted(maps.Keys(sources))
	const all = 120
	step := 5
	if os.Getenv("ROUX_LONG") != "" {
		step = 1
	}
	r := New(Config{})
	var memory int64
	var slowest time.Duration // CPU time of a child
	r.childEnded = func(s *os.ProcessState) {
		memory, slowest = max(memory, peakMemory(s)), max(slowest, s.UserTime()+s.SystemTime())
	}
	outcomes := map[string]int{}
	for i := 0; i < all; i += step {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		m, name := pdftest.Mutations[i%len(pdftest.Mutations)], names[i%len(names)]
		data := m.Do(rng, bytes.Clone(sources[name]))
		doc, err := r.Text(context.Background(), bytes.NewReader(data), TextOptions{})
		switch {
		case err == nil && doc.PageCount > 0 && len(doc.Pages) == doc.PageCount:
			outcomes["read"]++
		case isFileFault(err):
			outcomes[string(codeOfError(err))]++
		default:
			t.Errorf("copy %d, %s with %s: %d pages, %v", i, name, m.Name, doc.PageCount, err)
		}
	}
	t.Logf("%d copies: %v, slowest %v, at most %d MiB", (all+step-1)/step, outcomes, slowest.Round(time.Millisecond), memory>>20)
	if outcomes["read"]*3 < all/step {
		t.Errorf("less than a third of the copies was read: %v", outcomes)
	}
	if slowest > 2*maxChildTime || memory > maxChildMemory && !raceEnabled {
		t.Errorf("slowest %v, most memory %d MiB", slowest, memory>>20)
	}
	if doc, err := r.Text(context.Background(), bytes.NewReader(report(t)), TextOptions{}); err != nil || doc.PageCount != 4 {
		t.Errorf("the next file: %d pages, %v", doc.PageCount, err)
	}
}
