// SPDX-License-Identifier: Apache-2.0

package sabotage

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryGuardHasItsTag: each guard is a constant in two files, false without
// its tag and true with it, and stands in the list under that tag.
func TestEveryGuardHasItsTag(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`(?s)^// SPDX-License-Identifier: Apache-2.0\n\n//go:build (!?)(sabotage_[a-z]+)\n.*\nconst ([A-Z]\w+) = (true|false)\n$`)
	found := map[string][]string{}
	for _, e := range entries {
		name, isPair := strings.CutSuffix(e.Name(), "_on.go")
		if !isPair {
			if name, isPair = strings.CutSuffix(e.Name(), "_off.go"); !isPair {
				continue
			}
		}
		text, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		m := form.FindStringSubmatch(string(text))
		if m == nil || m[2] != "sabotage_"+name || (m[1] == "!") != (m[4] == "false") {
			t.Errorf("%s is not of the form of the others: %q", e.Name(), m)
			continue
		}
		found[m[2]] = append(found[m[2]], m[3]+" "+m[4])
	}
	var listed []string
	for _, g := range Guards() {
		listed = append(listed, g.Tag)
		if len(found[g.Tag]) != 2 {
			t.Errorf("the guard %s has the files %v, want two", g.Tag, found[g.Tag])
		}
		if g.Keeps == "" {
			t.Errorf("nothing says what %s keeps", g.Tag)
		}
	}
	for tag := range found {
		if !slices.Contains(listed, tag) {
			t.Errorf("%s has files and is not in the list", tag)
		}
	}
}

// TestNoGuardIsRemoved: a build that asks for nothing has them all.
func TestNoGuardIsRemoved(t *testing.T) {
	if got := Removed(); len(got) != 0 {
		t.Errorf("this build is without %v", got)
	}
}
