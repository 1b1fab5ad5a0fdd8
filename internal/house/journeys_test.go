// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestJourneys: docs/architecture.md lists the files to read to follow something through
// Roux. Each file exists, and no journey is too long for a newcomer.
func TestJourneys(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Four journeys\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	most := []int{15, 14, 12, 14}
	item, file := regexp.MustCompile("^[0-9]+\\. `"), regexp.MustCompile("`([^`]+\\.(?:go|sql))`")
	var lengths []int
	for line := range strings.Lines(section) {
		if !item.MatchString(line) {
			continue
		}
		if strings.HasPrefix(line, "1. ") {
			lengths = append(lengths, 0)
		}
		for _, m := range file.FindAllStringSubmatch(line, -1) {
			lengths[len(lengths)-1]++
			if _, err := os.Stat(filepath.Join(root, "internal", m[1])); err != nil {
				t.Errorf("a journey leads through a file that is not there: %v", err)
			}
		}
	}
	if len(lengths) != len(most) {
		t.Fatalf("%d journeys, want %d", len(lengths), len(most))
	}
	for i, n := range lengths {
		if n == 0 || n > most[i] {
			t.Errorf("journey %d leads through %d files, want at most %d", i+1, n, most[i])
		}
	}
}
