// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"testing"
)

// TestDrawnCases: every number gives a recipe that compiles, and always the same one.
func TestDrawnCases(t *testing.T) {
	var wide, deep, windows, registered, circles int
	for i := range uint64(600) {
		a, err := Drawn{}.Case(i)
		if err != nil {
			t.Fatal(err)
		}
		if i < 50 {
			b, err := Drawn{}.Case(i)
			if err != nil || !bytes.Equal(a.Recipe, b.Recipe) || a.Plan.Hash() != b.Plan.Hash() || a.Parameters["file"] != b.Parameters["file"] {
				t.Fatalf("case %d is two recipes", i)
			}
		}
		if a.Plan.Graphs[0].N >= 80 {
			wide++
		}
		for g := range a.Plan.Graphs {
			if a.Plan.Graphs[g].Depth >= 10 {
				deep++
				break
			}
		}
		if len(a.Others) > 0 && len(a.Plan.Registered) > 0 {
			registered++
		}
		for _, p := range a.Others {
			for i := range p.Registered {
				if p.Registered[i].Name == "outer" {
					circles++ // it runs itself
				}
			}
		}
		if len(a.Files) > 0 && len(a.Files[0].Data) > 500 {
			windows++
		}
	}
	if wide == 0 || deep == 0 || windows == 0 || registered == 0 || circles == 0 {
		t.Errorf("%d wide and %d deep recipes, %d files of several windows, %d that run registered recipes, %d that run themselves: the recipes cover too little",
			wide, deep, windows, registered, circles)
	}
}
