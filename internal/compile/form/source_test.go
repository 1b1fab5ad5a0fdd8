// SPDX-License-Identifier: Apache-2.0

package form

import "testing"

// TestAliasBelow: the aliases of a step are noted when a place in it is looked for, in the model or in the text, once,
// and not for other steps.
func TestAliasBelow(t *testing.T) {
	_, d := Read("a.yaml", []byte("nodes: [{handler: x}, {handler: y}, {handler: z}]"), Options{})
	s, noted := d.Source(), map[string]int{}
	s.Alias("/steps", "/nodes")
	for _, i := range []string{"/0", "/1", "/2"} {
		s.AliasBelow("/steps"+i, "/nodes"+i, func(s *Source) {
			noted[i]++
			s.Alias("/steps"+i+"/action/name", "/nodes"+i+"/handler")
			s.Alias("/steps"+i, "/nodes"+i)
		})
	}
	for range 2 {
		if at := s.Pos("/steps/1/action/name"); at.Line != 1 || at.Col != 33 {
			t.Errorf("the name is at %v", at)
		}
		if at := s.ModelPointer("/nodes/2/handler"); at != "/steps/2/action/name" {
			t.Errorf("the model has the text at %s", at)
		}
	}
	if at := s.Pointer("/steps"); at != "/nodes" {
		t.Errorf("the steps are at %s", at)
	}
	if noted["/0"] != 0 || noted["/1"] != 1 || noted["/2"] != 1 {
		t.Errorf("noted %v", noted)
	}
}
