// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/expressions"
)

// The definition of a step that a text extends is in its file, and so is that of an entry of extends (X242).
func TestX242_DefinitionInABase(t *testing.T) {
	dir := t.TempDir()
	base := "name: base\nsteps:\n  - {id: first, transform: {expression: '1'}}\n"
	if err := os.WriteFile(filepath.Join(dir, "base.yaml"), []byte(base), 0o600); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"extends: [ba^se.yaml]\nsteps:\n  - {id: last, transform: {expression: '2'}}\n":                                    "0:0",
		"extends: [base.yaml]\nsteps:\n  - {id: last, dependsOn: [fi^rst], transform: {expression: '2'}}\n":                "2:9",
		"extends: [base.yaml]\nsteps:\n  - {id: last, transform: {expression: steps.fir^st.output}}\n":                     "2:9",
		"extends: [base.yaml]\nsteps:\n  - {id: last, transform: {expression: '2'}}\n  - {id: x, dependsOn: [nothi^ng]}\n": "",
	} {
		text := "name: own\n" + at
		offset := strings.Index(text, "^")
		text = strings.Replace(text, "^", "", 1)
		file := filepath.Join(dir, "own.yaml")
		s := &server{cfg: config(dir), cache: expressions.NewLasting()}
		d := newDocument(uriOf(file, dir), file, 1, text, true)
		list, err := s.definition(d, &documentParams{Position: d.position(offset)})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, l := range list.([]location) {
			got += fmt.Sprintf("%d:%d", l.Range.Start.Line, l.Range.Start.Character)
			if l.URI != uriOf(filepath.Join(dir, "base.yaml"), dir) {
				t.Errorf("%q leads to %s", at, l.URI)
			}
		}
		if got != want {
			t.Errorf("%q leads to %q, want %q", at, got, want)
		}
	}
}
